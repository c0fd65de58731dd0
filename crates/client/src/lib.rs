//! The client's end of circuits.
//!
//! [`OriginCircuit`] builds one circuit, hop by hop, and carries its streams. It knows no channel:
//! its owner moves the cells. [`OnionProxy`] owns many, a relay owns one while it finds out whether
//! it can be reached. [`SocksProxy`] is an onion proxy that programs can use: it chooses paths through
//! a [`Directory`] and speaks [`socks`].

mod circuit;
mod exchange;
mod path;
mod proxy;
pub mod socks;
mod socks_proxy;
#[cfg(test)]
mod tests;

pub use circuit::{Closed, Handshake, Hop, OriginCell, OriginCircuit, OriginError, OriginEvent};
pub use exchange::{Destination, Exchange, ExchangeState, ExchangeStatus};
pub use path::{Candidate, Directory, Guards, PathWanted, RelayName};
pub use proxy::{CircuitNumber, ExchangeNumber, OnionProxy, ProxyEvent};
pub use socks_proxy::{SocksEvent, SocksLanguage, SocksOptions, SocksProxy};
