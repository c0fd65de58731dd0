//! The client's end of circuits.
//!
//! [`OriginCircuit`] builds one circuit, hop by hop, and carries its streams. It knows no channel:
//! its owner moves the cells. [`OnionProxy`] owns many, a relay owns one while it finds out whether
//! it can be reached.

mod circuit;
mod exchange;
mod proxy;
#[cfg(test)]
mod tests;

pub use circuit::{Closed, Handshake, Hop, OriginCell, OriginCircuit, OriginError, OriginEvent};
pub use exchange::{Destination, Exchange, ExchangeState, ExchangeStatus};
pub use proxy::{CircuitNumber, ExchangeNumber, OnionProxy, ProxyEvent};
