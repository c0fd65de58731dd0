//! Packets that left and that were lost, and intervals in a row in which those were too many.

use heddle_seam::time::{Duration, Instant};

/// Packets that left, and losses among them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: f64,
    pub(super) lost: f64,
}

impl Counts {
    /// Leaves this share of what was counted.
    pub(super) fn age(&mut self, share: f64) {
        self.packets *= share;
        self.lost *= share;
    }
}

/// What is too much, and over what it is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) interval: Duration,
    /// An interval goes on until so many packets have left.
    pub(super) packets_min: f64,
    pub(super) share_max: f64,
}

/// Intervals in a row in which a larger share than a [`Limit`] has was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    limit: Limit,
    since: Instant,
    pub(super) counts: Counts,
    length: u32,
}

impl Streak {
    pub(super) fn new(now: Instant, limit: Limit) -> Self {
        Streak { limit, since: now, counts: Counts::default(), length: 0 }
    }

    /// How many there were up to now, if one is over.
    pub(super) fn ended(&mut self, now: Instant) -> Option<u32> {
        let Limit { interval, packets_min, share_max } = self.limit;
        if now.since(self.since) < interval || self.counts.packets < packets_min {
            return None;
        }
        let is_bad = self.counts.lost > share_max * self.counts.packets;
        self.length = if is_bad { self.length + 1 } else { 0 };
        (self.since, self.counts) = (now, Counts::default());
        Some(self.length)
    }
}
