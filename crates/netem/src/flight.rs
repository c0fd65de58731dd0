//! Packets on their way: a delay line.

use crate::transit::Transit;
use core::cmp::{Ordering, Reverse};
use heddle_seam::time::Instant;
use std::collections::{BinaryHeap, VecDeque};

/// A bounded delay line. Packets arrive in the order of their times, and at one time in the order they set out.
#[derive(Debug)]
pub(crate) struct Flight<P> {
    /// Packets that arrive no earlier than the one before them here: on most wires, all.
    in_order: VecDeque<Flying<P>>,
    /// Packets that overtake one of those.
    overtaking: BinaryHeap<Reverse<Flying<P>>>,
    set_out: u64,
    bytes: u64,
    packets_max: u64,
    bytes_max: u64,
}

impl<P> Flight<P> {
    pub(crate) fn new(packets_max: u64, bytes_max: u64) -> Self {
        let (in_order, overtaking) = (VecDeque::new(), BinaryHeap::new());
        Flight { in_order, overtaking, set_out: 0, bytes: 0, packets_max, bytes_max }
    }

    /// Lets a packet set out that arrives at `arrival`, or gives it back when there is no room for it.
    pub(crate) fn depart(&mut self, arrival: Instant, packet: Transit<P>) -> Result<(), Transit<P>> {
        if self.packets() >= self.packets_max || self.bytes + packet.len_bytes > self.bytes_max {
            return Err(packet);
        }
        self.bytes += packet.len_bytes;
        self.set_out += 1;
        let flying = Flying { arrival, number: self.set_out, packet };
        if self.in_order.back().is_none_or(|last| last.arrival <= arrival) {
            self.in_order.push_back(flying);
        } else {
            self.overtaking.push(Reverse(flying));
        }
        Ok(())
    }

    /// When the next packet arrives.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|flying| flying.arrival);
        let overtaking = self.overtaking.peek().map(|flying| flying.0.arrival);
        in_order.into_iter().chain(overtaking).min()
    }

    /// Takes the packet that arrives next.
    pub(crate) fn arrive(&mut self) -> Option<Transit<P>> {
        let overtakes = match (self.in_order.front(), self.overtaking.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        let flying = if overtakes { self.overtaking.pop()?.0 } else { self.in_order.pop_front()? };
        self.bytes -= flying.packet.len_bytes;
        Some(flying.packet)
    }

    pub(crate) fn packets(&self) -> u64 {
        (self.in_order.len() + self.overtaking.len()) as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A packet on its way, ordered by arrival and then by number.
#[derive(Debug)]
struct Flying<P> {
    arrival: Instant,
    number: u64,
    packet: Transit<P>,
}

impl<P> Flying<P> {
    fn key(&self) -> (Instant, u64) {
        (self.arrival, self.number)
    }
}

impl<P> PartialEq for Flying<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for Flying<P> {}

impl<P> PartialOrd for Flying<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Flying<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
