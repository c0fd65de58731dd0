//! DESTROY cells that their reader leaves unread: they are no circuits any more, and still take memory.

use super::bench::{Bench, Sock, config};
use super::client::{Client, Hop, Kind, theirs};
use heddle_proto::cell::frame::write_fixed;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{BODY_LEN, Command};
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

/// What a link may leave unread and nobody counts.
const UNCOUNTED: usize = 256;

fn bench(circuits: usize) -> Bench {
    let mut bench = Bench::new(RelayConfig { limits: Limits { circuits, ..Limits::default() }, ..config() });
    bench.list(&[1]);
    bench
}

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

fn stop_reading(bench: &mut Bench, sock: Sock) {
    bench.cells(sock);
    bench.set_willing(sock, false);
    bench.grant(sock, 0);
}

/// Opens circuits on a channel until there is no room, stops to read, and breaks all of them. Returns how many there
/// were.
fn break_all(bench: &mut Bench, sock: Sock) -> u32 {
    let mut cells = Vec::new();
    (1..=20_000).for_each(|id| write_fixed(&mut cells, theirs(id).get(), Command::CREATE_FAST, &[1; 20]));
    bench.write(sock, &cells);
    let made: Vec<_> =
        bench.cells(sock).into_iter().filter(|cell| cell.command == Command::CREATED_FAST).collect();
    stop_reading(bench, sock);
    let mut cells = Vec::new();
    made.iter().for_each(|cell| write_fixed(&mut cells, cell.circ_id.get(), Command::RELAY, &[1; BODY_LEN]));
    bench.write(sock, &cells);
    made.len() as u32
}

/// An address that opened its share of circuits on one channel after the other, broke them and read nothing of it had a
/// relay remember 15,000 DESTROY cells for each of 1,800 channels.
#[test]
fn destroys_that_are_not_read_count_as_circuits() {
    let mut bench = bench(20_000);
    let share = 3_000;
    for number in 0..3 {
        let sock = bench.client_at(0, client(1));
        let made = break_all(&mut bench, sock);
        assert!(number > 0 || made == share, "{made} are a fifth of what is not reserved");
    }
    let held = bench.shards[0].relay.in_use();
    assert_eq!(held.circuits, 0);
    assert!(held.circ_ids <= share as usize + 3 * UNCOUNTED, "{held:?}");
    // Others do not notice.
    let other = bench.client_at(0, client(2));
    Client::create(&mut bench, other, theirs(1), Kind::Fast);
}

/// They cannot be left for as long as a channel may be stuck, also where a little is read now and then.
#[test]
fn who_leaves_many_destroys_unread_loses_the_channel() {
    let mut bench = bench(20_000);
    let sock = bench.client_at(0, client(1));
    break_all(&mut bench, sock);
    for second in 0..60 {
        assert_eq!(bench.gone(sock), None, "after {second} s");
        bench.grant(sock, 600);
        bench.pass(Duration::from_secs(1));
    }
    assert!(bench.gone(sock).is_some());
    let held = bench.shards[0].relay.in_use();
    assert_eq!((held.circ_ids, held.granted.circuits), (0, 0));
    // Its address has its share back.
    let sock = bench.client_at(0, client(1));
    assert_eq!(break_all(&mut bench, sock), 3_000);
}

/// When nothing is left, a channel with many of them gives way as a circuit would.
#[test]
fn destroys_that_are_not_read_give_way_to_who_holds_less() {
    let mut bench = bench(20_000);
    let greedy = bench.client_at(0, client(1));
    break_all(&mut bench, greedy);
    for number in 2..200 {
        let sock = bench.client_at(0, client(number));
        let mut cells = Vec::new();
        (1..=3_000).for_each(|id| write_fixed(&mut cells, theirs(id).get(), Command::CREATE_FAST, &[1; 20]));
        bench.write(sock, &cells);
        bench.cells(sock);
        if bench.gone(greedy).is_some() {
            break;
        }
    }
    assert!(bench.gone(greedy).is_some());
    let held = bench.shards[0].relay.in_use();
    assert!(held.granted.circuits as usize == held.circuits && held.circuits <= 15_000, "{held:?}");
}

/// What is read is forgotten, however late.
#[test]
fn who_reads_in_time_keeps_the_channel() {
    let mut bench = bench(20_000);
    let sock = bench.client_at(0, client(1));
    break_all(&mut bench, sock);
    bench.pass(Duration::from_secs(59));
    bench.set_willing(sock, true);
    bench.cells(sock);
    bench.pass(Duration::from_secs(70));
    assert_eq!(bench.gone(sock), None);
    let held = bench.shards[0].relay.in_use();
    assert_eq!((held.circ_ids, held.granted.circuits), (0, 0));
    Client::create(&mut bench, sock, theirs(30_000), Kind::Fast);
}

/// The same for the next relay, which need not be one: circuits that went on over a channel that is not read.
#[test]
fn a_next_relay_that_leaves_many_destroys_unread_loses_the_channel() {
    let mut bench = bench(20_000);
    let next = bench.relay_channel(0, 2);
    let sock = bench.relay_channel(0, 1);
    let mut circuits = Vec::new();
    for id in 1..=400 {
        let mut client = Client::create(&mut bench, sock, theirs(id), Kind::Fast);
        let (_, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        Hop::answer(&mut bench, next, 2);
        bench.cells(sock);
        circuits.push(client);
    }
    stop_reading(&mut bench, next);
    for circuit in &circuits {
        bench.send(sock, circuit.circ_id, Command::DESTROY, &[0]);
    }
    bench.pass(Duration::from_secs(59));
    assert_eq!(bench.gone(next), None);
    bench.pass(Duration::from_secs(3));
    assert!(bench.gone(next).is_some());
    assert_eq!(bench.shards[0].relay.in_use().granted.circuits, 0);
}
