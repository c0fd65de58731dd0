//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/offload.rs"]
mod offload;

/// Inputs per target.
const ROUNDS: u64 = 20_000;

#[test]
fn offload_stands() {
    mutate::throw(offload::run, &offload::seeds(), ROUNDS);
}
