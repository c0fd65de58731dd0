//! What the lengths of datagrams tell whoever counts them.

use crate::bench::{MS, delay};
use crate::observed::Observed;
use heddle_netem::{DirectionOptions, Loss};
use heddle_proto::cell::Command;
use std::collections::BTreeSet;

/// Acknowledgements, and what tells of windows, are shorter than any cell.
const NO_CELL_LEN: usize = 120;

impl Observed {
    /// The lengths of what follows and carries cells or ends.
    fn lengths(&mut self) -> BTreeSet<usize> {
        self.bench.run_for(200 * MS, &mut ());
        let sent = self.bench.record.replace(Vec::new()).expect("recording");
        sent.iter().map(|sent| sent.data.len()).filter(|len| *len > NO_CELL_LEN).collect()
    }
}

/// The id of a stream takes another byte from 64 on, in steps of four, and another two from 16,384 on; so does the
/// offset.
#[test]
fn a_lone_cell_is_as_long_whichever_of_its_circuit_and_of_the_connection_it_is() {
    let mut observed = Observed::new();
    let mut lengths = BTreeSet::new();
    for circuit in 1..=40 {
        observed.send(0, circuit, Command::CREATE2);
        lengths.append(&mut observed.lengths());
        for _ in 0..if circuit % 13 == 0 { 40 } else { 2 } {
            observed.send(0, circuit, Command::RELAY);
            lengths.append(&mut observed.lengths());
        }
    }
    assert_eq!(lengths, BTreeSet::from([600]));
}

#[test]
fn the_end_of_a_circuit_is_as_long_as_a_cell() {
    let mut observed = Observed::new();
    for circuit in 1..=30 {
        observed.send(0, circuit, Command::CREATE2);
        observed.send(0, circuit, Command::RELAY);
        assert_eq!(observed.lengths(), BTreeSet::from([1125]), "two cells");
        let end = usize::from(circuit % 2 == 0);
        observed.send(end, circuit, Command::DESTROY);
        assert_eq!(observed.lengths(), BTreeSet::from([600]), "the end of circuit {circuit}");
    }
}

/// What was lost is sent again, by itself or in a probe; it may be taken for a cell more than it is.
#[test]
fn a_cell_that_is_sent_again_is_as_long_as_any() {
    let loss = Loss::Bernoulli { probability: 0.2 };
    let mut observed = Observed::over(DirectionOptions { loss, ..delay(10 * MS) });
    let mut lengths = BTreeSet::new();
    for circuit in 1..=100 {
        observed.send(0, circuit, Command::CREATE2);
        lengths.append(&mut observed.lengths());
        observed.send(0, circuit, Command::DESTROY);
        lengths.append(&mut observed.lengths());
    }
    let lost = observed.bench.ends[0].endpoint.stats(observed.conns.0).lost_packets;
    assert!(lost > 20, "{lost}");
    assert!(lengths.is_subset(&BTreeSet::from([600, 1125])), "{lengths:?}");
}
