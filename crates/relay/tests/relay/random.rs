//! Whatever peers, servers, workers and the resolver do, in whatever order: a relay does not panic,
//! keeps its contract, counts right, and holds nothing once its channels are gone.

use super::world::{Choices, Counts, run};
use heddle_seam::rng::Seed;

/// So many seeds do between them whatever may be done; one that is replayed need not.
const MANY_SEEDS: u64 = 20;

/// Runs the seeds, naming the one that fails. Were nothing made by the relays, nothing could be left of it.
fn run_seeds(seeds: core::ops::Range<u64>, shards: u16, steps: usize) {
    let are_many = seeds.end - seeds.start >= MANY_SEEDS;
    let mut all = Counts::default();
    for seed in seeds {
        let choices = || Choices::Random(Box::new(Seed::from_number(seed).child("random relay", 0).rng()));
        let outcome = std::panic::catch_unwind(|| run(choices(), shards, steps));
        let Ok(Counts { made, extended, streams }) = outcome else {
            panic!("seed {seed} with {shards} shards: replay with HEDDLE_SEED={seed}");
        };
        all.made += made;
        all.extended += extended;
        all.streams += streams;
    }
    let has_all = all.made > 0 && all.extended > 0 && all.streams > 0;
    assert!(has_all || !are_many, "with {shards} shards: {all:?}");
}

/// The seeds to run. Building with `HEDDLE_SEED=n` replays one, with `HEDDLE_SEEDS=n` runs that many.
fn seeds(default: u64) -> core::ops::Range<u64> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    match number(option_env!("HEDDLE_SEED")) {
        Some(seed) => seed..seed + 1,
        None => 0..number(option_env!("HEDDLE_SEEDS")).unwrap_or(default),
    }
}

#[test]
fn one_shard_stands_whatever_happens() {
    run_seeds(seeds(60), 1, 400);
}

#[test]
fn two_shards_stand_whatever_happens() {
    run_seeds(seeds(60), 2, 400);
}

#[test]
fn three_shards_stand_whatever_happens() {
    run_seeds(seeds(20), 3, 400);
}

#[test]
fn five_shards_stand_whatever_happens() {
    run_seeds(seeds(20), 5, 400);
}

#[test]
#[ignore = "it takes minutes"]
fn four_shards_stand_long_lives() {
    run_seeds(seeds(200), 4, 3000);
}

/// As a fuzzer does it.
#[test]
fn a_shard_stands_whatever_bytes_decide() {
    let mut rng = Seed::from_number(5).rng();
    for shards in [1, 2] {
        let bytes: [u8; 4000] = rng.array();
        run(Choices::Bytes(&bytes), shards, 1000);
    }
}
