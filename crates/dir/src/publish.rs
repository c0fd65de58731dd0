//! When to publish a descriptor, and to whom.
//!
//! A relay makes and uploads a descriptor when (dir-spec, section 2.1)
//!
//! 1. it has made none yet, which is also how a reset uptime shows, or 18 hours have passed;
//! 2. something in it other than bandwidth or uptime has changed;
//! 3. in its first day its bandwidth has changed by a factor of two, but no sooner than
//!    3 hours after the last time, or a minute when it said that there was none; in a network of tests always after
//!    a minute;
//! 4. a consensus does not list it, or calls its descriptor stale, but no sooner than 90
//!    minutes after the last time;
//! 5. no authority took the last one: then again after 5 seconds, 10, 20, to an hour.

use core::time::Duration;

use crate::authority::DirAuthority;
use crate::http::{HttpError, HttpResponse};
use crate::keys::DAY_S;

const REGULAR_S: u64 = 18 * 3600;
const BANDWIDTH_S: u64 = 3 * 3600;
const UNLISTED_S: u64 = 90 * 60;
/// Changes come in bursts (a reload changes several options); one descriptor tells them all.
const LEAST_S: u64 = 60;
const RETRY_FIRST_S: u64 = 5;
const RETRY_MOST_S: u64 = 3600;

/// Where descriptors are posted to (dir-spec, section 4.1).
pub const POST_PATH: &str = "/tor/";
/// How long an authority has to take a descriptor.
pub const POST_MAX: Duration = Duration::from_secs(60);
/// The longest body of its answer, in bytes.
pub const POST_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What decides whether to publish, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishView {
    /// The time, in seconds since 1970.
    pub now_unix_s: u64,
    /// For how long the relay has run.
    pub uptime_s: u64,
    /// The bandwidth that the next descriptor would call observed, in bytes per second.
    pub observed_bandwidth: u32,
    /// How a live consensus lists us; `None` without one.
    pub listing: Option<Listing>,
    /// Whether the network is one of tests, where another bandwidth is told at once.
    pub is_testing: bool,
}

/// How a consensus lists the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// With a descriptor that it finds good.
    Listed,
    /// With the flag `StaleDesc` ever since this `valid-after` of the consensus, in seconds since 1970.
    Stale { since_unix_s: u64 },
    /// Not at all.
    Unlisted,
}

/// Why a descriptor is to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishReason {
    /// None has been since the start.
    First,
    /// The last one is 18 hours old.
    Old,
    /// What it says has changed.
    Changed,
    /// The bandwidth has doubled or halved.
    Bandwidth,
    /// The consensus does not list us.
    Unlisted,
    /// The consensus calls our descriptor stale.
    Stale,
    /// No authority took the last one.
    Retry,
}

/// The state machine that says when to publish.
#[derive(Clone, Debug, Default)]
pub struct PublishSchedule {
    last: Option<Published>,
    changed: bool,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Published {
    at_unix_s: u64,
    observed_bandwidth: u32,
}

impl PublishSchedule {
    /// A schedule for a relay that has just started.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something in the descriptor other than bandwidth and uptime has changed.
    pub fn on_change(&mut self) {
        self.changed = true;
    }

    /// A descriptor was signed that tells of all changes until now; what changes while it is posted is for the next.
    pub fn on_signed(&mut self) {
        self.changed = false;
    }

    /// A descriptor was posted as of `view`; `accepted` tells whether any authority took it.
    pub fn on_published(&mut self, view: &PublishView, accepted: bool) {
        self.last =
            Some(Published { at_unix_s: view.now_unix_s, observed_bandwidth: view.observed_bandwidth });
        self.failures = if accepted { 0 } else { self.failures + 1 };
    }

    /// Whether to publish now, and why. To be asked every few seconds.
    pub fn poll(&self, view: &PublishView) -> Option<PublishReason> {
        let Some(last) = self.last else {
            return Some(PublishReason::First);
        };
        // A clock that was set back must not silence the relay until it has caught up.
        let Some(age_s) = view.now_unix_s.checked_sub(last.at_unix_s) else {
            return Some(PublishReason::Changed);
        };
        if self.failures > 0 {
            return (age_s >= self.retry_s()).then_some(PublishReason::Retry);
        }
        if age_s >= REGULAR_S {
            return Some(PublishReason::Old);
        }
        if self.changed && age_s >= LEAST_S {
            return Some(PublishReason::Changed);
        }
        // Authorities and clients shun a relay that says it carries nothing, as each does at its start.
        let at_once = last.observed_bandwidth == 0 || view.is_testing;
        let bandwidth_s = if at_once { LEAST_S } else { BANDWIDTH_S };
        let counts = view.uptime_s < DAY_S || view.is_testing;
        if age_s >= bandwidth_s && counts && last.bandwidth_changed(view) {
            return Some(PublishReason::Bandwidth);
        }
        match view.listing {
            Some(Listing::Unlisted) if age_s >= UNLISTED_S => Some(PublishReason::Unlisted),
            Some(Listing::Stale { since_unix_s }) if age_s >= UNLISTED_S && since_unix_s > last.at_unix_s => {
                Some(PublishReason::Stale)
            }
            _ => None,
        }
    }

