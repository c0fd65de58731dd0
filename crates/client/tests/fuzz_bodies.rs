//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

/// Inputs per target.
const ROUNDS: u64 = 20_000;

#[test]
fn socks_stands() {
    mutate::throw(socks::run, &socks::seeds(), ROUNDS);
}
