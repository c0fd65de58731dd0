//! Circuits that cross from one shard of a relay to another. The bench holds every lane between
//! shards to its window.

use super::bench::{Bench, Sock, config, or_port};
use super::client::{Client, Hop, Kind, theirs};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::RelayConfig;
use heddle_seam::node::SocketError;
use heddle_seam::time::Duration;

fn two_shards() -> Bench {
    Bench::new(RelayConfig { shards: 2, ..config() })
}

/// A circuit that begins at one shard and goes on over a channel of the other.
fn crossing(bench: &mut Bench, from: usize) -> (Client, Hop) {
    let next = bench.relay_channel(1 - from, 2);
    let sock = bench.client_channel(from);
    let mut client = Client::create(bench, sock, theirs(1), Kind::Fast);
    let (handshake, data) = client.extend2(2);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
    let hop = Hop::answer(bench, next, 2);
    let got = client.got_one(bench);
    client.extended(handshake, &got);
    assert!(bench.shards.iter().all(|shard| shard.connects.is_empty()));
    (client, hop)
}

fn destroy_reasons(bench: &mut Bench, sock: Sock) -> Vec<DestroyReason> {
    let cells = bench.cells(sock);
    let destroys = cells.iter().filter(|cell| cell.command == Command::DESTROY);
    destroys.map(|cell| DestroyReason::parse(&cell.body)).collect()
}

#[test]
fn a_circuit_crosses_to_the_shard_that_has_the_channel() {
    for from in 0..2 {
        let mut bench = two_shards();
        let (mut client, mut hop) = crossing(&mut bench, from);
        for round in 0..200 {
            client.send_to(&mut bench, 1, RelayCommand::DATA, 3, &[round]);
            assert_eq!(hop.got(&mut bench)[0].data, [round]);
            hop.send(&mut bench, RelayCommand::DATA, 3, &[round]);
            assert_eq!(client.got_one(&mut bench).data, [round]);
        }
        assert_eq!((bench.circuits(), bench.queued_cells()), (2, 0));
    }
}

#[test]
fn relay_early_stays_early() {
    let mut bench = two_shards();
    let (mut client, hop) = crossing(&mut bench, 0);
    let body = client.seal(1, RelayCommand::EXTEND2, 0, &[]);
    bench.send(client.sock, client.circ_id, Command::RELAY_EARLY, &body);
    assert_eq!(bench.cells(hop.sock)[0].command, Command::RELAY_EARLY);
}

#[test]
fn two_shards_never_dial_the_same_relay() {
    let mut bench = two_shards();
    let mut clients = Vec::new();
    for shard in [1, 0] {
        let sock = bench.client_channel(shard);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let (handshake, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        clients.push((client, handshake));
    }
    assert_eq!((bench.shards[0].connects.len(), bench.shards[1].connects.len()), (0, 1));
    let next = bench.answer_dial(1, 2);
    for create in bench.cells(next) {
        let (hop, created2) = Hop::accept(next, 2, &create);
        bench.send(next, hop.circ_id, Command::CREATED2, &created2);
    }
    for (mut client, handshake) in clients {
        let got = client.got_one(&mut bench);
        client.extended(handshake, &got);
    }
}

/// A client that does not read stops its own lane at the window, and no other's.
#[test]
fn a_slow_lane_holds_nobody_up() {
    let mut bench = two_shards();
    let (mut slow, mut slow_hop) = crossing(&mut bench, 0);
    let sock = bench.client_channel(0);
    let mut quick = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (handshake, data) = quick.extend2(2);
    quick.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let mut quick_hop = Hop::answer(&mut bench, slow_hop.sock, 2);
    let got = quick.got_one(&mut bench);
    quick.extended(handshake, &got);

    bench.set_willing(slow.sock, false);
    bench.grant(slow.sock, 0);
    for _ in 0..500 {
        slow_hop.send(&mut bench, RelayCommand::DATA, 1, &[1; 498]);
    }
    let waiting: Vec<u32> = bench.shards.iter().map(|shard| shard.relay.queued_cells()).collect();
    // The window is 64 cells.
    assert_eq!(waiting, [64, 436]);
    for round in 0..100 {
        quick_hop.send(&mut bench, RelayCommand::DATA, 1, &[round]);
        assert_eq!(quick.got_one(&mut bench).data, [round]);
    }
    bench.set_willing(slow.sock, true);
    assert_eq!(slow.got(&mut bench).len(), 500);
    assert_eq!(bench.queued_cells(), 0);
}

#[test]
fn the_end_of_a_circuit_crosses() {
    // From the client, and from the relay ahead.
    let mut bench = two_shards();
    let (client, hop) = crossing(&mut bench, 0);
    bench.send(client.sock, client.circ_id, Command::DESTROY, &[0]);
    assert_eq!(destroy_reasons(&mut bench, hop.sock), [DestroyReason::DESTROYED]);
    assert_eq!(bench.circuits(), 0);

    let mut bench = two_shards();
    let (mut client, hop) = crossing(&mut bench, 1);
    bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[5]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::DESTROYED));
    assert_eq!(bench.circuits(), 0);
}

