//! How much is lost: the share of late, and whether it is more than we bear.

use super::counts::{Counts, Limit, Streak};
use heddle_seam::time::{Duration, Instant};

/// Losses of this share of packets are congestion, whatever the queue; fewer are so by the square of their share. BBRv3
/// has a threshold of 0.02 instead.
pub(super) const LOSS_SHARE: f64 = 0.025;

/// More than [`LOSS_SHARE`] must be lost so often in a row.
const TOO_MUCH: Limit = Limit { interval: Duration::from_secs(1), packets_min: 100.0, share_max: LOSS_SHARE };
const INTERVALS: u32 = 2;

/// One connection's losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    /// Those of late.
    recent: Counts,
    streak: Streak,
}

impl Losses {
    pub(super) fn new(now: Instant) -> Self {
        Losses { recent: Counts::default(), streak: Streak::new(now, TOO_MUCH) }
    }

    pub(super) fn on_sent(&mut self, packets: f64) {
        self.recent.packets += packets;
        self.streak.counts.packets += packets;
    }

    pub(super) fn on_lost(&mut self, packets: f64) {
        self.recent.lost += packets;
        self.streak.counts.lost += packets;
    }

    /// Forgets half of what is older than some hundred packets.
    pub(super) fn decay(&mut self) {
        if self.recent.packets > 1000.0 {
            self.recent.age(0.5);
        }
    }

    /// Which share of packets was lost lately.
    pub(super) fn share(&self) -> f64 {
        self.recent.lost / self.recent.packets.max(200.0)
    }

    /// Whether too many are lost now, and were before.
    pub(super) fn are_too_many(&mut self, now: Instant) -> bool {
        self.streak.ended(now).is_some_and(|intervals| intervals >= INTERVALS)
    }
}
