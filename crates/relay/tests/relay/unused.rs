//! Circuits that nobody uses give way to others when there is no room: whoever brings many and leaves them keeps no
//! place from anybody for longer than a minute.

use super::bench::{Bench, Cell, Sock, config};
use super::client::{Client, Hop, Kind, theirs};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

fn bench(circuits: usize) -> Bench {
    Bench::new(RelayConfig { limits: Limits { circuits, ..Limits::default() }, ..config() })
}

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Circuits of a channel that were ended for want of room.
fn crowded_out(cells: &[Cell]) -> Vec<u32> {
    let ended = cells.iter().filter(|cell| {
        cell.command == Command::DESTROY && DestroyReason::parse(&cell.body) == DestroyReason::RESOURCELIMIT
    });
    ended.map(|cell| cell.circ_id.get() & !(1 << 31)).collect()
}

/// Asks for a circuit; returns whether it was made, and which others ended for it.
fn ask(bench: &mut Bench, sock: Sock, id: u32) -> (bool, Vec<u32>) {
    bench.cells(sock);
    bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
    let cells = bench.cells(sock);
    let is_made =
        cells.iter().any(|cell| cell.command == Command::CREATED_FAST && cell.circ_id == theirs(id));
    (is_made, crowded_out(&cells).into_iter().filter(|ended| *ended != id).collect())
}

/// Begins so many circuits on a channel, one after the other; returns how many were made.
fn bring(bench: &mut Bench, sock: Sock, first: u32, count: u32) -> usize {
    (first..first + count).filter(|id| ask(bench, sock, *id).0).count()
}

/// One client brought 50,000 circuits through a relay that it had not to run, left them, and nobody else behind that
/// relay got any for as long as it liked.
#[test]
fn whoever_leaves_circuits_behind_a_relay_keeps_it_from_nobody() {
    let mut bench = bench(40);
    bench.list(&[1]);
    let relay = bench.relay_channel(0, 1);
    let held = bring(&mut bench, relay, 1, 40) as u32;
    assert!((15..=20).contains(&held), "its share, {held}");
    bench.pass(minutes(10));
    for number in 1..=10 {
        assert_eq!(ask(&mut bench, relay, 100 + number), (true, vec![number]), "the one unused longest ends");
    }
    assert_eq!(bench.circuits(), held as usize);
    // Who comes one after the other within a minute gets what is free and no more.
    let more = bring(&mut bench, relay, 200, 40);
    assert_eq!(more as u32, held - 10, "those that were left, and none that is a minute old");
}

/// Nor do those keep a place that lead to a relay of the same client, whatever that answers.
#[test]
fn circuits_that_go_on_and_carry_nothing_give_way_too() {
    for answers in [true, false] {
        let mut bench = bench(40);
        bench.list(&[1, 2]);
        let [relay, next] = [1, 2].map(|number| bench.relay_channel(0, number));
        let mut circuits = Vec::new();
        let is_refused = |client: &mut Client, bench: &mut Bench| client.destroyed(bench).is_some();
        for id in 1..=40 {
            bench.cells(relay);
            let mut client = Client::new(relay, theirs(id));
            let (handshake, command, body) = client.onionskin(Kind::Fast, super::bench::OURS);
            bench.send(relay, theirs(id), command, &body);
            let cells = bench.cells(relay);
            if cells[0].command == Command::DESTROY {
                break;
            }
            client.finish(handshake, &cells[0]);
            let (handshake, data) = client.extend2(2);
            client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
            if answers {
                Hop::answer(&mut bench, next, 2);
                let got = client.got_one(&mut bench);
                client.extended(handshake, &got);
            }
            circuits.push(client);
        }
        let held = circuits.len();
        assert!((15..=20).contains(&held), "its share, {held}");
        // The first of them is used all the while, if it can be.
        for _ in 0..20 {
            bench.pass(minutes(1) / 2);
            if answers {
                circuits[0].send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
            }
        }
        assert!(!is_refused(&mut circuits[0], &mut bench));
        let first = if answers { 2 } else { 1 };
        assert_eq!(ask(&mut bench, relay, 100), (true, vec![first]), "answers: {answers}");
        assert_eq!(bench.circuits(), held);
    }
}

