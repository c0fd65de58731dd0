//! What a relay's bandwidth weighs in each position of a path, as directories compute it of all relays' bandwidths
//! (dir-spec, section 3.8.3). There are four kinds of relays: guards, exits, those that are both, and those that are
//! neither. All but the last may serve elsewhere, too, so far as they are not scarce in their own position.
//!
//! 1. Neither guards nor exits are scarce: both give of theirs what the middle lacks.
//! 2. Both are scarce, each with less than a third of all: relays that are both are divided between them.
//! 3. One of them is scarce: relays that are both stand by it, and the other one gives.

use std::collections::BTreeMap;

/// What weights are multiplied with in a consensus (`bwweightscale`).
const SCALE: f64 = 10_000.0;
/// Shares are computed of floating numbers.
const ROUNDING: f64 = 1e-9;

/// The bandwidth of all relays of a kind, in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bandwidths {
    pub(super) guards: f64,
    pub(super) exits: f64,
    pub(super) both: f64,
    pub(super) neither: f64,
}

/// What of relays' bandwidth is for their own position; what is left is for the middle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shares {
    /// Of guards' for the first place.
    guards: f64,
    /// Of exits' for the last.
    exits: f64,
    /// Of those that are both for the first place, and for the last.
    both_first: f64,
    both_last: f64,
}

impl Bandwidths {
    /// The weights, by their names in a consensus; none where nothing balances, in which case directories leave them
    /// out as well.
    pub(super) fn weights(self) -> BTreeMap<String, i32> {
        let Some(shares) = self.shares() else { return BTreeMap::new() };
        let Shares { guards, exits, both_first, both_last } = shares;
        let named = [
            ("Wgg", guards),
            ("Wgm", guards),
            ("Wgd", both_first),
            ("Wmg", 1.0 - guards),
            ("Wmm", 1.0),
            ("Wme", 1.0 - exits),
            ("Wmd", 1.0 - both_first - both_last),
            ("Weg", both_last),
            ("Wem", exits),
            ("Wee", exits),
            ("Wed", both_last),
        ];
        named.map(|(name, share)| (name.to_owned(), (share * SCALE).round() as i32)).into()
    }

    /// The shares of the case that fits, if they are shares.
    fn shares(self) -> Option<Shares> {
        // No kind is without bandwidth, so that nothing is divided by zero; in a real network that changes nothing.
        let least = 1e-6 * (self.guards + self.exits + self.both + self.neither);
        let of = |bandwidth: f64| bandwidth.max(least);
        let (g, e, d, m) = (of(self.guards), of(self.exits), of(self.both), of(self.neither));
        let third = (g + e + d + m) / 3.0;
        let shares = match (g < third, e < third) {
            (false, false) => Shares {
                guards: 1.0 - (2.0 * g - e - m) / (3.0 * g),
                exits: (e + g + m) / (3.0 * e),
                both_first: 1.0 / 3.0,
                both_last: 1.0 / 3.0,
            },
            (true, true) => return both_scarce(g, e, d, m),
            (true, false) if g + d < third => {
                let exits = 1.0 - ((e - m) / (2.0 * e)).max(0.0);
                Shares { guards: 1.0, exits, both_first: 1.0, both_last: 0.0 }
            }
            (false, true) if e + d < third => {
                let guards = 1.0 - ((g - m) / (2.0 * g)).max(0.0);
                Shares { guards, exits: 1.0, both_first: 0.0, both_last: 1.0 }
            }
            (true, false) => {
                let both_first = (d - 2.0 * g + e + m) / (3.0 * d);
                let exits = (e + m) / (2.0 * e);
                Shares { guards: 1.0, exits, both_first, both_last: (1.0 - both_first) / 2.0 }
            }
            (false, true) => {
                let both_last = (d - 2.0 * e + g + m) / (3.0 * d);
                let guards = (g + m) / (2.0 * g);
                Shares { guards, exits: 1.0, both_first: (1.0 - both_last) / 2.0, both_last }
            }
        };
        shares.checked()
    }
}

