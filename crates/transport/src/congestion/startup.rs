//! Startup: the window doubles with each round trip until a queue shows, or a loss.

use super::bundle::BETA;
use super::{Mode, PACKETS_MIN, QUEUE_TARGET, Shared};
use heddle_seam::time::{Duration, Instant};

/// In so many packets in a row a queue has to show.
const SAMPLES: u32 = 8;

/// Whoever has a queue before it says every two milliseconds when it sends: eight times in less than this.
const STAMPS_FEW_FOR: Duration = Duration::from_millis(100);

/// The latest packets' round trips.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    since: Instant,
    shortest: Duration,
    /// How many packets they are, and of how many it is known what their acknowledgements waited.
    packets: u32,
    known: u32,
}

impl Shared {
    /// Doubles the window in a round trip, until a queue shows in some packets in a row (HyStart, RFC 9406, waits for
    /// the next round trip, in which a paced sender has doubled twice). Then the window is what the path holds without
    /// it.
    pub(super) fn start_up(&mut self, now: Instant, sample: Duration, acked_bytes: u64) {
        let base = self.base.get().unwrap_or(sample).min(sample);
        let shortest = self.shortest_of_latest(now, sample);
        if let Some(shortest) = shortest.filter(|rtt| *rtt > base + QUEUE_TARGET.max(base / 8)) {
            self.mode = Mode::Delay;
            self.queues.packets_before = 0.0;
            self.packets = (self.packets * base.as_secs_f64() / shortest.as_secs_f64()).max(PACKETS_MIN);
        } else if self.is_used() {
            self.packets += acked_bytes as f64 / self.packet_bytes;
        }
    }

    /// The shortest of the latest round trips, whenever there are enough of them: eight of which it is known what their
    /// acknowledgements waited. Where stamps are so few that this takes [longer](STAMPS_FEW_FOR), the peer makes no
    /// queue on the way back, and all count.
    fn shortest_of_latest(&mut self, now: Instant, sample: Duration) -> Option<Duration> {
        let latest = self.latest.get_or_insert(Latest { since: now, shortest: sample, packets: 0, known: 0 });
        latest.shortest = latest.shortest.min(sample);
        latest.packets += 1;
        latest.known += u32::from(self.ack_wait.is_known);
        let Latest { since, shortest, packets, known } = *latest;
        let are_few = packets >= SAMPLES && now.since(since) >= shortest + STAMPS_FEW_FOR;
        if known < SAMPLES && !are_few {
            return None;
        }
        self.latest = None;
        Some(shortest)
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

#[cfg(test)]
mod tests {
    use super::super::{AckWait, Ceiling};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What a connection does that uses a part of its window, of which packets take 100 ms for a second and then twice
    /// as long. Of `known` it is known what their acknowledgements waited.
    fn mode_after(seconds: u64, known: impl Fn(u32) -> bool) -> Mode {
        let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
        shared.packets = 100.0;
        let packets = (seconds * 100) as u32;
        for packet in 0..packets {
            let sent = Instant::ZERO + 10 * packet * MS;
            let rtt = if packet < 100 { 100 * MS } else { 200 * MS };
            shared.on_sent(sent, 1000);
            shared.set_ack_wait(AckWait { waited: Duration::ZERO, is_known: known(packet) });
            shared.on_acked(sent + rtt, sent, 1000);
        }
        shared.mode
    }

    /// Seen in experiment 11: five stamped packets came at first, and no more with acknowledgements in them.
    #[test]
    fn a_queue_ends_it_however_few_packets_are_stamped() {
        assert!(matches!(mode_after(3, |_| true), Mode::Delay));
        assert!(matches!(mode_after(3, |packet| packet < 5), Mode::Delay));
        assert!(matches!(mode_after(3, |packet| packet % 40 == 0), Mode::Delay));
        assert!(matches!(mode_after(1, |packet| packet < 5), Mode::Startup));
    }

    /// What a peer's own queue adds is in packets whose acknowledgements are not known to have waited; those that are
    /// stamped tell that there is none.
    #[test]
    fn a_queue_on_the_way_back_does_not() {
        let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
        for packet in 0..1000 {
            let sent = Instant::ZERO + packet * MS;
            let is_known = packet % 2 == 0;
            let rtt = if is_known || packet < 9 { 50 * MS } else { 150 * MS };
            shared.on_sent(sent, 1000);
            shared.set_ack_wait(AckWait { waited: Duration::ZERO, is_known });
            shared.on_acked(sent + rtt, sent, 1000);
        }
        assert!(shared.is_starting());
    }
}
