//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/esp.rs"]
mod esp;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

/// Inputs.
const ROUNDS: u64 = 3_000;

#[test]
fn esp_stands() {
    mutate::throw(esp::run, &esp::seeds(), ROUNDS);
}
