//! Transports whose circuits go through one DTLS 1.3 session of two relays: `tcp-dtls`, `sctp-dtls`, and those whose
//! circuits share connections.
//!
//! ```text
//!   endpoint ──▶ connection ──▶ session ──▶ engine (dimpl)      datagrams
//!                    └────────▶ tunnelled: TCP, or SCTP         packets in records, cells
//! ```
//!
//! - `endpoint.rs`: the sessions of a UDP port, and whose a datagram is; `connection.rs`: one session and what it
//!   carries, `tunnelled.rs`: what that has to be able to do; `options.rs`: what may be chosen of all this.
//! - `session.rs`: the session from its first datagram to its last. It proves who is there, asks for answers, finds
//!   how long datagrams may be, and says when the path is silent.
//! - `engine.rs`: DTLS itself; `key.rs`: what a side shows in the handshake, for which `proof.rs` of the transports
//!   vouches.
//! - `ids.rs`: the clear head of a datagram; `control.rs`: records of the session itself; `heads.rs`: stamps and counts
//!   of marks, which stand before a transport's own bytes.
//!
//! The bytes are in `docs/reference/tcp-dtls.md`.

pub(crate) mod connection;
pub(crate) mod control;
pub(crate) mod ecn;
pub(crate) mod endpoint;
pub(crate) mod engine;
pub(crate) mod heads;
pub(crate) mod ids;
pub(crate) mod key;
pub(crate) mod options;
mod reach;
pub(crate) mod session;
pub(crate) mod stamped;
pub(crate) mod tunnelled;

use ecn::TOLD_LEN;
use engine::RECORD_OVERHEAD;
use ids::ID_LEN;
use stamped::STAMPED_LEN;

/// The shortest datagram that every path is taken to carry (RFC 9000, section 14, says so of QUIC).
pub(crate) const DATAGRAM_BYTES_MIN: u16 = 1200;

/// Bytes that datagrams of such a length have for a transport's own.
pub(crate) fn room_bytes(datagram_bytes: u16) -> u16 {
    let taken = ID_LEN + RECORD_OVERHEAD + STAMPED_LEN + TOLD_LEN;
    u16::try_from(usize::from(datagram_bytes) - taken).unwrap_or(u16::MAX)
}
