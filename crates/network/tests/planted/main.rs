//! Bugs that are planted into a copy of the sources, each of which the swarm has to find.
//!
//! The sources themselves have no hooks. Of all crates there is a copy below the target directory, in which each bug of
//! the [`table`] stands beside what is right, and a number in the environment says which of them is there. So the copy
//! is built once, and the swarm is run with each of them, as a process of its own. Without any, the copy's run is the
//! very run of the sources, bit for bit.

#![allow(clippy::disallowed_methods, reason = "what copies sources and runs programs knows the system")]

mod copy;
mod runs;
mod table;

use heddle_network::swarm;
use heddle_seam::time::Duration;
use runs::{Run, SECONDS, run_all};
use std::collections::BTreeSet;
use table::PLANTED;

/// One in so many is looked for by every run of the tests; the rest are by those that are run by name.
const PART: usize = 4;

/// Runs the swarm with these bugs; none may be overlooked, and where there is none nothing may be found.
fn each_is_found(planted: &[usize]) {
    let program = copy::build();
    let seeds: BTreeSet<u64> = planted.iter().map(|index| PLANTED[*index].seed).collect();
    let mut wanted: Vec<Run> = planted.iter().map(|index| Run::with(*index)).collect();
    wanted.extend(seeds.iter().map(|seed| Run::without(*seed)));
    let mut wrong = Vec::new();
    for (run, outcome) in run_all(&program, wanted) {
        if outcome.is_endless() || run.is_planted() != outcome.is_broken() {
            wrong.push(format!("{run}: {outcome} {}", run.what_breaks()));
        }
    }
    assert!(wrong.is_empty(), "{} of the runs are not as they should be:\n{}", wrong.len(), wrong.join("\n"));
}

/// By itself, so that it can be built before other tests run.
#[test]
fn the_copy_builds() {
    assert!(copy::build().is_file());
}

#[test]
fn the_copy_without_bugs_is_what_it_was_copied_of() {
    let program = copy::build();
    let seed = PLANTED[0].seed;
    let outcomes = run_all(&program, vec![Run::without(seed)]);
    let ours = format!("{:?}\n", swarm::run(seed, Duration::from_secs(SECONDS)));
    assert_eq!(outcomes[0].1.said(), ours);
}

#[test]
fn a_part_of_the_bugs_is_found() {
    let part: Vec<usize> = (0..PLANTED.len()).step_by(PART).collect();
    each_is_found(&part);
}

/// All of them take minutes.
#[test]
#[ignore = "takes minutes"]
fn every_bug_is_found() {
    let all: Vec<usize> = (0..PLANTED.len()).collect();
    each_is_found(&all);
}
