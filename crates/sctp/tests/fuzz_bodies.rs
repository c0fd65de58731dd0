//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/sctp.rs"]
mod sctp;

/// Inputs.
const ROUNDS: u64 = 10_000;

#[test]
fn sctp_stands() {
    mutate::throw(sctp::run, &sctp::seeds(), ROUNDS);
}
