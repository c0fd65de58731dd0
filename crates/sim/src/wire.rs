//! Wires between hosts, and how long bytes take over them.

use heddle_proto::rng::Rng;
use heddle_proto::time::{Duration, Instant};

/// Bytes of one segment.
pub(crate) const SEGMENT_BYTES: usize = 1448;
/// What a segment takes on the wire beside its bytes: Ethernet, IP and TCP headers.
const SEGMENT_OVERHEAD_BYTES: u64 = 78;
/// The least time after which a lost segment is sent again.
const RETRANSMIT_MIN: Duration = Duration::from_millis(200);
/// Losses of one segment in a row, after which it gets through in any case.
const LOSSES_MAX: u32 = 8;

/// The path between two hosts, the same in both directions.
///
/// The model: bytes are cut into segments of 1448 bytes. Segments of all connections between the
/// two hosts queue for the rate, then take latency and jitter. They arrive in order within their
/// connection: a lost one is sent again after the larger of 200 ms and twice the round-trip time,
/// each further time after twice as long, and whatever was sent behind it waits (head-of-line
/// blocking). There is no congestion control; what a connection has in flight is bounded by
/// `window_bytes` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// One way.
    pub latency: Duration,
    /// At most this much is added to the latency of each segment.
    pub jitter: Duration,
    /// In each direction, headers included; `None` is without limit.
    pub rate_bytes_per_s: Option<u64>,
    /// Lost segments in a million.
    pub loss_ppm: u32,
    /// Bytes of one connection and direction that were sent and not yet read by the other side,
    /// as far as the sender has heard.
    pub window_bytes: usize,
}

impl Default for Wire {
    /// Ten milliseconds each way, and nothing goes wrong.
    fn default() -> Self {
        Wire {
            latency: Duration::from_millis(10),
            jitter: Duration::ZERO,
            rate_bytes_per_s: None,
            loss_ppm: 0,
            window_bytes: 256 * 1024,
        }
    }
}

impl Wire {
    /// Both ways.
    pub fn rtt(&self) -> Duration {
        2 * self.latency
    }

    /// When a segment that is handed over now arrives. `busy_until` is this direction's.
    pub(crate) fn arrival(
        &self,
        now: Instant,
        bytes: usize,
        busy_until: &mut Instant,
        rng: &mut Rng,
    ) -> Instant {
        let start = now.max(*busy_until);
        *busy_until = start + self.sending_time(bytes);
        let jitter_ns = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let mut arrival = *busy_until + self.latency + Duration::from_nanos(rng.below(jitter_ns));
        let mut timeout = RETRANSMIT_MIN.max(2 * self.rtt());
        for _ in 0..LOSSES_MAX {
            if rng.below(1_000_000) >= u64::from(self.loss_ppm) {
                break;
            }
            arrival += timeout;
            timeout *= 2;
        }
        arrival
    }

    fn sending_time(&self, bytes: usize) -> Duration {
        let Some(rate) = self.rate_bytes_per_s else { return Duration::ZERO };
        let bits = u128::from(bytes as u64 + SEGMENT_OVERHEAD_BYTES) * 1_000_000_000;
        Duration::from_nanos(u64::try_from(bits / u128::from(rate.max(1))).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::rng::Seed;

    #[test]
    fn segments_queue_for_the_rate() {
        let wire = Wire { rate_bytes_per_s: Some(1_000_000), ..Wire::default() };
        let (mut busy, mut rng) = (Instant::ZERO, Seed::from_number(1).rng());
        let mut arrive = || wire.arrival(Instant::ZERO, 1_000 - 78, &mut busy, &mut rng);
        assert_eq!(arrive(), Instant::from_nanos(11_000_000));
        assert_eq!(arrive(), Instant::from_nanos(12_000_000));
    }

    #[test]
    fn losses_are_as_frequent_as_was_asked_and_cost_time() {
        let wire = Wire { loss_ppm: 100_000, ..Wire::default() };
        let mut rng = Seed::from_number(2).rng();
        let late = (0..10_000).filter(|_| {
            let arrival = wire.arrival(Instant::ZERO, 1, &mut Instant::ZERO.clone(), &mut rng);
            arrival >= Instant::ZERO + Duration::from_millis(210)
        });
        assert!((900..1100).contains(&late.count()));
    }
}