/// What leads nowhere goes first, then what is quiet; what has a stream or just got one stays.
#[test]
fn circuits_with_streams_do_not_give_way() {
    let mut bench = bench(40);
    bench.list(&[1, 2]);
    let relay = bench.relay_channel(0, 1);
    let mut circuits: Vec<Client> =
        (1..=4).map(|id| Client::create(&mut bench, relay, theirs(id), Kind::Fast)).collect();
    circuits[0].connect(&mut bench, 1);
    let next = bench.relay_channel(0, 2);
    let (handshake, data) = circuits[1].extend2(2);
    circuits[1].send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    Hop::answer(&mut bench, next, 2);
    let got = circuits[1].got_one(&mut bench);
    circuits[1].extended(handshake, &got);
    bench.pass(minutes(10));
    bring(&mut bench, relay, 10, 40);
    // Those are too young. Of the four the last two led nowhere, and then the second was quiet.
    let ended: Vec<u32> = circuits.iter().map(|client| client.circ_id.get() & !(1 << 31)).collect();
    assert_eq!(ended, [1, 2, 3, 4]);
    let stats = bench.shards[0].relay.stats();
    assert_eq!(stats.refused.get(&("circuit", "gave_way")), Some(&3), "{:?}", stats.refused);
    circuits[0].begin(&mut bench, 2, "203.0.114.7:80");
    assert_eq!(bench.shards[0].connects.len(), 1, "the first is there");
}

/// A circuit that was marked as unused and is used again is looked at before it has to go.
#[test]
fn circuits_that_are_used_again_do_not_give_way() {
    let mut bench = bench(40);
    bench.list(&[1]);
    let relay = bench.relay_channel(0, 1);
    let mut first = Client::create(&mut bench, relay, theirs(1), Kind::Fast);
    bring(&mut bench, relay, 2, 40);
    bench.pass(minutes(10));
    first.connect(&mut bench, 1);
    assert_eq!(ask(&mut bench, relay, 100), (true, vec![2]));
}

/// Relays had a reserve and others had none: through seven relays a client took 99 of 100 circuits.
#[test]
fn others_have_a_reserve_beside_relays() {
    let mut bench = bench(400);
    let listed: Vec<u8> = (1..=40).collect();
    bench.list(&listed);
    for number in listed {
        let relay = bench.relay_channel(0, number);
        bring(&mut bench, relay, 1, 300);
    }
    assert_eq!(bench.circuits(), 300, "all but a quarter");
    let mut got = |number| {
        let sock = bench.client_at(0, client(number));
        bring(&mut bench, sock, 1, 30)
    };
    assert_eq!(got(1), 20, "a fifth of the hundred that are left");
    assert!((2..=30).all(|number| got(number) > 0), "who comes late, too");
    assert_eq!(bench.circuits(), 400);
}

/// A circuit that crosses holds a place in both shards, and gives way in either.
#[test]
fn circuits_that_cross_and_carry_nothing_give_way() {
    let limits = Limits { circuits: 40, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, shards: 2, ..config() });
    bench.list(&[1, 2]);
    let next = bench.relay_channel(1, 2);
    let here = bench.relay_channel(0, 1);
    let mut crossing = Client::create(&mut bench, here, theirs(1), Kind::Fast);
    let (handshake, data) = crossing.extend2(2);
    crossing.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    Hop::answer(&mut bench, next, 2);
    let got = crossing.got_one(&mut bench);
    crossing.extended(handshake, &got);
    bench.pass(minutes(10));
    let there = bench.relay_channel(1, 1);
    bring(&mut bench, there, 1, 40);
    assert_eq!(crossing.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
}
