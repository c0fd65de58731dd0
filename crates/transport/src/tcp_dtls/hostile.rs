//! A peer whose keys and proof are right and who breaks the rules behind them: records and segments made by hand.

mod memory;
mod relay;
mod state;
mod table;

use crate::dtls::control;
use heddle_proto::cell::Command;
use heddle_proto::endpoint::{ConnectionError, Endpoint};
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;
use table::{
    BARE, C, CELL_UNITS, F, MS, PROTOCOL, RESOURCELIMIT, S, Segment, Table, UNIT, X, cell, frames, reset,
};

fn misbehaves(contents: &[u8]) {
    let mut table = Table::new(|_| {});
    table.send(contents.to_vec());
    let ended = table.ended();
    assert!(matches!(ended, Some(ConnectionError::PeerMisbehaved(_))), "{contents:02x?}: {ended:?}");
    table.run(Duration::from_secs(1));
    assert!(table.peer.is_closed, "it hears so");
}

#[test]
fn an_honest_flow_lives_beside_no_other() {
    Table::new(|_| {}).assert_others_live();
}

#[test]
fn records_that_there_are_not_end_the_connection() {
    let payload = cell(Command::CREATE2);
    let whole = Segment { bits: C | S, payload: &payload, ..BARE }.bytes();
    for len in [1, 4, 5, 12, 13, 14, whole.len() - 1] {
        misbehaves(&whole[..len]);
    }
    // Blocks that are promised and missing; an end in what opens; a port far ahead; controls that are none.
    misbehaves(&[&whole[..12], &[0xc0]].concat());
    misbehaves(&Segment { bits: C | S | F, payload: &payload, ..BARE }.bytes());
    misbehaves(&Segment { bits: C | S, port: 1 << 20, ..BARE }.bytes());
    misbehaves(&reset(1 << 20));
    for control in [&[11][..], &[3], &[3, 1], &[5, 0, 0, 0], &[9, 7], &[1; 30]] {
        misbehaves(control);
    }
}

/// A peer that tells of marks and datagrams that there were not, with segments behind and without.
#[test]
fn counts_of_marks_that_lie_cost_nobody_anything() {
    let mut table = Table::new(|_| {});
    let mut rng = Seed::from_number(5).rng();
    for turn in 0..1000 {
        let mut record = [0; 10];
        rng.fill(&mut record);
        record[0] = 11;
        let behind = if turn % 2 == 0 { Segment { port: 9, ..BARE }.bytes() } else { Vec::new() };
        table.send([&record[..], &behind].concat());
    }
    table.assert_others_live();
    misbehaves(&[11; 9]);
    misbehaves(&[&[11; 10][..], &[0; 3]].concat());
}

#[test]
fn records_at_the_limits_of_length_are_borne() {
    let mut table = Table::new(|_| {});
    // Nothing; as long as a datagram may be; longer than any of ours.
    table.send(Vec::new());
    for units in [7, 8, 63] {
        let port = table.next_port;
        table.next_port += 1;
        let mut payload = cell(Command::CREATE2);
        payload.resize(units * UNIT, 0);
        payload[510..].chunks_mut(510).for_each(|cell| cell[0] = Command::RELAY.0);
        table.send(Segment { bits: C | S, port, payload: &payload, ..BARE }.bytes());
        assert_eq!(table.cells.len(), payload.len() / 510, "{units} units");
        table.cells.clear();
    }
    // Thousands of segments in one record.
    let port = table.next_port;
    let many: Vec<u8> =
        (0..3000).flat_map(|_| Segment { port: port + 9, ..BARE }.bytes()).take(15_990).collect();
    table.send(many);
    table.assert_others_live();
}

#[test]
fn segments_of_flows_that_are_not_there_are_refused() {
    let mut table = Table::new(|_| {});
    let (port, name) = table.open();
    table.peer.segments.clear();
    let payload = [0; UNIT];
    // Of a port that was not opened; of ours, that we never chose; of one that is over.
    table.send(Segment { port: 7, payload: &payload, ..BARE }.bytes());
    table.send(Segment { bits: 0, port: 3, payload: &payload, ..BARE }.bytes());
    table.send(reset(port));
    let opening = Segment { bits: C | S, port, payload: &payload, ..BARE }.bytes();
    // It may have overtaken what was sent before it, which is acknowledged for a time-out.
    table.send(opening.clone());
    assert_eq!((table.peer.resets().len(), table.peer.acknowledged(port)), (2, Some(CELL_UNITS)));
    table.run(Duration::from_secs(1));
    table.send(opening);
    table.send(Segment { bits: S, port: 5, ..BARE }.bytes());
    table.run(10 * MS);
    assert_eq!(table.cells, [(name, Command::DESTROY, 4)]);
    assert_eq!(table.peer.resets(), [(7, 0), (3, 0), (port, 0), (5, 0)]);
    table.assert_others_live();
}

