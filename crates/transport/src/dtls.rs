//! A DTLS 1.3 session of two relays, for whatever transport sends its own bytes in records: `tcp-dtls` does.
//!
//! - `session.rs`: the session from its first datagram to its last. It proves who is there, asks for answers, finds
//!   how long datagrams may be, and says when the path is silent.
//! - `engine.rs`: DTLS itself; `key.rs`: what a side shows in the handshake, for which `proof.rs` of the transports
//!   vouches.
//! - `ids.rs`: the clear head of a datagram; `control.rs`: records of the session itself; `heads.rs`: stamps and counts
//!   of marks, which stand before a transport's own bytes.
//!
//! The bytes are in `docs/reference/tcp-dtls.md`.

pub(crate) mod control;
pub(crate) mod ecn;
pub(crate) mod engine;
pub(crate) mod heads;
pub(crate) mod ids;
pub(crate) mod key;
mod reach;
pub(crate) mod session;
pub(crate) mod stamped;

use crate::setup::Timeouts;
use core::time::Duration;
use ecn::TOLD_LEN;
use engine::RECORD_OVERHEAD;
use ids::ID_LEN;
use stamped::STAMPED_LEN;
use std::time::Instant;

/// The shortest datagram that every path is taken to carry (RFC 9000, section 14, says so of QUIC).
pub(crate) const DATAGRAM_BYTES_MIN: u16 = 1200;

/// What may be chosen about a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionOptions {
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for.
    pub(crate) anchor: Instant,
    /// The longest datagram, without headers of UDP and IP. Where a path does not carry it, shorter ones are tried.
    pub(crate) datagram_bytes_max: u16,
    /// How long the first flight of a handshake waits for its answer before it is sent again.
    pub(crate) initial_rto: Duration,
    /// DTLS itself tries as long as the longer one of dialler and listener; the session's deadline comes first.
    pub(crate) timeouts: Timeouts,
    /// Records under one key, after which DTLS changes it.
    pub(crate) key_records_max: u64,
}

/// Bytes that datagrams of such a length have for a transport's own.
pub(crate) fn room_bytes(datagram_bytes: u16) -> u16 {
    let taken = ID_LEN + RECORD_OVERHEAD + STAMPED_LEN + TOLD_LEN;
    u16::try_from(usize::from(datagram_bytes) - taken).unwrap_or(u16::MAX)
}
