//! A peer whose keys and proof are right and who breaks the rules behind them: an association like ours, and packets
//! made by hand.

mod table;

use crate::counting::{counted, counted_bytes};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::endpoint::{ConnectionError, Endpoint};
use heddle_sctp::wire::data::{self, Data, Fragment};
use heddle_sctp::wire::{reconfig, sack};
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;
use table::{MS, Table, cell};

const PROTOCOL: u8 = DestroyReason::PROTOCOL.0;

/// A whole message on a stream.
fn whole(stream: u16, message: u32, payload: &[u8], tsn: u32) -> Data<'_> {
    let fragment = Fragment { stream, message, is_begin: true, is_end: true, ..Fragment::default() };
    Data { tsn, fragment, payload }
}

/// What the peer forges ends the connection for a fault of its own.
fn misbehaves(name: &str, forge: impl FnOnce(&mut Table)) {
    let mut table = Table::new(1000);
    forge(&mut table);
    table.run(10 * MS);
    assert!(matches!(table.ended(), Some(ConnectionError::PeerMisbehaved(_))), "{name}: {:?}", table.events);
    table.run(Duration::from_secs(1));
    assert!(table.peer.is_closed, "{name}: it hears so");
}

#[test]
fn an_honest_flow_lives_beside_no_other() {
    Table::new(1000).assert_others_live();
}

#[test]
fn what_no_honest_association_sends_ends_the_connection() {
    let create = cell(Command::CREATE2);
    misbehaves("a fragment of nothing", |table| {
        table.forge(|writer| writer.chunk(64, 3, |out| out.extend_from_slice(&[0; 16])));
    });
    misbehaves("DATA", |table| {
        let tsn = table.next_tsn();
        table.forge(|writer| data::write(writer, false, &whole(0, 0, &create, tsn)));
    });
    misbehaves("a stream of ours", |table| {
        let tsn = table.next_tsn();
        table.forge(|writer| data::write(writer, true, &whole(1, 0, &create, tsn)));
    });
    misbehaves("a stream that there is not", |table| {
        let tsn = table.next_tsn();
        table.forge(|writer| data::write(writer, true, &whole(65_534, 0, &create, tsn)));
    });
    misbehaves("a message that is longer than a cell", |table| {
        let tsn = table.next_tsn();
        table.forge(|writer| data::write(writer, true, &whole(0, 0, &[7; 600], tsn)));
    });
    misbehaves("an acknowledgement of what was not sent", |table| {
        // Wherever our numbers begin, one of these is ahead.
        table.forge(|writer| {
            for far in [0, 1 << 31] {
                writer.chunk(3, 0, |out| sack::write(far, 1 << 20, &[], &[], out));
            }
        });
    });
    for record in [&[11][..], &[3], &[9, 7], &[1; 30]] {
        misbehaves("a record that there is not", |table| table.send(record.to_vec()));
    }
}

#[test]
fn what_is_no_packet_of_ours_changes_nothing() {
    let mut table = Table::new(1000);
    let mut rng = Seed::from_number(4).rng();
    for len in 0..200_usize {
        let mut bytes = vec![0; 7 * len];
        rng.fill(&mut bytes);
        // The lowest bit of the first byte says whose a record is.
        bytes.iter_mut().take(1).for_each(|first| *first &= !1);
        table.send(bytes);
    }
    table.assert_others_live();
}

/// A cell cut short, a command that is none of a flow's, and DESTROY in order: each costs its flow alone.
#[test]
fn messages_that_are_no_cells_cost_their_flows() {
    let mut table = Table::new(1000);
    for message in [vec![1; 3], cell(Command::PADDING), cell(Command::CREATE2), cell(Command::DESTROY)] {
        let (stream, name) = table.open();
        table.write(stream, message);
        table.run(50 * MS);
        assert_eq!(table.cells, [(name, Command::DESTROY, PROTOCOL)]);
        assert_eq!(table.peer.ends, [(stream, PROTOCOL)]);
        table.peer.ends.clear();
    }
    table.assert_others_live();
}

#[test]
fn flows_beyond_those_permitted_are_refused() {
    let mut table = Table::new(8);
    let borne = 8 + 8 / 4 + 64;
    for number in 0..borne + 20 {
        table.write(2 * number, cell(Command::CREATE2));
    }
    table.run(500 * MS);
    assert_eq!(table.cells.len(), usize::from(borne));
    let is_refused = |(_, reason): &(u16, u8)| *reason == DestroyReason::RESOURCELIMIT.0;
    assert_eq!((table.peer.ends.len(), table.peer.ends.iter().all(is_refused)), (20, true));
    table.next_stream = 2 * (borne + 20);
    // One that ends makes room for one.
    let first = (0..).step_by(2).find(|stream| table.peer.ends.iter().all(|(refused, _)| refused != stream));
    table.write(first.expect("most were borne"), cell(Command::CREATE2));
    table.run(500 * MS);
    table.assert_others_live();
}

