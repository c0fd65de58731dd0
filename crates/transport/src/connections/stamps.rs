//! Stamps: the time at which a datagram leaves, from which the peer learns how long ours wait on their way to it. What
//! it does with that is in `congestion/way_back.rs`.
//!
//! A transport puts a stamp of four bytes into the very datagram whose acknowledgements waited, if it comes: QUIC in a
//! DATAGRAM frame (RFC 9221), tcp-dtls before the segments. Only where many cells wait does one leave, because only who
//! sends much makes a queue, and so that cells that travel alone keep their lengths.

use crate::connections::circuits::FLOW_CELL_LEN;
use heddle_seam::time::{Duration, Instant};

/// Bytes of a stamp.
pub(crate) const STAMP_LEN: usize = 4;

/// The least time between two stamps. What a packet between them waited is uncertain by no more than this, or on a slow
/// wire by the time of a packet.
const EVERY: Duration = Duration::from_millis(2);

/// Bytes that wait where packets are stamped: more than lengths are chosen for.
const WAITING_MIN: usize = 3 * FLOW_CELL_LEN;

/// When the stamps of one connection are due.
#[derive(Debug)]
pub(crate) struct Stamps {
    /// What times are said from: the machine's uptime is nobody's business.
    opened: Instant,
    stamped_at: Option<Instant>,
}

impl Stamps {
    pub(crate) fn new(now: Instant) -> Self {
        Stamps { opened: now, stamped_at: None }
    }

    /// Whether it is time for one, where so many bytes wait to be sent.
    pub(crate) fn is_due(&self, now: Instant, waiting_bytes: usize) -> bool {
        waiting_bytes >= WAITING_MIN && self.stamped_at.is_none_or(|at| now.since(at) >= EVERY)
    }

    /// The stamp of a datagram that leaves now: microseconds, modulo 2^32, so that it begins anew after 71 minutes.
    pub(crate) fn stamp(&mut self, now: Instant) -> [u8; STAMP_LEN] {
        self.stamped_at = Some(now);
        ((now.since(self.opened).as_nanos() / 1000) as u32).to_be_bytes()
    }
}
