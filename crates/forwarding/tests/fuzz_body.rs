//! The fuzz target of this crate without a fuzzer: the same body, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/forwarding.rs"]
mod forwarding;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

#[test]
fn forwarding_stands() {
    mutate::throw(forwarding::run, &forwarding::seeds(), 20_000);
}
