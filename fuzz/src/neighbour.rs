//! What a neighbour says in a DTLS session once it is authenticated: records of any contents.

#![allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]

use heddle_transport::fuzz_endpoint::{Fuzzed, neighbour};

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    let fuzzed = match which % 8 {
        0..5 => Fuzzed::Dtls,
        5 => Fuzzed::Sctp,
        6 => Fuzzed::Imux,
        _ => Fuzzed::Torchestra,
    };
    neighbour::records(fuzzed, std::time::Instant::now(), rest);
}

/// A record with these first bytes, and so many in all.
fn record(first: &[u8], bytes: u16) -> Vec<u8> {
    [&[0, first.len() as u8][..], &bytes.to_be_bytes(), first].concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    // TCP segments of the neighbour's port 0: one opens it with a CREATE2, the next has a RELAY cell, others one behind
    // a hole and a reset. A window of 64 KiB, and three units of 170 bytes.
    let create = record(&[0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x81, 3, 10], 13 + 510);
    let relay = record(&[0x80, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0x81, 3, 3], 13 + 510);
    let behind = record(&[0x80, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0x81, 3, 3], 13 + 510);
    let reset = record(&[0x90, 0, 0, 0, 4], 5);
    // The relay sends, stops reading, and ends the circuit.
    let circuit = [&[0][..], &create, &relay, &[6, 0], &behind, &[6, 6], &relay, &[253], &reset];
    let ended = [&[0][..], &create, &[6, 0, 6, 4, 45, 6, 3], &relay, &reset, &create];
    // PING, PONG, SEEN, PROBE, counts of marks, a stamp, and CLOSE.
    let own = [record(&[5, 0, 0, 0, 1], 5), record(&[7, 0, 0, 0, 1], 5), record(&[3, 5, 0], 3)].concat();
    let own = [&own[..], &record(&[13], 1200), &record(&[11], 10), &record(&[15], 5), &record(&[9, 0], 2)];
    let own: Vec<Vec<u8>> = [0, 5, 6, 7].map(|which| [&[which][..], &own.concat()].concat()).to_vec();
    // An INIT of SCTP with no right checksum, and a segment for those that share connections.
    let init = record(&[38, 171, 38, 171, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20], 32);
    let others = [[&[5][..], &init].concat(), [&[6][..], &create, &relay, &reset].concat()];
    [own, vec![circuit.concat(), ended.concat()], others.to_vec()].concat()
}
