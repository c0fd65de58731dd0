//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/metrics.rs"]
mod metrics;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

/// Inputs.
const ROUNDS: u64 = 5_000;

#[test]
fn metrics_stand() {
    mutate::throw(metrics::run, &metrics::seeds(), ROUNDS);
}
