//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/observers.rs"]
mod observers;

/// Inputs, of which each may be a module that uses up all that a look may cost.
const ROUNDS: u64 = 1_000;

#[test]
fn observers_stand() {
    mutate::throw(observers::run, &observers::seeds(), ROUNDS);
}
