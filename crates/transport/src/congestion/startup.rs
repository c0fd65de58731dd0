//! Startup: the window doubles with each round trip until a queue shows, or a loss.

use super::bundle::BETA;
use super::{Mode, PACKETS_MIN, QUEUE_TARGET, Shared};
use heddle_seam::time::Duration;

/// In so many packets in a row a queue has to show.
const SAMPLES: u32 = 8;

impl Shared {
    /// Doubles the window in a round trip, until a queue shows in some packets in a row (HyStart, RFC 9406, waits for
    /// the next round trip, in which a paced sender has doubled twice). Then the window is what the path holds without
    /// it.
    pub(super) fn start_up(&mut self, sample: Duration, acked_bytes: u64) {
        let base = self.base.get().unwrap_or(sample).min(sample);
        let (shortest, count) = self.latest.map_or((sample, 0), |(rtt, count)| (rtt.min(sample), count));
        let count = count + u32::from(self.ack_wait.is_known);
        self.latest = (count < SAMPLES).then_some((shortest, count));
        if count == SAMPLES && shortest > base + QUEUE_TARGET.max(base / 8) {
            self.mode = Mode::Delay;
            self.queues.packets_before = 0.0;
            self.packets = (self.packets * base.as_secs_f64() / shortest.as_secs_f64()).max(PACKETS_MIN);
        } else if self.is_used() {
            self.packets += acked_bytes as f64 / self.packet_bytes;
        }
    }

    /// Startup has sent up to twice what the path carries: what arrived lately in one of its round trips is the better
    /// guess.
    pub(super) fn end_startup(&mut self) {
        if matches!(self.mode, Mode::Startup) {
            self.mode = Mode::Delay;
            let delivered = self.base.get().map_or(0.0, |base| self.delivery.packets_in(base));
            self.packets = delivered.clamp(0.5 * self.packets, BETA * self.packets).max(PACKETS_MIN);
        }
    }
}
