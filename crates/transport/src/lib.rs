//! Sans-IO channels between relays: bytes come in and go out as values, and so do cells.
//!
//! Over byte streams a transport is a module with a [`StreamTransport`](heddle_proto::channel::StreamTransport), for
//! which [`link`] is how two relays prove to each other who they are. Over datagrams it is a module with an
//! [`Endpoint`](heddle_proto::endpoint::Endpoint), and a line in the [registry].

#[cfg(test)]
mod attacked;
mod ciphers;
mod circuits;
mod clock;
mod congestion;
mod connections;
#[cfg(test)]
mod counting;
mod dtls;
pub mod fuzz;
pub mod fuzz_endpoint;
pub mod link;
mod padding;
mod path;
pub mod per_circuit;
mod pings;
mod proof;
pub mod quic;
pub mod registry;
pub mod sctp_dtls;
mod setup;
pub mod shared_tcp;
mod shared_window;
mod silence;
mod stamps;
mod state;
pub mod tcp_dtls;
pub mod tcp_esp;
mod timers;
pub mod tls;

pub use ciphers::Ciphers;
pub use padding::PaddingOptions;
