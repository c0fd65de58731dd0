//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add one is in
//! `fuzz/README.md`.

#[path = "../../../fuzz/src/dns.rs"]
mod dns;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/offload.rs"]
mod offload;

/// Inputs per target.
const ROUNDS: u64 = 20_000;

/// Each is looked up in a memory of its own, so there are fewer.
#[test]
fn dns_stands() {
    mutate::throw(dns::run, &dns::seeds(), ROUNDS / 4);
}

#[test]
fn offload_stands() {
    mutate::throw(offload::run, &offload::seeds(), ROUNDS);
}
