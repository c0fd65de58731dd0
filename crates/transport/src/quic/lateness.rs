//! How many of the packets that quinn-proto calls lost are only late.
//!
//! quinn-proto fixes its thresholds when a connection is made, and says nothing when a packet that it called lost
//! arrives after all: what it has given up it no longer knows, so the acknowledgement passes it by without a word to
//! anybody. But whoever is late by more than the threshold has company that is late by a little less. Of packets that
//! others overtook it is counted how many took a time in each of two spans below the threshold:
//!
//! ```text
//!   smoothed round trip        1/3        2/3         loss is declared
//!   ──┴─────────────────────────┴──────────┴───────────────┴─────────────▶ time until the acknowledgement
//!                                  nearly        late         too late
//! ```
//!
//! Delays beyond are taken to go on as these two do, in geometric progression: that is exact for exponential delays,
//! and for any whose tail is lighter it is a little too much. A queue keeps the order, so in one that grows nobody is
//! overtaken and every loss is believed.

use std::time::{Duration, Instant};

/// Counts are halved after so many packets, so they are of the last few thousand.
const PACKETS_MAX: f64 = 2000.0;

/// Where hardly fewer are late than nearly late, delays say nothing of those beyond.
const RATIO_MAX: f64 = 0.85;

/// Fewer late ones than this may be chance.
const LATE_MIN: f64 = 3.0;

/// No more than this share of what was called lost is taken for late: where the estimate says that all of it is, a
/// tenth is heeded still, so that a wire that reorders and drops cannot be filled without end.
const LATE_SHARE_MAX: f64 = 0.9;

/// The counts of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness {
    /// When the newest packet left that was acknowledged.
    newest_sent: Option<Instant>,
    packets: f64,
    nearly: f64,
    late: f64,
    /// Packets that were called lost.
    lost: f64,
    /// Of lost bytes, those that are believed and do not make a packet yet.
    rest_bytes: f64,
}

impl Lateness {
    /// A packet that left at `sent` was acknowledged, at these estimates of the round trip. `threshold` is the share of
    /// the larger one after which packets are called lost.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        smoothed: Duration,
        conservative: Duration,
        threshold: f32,
    ) {
        self.packets += 1.0;
        if self.packets > PACKETS_MAX {
            for count in [&mut self.packets, &mut self.nearly, &mut self.late, &mut self.lost] {
                *count /= 2.0;
            }
        }
        if self.newest_sent.is_none_or(|newest| newest <= sent) {
            self.newest_sent = Some(sent);
            return;
        }
        let beyond = now.saturating_duration_since(sent).saturating_sub(smoothed);
        let span = conservative.mul_f32(threshold).saturating_sub(smoothed) / 3;
        if beyond > 2 * span {
            self.late += 1.0;
        } else if beyond > span {
            self.nearly += 1.0;
        }
    }

    /// So many bytes in packets of `packet_bytes` were called lost. Returns those to be believed, in whole packets.
    pub(super) fn believed(&mut self, lost_bytes: u64, packet_bytes: u16) -> u64 {
        let packet_bytes = f64::from(packet_bytes.max(1));
        self.lost += lost_bytes as f64 / packet_bytes;
        self.rest_bytes += lost_bytes as f64 * (1.0 - self.late_share());
        let packets = (self.rest_bytes / packet_bytes + 0.5).floor();
        self.rest_bytes -= packets * packet_bytes;
        (packets * packet_bytes) as u64
    }

    /// Of so many bytes that were called lost, half at least, and what is not taken for late: what a circuit breaker
    /// counts must not be talked away.
    pub(super) fn surely_lost(&self, lost_bytes: u64) -> u64 {
        (lost_bytes as f64 * (1.0 - self.late_share()).max(0.5)) as u64
    }

    /// Which share of those that were called lost is only late.
    fn late_share(&self) -> f64 {
        if self.late < LATE_MIN || self.late > RATIO_MAX * self.nearly {
            return 0.0;
        }
        let too_late = self.late * self.late / (self.nearly - self.late);
        (too_late / self.lost).min(LATE_SHARE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::{Rng, Seed};

    const PACKET_BYTES: u16 = 1200;
    const RTT: Duration = Duration::from_millis(100);

    /// How many packets are called lost and how many of those are believed, where each is late by an exponential time
    /// and some get lost.
    fn play(mean_ms: f64, lost_share: f64, packets: u32) -> (f64, f64) {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let begin = Instant::now();
        let mut rng = Seed::from_number(7).rng();
        let unit = |rng: &mut Rng| (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let smoothed = RTT + Duration::from_secs_f64(mean_ms / 1000.0);
        let mut arrivals: Vec<(Duration, Duration)> = (0..packets)
            .map(|number| {
                let late_ms = -mean_ms * (1.0 - unit(&mut rng)).ln();
                let sent = number * Duration::from_millis(1);
                (sent + RTT + Duration::from_secs_f64(late_ms / 1000.0), sent)
            })
            .collect();
        arrivals.sort_unstable();
        let mut lateness = Lateness::default();
        let (mut lost, mut believed) = (0.0, 0);
        for (at, sent) in arrivals {
            let is_lost = unit(&mut rng) < lost_share;
            if is_lost || at - sent > smoothed.mul_f32(1.25) {
                lost += 1.0;
                believed += lateness.believed(PACKET_BYTES.into(), PACKET_BYTES);
            } else {
                lateness.on_ack(begin + at, begin + sent, smoothed, smoothed, 1.25);
            }
        }
        (lost / f64::from(packets), believed as f64 / f64::from(PACKET_BYTES) / f64::from(packets))
    }

    #[test]
    fn late_packets_are_forgiven() {
        for mean_ms in [7.0, 10.0, 20.0] {
            let (lost, believed) = play(mean_ms, 0.0, 20_000);
            assert!(believed < 0.25 * lost, "{mean_ms} ms: {lost} called lost, {believed} believed");
        }
    }

    #[test]
    fn lost_packets_are_believed_whatever_is_late_beside_them() {
        for mean_ms in [0.0, 5.0, 10.0] {
            let (lost, believed) = play(mean_ms, 0.02, 20_000);
            assert!(
                (0.01..0.03).contains(&believed),
                "{mean_ms} ms: {lost} called lost, {believed} believed"
            );
        }
    }

    #[test]
    fn some_losses_are_believed_however_many_packets_are_late() {
        let mut lateness = Lateness { nearly: 100.0, late: 80.0, ..Lateness::default() };
        let believed: u64 = (0..100).map(|_| lateness.believed(PACKET_BYTES.into(), PACKET_BYTES)).sum();
        assert_eq!(believed, 10 * u64::from(PACKET_BYTES));
        assert_eq!(lateness.surely_lost(1000), 500);
        assert_eq!(Lateness::default().surely_lost(1000), 1000);
    }

    #[test]
    fn round_trips_that_grow_in_order_excuse_nothing() {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let begin = Instant::now();
        let mut lateness = Lateness::default();
        for number in 0..1000 {
            let sent = begin + number * Duration::from_millis(1);
            let at = sent + RTT + number * Duration::from_micros(30);
            lateness.on_ack(at, sent, RTT, RTT, 1.25);
        }
        assert_eq!(lateness.believed(10 * 1200, PACKET_BYTES), 10 * 1200);
    }
}
