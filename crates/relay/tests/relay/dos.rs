//! Stock Tor's defences against denial of service, at stock's numbers.

use super::bench::{Bench, Gone, Sock, config, host, or_port};
use super::client::{Client, Hop, Kind, circ, theirs};
use super::plain::relay_line;
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::stream::{Answer, End, EndReason, Resolved};
use heddle_relay::{DosOptions, RelayConfig, RelayStats};
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

const HOUR: Duration = Duration::from_secs(3600);

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// A relay of one or more shards that lists the test relay 1, under these parameters of the consensus.
fn bench(shards: u16, params: &[(&str, i32)]) -> Bench {
    let mut bench = Bench::new(RelayConfig { shards, ..config() });
    bench.list(&[1]);
    bench.set_params(params);
    bench
}

/// Asks for so many circuits in turn over these channels; returns how many began.
fn create(bench: &mut Bench, socks: &[Sock], first: u32, count: u32) -> usize {
    let mut began = 0;
    for id in first..first + count {
        let sock = socks[id as usize % socks.len()];
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        match &bench.cells(sock)[..] {
            [cell] if cell.command == Command::CREATED_FAST => began += 1,
            [cell] => assert_eq!(cell.body[0], DestroyReason::RESOURCELIMIT.0),
            other => panic!("{other:?}"),
        }
    }
    began
}

fn stats(bench: &Bench) -> RelayStats {
    let mut sum = RelayStats::default();
    bench.shards.iter().for_each(|shard| sum.add(&shard.relay.stats()));
    sum
}

/// Whatever is wrong with a CREATE, it counts.
#[test]
fn circuits_under_numbers_that_are_not_the_clients_to_choose_count_too() {
    let mut bench = bench(1, &[("DoSCircuitCreationEnabled", 1)]);
    let socks = [(); 3].map(|()| bench.client_at(0, client(1)));
    for id in 1..90 {
        bench.send(socks[0], circ(id), Command::CREATE_FAST, &[1; 20]);
    }
    let refusals = bench.cells(socks[0]);
    assert!(refusals.iter().all(|cell| cell.body[0] == DestroyReason::PROTOCOL.0), "{refusals:?}");
    assert_eq!(create(&mut bench, &socks, 1, 3), 0);
}

#[test]
fn an_address_that_creates_circuits_too_fast_gets_none_for_an_hour() {
    for shards in [1, 3] {
        let mut bench = bench(shards, &[("DoSCircuitCreationEnabled", 1)]);
        let open = |bench: &mut Bench| {
            [0, 1, 2].map(|number: usize| bench.client_at(number % usize::from(shards), client(1)))
        };
        let socks = open(&mut bench);
        let other = bench.client_at(0, client(2));
        assert_eq!(create(&mut bench, &socks, 1, 1000), 89, "as stock: the ninetieth finds the bucket empty");
        assert_eq!(create(&mut bench, &[other], 1, 89), 89);
        let stats = stats(&bench);
        assert_eq!(stats.refused.get(&("circuit", "rate")), Some(&911));
        assert_eq!(stats.addresses_held_off, 1);
        // Channels without circuits are closed meanwhile.
        bench.pass(HOUR);
        let socks = open(&mut bench);
        assert_eq!(create(&mut bench, &socks, 1, 1), 0, "an hour and a random part of half an hour");
        bench.pass(HOUR / 2);
        let socks = open(&mut bench);
        assert_eq!(create(&mut bench, &socks, 1, 50), 50);
    }
}

/// One client has one or two connections: only who opens more is taken for several that flood.
#[test]
fn who_has_few_connections_may_create_circuits_fast() {
    let mut bench = bench(1, &[("DoSCircuitCreationEnabled", 1)]);
    let mut socks = vec![bench.client_at(0, client(1)), bench.client_at(0, client(1))];
    assert_eq!(create(&mut bench, &socks, 1, 200), 200);
    let third = bench.client_at(0, client(1));
    bench.finish(third);
    assert_eq!(create(&mut bench, &socks, 201, 1), 1, "it is gone again");
    socks.push(bench.client_at(0, client(1)));
    assert_eq!(create(&mut bench, &socks, 202, 10), 0);
}

