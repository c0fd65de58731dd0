//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/origin.rs"]
mod origin;
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

/// Inputs per target.
const ROUNDS: u64 = 20_000;
/// And of circuits, each of which is built first.
const CIRCUIT_ROUNDS: u64 = 3_000;

#[test]
fn origin_stands() {
    mutate::throw(origin::run, &origin::seeds(), CIRCUIT_ROUNDS);
}

#[test]
fn socks_stands() {
    mutate::throw(socks::run, &socks::seeds(), ROUNDS);
}