#[test]
fn flows_beyond_those_permitted_are_refused() {
    let mut table = Table::with(8, |_| {});
    // Some more are borne than permitted: the peer may not have heard yet that others ended.
    let borne = 8 + 8 / 4 + 64;
    for port in 0..borne + 20 {
        let payload = cell(Command::CREATE2);
        table.send(Segment { bits: C | S, port, payload: &payload, ..BARE }.bytes());
    }
    table.run(10 * MS);
    assert_eq!(table.cells.len(), borne as usize);
    let refused: Vec<(u32, u8)> = (borne..borne + 20).map(|port| (port, RESOURCELIMIT)).collect();
    assert_eq!(table.peer.resets(), refused);
    table.next_port = borne + 20;
    table.send(reset(0));
    table.assert_others_live();
}

#[test]
fn flows_without_a_first_cell_are_reset_and_nobody_hears_of_them() {
    let mut table = Table::new(|_| {});
    for port in 0..100 {
        let payload = cell(Command::CREATE2);
        let units = port as usize % 3;
        table.send(Segment { bits: C | S, port, payload: &payload[..units * UNIT], ..BARE }.bytes());
    }
    table.next_port = 100;
    table.run(Duration::from_secs(9));
    assert_eq!((table.cells.len(), table.peer.resets().len()), (0, 0));
    table.run(Duration::from_secs(2));
    let resets = table.peer.resets();
    assert!((0..100).all(|port| resets.contains(&(port, PROTOCOL))));
    assert_eq!(table.cells, []);
    table.assert_others_live();
}

#[test]
fn numbers_from_everywhere_change_nothing_for_others() {
    let mut table = Table::new(|_| {});
    let (port, name) = table.open();
    table.fill(name, 4);
    let mut payload = [0; 6 * UNIT];
    payload[0] = Command::RELAY.0;
    payload[510] = Command::RELAY.0;
    let mut rng = Seed::from_number(5).rng();
    for round in 0..3000_u32 {
        let number = |rng: &mut heddle_seam::rng::Rng| {
            let near = rng.next_u64() as u32 % 800;
            if round % 3 == 0 { rng.next_u64() as u32 & 0xff_ffff } else { near }
        };
        let sack = [(number(&mut rng), number(&mut rng)), (number(&mut rng), number(&mut rng))];
        let bits = C | (rng.next_u64() as u8 & (X | 0x06));
        let segment = Segment {
            bits,
            port,
            seq: number(&mut rng),
            ack: number(&mut rng),
            window: rng.next_u64() as u16,
            sack: &sack[..round as usize % 3],
            payload: &payload[..UNIT * (round as usize % 7)],
        };
        table.send(segment.bytes());
        table.fill(name, 2);
    }
    assert!(table.ours.buffered_bytes() < 4 << 20, "{}", table.ours.buffered_bytes());
    table.send(reset(port));
    table.assert_others_live();
}

#[test]
fn acknowledgements_of_what_was_not_sent_gain_nothing() {
    let mut table = Table::new(|_| {});
    let (port, name) = table.open();
    let sent = table.fill(name, 100);
    table.run(10 * MS);
    let before = table.ours.stats(table.conn);
    for ahead in 1..200 {
        let ack = sent as u32 * CELL_UNITS + ahead * 50;
        let blocks = [(ack, ack + 8), (ack + 20, ack + 10)];
        table.send(Segment { port, seq: CELL_UNITS, ack, sack: &blocks, ..BARE }.bytes());
    }
    let after = table.ours.stats(table.conn);
    assert_eq!((after.window_bytes, after.queued_cells), (before.window_bytes, before.queued_cells));
    table.send(reset(port));
    // What was never acknowledged is in flight until a time-out has passed.
    table.run(Duration::from_secs(1));
    table.assert_others_live();
}

#[test]
fn sacks_that_lie_cost_their_own_flow_only() {
    let mut table = Table::new(|_| {});
    let (port, name) = table.open();
    for round in 0..200 {
        let sent = table.fill(name, 8) as u32 * CELL_UNITS;
        // All that was sent arrived, but not the first; then nothing of it; then the blocks are turned about.
        let blocks = [[(1, sent.max(2))], [(0, 0)], [(sent, 1)]][round % 3];
        table.send(Segment { port, seq: CELL_UNITS, sack: &blocks, ..BARE }.bytes());
        table.run(20 * MS);
    }
    assert!(table.ours.buffered_bytes() < 4 << 20, "{}", table.ours.buffered_bytes());
    table.send(reset(port));
    // What was never acknowledged is in flight until a time-out has passed.
    table.run(Duration::from_secs(1));
    table.assert_others_live();
}

