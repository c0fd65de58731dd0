//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/observe.rs"]
mod observe;
#[path = "../../../fuzz/src/torrc.rs"]
mod torrc;

/// Inputs per target.
const ROUNDS: u64 = 3_000;

#[test]
fn observe_stands() {
    mutate::throw(observe::run, &observe::seeds(), ROUNDS);
}

#[test]
fn torrc_stands() {
    mutate::throw(torrc::run, &torrc::seeds(), ROUNDS);
}
