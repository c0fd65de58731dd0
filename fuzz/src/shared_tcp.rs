//! Datagrams of strangers to a port that awaits a dialler, and two endpoints whose bytes say what happens between
//! them, of `imux-dtls` or `torchestra-dtls`.

#![allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]

use heddle_transport::fuzz_endpoint::{Fuzzed, flows, stranger_datagrams};

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    match which % 3 {
        0 => stranger_datagrams(Fuzzed::Imux, std::time::Instant::now(), rest),
        1 => drop(flows(Fuzzed::Imux, std::time::Instant::now(), rest)),
        _ => drop(flows(Fuzzed::Torchestra, std::time::Instant::now(), rest)),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    // The right token and half a record behind it; a script that opens flows, sends, holds, loses and destroys.
    let mut hello = vec![0, 0, 60];
    hello.extend_from_slice(&[0xaa; 20]);
    hello.extend_from_slice(&[
        22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 27, 1, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 15,
    ]);
    hello.resize(63, 0);
    let script = (0..200_u32).map(|step| (step * 37 % 251) as u8);
    let scripts = [1, 2].map(|which| core::iter::once(which).chain(script.clone()).collect());
    core::iter::once(hello).chain(scripts).collect()
}
