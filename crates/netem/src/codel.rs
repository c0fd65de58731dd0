//! CoDel, controlled delay (RFC 8289): drops at the head of a queue whose delay stays above a target.
//!
//! 1. Every packet that leaves is judged by how long it waited (section 5.5). Below the target, or with no more than one
//!    longest packet left behind it, all is well.
//! 2. Above the target for a whole interval, the packet may be dropped, and the queue enters the dropping state
//!    (section 5.6).
//! 3. In the dropping state the n-th drop follows the one before after interval / √n (section 5.4), until a packet waited
//!    less than the target.
//! 4. If the state is entered again soon, it goes on near the rate of drops that controlled the queue last.

use crate::options::CodelOptions;
use crate::stats::{DropReason, Drops};
use crate::time::Time;
use crate::waiting::Waiting;

/// The state of section 5.3, in its order and with its names where they say enough.
#[derive(Debug)]
pub(crate) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    /// When the delay will have been above the target for an interval.
    first_above: Option<Time>,
    /// When to drop next, in the dropping state and, as a memory, after it.
    drop_next: Time,
    /// Drops since the dropping state was entered.
    count: u64,
    /// `count` when it was last entered.
    last_count: u64,
    is_dropping: bool,
}

impl Codel {
    pub(crate) fn new(options: &CodelOptions) -> Self {
        Codel {
            target_ns: options.target_ns,
            interval_ns: options.interval_ns,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            is_dropping: false,
        }
    }

    /// The next packet to be put on the link, after the drops that are due, and for how many nanoseconds it waited.
    pub(crate) fn dequeue<P>(
        &mut self,
        now: Time,
        waiting: &mut Waiting<P>,
        drops: &mut Drops,
    ) -> Option<(P, u64)> {
        let (mut packet, mut may_drop) = self.judge(now, waiting);
        if self.is_dropping {
            self.is_dropping = may_drop;
            while self.is_dropping && now >= self.drop_next {
                drops.count(DropReason::Codel);
                self.count += 1;
                (packet, may_drop) = self.judge(now, waiting);
                if may_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.is_dropping = false;
                }
            }
        } else if may_drop {
            drops.count(DropReason::Codel);
            (packet, _) = self.judge(now, waiting);
            self.is_dropping = true;
            let in_last_cycle = self.count - self.last_count;
            let is_soon = now.ns_since(self.drop_next) < 16 * self.interval_ns;
            self.count = if in_last_cycle > 1 && is_soon { in_last_cycle } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        packet
    }

    /// Takes the next packet and says whether it may be dropped.
    fn judge<P>(&mut self, now: Time, waiting: &mut Waiting<P>) -> (Option<(P, u64)>, bool) {
        let Some((packet, sojourn_ns)) = waiting.pop(now) else {
            self.first_above = None;
            return (None, false);
        };
        if sojourn_ns < self.target_ns || waiting.stats.bytes <= waiting.packet_bytes_most {
            self.first_above = None;
            return (Some((packet, sojourn_ns)), false);
        }
        let first_above = *self.first_above.get_or_insert(now.plus_ns(self.interval_ns));
        (Some((packet, sojourn_ns)), now >= first_above)
    }

    /// The time of the next drop after one at `at`.
    fn control_law(&self, at: Time) -> Time {
        at.plus_ns((self.interval_ns as f64 / libm::sqrt(self.count as f64)) as u64)
    }
}
