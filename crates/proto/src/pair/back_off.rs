//! When to try again.

use heddle_seam::time::{Duration, Instant};

/// Tries in a row before waiting begins.
const TRIES: u32 = 3;

/// How many tries failed in a row, and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackOff {
    failed: u32,
    /// The wait after the third failure; it doubles with each further one.
    first: Duration,
    longest: Duration,
    not_before: Instant,
}

impl BackOff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        BackOff { failed: 0, first, longest, not_before: Instant::ZERO }
    }

    pub fn on_failure(&mut self, now: Instant) {
        self.failed = self.failed.saturating_add(1);
        let Some(doublings) = self.failed.checked_sub(TRIES) else { return };
        let wait = self.first.saturating_mul(1 << doublings.min(20)).min(self.longest);
        self.not_before = now + wait;
    }

    /// The failures of the past no longer count.
    pub fn forget(&mut self) {
        *self = BackOff::new(self.first, self.longest);
    }

    /// The earliest time of the next try.
    pub fn not_before(&self) -> Instant {
        self.not_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tries_then_doubling_up_to_the_longest() {
        let second = Duration::from_secs(1);
        let mut back_off = BackOff::new(120 * second, 3600 * second);
        let now = Instant::ZERO + 1000 * second;
        let mut waits = Vec::new();
        for _ in 0..40 {
            back_off.on_failure(now);
            waits.push(back_off.not_before().since(now).as_secs());
        }
        assert_eq!(waits[..9], [0, 0, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert!(waits[9..].iter().all(|wait| *wait == 3600));
        back_off.forget();
        assert_eq!(back_off.not_before(), Instant::ZERO);
    }
}
