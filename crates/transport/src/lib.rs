//! Sans-IO channels between relays: bytes come in and go out as values, and so do cells.
//!
//! Over byte streams a transport is a module with a [`StreamTransport`](heddle_proto::channel::StreamTransport), for
//! which [`link`] is how two relays prove to each other who they are. Over datagrams it is a module with an
//! [`Endpoint`](heddle_proto::endpoint::Endpoint), and a line in the [registry].
//!
//! | rooms | what is in them |
//! |---|---|
//! | [`tls`], [`link`], `padding` | channels: records, the handshake that follows TLS', cells that hide pauses |
//! | [`quic`], [`tcp_dtls`], [`tcp_esp`], [`sctp_dtls`], [`shared_tcp`], [`per_circuit`] | the transports over datagrams |
//! | `connections` | what all of these share: circuits and their turns, proofs, paths that die, what is held |
//! | `dtls` | the DTLS session of three of them |
//! | `congestion` | how fast a pair may send |

#[cfg(test)]
mod attacked;
mod ciphers;
mod congestion;
mod connections;
#[cfg(test)]
mod counting;
mod dtls;
pub mod fuzz;
pub mod fuzz_endpoint;
pub mod link;
mod padding;
pub mod per_circuit;
pub mod quic;
pub mod registry;
pub mod sctp_dtls;
pub mod shared_tcp;
mod shared_window;
pub mod tcp_dtls;
pub mod tcp_esp;
pub mod tls;

pub use ciphers::Ciphers;
pub use padding::PaddingOptions;