#[test]
fn relays_and_who_shares_their_address_are_exempt() {
    let params = [("DoSCircuitCreationEnabled", 1), ("DoSConnectionEnabled", 1)];
    let mut bench = bench(1, &params);
    let relay = [0; 3].map(|_| bench.relay_channel(0, 1));
    assert_eq!(create(&mut bench, &relay, 1, 500), 500);
    // Clients whose streams leave at that relay.
    let through: Vec<Sock> = (0..50).map(|_| bench.client_at(0, host(1))).collect();
    assert_eq!(create(&mut bench, &through, 1, 500), 500);
    // A relay that no consensus lists is a client.
    let unlisted = [0; 3].map(|_| {
        let sock = bench.accept(0, or_port(9));
        bench.write(sock, &relay_line(9, host(9)));
        sock
    });
    assert_eq!(create(&mut bench, &unlisted, 1, 500), 89);
    // And not any more when one does.
    bench.list(&[1, 9]);
    assert_eq!(create(&mut bench, &unlisted, 1000, 500), 500);
}

#[test]
fn an_address_that_connects_too_fast_gets_no_connection_for_a_day() {
    for shards in [1, 3] {
        let mut bench = bench(shards, &[("DoSConnectionEnabled", 1)]);
        let shard = |number: usize| number % usize::from(shards);
        let open = |bench: &mut Bench, count: usize| {
            let socks = (0..count).map(|number| bench.client_at(shard(number), client(1)));
            let socks: Vec<Sock> = socks.collect();
            socks.into_iter().filter(|sock| bench.gone(*sock).is_none()).count()
        };
        assert_eq!(open(&mut bench, 100), 40);
        assert_eq!(stats(&bench).refused.get(&("channel", "rate")), Some(&60));
        let other = bench.client_at(0, client(2));
        assert_eq!(bench.gone(other), None);
        bench.pass(24 * HOUR);
        assert_eq!(open(&mut bench, 1), 0);
        bench.pass(12 * HOUR);
        assert_eq!(open(&mut bench, 1), 1);
    }
}

#[test]
fn an_address_has_so_many_connections_and_no_more() {
    let mut bench = bench(1, &[("DoSConnectionEnabled", 1)]);
    let mut socks = Vec::new();
    for _ in 0..120 {
        socks.push(bench.client_at(0, client(1)));
        bench.pass(Duration::from_millis(100));
    }
    let open =
        |bench: &Bench, socks: &[Sock]| socks.iter().filter(|sock| bench.gone(**sock).is_none()).count();
    assert_eq!(open(&bench, &socks), 101, "as stock: who has more than a hundred gets no other");
    assert_eq!(bench.gone(socks[101]), Some(Gone::Aborted));
    assert_eq!(stats(&bench).refused.get(&("channel", "concurrent")), Some(&19));
    bench.finish(socks[0]);
    socks.push(bench.client_at(0, client(1)));
    assert_eq!(open(&bench, &socks), 101);
}

/// Begins so many streams in turn; returns how many were refused, all for this reason.
fn begin(bench: &mut Bench, client: &mut Client, first: u16, count: u16, reason: EndReason) -> usize {
    let mut refused = 0;
    for stream in first..first + count {
        client.begin(bench, stream, "203.0.114.7:80");
        if let Some(end) = client.got(bench).pop() {
            assert_eq!((end.command, End::parse(&end.data).reason), (RelayCommand::END, reason));
            refused += 1;
        }
    }
    refused
}

