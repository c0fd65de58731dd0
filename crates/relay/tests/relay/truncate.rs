//! TRUNCATE while the way to the next relay is not there yet.

use super::bench::{Bench, Sock, config};
use super::circuits::destroys;
use super::client::{Client, Hop, Kind, extend, theirs};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::crypto::onionskin::ClientHandshake;
use heddle_relay::{Limits, RelayConfig};

/// The relay that circuits go on to.
const NEXT: u8 = 2;

fn ask_to_extend(bench: &mut Bench, client: &mut Client) -> ClientHandshake {
    let (handshake, data) = client.extend2(NEXT);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
    handshake
}

/// The circuit ends with the relay under test, and the client hears of it at once.
fn truncate(bench: &mut Bench, client: &mut Client) {
    client.send(bench, RelayCommand::TRUNCATE, 0, &[DestroyReason::FINISHED.0]);
    let got = client.got_one(bench);
    assert_eq!((got.command, &got.data[..]), (RelayCommand::TRUNCATED, &[DestroyReason::REQUESTED.0][..]));
}

/// The next relay agrees to the circuit, which then carries data.
fn expect_extended(bench: &mut Bench, client: &mut Client, next: Sock, handshake: ClientHandshake) {
    let mut hop = Hop::answer(bench, next, NEXT);
    let got = client.got_one(bench);
    client.extended(handshake, &got);
    hop.send(bench, RelayCommand::DATA, 1, &[5]);
    assert_eq!(client.got_one(bench).data, [5]);
}

#[test]
fn truncate_ends_a_dial_that_nobody_else_waits_for() {
    let mut bench = Bench::new(config());
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    ask_to_extend(&mut bench, &mut client);
    let (id, _) = bench.shards[0].connects[0];
    truncate(&mut bench, &mut client);
    assert!(bench.gone(Sock { shard: 0, id }).is_some());
    assert!(bench.shards[0].connects.is_empty());
    let mut hop = extend(&mut bench, &mut client, NEXT);
    hop.send(&mut bench, RelayCommand::DATA, 1, &[5]);
    assert_eq!(client.got_one(&mut bench).data, [5]);
}

#[test]
fn truncate_leaves_a_dial_to_others_that_wait_for_it() {
    let mut bench = Bench::new(config());
    let socks = [bench.client_channel(0), bench.relay_channel(0, 1)];
    let [mut gives_up, mut waits] = socks.map(|sock| Client::create(&mut bench, sock, theirs(1), Kind::Fast));
    ask_to_extend(&mut bench, &mut gives_up);
    let handshake = ask_to_extend(&mut bench, &mut waits);
    truncate(&mut bench, &mut gives_up);
    assert_eq!(bench.shards[0].connects.len(), 1);
    let next = bench.answer_dial(0, NEXT);
    // One CREATE2 comes and no more.
    expect_extended(&mut bench, &mut waits, next, handshake);
    assert_eq!(gives_up.got(&mut bench), []);
    let handshake = ask_to_extend(&mut bench, &mut gives_up);
    expect_extended(&mut bench, &mut gives_up, next, handshake);
}

#[test]
fn an_answer_to_create2_that_comes_after_truncate_joins_nothing() {
    let mut bench = Bench::new(config());
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    ask_to_extend(&mut bench, &mut client);
    let next = bench.answer_dial(0, NEXT);
    let cells = bench.cells(next);
    let [create2] = &cells[..] else { panic!("CREATE2 is expected: {cells:?}") };
    let (late, created2) = Hop::accept(next, NEXT, create2);
    truncate(&mut bench, &mut client);
    assert_eq!(destroys(&mut bench, next), [(late.circ_id.get(), DestroyReason::FINISHED)]);
    bench.send(next, late.circ_id, Command::CREATED2, &created2);
    assert_eq!(client.got(&mut bench), []);
    // Nor does it join what is asked for next.
    let handshake = ask_to_extend(&mut bench, &mut client);
    bench.send(next, late.circ_id, Command::CREATED2, &created2);
    assert_eq!(client.got(&mut bench), []);
    expect_extended(&mut bench, &mut client, next, handshake);
    assert_eq!(bench.circuits(), 1);
}

/// A relay that has one CREATE2 unanswered with the next at a time, two circuits, and its channel there.
fn one_at_a_time() -> (Bench, [Client; 2], Sock) {
    let limits = Limits { creates_unanswered: 1, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.list(&[1, NEXT]);
    let next = bench.relay_channel(0, NEXT);
    let socks = [bench.client_channel(0), bench.relay_channel(0, 1)];
    let clients = socks.map(|sock| Client::create(&mut bench, sock, theirs(1), Kind::Fast));
    (bench, clients, next)
}

#[test]
fn truncate_gives_up_a_turn_before_it_comes() {
    let (mut bench, [mut first, mut second], next) = one_at_a_time();
    let handshake = ask_to_extend(&mut bench, &mut first);
    ask_to_extend(&mut bench, &mut second);
    truncate(&mut bench, &mut second);
    // With this answer its turn would have come.
    expect_extended(&mut bench, &mut first, next, handshake);
    assert_eq!(bench.cells(next), []);
    let handshake = ask_to_extend(&mut bench, &mut second);
    expect_extended(&mut bench, &mut second, next, handshake);
}

#[test]
fn truncate_leaves_its_turn_to_the_next() {
    let (mut bench, [mut first, mut second], next) = one_at_a_time();
    ask_to_extend(&mut bench, &mut first);
    let handshake = ask_to_extend(&mut bench, &mut second);
    assert_eq!(bench.cells(next).len(), 1);
    truncate(&mut bench, &mut first);
    let cells = bench.cells(next);
    let commands: Vec<Command> = cells.iter().map(|cell| cell.command).collect();
    assert_eq!(commands, [Command::DESTROY, Command::CREATE2]);
    let (hop, created2) = Hop::accept(next, NEXT, &cells[1]);
    bench.send(next, hop.circ_id, Command::CREATED2, &created2);
    let got = second.got_one(&mut bench);
    second.extended(handshake, &got);
}