/// The shares where guards and exits are scarce.
fn both_scarce(g: f64, e: f64, d: f64, m: f64) -> Option<Shares> {
    let own = Shares { guards: 1.0, exits: 1.0, both_first: 0.0, both_last: 0.0 };
    if g.min(e) + d < g.max(e) {
        let is_exit_scarcer = e < g;
        let share = |is_its: bool| if is_its { 1.0 } else { 0.0 };
        return Some(Shares {
            both_first: share(!is_exit_scarcer),
            both_last: share(is_exit_scarcer),
            ..own
        });
    }
    let both_last = (d - 2.0 * e + 4.0 * g - 2.0 * m) / (3.0 * d);
    let giving = Shares { exits: (e - g + m) / e, both_first: (1.0 - both_last) / 2.0, both_last, ..own };
    let keeping = || {
        let both_last = (d - 2.0 * e + g + m) / (3.0 * d);
        let both_middle = ((d - 2.0 * m + g + e) / (3.0 * d)).max(0.0);
        Shares { both_first: 1.0 - both_last - both_middle, both_last, ..own }
    };
    giving.checked().or_else(|| keeping().checked())
}

impl Shares {
    /// Itself, if all of them are from 0 to 1.
    fn checked(self) -> Option<Shares> {
        let Shares { guards, exits, both_first, both_last } = self;
        let all = [guards, exits, both_first, both_last, 1.0 - both_first - both_last];
        let is_share = |share: &f64| (-ROUNDING..=1.0 + ROUNDING).contains(share);
        all.iter().all(is_share).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(guards: f64, exits: f64, both: f64, neither: f64) -> BTreeMap<String, i32> {
        Bandwidths { guards, exits, both, neither }.weights()
    }

    /// What all relays give to each position, in percent of the bandwidth of all.
    fn given(guards: f64, exits: f64, both: f64, neither: f64) -> [f64; 3] {
        let all = guards + exits + both + neither;
        let weights = weights(guards, exits, both, neither);
        let of = |name: &str| f64::from(weights[name]) / SCALE;
        let first = of("Wgg") * guards + of("Wgd") * both;
        let middle = neither + of("Wmg") * guards + of("Wme") * exits + of("Wmd") * both;
        let last = of("Wee") * exits + of("Wed") * both;
        [first, middle, last].map(|given| (1000.0 * given / all).round() / 10.0)
    }

    #[test]
    fn positions_have_a_third_each_where_relays_allow_it() {
        // Neither is scarce; both are; exits are, and relays that are both make up for it; the same of guards.
        for [guards, exits, both, neither] in [
            [400.0, 400.0, 100.0, 100.0],
            [250.0, 250.0, 400.0, 100.0],
            [500.0, 100.0, 300.0, 100.0],
            [100.0, 500.0, 300.0, 100.0],
        ] {
            let given = given(guards, exits, both, neither);
            assert!(given.iter().all(|share| (share - 33.3).abs() < 0.11), "{given:?}");
        }
    }

    #[test]
    fn who_is_scarce_keeps_all_of_its_own() {
        let exits_are = weights(600.0, 100.0, 50.0, 250.0);
        assert_eq!(
            [exits_are["Wee"], exits_are["Wed"], exits_are["Wme"], exits_are["Wgd"]],
            [10_000, 10_000, 0, 0]
        );
        // Guards and the middle then have the same.
        assert_eq!(given(600.0, 100.0, 50.0, 250.0), [42.5, 42.5, 15.0]);
        let guards_are = weights(100.0, 600.0, 50.0, 250.0);
        assert_eq!(
            [guards_are["Wgg"], guards_are["Wgd"], guards_are["Wmg"], guards_are["Wed"]],
            [10_000, 10_000, 0, 0]
        );
        let both_are = weights(100.0, 300.0, 50.0, 900.0);
        assert_eq!(
            [both_are["Wgg"], both_are["Wee"], both_are["Wgd"], both_are["Wed"]],
            [10_000, 10_000, 10_000, 0]
        );
    }

    #[test]
    fn every_weight_is_a_share_whatever_there_is() {
        let some = [0.0, 1.0, 30.0, 1000.0];
        for guards in some {
            for exits in some {
                for (both, neither) in some.into_iter().flat_map(|both| some.map(|neither| (both, neither))) {
                    let weights = weights(guards, exits, both, neither);
                    assert!(weights.values().all(|weight| (0..=10_000).contains(weight)), "{weights:?}");
                }
            }
        }
    }
}
