//! What the lengths of datagrams tell whoever counts them, and when they leave.

use crate::bench::{Bench, MS, addr};
use crate::observed::Observed;
use heddle_proto::cell::Command;
use heddle_seam::time::Instant;

/// The id, the record and its tag, and a segment's header.
const SPENT_LEN: usize = 8 + 22 + 13;
const CELL: usize = SPENT_LEN + 510;
const ACKNOWLEDGEMENT: usize = SPENT_LEN;
/// Counts of datagrams that came, which are told now and then.
const TOLD_LEN: usize = 10;

impl Observed {
    /// What follows in a tenth of a second, as whoever stands on the wire sees it: when it leaves (the end of that
    /// tenth of a millisecond), in which direction, how long it is.
    fn seen(&mut self) -> Vec<(u128, bool, usize)> {
        let begun = self.bench.now;
        let mut seen = Vec::new();
        let mut note = |now: Instant, bench: &mut Bench| {
            let sent = bench.record.replace(Vec::new()).expect("recording");
            let at_us = now.since(begun).as_micros();
            // Which datagrams tell counts depends on how many came before, and on nothing else.
            let less = |len: usize| match len - TOLD_LEN {
                less @ (CELL | ACKNOWLEDGEMENT) => less,
                _ => len,
            };
            seen.extend(sent.iter().map(|sent| (at_us, sent.from == addr(0), less(sent.data.len()))));
        };
        for _ in 0..1000 {
            self.bench.run_for(MS / 10, &mut ());
            let now = self.bench.now;
            note(now, &mut self.bench);
        }
        seen
    }
}

/// A cell there, an acknowledgement back at once: so is each cell of a circuit but its first, and its end, whoever ends
/// it.
#[test]
fn the_end_of_a_circuit_looks_like_a_cell() {
    let mut observed = Observed::new();
    let cell = [(100, true, CELL), (10_000, false, ACKNOWLEDGEMENT)];
    for circuit in 1..=30 {
        observed.send(0, circuit, Command::CREATE2);
        let lens: Vec<_> = observed.seen().iter().map(|(_, is_there, len)| (*is_there, *len)).collect();
        // What opens a flow is answered like any segment, and the answer is acknowledged.
        assert_eq!(lens, [(true, CELL), (false, ACKNOWLEDGEMENT), (true, ACKNOWLEDGEMENT)]);
        observed.send(0, circuit, Command::RELAY);
        assert_eq!(observed.seen(), cell, "a later cell of circuit {circuit}");
        let is_ours = circuit % 2 == 0;
        observed.send(usize::from(!is_ours), circuit, Command::DESTROY);
        let seen = observed.seen().into_iter();
        let seen: Vec<_> = seen.map(|(at, is_there, len)| (at, is_there == is_ours, len)).collect();
        assert_eq!(seen, cell, "the end of circuit {circuit}");
    }
}

/// Ends that leave together with cells are in datagrams of their own, and many share one.
#[test]
fn ends_beside_cells_are_as_long_as_cells() {
    let mut observed = Observed::new();
    for circuit in 1..=40 {
        observed.send(0, circuit, Command::CREATE2);
    }
    observed.seen();
    for circuit in 1..=39 {
        observed.send(0, circuit, Command::DESTROY);
    }
    observed.send(0, 40, Command::RELAY);
    let there: Vec<_> =
        observed.seen().into_iter().filter(|(_, is_there, _)| *is_there).map(|(_, _, len)| len).collect();
    assert_eq!(there, [CELL, CELL]);
}