#[test]
fn a_broken_channel_is_heard_of_at_the_other_shard() {
    let mut bench = two_shards();
    let (mut client, hop) = crossing(&mut bench, 0);
    bench.fail(hop.sock, SocketError::Reset);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::CHANNEL_CLOSED));

    let mut bench = two_shards();
    let (client, hop) = crossing(&mut bench, 0);
    bench.fail(client.sock, SocketError::Reset);
    assert_eq!(destroy_reasons(&mut bench, hop.sock), [DestroyReason::CHANNEL_CLOSED]);
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
}

#[test]
fn truncate_crosses_as_destroy() {
    let mut bench = two_shards();
    let (mut client, hop) = crossing(&mut bench, 0);
    client.send(&mut bench, RelayCommand::TRUNCATE, 0, &[DestroyReason::FINISHED.0]);
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::TRUNCATED);
    assert_eq!(destroy_reasons(&mut bench, hop.sock), [DestroyReason::FINISHED]);
    assert_eq!(bench.circuits(), 1);
}

/// The shard that has the channel loses it after it was named: it dials, and that fails.
#[test]
fn a_dial_that_fails_at_the_other_shard_ends_the_circuit() {
    let mut bench = two_shards();
    let next = bench.relay_channel(1, 2);
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (_, data) = client.extend2(2);
    bench.delivering = false;
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    bench.fail(next, SocketError::Reset);
    bench.delivering = true;
    bench.settle();
    let (id, to) = bench.shards[1].connects[0];
    assert_eq!(to, or_port(2));
    bench.fail(Sock { shard: 1, id }, SocketError::Refused);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::CONNECTFAILED));
    assert_eq!(bench.circuits(), 0);
}

/// While a shard asks who is to dial, the relay that is wanted dials that shard.
#[test]
fn a_channel_that_opens_before_the_answer_is_used() {
    let mut bench = two_shards();
    let sock = bench.client_channel(1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (handshake, data) = client.extend2(2);
    bench.delivering = false;
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let next = bench.relay_channel(1, 2);
    bench.delivering = true;
    bench.settle();
    assert!(bench.shards.iter().all(|shard| shard.connects.is_empty()));
    Hop::answer(&mut bench, next, 2);
    let got = client.got_one(&mut bench);
    client.extended(handshake, &got);
}

/// Answers of the directory that come after the circuit went another way change nothing.
#[test]
fn late_answers_of_the_directory_are_ignored() {
    let mut bench = two_shards();
    let sock = bench.client_channel(1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    bench.delivering = false;
    let (_, first) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &first);
    client.send(&mut bench, RelayCommand::TRUNCATE, 0, &[0]);
    let (handshake, second) = client.extend2(3);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &second);
    bench.delivering = true;
    bench.settle();
    assert_eq!(bench.shards[1].connects.iter().map(|(_, to)| *to).collect::<Vec<_>>(), [or_port(3)]);
    let next = bench.answer_dial(1, 3);
    Hop::answer(&mut bench, next, 3);
    let got = client.got(&mut bench);
    assert_eq!(got[0].command, RelayCommand::TRUNCATED);
    client.extended(handshake, &got[1]);
    let directory: usize = bench.shards.iter().map(|shard| shard.relay.in_use().directory).sum();
    assert_eq!(directory, 1);
}

/// Nobody can make the directory grow by asking and leaving.
#[test]
fn the_directory_forgets_who_does_not_dial() {
    let mut bench = two_shards();
    let sock = bench.client_channel(1);
    for number in 2..90 {
        let mut client = Client::create(&mut bench, sock, theirs(u32::from(number)), Kind::Fast);
        bench.delivering = false;
        let (_, data) = client.extend2(number);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        bench.send(sock, client.circ_id, Command::DESTROY, &[0]);
        bench.delivering = true;
        bench.settle();
        bench.cells(sock);
    }
    assert!(bench.shards.iter().all(|shard| shard.relay.in_use().directory == 0));
}

#[test]
fn a_relay_is_dialled_again_after_its_channel_closed() {
    let mut bench = two_shards();
    let next = bench.relay_channel(1, 2);
    bench.pass(Duration::from_secs(400));
    assert!(bench.gone(next).is_some());
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (_, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert_eq!((bench.shards[0].connects.len(), bench.shards[1].connects.len()), (1, 0));
}
