//! What our side holds of the flows of a peer, against what it counts.

use super::table::{BARE, CELL_UNITS, MS, Segment, Table, UNIT, cell};
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
    let before = counted_bytes() - table.ours.buffered_bytes();
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
    let (held, all) = (table.ours.buffered_bytes(), counted_bytes() - before);
    assert!(all <= held + FLOWS as usize * 512, "{all} bytes where {held} count");
}

/// A flow of which a cell comes now and then is as old as what lies behind its hole, so that it does not outlive others
/// when memory is short.
#[test]
fn cells_that_trickle_keep_no_hoard_young() {
    let mut table = Table::new(|_| {});
    let (port, name) = table.open();
    let (hoarded_at, payload) = (table.now, cell(Command::RELAY));
    table.send(Segment { port, seq: 40 * CELL_UNITS, payload: &payload, ..BARE }.bytes());
    for number in 1..=20 {
        table.run(1000 * MS);
        table.send(Segment { port, seq: number * CELL_UNITS, payload: &payload, ..BARE }.bytes());
    }
    assert_eq!(table.cells.len(), 20);
    let mut held = Vec::new();
    table.ours.backlogs(&mut |backlog| held.push((backlog.circ_id, backlog.bytes > 0, backlog.since)));
    assert_eq!(held, [(name, true, hoarded_at)]);
}
