//! What our side holds of the flows of a peer, against what it counts.

use super::table::{BARE, CELL_UNITS, Segment, Table, UNIT, cell};
use crate::counting::counted_bytes;
use heddle_proto::cell::Command;
use heddle_proto::endpoint::Endpoint;

/// Flows of which a burst came while the relay read nothing, and of which it then read all but the rest of a cell.
#[test]
fn what_is_left_of_a_burst_holds_no_more_than_counts() {
    const FLOWS: u32 = 20;
    const CELLS: u32 = 100;
    let mut table = Table::new(|_| {});
    let ports: Vec<u32> = (0..FLOWS).map(|_| table.open().0).collect();
    let before = counted_bytes() - table.ours.held_bytes();
    for port in ports {
        table.reads = false;
        for number in 1..=CELLS {
            let (bytes, seq) = (cell(Command::RELAY), number * CELL_UNITS);
            let payload = if number < CELLS { &bytes[..] } else { &bytes[..UNIT] };
            table.send(Segment { port, seq, payload, ..BARE }.bytes());
        }
        table.reads = true;
        table.exchange();
    }
    table.peer.segments.clear();
    assert_eq!(table.cells.len() as u32, FLOWS * (CELLS - 1));
    let (held, all) = (table.ours.held_bytes(), counted_bytes() - before);
    assert!(all <= held + FLOWS as usize * 512, "{all} bytes where {held} count");
}
