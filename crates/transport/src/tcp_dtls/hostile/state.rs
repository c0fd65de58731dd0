//! What connections and flows take beside the bytes that come on them, against what is said of it.

use super::table::{BARE, C, MS, S, Segment, Table, UNIT, cell};
use crate::counting::{counted, counted_bytes};
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::endpoint::Endpoint;

/// A connection whose peer has so many flows, each with a cell that was read, or with the beginning of one.
fn with_flows(flows: u32, bytes: usize) -> Table {
    let mut table = Table::with(flows, |_| {});
    let payload = cell(Command::CREATE2);
    for port in 0..flows {
        table.peer.outbox.push(Segment { bits: C | S, port, payload: &payload[..bytes], ..BARE }.bytes());
        if port % 64 == 0 {
            table.exchange();
            table.peer.segments.clear();
        }
    }
    table.run(MS);
    table
}

#[test]
fn what_is_said_of_state_is_what_an_allocator_says() {
    for (flows, bytes) in [(1, 510), (1_000, 510), (1_000, UNIT), (50_000, 510)] {
        let before = counted_bytes();
        let table = with_flows(flows, bytes);
        let real = counted_bytes() - before - table.ours.buffered_bytes();
        let said = table.ours.state_bytes();
        println!("{flows} flows: {said} bytes are said of {real}");
        assert!(10 * said >= 9 * real && 10 * said <= 13 * real, "{flows} flows: {said} of {real}");
    }
}

/// Of flows that are over there is little left, and nothing of a connection.
#[test]
fn state_goes_with_flows_and_connections() {
    let mut table = with_flows(1_000, 510);
    let (all, conn) = (table.ours.state_bytes(), table.conn);
    let names: Vec<CircId> = table.cells.drain(..).map(|(name, ..)| name).collect();
    for name in names {
        counted(|| table.ours.send(table.now, conn, name, Command::DESTROY, &[0; BODY_LEN]));
    }
    table.run(100 * MS);
    let left = table.ours.state_bytes();
    assert!(2 * left < all, "{left} of {all}");
    table.ours.close(table.now, conn);
    table.run(10_000 * MS);
    assert_eq!(table.ours.state_bytes(), 0);
}