    fn retry_s(&self) -> u64 {
        let doublings = (self.failures - 1).min(10);
        (RETRY_FIRST_S << doublings).min(RETRY_MOST_S)
    }
}

impl Published {
    fn bandwidth_changed(&self, view: &PublishView) -> bool {
        let (was, is) = (u64::from(self.observed_bandwidth), u64::from(view.observed_bandwidth));
        is > was * 2 || is < was / 2 || (is == 0) != (was == 0)
    }
}

/// What one authority made of a descriptor.
#[derive(Debug)]
pub enum PostOutcome {
    /// It took the descriptor, or has one that differs in nothing that matters.
    Accepted,
    /// It refused, and says why.
    Refused { status: u16, reason: String },
    /// It could not be asked.
    Unreachable(HttpError),
}

impl PostOutcome {
    /// What the answer to a post says.
    pub fn from_result(result: Result<HttpResponse, HttpError>) -> Self {
        match result {
            Ok(response) if response.status == 200 => PostOutcome::Accepted,
            Ok(HttpResponse { status, reason, .. }) => PostOutcome::Refused { status, reason },
            Err(error) => PostOutcome::Unreachable(error),
        }
    }
}

/// Whom descriptors go to: every authority but those for bridges.
pub fn addressees(authorities: &[DirAuthority]) -> impl Iterator<Item = &DirAuthority> {
    authorities.iter().filter(|authority| !authority.bridge)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;

    fn view(after_s: u64) -> PublishView {
        PublishView {
            now_unix_s: START + after_s,
            uptime_s: after_s,
            observed_bandwidth: 1000,
            listing: Some(Listing::Listed),
            is_testing: false,
        }
    }

    fn published() -> PublishSchedule {
        let mut schedule = PublishSchedule::new();
        assert_eq!(schedule.poll(&view(0)), Some(PublishReason::First));
        schedule.on_published(&view(0), true);
        schedule
    }

    #[test]
    fn nothing_happens_for_eighteen_hours() {
        let schedule = published();
        assert_eq!(schedule.poll(&view(REGULAR_S - 1)), None);
        assert_eq!(schedule.poll(&view(REGULAR_S)), Some(PublishReason::Old));
    }

    #[test]
    fn a_change_is_told_after_a_minute_and_once() {
        let mut schedule = published();
        schedule.on_change();
        assert_eq!(schedule.poll(&view(59)), None);
        assert_eq!(schedule.poll(&view(60)), Some(PublishReason::Changed));
        schedule.on_signed();
        schedule.on_published(&view(60), true);
        assert_eq!(schedule.poll(&view(600)), None);
    }

    #[test]
    fn bandwidth_counts_in_the_first_day_every_three_hours() {
        let schedule = published();
        for (bandwidth, due) in [(2000, false), (2001, true), (500, false), (499, true)] {
            let mut view = view(BANDWIDTH_S);
            view.observed_bandwidth = bandwidth;
            let reason = due.then_some(PublishReason::Bandwidth);
            assert_eq!(schedule.poll(&view), reason, "{bandwidth}");
            view.uptime_s = DAY_S;
            assert_eq!(schedule.poll(&view), None);
            view.now_unix_s -= 1;
            view.uptime_s = 0;
            assert_eq!(schedule.poll(&view), None);
        }
    }

    #[test]
    fn in_a_network_of_tests_bandwidth_counts_at_once_and_always() {
        let schedule = published();
        for uptime_s in [LEAST_S, 2 * DAY_S] {
            let with = |after_s, observed_bandwidth| PublishView {
                uptime_s,
                observed_bandwidth,
                is_testing: true,
                ..view(after_s)
            };
            assert_eq!(schedule.poll(&with(LEAST_S, 2000)), None);
            assert_eq!(schedule.poll(&with(LEAST_S - 1, 2001)), None);
            assert_eq!(schedule.poll(&with(LEAST_S, 2001)), Some(PublishReason::Bandwidth));
        }
    }

    #[test]
    fn the_first_bandwidth_after_none_is_told_after_a_minute() {
        let mut schedule = PublishSchedule::new();
        schedule.on_published(&PublishView { observed_bandwidth: 0, ..view(0) }, true);
        let with = |after_s, observed_bandwidth| PublishView { observed_bandwidth, ..view(after_s) };
        assert_eq!(schedule.poll(&with(LEAST_S, 0)), None);
        assert_eq!(schedule.poll(&with(LEAST_S - 1, 1_000_000)), None);
        assert_eq!(schedule.poll(&with(LEAST_S, 1_000_000)), Some(PublishReason::Bandwidth));
    }

    #[test]
    fn a_consensus_without_us_is_answered_after_ninety_minutes() {
        let schedule = published();
        let with = |after_s, listing| PublishView { listing, ..view(after_s) };
        let stale = |since_unix_s| Some(Listing::Stale { since_unix_s });
        let poll = |after_s, listing| schedule.poll(&with(after_s, listing));
        assert_eq!(poll(UNLISTED_S, None), None);
        assert_eq!(poll(UNLISTED_S - 1, Some(Listing::Unlisted)), None);
        assert_eq!(poll(UNLISTED_S, Some(Listing::Unlisted)), Some(PublishReason::Unlisted));
        assert_eq!(poll(UNLISTED_S, stale(START)), None);
        assert_eq!(poll(UNLISTED_S, stale(START + 1)), Some(PublishReason::Stale));
    }

    #[test]
    fn refusals_are_retried_ever_more_slowly() {
        let mut schedule = PublishSchedule::new();
        let mut at_s = 0;
        for wait_s in [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600] {
            schedule.on_published(&view(at_s), false);
            assert_eq!(schedule.poll(&view(at_s + wait_s - 1)), None);
            assert_eq!(schedule.poll(&view(at_s + wait_s)), Some(PublishReason::Retry));
            at_s += wait_s;
        }
        schedule.on_published(&view(at_s), true);
        assert_eq!(schedule.poll(&view(at_s + 3600)), None);
    }

    #[test]
    fn a_clock_set_back_publishes_again() {
        let mut schedule = PublishSchedule::new();
        schedule.on_published(&view(1000), true);
        assert_eq!(schedule.poll(&view(999)), Some(PublishReason::Changed));
    }
}
