//! Pacing: segments leave at a rate instead of in the bursts that acknowledgements arrive in.
//!
//! A leaky bucket of time. Each segment moves the time of the next one by its length over the rate. The rate is twice a
//! window in a round trip in slow start and 1.2 times after it, so that pacing never is what limits the window.
//!
//! A few segments may leave together. In slow start that are two, as Linux' always do: where receivers acknowledge
//! every second one, the second would otherwise hold up the acknowledgement of both; with longer bursts the first round
//! trips of each round would be short ones, and HyStart++ would not see a queue that grows. After slow start they are
//! more, but fewer than the initial window, which every path has to take at once anyway (RFC 9002, section 7.7, has
//! that bound). With windows of about as many, held back segments would delay acknowledgements that the window waits
//! for; that costs Reno 2 to 5 % of its goodput where 2 % are lost.

use crate::time::{Instant, MS, S};

/// The time that a burst may take at the pacing rate, so that a driver's timer may be this coarse.
const BURST_NS: u64 = MS;
/// How many segments may leave together while the window doubles, or where many flows share it.
pub(crate) const BURST_SEGMENTS_MIN: u64 = 2;
/// And after slow start.
pub(crate) const BURST_SEGMENTS_MAX: u64 = 8;

/// The pacing of one connection.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    /// Bytes per second; `None` sends at once.
    rate: Option<u64>,
    /// When what was sent so far has left at the rate.
    next: Instant,
    /// How long the last segment took of that. All but one of a burst may leave so much sooner.
    segment_ns: u64,
    burst_segments: u64,
    /// A burst may take so long at the rate, and then as long a pause follows; see [`Pacer::in_quanta`].
    quantum_ns: u64,
}

impl Pacer {
    /// A pacer that lets a millisecond's worth leave together. Where that is many segments, they are made and sent at
    /// one go instead of one by one; on slow wires it is less than one.
    pub fn in_quanta() -> Self {
        Pacer { quantum_ns: BURST_NS, ..Pacer::default() }
    }

    /// Sets the rate from a window in bytes and a round trip, and how many segments may leave together. `percent` is
    /// the gain.
    pub fn set_rate(&mut self, window: u64, round_trip_ns: u64, percent: u64, burst_segments: u64) {
        self.burst_segments = burst_segments;
        let per_s = u128::from(window) * u128::from(percent) * u128::from(S);
        self.rate = u64::try_from(per_s / (100 * u128::from(round_trip_ns.max(1)))).ok();
    }

    /// The rate in bytes per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// When the next segment may leave, if not now.
    pub fn blocked_until(&self, now: Instant) -> Option<Instant> {
        let segments_ns = self.burst_segments.saturating_sub(1) * self.segment_ns;
        let earlier = |ns| Instant::from_nanos(self.next.as_nanos().saturating_sub(ns));
        self.rate?;
        if earlier(segments_ns.max(self.quantum_ns)) <= now {
            return None;
        }
        // Whoever has used a quantum up waits until half of it is there again.
        Some(earlier(segments_ns.max(self.quantum_ns / 2))).filter(|next| *next > now)
    }

    /// Counts a segment that leaves now.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let takes_ns = u128::from(bytes) * u128::from(S) / u128::from(rate.max(1));
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(BURST_NS));
        self.segment_ns = u64::try_from(takes_ns).unwrap_or(S).min(S);
        self.next = self.next.max(earliest).plus_ns(self.segment_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_bursts_are_short() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.blocked_until(Instant::ZERO), None);
        // 100 kB in 100 ms and a gain of 1.2: 1.2 MB/s.
        pacer.set_rate(100_000, 100 * MS, 120, BURST_SEGMENTS_MAX);
        let (mut now, mut sent) = (Instant::from_nanos(S), 0);
        let begun = now;
        // 1200 segments and the waits between them; more turns would mean that it holds back never or for ever.
        for _ in 0..10_000 {
            if now.ns_since(begun) >= S {
                break;
            }
            match pacer.blocked_until(now) {
                Some(next) => now = next,
                None => {
                    pacer.on_sent(now, 1000);
                    sent += 1000;
                }
            }
        }
        assert!((1_200_000..=1_210_000).contains(&sent), "{sent}");
        now = now.plus_ns(10 * S);
        let burst = (0..1000).take_while(|_| {
            let free = pacer.blocked_until(now).is_none();
            pacer.on_sent(now, 1000);
            free
        });
        // Eight, and what a millisecond holds.
        assert!((8..=10).contains(&burst.count()));
        pacer.set_rate(100_000, 100 * MS, 200, BURST_SEGMENTS_MIN);
        now = now.plus_ns(10 * S);
        let burst = (0..1000).take_while(|_| {
            let free = pacer.blocked_until(now).is_none();
            pacer.on_sent(now, 1000);
            free
        });
        // The rate is 2 MB/s, so a millisecond holds two.
        assert!((2..=4).contains(&burst.count()));
    }

    #[test]
    fn a_fast_sender_sends_quanta_and_a_slow_one_segments() {
        // Bytes a second, and segments of 1000 that leave at a time once the first burst has gone.
        for (rate, together) in [(100_000_000, 50), (1_000_000, 1)] {
            let mut pacer = Pacer::in_quanta();
            pacer.set_rate(rate / 10, 100 * MS, 100, BURST_SEGMENTS_MIN);
            let (mut now, mut turns, mut sent) = (Instant::from_nanos(S), Vec::new(), 0_u64);
            let begun = now;
            while turns.len() < 1000 && now.ns_since(begun) < S / 10 {
                let mut count = 0;
                while count < 1000 && pacer.blocked_until(now).is_none() {
                    pacer.on_sent(now, 1000);
                    count += 1;
                }
                turns.push(count);
                sent += 1000 * count;
                now = pacer.blocked_until(now).expect("it has just said so");
            }
            let (least, most) = (together.max(2) / 2, together + 2);
            assert!(turns[2..].iter().all(|count| (least..=most).contains(count)), "{turns:?}");
            assert!((rate / 10..=rate / 10 + 200_000).contains(&sent), "{sent}");
        }
    }
}
