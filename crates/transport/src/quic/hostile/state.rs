//! What connections and flows take beside the bytes that come on them, against what is said of it.

use super::{Table, cell};
use crate::counting::{counted, counted_bytes};
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::endpoint::{ConnectionError, ConnectionEvent, Endpoint};
use heddle_seam::time::Duration;
use quinn_proto::{Dir, TransportConfig, VarInt};

/// A connection whose peer has so many flows, each with a cell that was read, and answered if `answers`.
fn with_flows(flows: u32, answers: bool) -> Table {
    let mut table = Table::of(flows, TransportConfig::default()).prove();
    while (table.cells.len() as u32) < flows {
        // More are permitted as they are used.
        for _ in 0..64 {
            let Some(id) = table.peer.connection.streams().open(Dir::Bi) else { break };
            table.peer.write(id, &cell(Command::CREATE2));
        }
        table.exchange_all();
    }
    let names: Vec<CircId> = table.cells.iter().map(|(name, ..)| *name).collect();
    for name in names.into_iter().filter(|_| answers) {
        counted(|| table.ours.send(table.now, table.conn, name, Command::CREATED2, &[0; BODY_LEN]));
        table.exchange();
    }
    table.exchange_all();
    table
}

#[test]
fn what_is_said_of_state_is_what_an_allocator_says() {
    for (flows, answers) in [(1, false), (1_000, false), (1_000, true), (50_000, false)] {
        let before = counted_bytes();
        let table = with_flows(flows, answers);
        assert_eq!(table.ours.buffered_bytes(), 0);
        let (real, said) = (counted_bytes() - before, table.ours.state_bytes());
        println!("{flows} flows: {said} bytes are said of {real}");
        assert!(10 * said >= 9 * real && 10 * said <= 13 * real, "{flows} flows: {said} of {real}");
    }
}

/// The relay ends all flows, and the peer agrees.
fn end_all(table: &mut Table) {
    let (mut names, conn) = (Vec::new(), table.conn);
    table.ours.backlogs(&mut |backlog| names.push(backlog.circ_id));
    for name in names {
        counted(|| table.ours.send(table.now, conn, name, Command::DESTROY, &[0; BODY_LEN]));
    }
    table.run(Duration::from_secs(1));
    for (id, code) in core::mem::take(&mut table.peer.stopped) {
        let code = VarInt::from_u64(code).expect("it came as one");
        // The first byte of some was lost: there is nothing left to reset.
        let _ = table.peer.connection.send_stream(id).reset(code);
    }
    table.run(Duration::from_secs(1));
    assert_eq!(table.ours.buffered_bytes(), 0);
}

/// What quinn-proto and tables keep of flows that are over counts, and of connections that are over nothing is kept.
#[test]
fn state_goes_with_flows_and_connections() {
    let before = counted_bytes();
    let mut table = with_flows(1_000, true);
    let all = table.ours.state_bytes();
    end_all(&mut table);
    let (real, left) = (counted_bytes() - before, table.ours.state_bytes());
    println!("{left} bytes are said of {real}, of {all}");
    assert!(left < all && 10 * left >= 9 * real && 10 * left <= 13 * real, "{left} of {real}");
    table.ours.close(table.now, table.conn);
    table.run(Duration::from_secs(60));
    assert_eq!(table.ours.state_bytes(), 0);
}

/// So many flows of ours, one after the other, that we end as soon as they were answered.
fn end_flows_of_ours(table: &mut Table, numbers: core::ops::Range<u32>) {
    let conn = table.conn;
    for number in numbers {
        let name = CircId::new(number).expect("not zero");
        let send = |table: &mut Table, command| {
            counted(|| table.ours.send(table.now, conn, name, command, &[0; BODY_LEN]));
            table.run(Duration::from_millis(1));
        };
        send(table, Command::CREATE2);
        let stream = table.peer.connection.streams().accept(Dir::Bi).expect("it came");
        table.peer.write(stream, &cell(Command::CREATED2));
        table.run(Duration::from_millis(1));
        send(table, Command::DESTROY);
    }
}

/// The peer agrees to the end of flows.
fn agree(table: &mut Table) {
    for (id, code) in core::mem::take(&mut table.peer.stopped) {
        let code = VarInt::from_u64(code).expect("it came as one");
        let _ = table.peer.connection.send_stream(id).reset(code);
    }
    table.run(Duration::from_secs(1));
}

/// A table whose peer permits as many flows as it can count.
fn permitting() -> Table {
    let mut table = Table::proven();
    table.peer.connection.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(20_000));
    table.run(Duration::from_millis(100));
    table
}

#[test]
fn flows_of_ours_that_we_ended_count_until_the_peer_agrees() {
    let mut table = permitting();
    end_flows_of_ours(&mut table, 1..100);
    let (before, said_before) = (counted_bytes(), table.ours.state_bytes());
    end_flows_of_ours(&mut table, 100..3_000);
    let (real, said) = (counted_bytes() - before, table.ours.state_bytes() - said_before);
    println!("{said} bytes are said of {real}");
    assert!(10 * said >= 9 * real && 10 * said <= 14 * real, "{said} of {real}");
    // Who agrees each time leaves no more than what quinn uses again, which has an end.
    let mut honest = permitting();
    let mut after = |rounds: core::ops::Range<u32>| {
        for hundred in rounds {
            end_flows_of_ours(&mut honest, 100 * hundred + 1..100 * hundred + 101);
            agree(&mut honest);
        }
        honest.ours.state_bytes()
    };
    let used_again = after(0..25);
    assert!(used_again < said / 2, "{used_again} of {said}");
    let later = after(25..40);
    assert!(later <= used_again + used_again / 20, "{later} of {used_again}");
}

#[test]
fn a_peer_that_does_not_agree_to_ends_is_given_up_when_memory_is_short() {
    let (mut stubborn, mut honest) = (permitting(), permitting());
    for table in [&mut stubborn, &mut honest] {
        end_flows_of_ours(table, 1..101);
        table.events.clear();
        table.ours.forget_ended(table.now);
    }
    agree(&mut honest);
    for table in [&mut stubborn, &mut honest] {
        table.run(Duration::from_secs(29));
        table.ours.forget_ended(table.now);
        table.run(Duration::from_secs(1));
        assert_eq!(table.events, [], "a path may be still for 20 s");
        table.ours.forget_ended(table.now);
        table.run(Duration::from_millis(100));
    }
    let ended =
        |event: &ConnectionEvent| matches!(event, ConnectionEvent::Ended(ConnectionError::PeerMisbehaved(_)));
    assert!(stubborn.events.iter().any(ended), "{:?}", stubborn.events);
    assert_eq!(honest.events, []);
    stubborn.run(Duration::from_secs(60));
    assert_eq!(stubborn.ours.state_bytes(), 0, "all of it is free");
}

/// A flow whose peer leaves a thousand holes has quinn-proto grow a list that it keeps and uses again.
#[test]
fn what_quinn_keeps_to_use_again_counts() {
    const FLOWS: u32 = 20;
    let before = counted_bytes();
    let mut table = super::hoard::with_pieces(FLOWS, 500);
    let held = table.ours.buffered_bytes();
    assert!(held > FLOWS as usize * 100_000, "{held} bytes");
    end_all(&mut table);
    let (real, said) = (counted_bytes() - before, table.ours.state_bytes());
    println!("{said} bytes are said of {real}");
    assert!(10 * said >= 9 * real && 10 * said <= 13 * real, "{said} of {real}");
}
