//! How often something may happen: the generic cell rate algorithm (ITU-T I.371), which is a token bucket in one
//! instant.

use heddle_seam::time::{Duration, Instant};

const NS_PER_S: u64 = 1_000_000_000;

/// So often at once, and so often a second in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub per_s: u32,
    /// At least 1.
    pub burst: u32,
}

impl Rate {
    fn time_of(self, count: u32) -> Duration {
        let interval_ns = (NS_PER_S / u64::from(self.per_s.max(1))).max(1);
        Duration::from_nanos(interval_ns.saturating_mul(count.into()))
    }
}

/// What happened, against a [`Rate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When it will be as if nothing had happened.
    clear_at: Instant,
}

impl Pace {
    /// When it will be as if nothing had happened.
    pub fn clear_at(self) -> Instant {
        self.clear_at
    }

    /// Whether once more would be too often.
    fn is_used_up(self, now: Instant, rate: Rate) -> bool {
        self.clear_at.since(now) > rate.time_of(rate.burst.saturating_sub(1))
    }

    /// Notes once more, unless that is too often. Returns whether it was not.
    pub fn take(&mut self, now: Instant, rate: Rate) -> bool {
        let may = !self.is_used_up(now, rate);
        if may {
            self.clear_at = self.clear_at.max(now) + rate.time_of(1);
        }
        may
    }

    /// Forgets so many that were noted.
    pub fn give_back(&mut self, count: u32, rate: Rate) {
        self.clear_at = self.clear_at - rate.time_of(count);
    }

    /// Notes once more, too often or not. Returns whether yet once more would be too often.
    pub fn spend(&mut self, now: Instant, rate: Rate) -> bool {
        let full = now + rate.time_of(rate.burst);
        self.clear_at = (self.clear_at.max(now) + rate.time_of(1)).min(full);
        self.is_used_up(now, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_then_the_rate() {
        let rate = Rate { per_s: 3, burst: 90 };
        let mut pace = Pace::default();
        let taken = |pace: &mut Pace, now| (0..1000).filter(|_| pace.take(now, rate)).count();
        assert_eq!(taken(&mut pace, at(0)), 90);
        assert_eq!((1..=100).map(|ds| taken(&mut pace, at(ds * 100))).sum::<usize>(), 30);
        assert_eq!(taken(&mut pace, at(60_000)), 90);
    }

    #[test]
    fn what_is_given_back_may_happen_again_and_no_more_than_a_burst() {
        let rate = Rate { per_s: 1000, burst: 90 };
        let mut pace = Pace::default();
        let taken = |pace: &mut Pace, now| (0..1000).filter(|_| pace.take(now, rate)).count();
        assert_eq!(taken(&mut pace, at(500)), 90);
        pace.give_back(10, rate);
        assert_eq!(taken(&mut pace, at(500)), 10);
        pace.give_back(5_000, rate);
        assert_eq!(taken(&mut pace, at(500)), 90);
    }

    #[test]
    fn what_is_too_often_delays_what_follows_no_longer_than_a_burst() {
        let rate = Rate { per_s: 10, burst: 20 };
        let mut pace = Pace::default();
        let used_up: Vec<bool> = (0..40).map(|_| pace.spend(at(0), rate)).collect();
        assert_eq!(used_up.iter().position(|up| *up), Some(19), "the last of the burst");
        assert!(used_up[19..].iter().all(|up| *up));
        assert!(pace.spend(at(100), rate), "one came, and one went");
        assert!(!pace.spend(at(300), rate));
    }

    proptest! {
        /// Whatever the numbers of an operator or a consensus: no overflow, and never more than a burst at once.
        #[test]
        fn no_numbers_break_it(
            per_s in 0_u32..,
            burst in 0_u32..,
            steps_ns in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let (rate, mut pace, mut now) = (Rate { per_s, burst }, Pace::default(), Instant::ZERO);
            for step_ns in steps_ns {
                now += Duration::from_nanos(step_ns);
                let most = burst.max(1);
                let taken = (0..200).filter(|_| pace.take(now, rate)).count() as u64;
                prop_assert!(taken <= u64::from(most) || now == Instant::from_nanos(u64::MAX));
                pace.spend(now, rate);
            }
        }
    }
}
