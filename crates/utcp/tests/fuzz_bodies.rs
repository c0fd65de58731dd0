//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/utcp.rs"]
mod utcp;

/// Inputs.
const ROUNDS: u64 = 3_000;

#[test]
fn utcp_stands() {
    mutate::throw(utcp::run, &utcp::seeds(), ROUNDS);
}