#[test]
fn a_circuit_begins_streams_and_asks_for_names_no_faster() {
    let mut bench = bench(1, &[("DoSStreamCreationEnabled", 1)]);
    let sock = bench.relay_channel(0, 1);
    let mut circuit = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    assert_eq!(begin(&mut bench, &mut circuit, 1, 350, EndReason::MISC), 50);
    circuit.send(&mut bench, RelayCommand::RESOLVE, 400, b"a.example\0");
    let resolved = Resolved::parse(&circuit.got_one(&mut bench).data).expect("well written");
    assert!(matches!(resolved.answers(), [(Answer::Error { transient: true }, _)]), "{resolved:?}");
    // It is its own fault: another circuit of that relay has as much.
    let mut other = Client::create(&mut bench, sock, theirs(2), Kind::Fast);
    assert_eq!(begin(&mut bench, &mut other, 1, 300, EndReason::MISC), 0);
    bench.cells(sock);
    bench.pass(Duration::from_secs(1));
    assert_eq!(begin(&mut bench, &mut other, 500, 150, EndReason::MISC), 50);
    assert_eq!(stats(&bench).refused.get(&("stream", "rate")), Some(&101));
}

#[test]
fn a_circuit_that_begins_streams_too_fast_is_closed_if_the_operator_wants_that() {
    let dos = DosOptions {
        stream_creation_enabled: Some(true),
        stream_creation_defense_type: Some(3),
        stream_creation_burst: Some(10),
        ..DosOptions::default()
    };
    let mut bench = Bench::new(RelayConfig { dos, ..config() });
    bench.list(&[1]);
    let sock = bench.relay_channel(0, 1);
    let mut circuit = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    assert_eq!(begin(&mut bench, &mut circuit, 1, 10, EndReason::MISC), 0);
    assert_eq!(circuit.destroyed(&mut bench), None);
    circuit.begin(&mut bench, 11, "203.0.114.7:80");
    assert_eq!(circuit.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
}

#[test]
fn by_default_nothing_is_refused() {
    let mut bench = bench(1, &[]);
    let socks: Vec<Sock> = (0..150).map(|_| bench.client_at(0, client(1))).collect();
    assert_eq!(create(&mut bench, &socks, 1, 500), 500);
    let sock = bench.relay_channel(0, 1);
    let mut circuit = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    assert_eq!(begin(&mut bench, &mut circuit, 1, 350, EndReason::MISC), 0);
}

/// A client that sends more than the next relay takes loses the circuit, and its address the right to create others
/// when that came to pass three times.
#[test]
fn an_address_whose_queues_run_full_again_and_again_gets_no_circuits() {
    let on = [("DoSCircuitCreationEnabled", 1), ("circ_max_cell_queue_size_out", 1000)];
    let (off, never) = ([on[1]], [on[0], on[1], ("dos_num_circ_max_outq", 0)]);
    for (params, held_off) in [(&on[..], 1), (&off[..], 0), (&never[..], 0)] {
        let mut bench = bench(1, params);
        bench.list(&[1, 2]);
        let sock = bench.client_at(0, client(1));
        let mut next = None;
        for id in 1..=3 {
            assert_eq!(stats(&bench).addresses_held_off_for_queues, 0);
            let mut client = Client::create(&mut bench, sock, theirs(id), Kind::Fast);
            let (handshake, data) = client.extend2(2);
            client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
            let next = *next.get_or_insert_with(|| bench.answer_dial(0, 2));
            Hop::answer(&mut bench, next, 2);
            let got = client.got_one(&mut bench);
            client.extended(handshake, &got);
            bench.set_willing(next, false);
            bench.grant(next, 0);
            for _ in 0..=1000 {
                assert_eq!(client.destroyed(&mut bench), None);
                client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
            }
            assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
            bench.set_willing(next, true);
            bench.cells(next);
        }
        assert_eq!(stats(&bench).addresses_held_off_for_queues, held_off);
        let (other, began) = (bench.client_at(0, client(2)), 10 * (1 - held_off as usize));
        assert_eq!((create(&mut bench, &[sock], 10, 10), create(&mut bench, &[other], 10, 10)), (began, 10));
        bench.pass(HOUR * 3 / 2);
        let sock = bench.client_at(0, client(1));
        assert_eq!(create(&mut bench, &[sock], 1, 10), 10);
    }
}
