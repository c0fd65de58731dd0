//! What the lengths of datagrams tell whoever counts them.

use crate::bench::S;
use crate::observed::Observed;
use heddle_proto::cell::Command;
use std::collections::BTreeSet;

/// The id, the record and its tag, and the head of a packet.
const SPENT_LEN: usize = 8 + 22 + 12;
/// A fragment's head and a cell, filled up to a multiple of four.
const CELL: usize = SPENT_LEN + 20 + 512;
const ACKNOWLEDGEMENT: usize = SPENT_LEN + 16;
/// A question whether the peer is there, and its answer.
const PING: usize = 8 + 22 + 5;
/// Counts of datagrams that came, which are told now and then.
const TOLD_LEN: usize = 10;

/// Circuits that begin, carry a cell and end, one after another: each datagram is as long as one with a lone cell or
/// as an acknowledgement. Streams that begin anew are among them.
#[test]
fn all_of_a_circuits_life_looks_like_cells() {
    let mut observed = Observed::new();
    let mut lens = BTreeSet::new();
    for circuit in 1..=20 {
        for command in [Command::CREATE2, Command::RELAY, Command::DESTROY] {
            observed.send(0, circuit, command);
            observed.bench.run_for(S, &mut ());
        }
        let sent = observed.bench.record.replace(Vec::new()).expect("recording");
        lens.extend(sent.iter().map(|sent| sent.data.len()));
    }
    let known = [CELL, ACKNOWLEDGEMENT, PING].map(|len| [len, len + TOLD_LEN]);
    assert!(lens.iter().all(|len| known.as_flattened().contains(len)), "{lens:?}");
}
