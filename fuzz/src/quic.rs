//! Datagrams of strangers to a port that awaits a dialler, and two endpoints whose bytes say what happens between them,
//! with one connection for all circuits or one for each.

#![allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]

use heddle_transport::fuzz_endpoint::{Fuzzed, flows, stranger_datagrams};

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    match which % 8 {
        // Each begins with dozens of handshakes.
        7 => drop(flows(Fuzzed::PerCircuit, std::time::Instant::now(), rest)),
        0 | 2 | 4 | 6 => stranger_datagrams(Fuzzed::Quic, std::time::Instant::now(), rest),
        _ => drop(flows(Fuzzed::Quic, std::time::Instant::now(), rest)),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    // An Initial with the right token and garbage in it; a script that opens flows, sends, holds, loses and destroys.
    let mut initial = vec![0, 4, 0xb0, 0xc0, 0, 0, 0, 1, 20];
    initial.extend_from_slice(&[0xaa; 20]);
    initial.resize(1203, 0);
    let script = (0..200_u32).map(|step| (step * 37 % 251) as u8);
    vec![initial, core::iter::once(1).chain(script).collect()]
}
