//! A few seeds of the swarm, of which `heddle sim swarm` runs as many as wanted.

use heddle_network::swarm::run;
use heddle_seam::time::Duration;

#[test]
fn a_few_seeds_break_nothing() {
    for seed in 0..3 {
        let outcome = run(seed, Duration::from_secs(30));
        assert!(outcome.circuits > 0 && outcome.streams > 0 && outcome.bytes > 0, "{outcome:?}");
    }
}

#[test]
fn a_seed_repeats() {
    let time = Duration::from_secs(15);
    let first = run(77, time);
    assert_eq!(run(77, time), first);
    assert_ne!(run(78, time).hash, first.hash);
}
