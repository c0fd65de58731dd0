//! Sans-IO channels between relays: bytes come in and go out as values, and so do cells.
//!
//! A transport is one module here and one type that implements
//! [`StreamTransport`](heddle_proto::channel::StreamTransport). [`link`] is what all of them agree
//! on: how two relays prove to each other who they are.

#[cfg(test)]
mod attacked;
mod circuits;
mod clock;
mod congestion;
#[cfg(test)]
mod counting;
pub mod dtls;
pub mod fuzz;
pub mod fuzz_endpoint;
pub mod link;
mod links;
mod padding;
pub mod per_circuit;
pub mod quic;
mod setup;
mod silence;
mod stamps;
mod state;
pub mod tls;

pub use padding::PaddingOptions;
