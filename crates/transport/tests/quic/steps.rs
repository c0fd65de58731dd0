//! What becomes of a connection whose path changes under it.

use crate::bench::{MS, S};
use crate::evaluation::{Excess, wire};
use crate::loads::{quic, rates};
use heddle_netem::{DirectionOptions, Step};

/// A wire whose round trip is 20 ms, from these seconds on 60 ms, and from those on 20 ms again.
fn longer_meanwhile(mbit: u64, [longer_s, shorter_s]: [u64; 2]) -> DirectionOptions {
    let step = |at_s: u64, one_way_ms: u64| Step {
        at_ns: at_s * S,
        delay_ns: Some(one_way_ms * MS),
        ..Step::default()
    };
    DirectionOptions {
        schedule: vec![step(longer_s, 30), step(shorter_s, 10)],
        ..wire(mbit, 20, Excess::Waits(100))
    }
}

/// What is left of the rate in the second that begins two seconds after each change, in shares of what it was before
/// the first.
pub fn kept(mbit: u64, circuits: u32, steps_s: [u64; 2]) -> [f64; 2] {
    let [longer, shorter] = steps_s.map(|at_s| at_s * 1000);
    let bounds_ms = [longer - 1000, longer, longer + 2000, longer + 3000, shorter + 2000, shorter + 3000];
    let there = longer_meanwhile(mbit, steps_s);
    let rates = rates(&there, &[quic(circuits)], 7, &bounds_ms);
    [2, 4].map(|index: usize| rates[index] / rates[0])
}

/// A path that grows longer is no queue of others, which would keep a connection waiting.
#[test]
fn two_seconds_after_a_change_of_the_round_trip_the_rate_is_back() {
    for (mbit, circuits) in [(10, 1), (10, 20), (50, 1)] {
        let kept = kept(mbit, circuits, [4, 8]);
        assert!(kept.iter().all(|share| *share >= 0.8), "{circuits} circuits, {mbit} Mbit/s: {kept:?}");
    }
}
