//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/shards.rs"]
mod shards;

/// Inputs for a whole relay, of which each takes milliseconds.
const ROUNDS: u64 = 150;

#[test]
fn shards_stand() {
    mutate::throw(shards::run, &shards::seeds(), ROUNDS);
}
