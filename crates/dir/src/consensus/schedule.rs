//! When to fetch the next consensus.
//!
//! 1. Without a live consensus: now, and after each failure later and later.
//! 2. With one: at a random time in the first half of the interval after it is no longer fresh,
//!    less two minutes (or a sixteenth of the interval, in test networks) in which the
//!    authorities get ready (dir-spec, section 4.2).

use heddle_seam::rng::Rng;

use super::Consensus;

const READY_S: u64 = 120;
const RETRY_FIRST_S: u64 = 4;
const RETRY_MOST_S: u64 = 3600;
/// No fetch is planned for so much later.
const FARTHEST_S: u64 = 24 * 3600;

/// The time of the next fetch, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchSchedule {
    /// When to fetch.
    pub at_unix_s: u64,
    last_delay_s: u64,
}

impl FetchSchedule {
    /// To fetch at once.
    pub fn new(now_unix_s: u64) -> Self {
        FetchSchedule { at_unix_s: now_unix_s, last_delay_s: 0 }
    }

    /// There is `consensus`; the next is due after it.
    pub fn on_consensus(&mut self, consensus: &Consensus, now_unix_s: u64, rng: &mut Rng) {
        self.last_delay_s = 0;
        if !consensus.is_live(now_unix_s) {
            self.at_unix_s = now_unix_s;
            return;
        }
        let interval_s = consensus.fresh_until_unix_s.saturating_sub(consensus.valid_after_unix_s);
        let ready_s = READY_S.min(interval_s / 16).max(1);
        let start = consensus.fresh_until_unix_s.saturating_add(ready_s);
        // In networks in a hurry half an interval may reach past the end.
        let span_s = (interval_s / 2).max(1);
        let latest = consensus.valid_until_unix_s.saturating_sub(span_s + 1);
        let at = start.min(latest).saturating_add(rng.below(span_s));
        self.at_unix_s = at.max(now_unix_s + 1);
    }

    /// The fetch failed, or brought nothing new. Each delay is drawn from the first to three
    /// times the one before, so that relays that failed together don't return together
    /// (dir-spec, section 5.4).
    pub fn on_failure(&mut self, now_unix_s: u64, rng: &mut Rng) {
        let most_s = (self.last_delay_s * 3).clamp(RETRY_FIRST_S, RETRY_MOST_S);
        let delay_s = RETRY_FIRST_S + rng.below(most_s - RETRY_FIRST_S + 1);
        self.last_delay_s = delay_s.min(RETRY_MOST_S);
        self.at_unix_s = now_unix_s + self.last_delay_s;
    }

    /// Whether the time has come. A clock that was set back far does not put it off.
    pub fn is_due(&self, now_unix_s: u64) -> bool {
        now_unix_s >= self.at_unix_s || self.at_unix_s - now_unix_s > FARTHEST_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    const NOW: u64 = 1_700_000_000;

    fn consensus(interval_s: u64) -> Consensus {
        Consensus {
            valid_after_unix_s: NOW,
            fresh_until_unix_s: NOW + interval_s,
            valid_until_unix_s: NOW + 3 * interval_s,
            ..Consensus::default()
        }
    }

    #[test]
    fn the_next_is_fetched_in_the_first_half_after_freshness() {
        let mut rng = Seed::from_number(1).rng();
        for interval_s in [2, 10, 300, 3600] {
            let consensus = consensus(interval_s);
            let ready_s = 120.min(interval_s / 16).max(1);
            let mut times = Vec::new();
            for _ in 0..200 {
                let mut schedule = FetchSchedule::new(NOW);
                schedule.on_consensus(&consensus, NOW + 1, &mut rng);
                times.push(schedule.at_unix_s - consensus.fresh_until_unix_s);
            }
            assert!(times.iter().all(|at| *at >= ready_s), "{interval_s}");
            assert!(times.iter().all(|at| *at < ready_s + (interval_s / 2).max(1)));
            assert!(interval_s < 10 || times.iter().any(|at| *at != times[0]));
        }
    }

    #[test]
    fn without_a_live_consensus_it_is_fetched_at_once_and_failures_wait_longer() {
        let mut rng = Seed::from_number(2).rng();
        let mut schedule = FetchSchedule::new(NOW);
        schedule.on_consensus(&consensus(10), NOW + 31, &mut rng);
        assert!(schedule.is_due(NOW + 31));
        schedule.on_consensus(&consensus(3600), NOW + 1, &mut rng);
        assert!(!schedule.is_due(NOW - 3600));
        assert!(schedule.is_due(NOW - 30 * 24 * 3600), "the clock was a month ahead");
        let mut most_s = RETRY_FIRST_S;
        for _ in 0..100 {
            schedule.on_failure(NOW, &mut rng);
            let delay_s = schedule.at_unix_s - NOW;
            assert!(!schedule.is_due(NOW));
            assert!((RETRY_FIRST_S..=most_s.max(2 * RETRY_FIRST_S)).contains(&delay_s));
            most_s = (delay_s * 3 + RETRY_FIRST_S).min(RETRY_MOST_S);
        }
    }
}