/// They open nothing, and take their room and no more.
#[test]
fn messages_that_do_not_end_are_no_flows() {
    let mut table = Table::new(1000);
    for number in 0..50 {
        let tsn = table.next_tsn();
        let mut begun = whole(2 * number, 0, &[1, 2, 3], tsn);
        begun.fragment.is_end = false;
        table.forge(|writer| data::write(writer, true, &begun));
    }
    table.run(Duration::from_secs(12));
    assert_eq!(table.cells, []);
    assert!(table.ours.buffered_bytes() < 50 * 200, "{}", table.ours.buffered_bytes());
}

/// Fragments behind a gap that is never filled take what a connection may have, and others live.
#[test]
fn holes_take_no_more_than_their_share() {
    let mut table = Table::new(1000);
    let first = table.next_tsn();
    let payload = cell(Command::RELAY);
    for number in 1..30_000 {
        let tsn = first.wrapping_add(number);
        table.forge(|writer| data::write(writer, true, &whole(0, number, &payload, tsn)));
    }
    let most = 64 * 1024 + 8 * 1024 * 1024;
    assert!(table.ours.buffered_bytes() <= most, "{}", table.ours.buffered_bytes());
    assert!(table.ours.buffered_bytes() >= most / 2, "{}", table.ours.buffered_bytes());
    assert_eq!(table.ended(), None);
}

/// A peer who acknowledges nothing has no more kept for it than a connection may have.
#[test]
fn who_acknowledges_nothing_is_sent_no_more() {
    let mut table = Table::new(1000);
    let (_, name) = table.open();
    table.peer.is_deaf = true;
    for _ in 0..1000 {
        table.fill(name, 10_000);
        table.run(10 * MS);
    }
    assert!(table.ours.buffered_bytes() < 64 * 1024, "{}", table.ours.buffered_bytes());
}

/// Resets that nobody asked for, of streams that there are not, again and again, out of turn, and all at once.
#[test]
fn resets_out_of_turn_cost_their_flows_at_most() {
    let mut table = Table::new(1000);
    let (_, name) = table.open();
    let tsn = table.next_tsn().wrapping_sub(1);
    for number in 0..500_u32 {
        let streams: Vec<u16> = (0..200).map(|stream| stream * 7 + number as u16).collect();
        table.forge(|writer| {
            writer.chunk(130, 0, |out| reconfig::write_request(number << 20, 0, tsn, &streams, out));
        });
        table.forge(|writer| writer.chunk(130, 0, |out| reconfig::write_answer(number, 1, out)));
    }
    assert_eq!(table.cells, []);
    // The right number, and all streams.
    let number = table.peer_first_tsn();
    table.forge(|writer| writer.chunk(130, 0, |out| reconfig::write_request(number, 0, tsn, &[], out)));
    table.run(50 * MS);
    assert_eq!(table.cells, [(name, Command::DESTROY, DestroyReason::CHANNEL_CLOSED.0)]);
    assert_eq!(table.ended(), None);
}

#[test]
fn what_is_said_of_state_is_what_an_allocator_says() {
    for flows in [1, 1_000, 10_000] {
        let before = counted_bytes();
        let mut table = Table::new(u32::from(flows));
        for number in 0..flows {
            table.write(2 * number, cell(Command::CREATE2));
            if number % 64 == 0 {
                table.exchange_all();
            }
        }
        table.run(100 * MS);
        assert_eq!(table.cells.len(), usize::from(flows));
        let real = counted_bytes() - before - table.ours.buffered_bytes();
        let said = table.ours.state_bytes();
        println!("{flows} flows: {said} bytes are said of {real}");
        assert!(10 * said >= 8 * real && 10 * said <= 16 * real, "{flows} flows: {said} of {real}");
    }
}

/// Of flows that are over there is little left, and nothing of a connection.
#[test]
fn state_goes_with_flows_and_connections() {
    let mut table = Table::new(1000);
    for number in 0..1000 {
        table.write(2 * number, cell(Command::CREATE2));
    }
    table.run(Duration::from_secs(1));
    let (all, conn) = (table.ours.state_bytes(), table.conn);
    let names: Vec<CircId> = table.cells.drain(..).map(|(name, ..)| name).collect();
    assert_eq!(names.len(), 1000);
    for name in names {
        let now = table.now;
        counted(|| table.ours.send(now, conn, name, Command::DESTROY, &[0; BODY_LEN]));
    }
    table.run(Duration::from_secs(2));
    assert_eq!(table.peer.ends.len(), 1000);
    (0..1000).for_each(|number| table.peer.reset_stream(2 * number));
    table.run(Duration::from_secs(2));
    let left = table.ours.state_bytes();
    assert!(4 * left < 3 * all, "{left} of {all}");
    assert_eq!(table.ours.buffered_bytes(), 0);
    let now = table.now;
    counted(|| table.ours.close(now, conn));
    table.run(Duration::from_secs(10));
    assert_eq!(table.ours.state_bytes(), 0);
}
