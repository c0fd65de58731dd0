//! What a neighbour says on a QUIC connection once it is authenticated: streams with any bytes and any ends; and
//! packets as they are after decryption, of which something is kept before the library has read them.

#![allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]

use heddle_transport::quic::fuzz::{payload, streams};

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    match which % 4 {
        0 => payload(rest),
        _ => streams(std::time::Instant::now(), rest),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    // STREAM, ACK with marks, RESET_STREAM, NEW_CONNECTION_ID and a stamp.
    let mut frames = vec![0, 0x0e, 0x44, 0x01, 0x80, 0, 1, 0, 3, 1, 2, 3, 0x03, 9, 0x47, 0xd0, 0, 3, 7, 7, 7];
    frames.extend([0x04, 0x44, 0x01, 7, 0x40, 9, 0x18, 1, 0, 1]);
    frames.extend([7; 17]);
    frames.extend([0x31, 4, 1, 2, 3, 4, 0x09, 4, 1, 2, 3]);
    // A cell of a command, and so many bytes in all.
    let write = |what: u8, command: u8, bytes: u16| {
        let [high, low] = bytes.to_be_bytes();
        [what, 1, high, low, command]
    };
    let (create, relay) = (write(0, 10, 510), write(2, 3, 510));
    // Two flows: the relay sends on one and it is reset; the other has half a cell, and ends.
    let both = [&[1][..], &create, &relay, &[7, 0, 30], &write(0, 10, 300), &[12, 254, 4, 5]].concat();
    // The relay reads no more and then ends it; a flow that the relay never opened is written to; a datagram.
    let held = [&[1][..], &create, &[7, 6], &relay, &relay, &[7, 6, 7, 3, 30]].concat();
    let wrong = [&[1][..], &create, &write(26, 3, 100), &[22, 13, 2, 0, 4, 1, 2]].concat();
    vec![frames, both, held, wrong]
}
