//! How much is lost: the share of late, and whether it is more than we bear.

use heddle_proto::time::{Duration, Instant};

/// Losses of this share of packets are congestion, whatever the queue; fewer are so by the square of their share. BBRv3 has a
/// threshold of 0.02 instead.
pub(super) const LOSS_SHARE: f64 = 0.025;

/// For how long, and over how many packets each, more than [`LOSS_SHARE`] must be lost twice in a row.
const LOSSY_FOR: Duration = Duration::from_secs(1);
const LOSSY_PACKETS_MIN: f64 = 100.0;

/// Packets that left and that were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: f64,
    lost: f64,
}

/// One connection's losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    /// Those of late.
    recent: Counts,
    /// Those of an interval, which is looked at every [`LOSSY_FOR`].
    interval: Counts,
    since: Instant,
    /// Whether they were too many the time before.
    was_too_much: bool,
}

impl Losses {
    pub(super) fn new(now: Instant) -> Self {
        let (recent, interval) = (Counts::default(), Counts::default());
        Losses { recent, interval, since: now, was_too_much: false }
    }

    pub(super) fn on_sent(&mut self, packets: f64) {
        self.recent.packets += packets;
        self.interval.packets += packets;
    }

    pub(super) fn on_lost(&mut self, packets: f64) {
        self.recent.lost += packets;
        self.interval.lost += packets;
    }

    /// Forgets half of what is older than some hundred packets.
    pub(super) fn decay(&mut self) {
        if self.recent.packets > 1000.0 {
            self.recent.packets /= 2.0;
            self.recent.lost /= 2.0;
        }
    }

    /// Which share of packets was lost lately.
    pub(super) fn share(&self) -> f64 {
        self.recent.lost / self.recent.packets.max(200.0)
    }

    /// Whether too many are lost now, and were before.
    pub(super) fn are_too_many(&mut self, now: Instant) -> bool {
        if now.since(self.since) < LOSSY_FOR || self.interval.packets < LOSSY_PACKETS_MIN {
            return false;
        }
        let are = self.interval.lost > LOSS_SHARE * self.interval.packets;
        let were = core::mem::replace(&mut self.was_too_much, are);
        (self.since, self.interval) = (now, Counts::default());
        are && were
    }
}
