//! Packets that wait: first in first out, within bounds.

use crate::stats::QueueStats;
use heddle_seam::time::Instant;
use std::collections::VecDeque;

/// A bounded queue with its statistics.
#[derive(Debug)]
pub(crate) struct Waiting<P> {
    packets: VecDeque<Waiter<P>>,
    packets_max: u64,
    bytes_max: u64,
    pub stats: QueueStats,
    /// The longest packet that ever joined or had no need to wait, with framing.
    pub packet_bytes_most: u64,
}

#[derive(Debug)]
struct Waiter<P> {
    packet: P,
    bytes: u64,
    since: Instant,
}

impl<P> Waiting<P> {
    pub(crate) fn new(packets_max: u64, bytes_max: u64) -> Self {
        let stats = QueueStats::default();
        Waiting { packets: VecDeque::new(), packets_max, bytes_max, stats, packet_bytes_most: 0 }
    }

    /// Lets a packet join, or gives it back when it does not fit.
    pub(crate) fn push(&mut self, now: Instant, packet: P, bytes: u64) -> Result<(), P> {
        if self.stats.packets >= self.packets_max || self.stats.bytes + bytes > self.bytes_max {
            return Err(packet);
        }
        self.stats.on_enter(now, bytes);
        self.note_length(bytes);
        self.packets.push_back(Waiter { packet, bytes, since: now });
        Ok(())
    }

    /// Knows of a packet that goes to the interface without waiting.
    pub(crate) fn note_length(&mut self, bytes: u64) {
        self.packet_bytes_most = self.packet_bytes_most.max(bytes);
    }

    /// The packet that waited longest, and for how many nanoseconds.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(P, u64)> {
        let waiter = self.packets.pop_front()?;
        self.stats.on_leave(now, waiter.bytes);
        Some((waiter.packet, now.ns_since(waiter.since)))
    }
}
