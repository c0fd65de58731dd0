//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/directory.rs"]
mod directory;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

/// Inputs per target.
const ROUNDS: u64 = 20_000;

#[test]
fn directory_stands() {
    mutate::throw(directory::run, &directory::seeds(), ROUNDS);
}
