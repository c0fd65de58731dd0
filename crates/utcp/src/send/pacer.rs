//! Pacing: segments leave at a rate instead of in the bursts that acknowledgements arrive in.
//!
//! A leaky bucket of time. Each segment moves the time of the next one by its length over the rate; a sender that was
//! idle may catch up by a burst, never more. The rate is twice a window in a round trip in slow start and 1.2 times
//! after it, so that pacing never is what limits the window. Two segments may leave together, as Linux' always do: where
//! receivers acknowledge every second one, the second would otherwise hold up the acknowledgement of both, which costs
//! a tenth of the goodput of windows of ten segments.

use crate::time::{Instant, MS, S};

/// The time that a burst may take at the pacing rate, so that a driver's timer may be this coarse.
const BURST_NS: u64 = MS;

/// The pacing of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes per second; `None` sends at once.
    rate: Option<u64>,
    /// When what was sent so far has left at the rate.
    next: Instant,
    /// How long the last segment took of that: so much sooner the next one may leave.
    ahead_ns: u64,
}

impl Pacer {
    /// Sets the rate from a window in bytes and a round trip. `percent` is the gain.
    pub(crate) fn set_rate(&mut self, window: u64, round_trip_ns: u64, percent: u64) {
        let per_s = u128::from(window) * u128::from(percent) * u128::from(S);
        self.rate = u64::try_from(per_s / (100 * u128::from(round_trip_ns.max(1)))).ok();
    }

    /// The rate in bytes per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// When the next segment may leave, if not now.
    pub(crate) fn blocked_until(&self, now: Instant) -> Option<Instant> {
        let next = Instant::from_nanos(self.next.as_nanos().saturating_sub(self.ahead_ns));
        self.rate.and(Some(next)).filter(|next| *next > now)
    }

    /// Counts a segment that leaves now.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let takes_ns = u128::from(bytes) * u128::from(S) / u128::from(rate.max(1));
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(BURST_NS));
        self.ahead_ns = u64::try_from(takes_ns).unwrap_or(S).min(S);
        self.next = self.next.max(earliest).plus_ns(self.ahead_ns);
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
        pacer.set_rate(100_000, 100 * MS, 120);
        let (mut now, mut sent) = (Instant::from_nanos(S), 0);
        let begun = now;
        while now.ns_since(begun) < S {
            match pacer.blocked_until(now) {
                Some(next) => now = next,
                None => {
                    pacer.on_sent(now, 1000);
                    sent += 1000;
                }
            }
        }
        assert!((1_200_000..=1_204_000).contains(&sent), "{sent}");
        now = now.plus_ns(10 * S);
        let burst = (0..).take_while(|_| {
            let free = pacer.blocked_until(now).is_none();
            pacer.on_sent(now, 1000);
            free
        });
        assert!(burst.count() <= 4);
    }
}