#[test]
fn a_window_that_shrinks_or_stays_shut_holds_up_its_own_flow_only() {
    let mut table = Table::new(|_| {});
    let (port, name) = table.open();
    table.fill(name, 20);
    for window in [300, 20, 3, 0] {
        let ack = table.peer.received(port);
        table.send(Segment { port, seq: CELL_UNITS, ack, window, ..BARE }.bytes());
        table.fill(name, 20);
    }
    // Minutes of it: the flow asks from time to time and keeps what one flow may keep.
    for _ in 0..60 {
        table.run(Duration::from_secs(3));
        table.fill(name, 100);
        let ack = table.peer.received(port);
        table.send(Segment { port, seq: CELL_UNITS, ack, window: 0, ..BARE }.bytes());
    }
    assert!(table.ours.buffered_bytes() < 2 << 20, "{}", table.ours.buffered_bytes());
    assert!(table.ours.capacity(table.conn) > 0, "others may send");
    table.assert_others_live();
}

#[test]
fn floods_of_resets_and_questions_are_answered_in_bounds() {
    let mut table = Table::new(|_| {});
    // Our side may not send: the operator's rates are used up.
    table.sends = false;
    for round in 0..400 {
        let resets: Vec<u8> = (0..250).flat_map(|port| reset(port + round)).collect();
        table.send(resets);
        table.send(control::ping(round));
    }
    table.sends = true;
    table.peer.segments.clear();
    table.next_port = 1000;
    table.run(Duration::from_secs(1));
    let answers = table.peer.segments.iter().map(|contents| frames(contents).len()).sum::<usize>();
    assert!(answers < 20_000, "{answers} answers to 100,000 resets");
    table.assert_others_live();
}

#[test]
fn what_nobody_reads_is_bounded_for_all_flows_together() {
    const FLOWS: u32 = 400;
    let mut table = Table::new(|options| options.session.pool_bytes_max = 1 << 20);
    let ports: Vec<u32> = (0..FLOWS).map(|_| table.open().0).collect();
    // The operator's rate for reading is used up.
    table.reads = false;
    let mut payload = cell(Command::RELAY);
    payload.extend(cell(Command::RELAY));
    for round in 0..40_u32 {
        for &port in &ports {
            let seq = CELL_UNITS + round * 2 * CELL_UNITS;
            table.send(Segment { port, seq, payload: &payload, ..BARE }.bytes());
        }
    }
    table.run(10 * MS);
    let acknowledged: usize =
        ports.iter().filter_map(|port| table.peer.acknowledged(*port)).map(|ack| ack as usize * UNIT).sum();
    println!("{acknowledged} bytes were taken and not read");
    // A session's share of the half for what is received, and the first cells, which were read.
    assert!(acknowledged < (128 << 10) + FLOWS as usize * 510, "{acknowledged}");
    assert!(table.ours.buffered_bytes() < 128 << 10, "{}", table.ours.buffered_bytes());
    table.reads = true;
    table.run(10 * MS);
    table.assert_others_live();
}

#[test]
fn what_is_out_of_order_leaves_memory_for_what_is_not() {
    const FLOWS: u32 = 100;
    let mut table = Table::new(|options| options.session.pool_bytes_max = 1 << 20);
    let ports: Vec<u32> = (0..FLOWS).map(|_| table.open().0).collect();
    let payload = [Command::RELAY.0; 6 * UNIT];
    for gap in 1..50 {
        for &port in &ports {
            table.send(Segment { port, seq: CELL_UNITS + 7 * gap, payload: &payload, ..BARE }.bytes());
        }
    }
    let used = table.ours.buffered_bytes();
    assert!((64 << 10..80 << 10).contains(&used), "{used}");
    table.assert_others_live();
    // Their ends give it back.
    for port in ports {
        table.send(reset(port));
    }
    assert_eq!(table.ours.buffered_bytes(), 0);
}

#[test]
fn proofs_and_lengths_that_come_late_change_nothing() {
    let mut table = Table::new(|_| {});
    let certificate = table.peer.certificate.expect("it was shown");
    let again = control::proof(&table.peer.proofs, &certificate, 5, 0);
    table.send(again);
    for bytes in [0, 1, u16::MAX] {
        table.send(control::seen(bytes));
    }
    for number in [0, 1, 77, u32::MAX] {
        table.send(control::pong(number));
    }
    table.assert_others_live();
}
