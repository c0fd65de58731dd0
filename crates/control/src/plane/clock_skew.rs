//! Whether our clock is right, by those of other relays.
//!
//! A clock that is an hour off makes certificates and consensuses fail later, and nobody says why. Relays say in
//! NETINFO what time it is with them. One of them may be wrong or lie, so three must say that it is off the same
//! way before the operator hears it.

use heddle_proto::ids::RsaId;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeMap;

/// How many relays must agree.
const RELAYS: usize = 3;
/// Between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// What relays said on the last day whose clocks are far from ours: fewer than [`RELAYS`] each way.
#[derive(Debug, Default)]
pub(super) struct ClockSkew {
    ahead_s: BTreeMap<RsaId, (Instant, i64)>,
    warned_at: Option<Instant>,
}

impl ClockSkew {
    /// A relay's clock differs from ours, which is so far ahead of it, or behind. Returns what is to be said of it:
    /// what the one in the middle says.
    pub(super) fn on_differs(&mut self, now: Instant, by: RsaId, ahead_s: i64) -> Option<i64> {
        self.ahead_s.retain(|_, (said_at, _)| now.since(*said_at) < WARN_EVERY);
        self.ahead_s.insert(by, (now, ahead_s));
        let is_same_way = |other_s: i64| other_s.signum() == ahead_s.signum();
        let all = self.ahead_s.values().map(|(_, other_s)| *other_s);
        let mut same_way: Vec<i64> = all.filter(|other_s| is_same_way(*other_s)).collect();
        if same_way.len() < RELAYS {
            return None;
        }
        self.ahead_s.retain(|_, (_, other_s)| !is_same_way(*other_s));
        if self.warned_at.is_some_and(|at| now.since(at) < WARN_EVERY) {
            return None;
        }
        self.warned_at = Some(now);
        same_way.sort_unstable();
        Some(same_way[RELAYS / 2])
    }
}

/// The sentence for the operator.
pub(super) fn warning(ahead_s: i64) -> String {
    let (minutes, way) = (ahead_s.unsigned_abs() / 60, if ahead_s > 0 { "ahead of" } else { "behind" });
    format!(
        "This machine's clock is {minutes} minutes {way} those of {RELAYS} relays. Set it, for instance by NTP, or \
         certificates and consensuses will not hold"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: u64) -> Instant {
        Instant::from_nanos(hours * 3_600_000_000_000)
    }

    #[test]
    fn three_relays_that_agree_are_heard_once_a_day() {
        let mut skew = ClockSkew::default();
        let mut says = |hour, relay: u8, ahead_s| skew.on_differs(at(hour), RsaId([relay; 20]), ahead_s);
        assert_eq!([says(0, 1, 4000), says(0, 1, 4001), says(0, 2, 9000)], [None; 3]);
        // Nobody keeps the others from being heard.
        assert_eq!([says(0, 9, -4000), says(0, 8, -4000)], [None; 2]);
        assert_eq!(says(0, 3, 4100), Some(4100), "neither the first nor the last nor the mean");
        assert_eq!([says(1, 4, 5000), says(1, 5, 5000), says(23, 6, 5000)], [None; 3]);
        assert_eq!([says(24, 7, 5000), says(24, 8, 5000)], [None; 2]);
        assert_eq!(says(24, 9, 6000), Some(5000));
        // What was said on another day is forgotten.
        assert_eq!([says(50, 1, 5000), says(51, 2, 5000), says(74, 3, 5000)], [None; 3]);
        assert_eq!(says(74, 4, 5000), Some(5000));
    }

    #[test]
    fn few_are_remembered() {
        let mut skew = ClockSkew::default();
        for relay in 0..=255 {
            skew.on_differs(at(0), RsaId([relay; 20]), -5000);
            skew.on_differs(at(0), RsaId([relay ^ 1; 20]), 5000);
            assert!(skew.ahead_s.len() < 2 * RELAYS);
        }
    }

    #[test]
    fn the_operator_hears_which_way_it_is_off() {
        assert!(warning(7260).contains("121 minutes ahead of those"));
        assert!(warning(-3700).contains("61 minutes behind those"));
    }
}
