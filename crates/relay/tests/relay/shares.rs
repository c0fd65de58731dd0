//! One neighbour does not decide what the others get.

use super::bench::{Bench, Gone, Sock, config, host, or_port};
use super::client::{Client, Hop, Kind, theirs};
use super::plain::{CLIENT_LINE, FILLER, relay_line};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::frame::write_fixed;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::stream::{End, EndReason};
use heddle_proto::crypto::onionskin::HandshakeType;
use heddle_relay::{Job, Limits, RelayConfig};
use heddle_seam::node::ResolveError;
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

fn bench(limits: Limits) -> Bench {
    Bench::new(RelayConfig { limits, ..config() })
}

/// The addresses of clients, none of them a test relay's.
fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// Begins circuits on a channel until one is refused; returns how many were not.
fn fill(bench: &mut Bench, sock: Sock, first: u32) -> usize {
    for id in first.. {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        let refused = bench.cells(sock).iter().any(|cell| {
            cell.command == Command::DESTROY
                && DestroyReason::parse(&cell.body) == DestroyReason::RESOURCELIMIT
        });
        if refused {
            return (id - first) as usize;
        }
    }
    unreachable!("some circuit is refused")
}

#[test]
fn an_address_has_its_share_of_circuits_over_however_many_channels() {
    let mut bench = bench(Limits { circuits: 400, ..Limits::default() });
    bench.list(&[1]);
    let first = bench.client_at(0, client(1));
    assert_eq!(fill(&mut bench, first, 1), 60, "a fifth of what is not reserved");
    for _ in 0..3 {
        let more = bench.client_at(0, client(1));
        assert_eq!(fill(&mut bench, more, 1), 0);
    }
    // A second greedy one gets less, and both leave something to each that comes.
    let second = bench.client_at(0, client(2));
    assert_eq!(fill(&mut bench, second, 1), 48);
    for number in 3..60 {
        let sock = bench.client_at(0, client(number));
        Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    }
    // What ends is free again.
    for id in 1..=60 {
        bench.send(first, theirs(id), Command::DESTROY, &[0]);
    }
    assert!(fill(&mut bench, first, 100) > 10);
    let refused = bench.shards[0].relay.stats().refused;
    assert_eq!(refused.into_iter().collect::<Vec<_>>(), [(("circuit", "share"), 6)]);
}

#[test]
fn relays_have_a_reserve_of_circuits() {
    let mut bench = bench(Limits { circuits: 40, ..Limits::default() });
    bench.list(&[1]);
    for number in 1..200 {
        let sock = bench.client_at(0, client(number));
        bench.send(sock, theirs(1), Command::CREATE_FAST, &[1; 20]);
    }
    assert_eq!(bench.circuits(), 30);
    let unlisted = bench.relay_channel(0, 2);
    assert_eq!(fill(&mut bench, unlisted, 1), 0);
    let relay = bench.relay_channel(0, 1);
    assert_eq!(fill(&mut bench, relay, 1), 5);
}

/// Relays come before the first consensus does.
#[test]
fn the_consensus_makes_relays_of_strangers_and_strangers_of_relays() {
    let mut bench = bench(Limits { circuits: 40, ..Limits::default() });
    let relay = bench.relay_channel(0, 1);
    assert_eq!(fill(&mut bench, relay, 1), 6, "a fifth of thirty");
    bench.list(&[1]);
    assert_eq!(fill(&mut bench, relay, 10), 9, "half of thirty");
    bench.list(&[2]);
    assert_eq!(fill(&mut bench, relay, 30), 0);
    let other = bench.client_at(0, client(1));
    assert_eq!(fill(&mut bench, other, 1), 3, "a fifth of the fifteen that are left");
}

/// A circuit counts where it goes on, too, and for whom it came.
#[test]
fn circuits_that_cross_have_shares_there() {
    let limits = Limits { circuits: 40, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, shards: 2, ..config() });
    let next = bench.relay_channel(1, 2);
    let there = bench.client_at(1, client(1));
    assert_eq!(fill(&mut bench, there, 1), 6);
    let extend = |bench: &mut Bench, from: IpAddr| {
        let here = bench.client_at(0, from);
        let mut client = Client::create(bench, here, theirs(1), Kind::Fast);
        let (handshake, data) = client.extend2(2);
        client.send(bench, RelayCommand::EXTEND2, 0, &data);
        (client, handshake)
    };
    let (mut greedy, _) = extend(&mut bench, client(1));
    assert_eq!(greedy.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
    let (mut other, handshake) = extend(&mut bench, client(2));
    Hop::answer(&mut bench, next, 2);
    let got = other.got_one(&mut bench);
    other.extended(handshake, &got);
}

/// Clients of all addresses share a crossing. One limit for all of them let a few addresses keep everybody else's
/// circuits from it, though the shares of circuits left places.
#[test]
fn circuits_cross_as_long_as_shards_have_places() {
    let limits = Limits { circuits: 100, circuits_per_channel: 20, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, shards: 2, ..config() });
    for number in 2..=3 {
        bench.relay_channel(1, number);
    }
    for number in 1..=30 {
        let here = bench.client_at(0, client(number));
        let mut client = Client::create(&mut bench, here, theirs(1), Kind::Fast);
        let (_, data) = client.extend2(2 + number % 2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        assert_eq!(client.destroyed(&mut bench), None, "circuit {number}");
    }
}

/// Whose onionskins workers have, by their handshakes.
fn kinds_at_work(bench: &Bench) -> Vec<HandshakeType> {
    let kind = |job: &Job| match job {
        Job::Onionskin { handshake, .. } => *handshake,
        Job::Channel(_) => panic!("these channels need no worker"),
    };
    bench.shards[0].jobs.iter().map(|(_, job)| kind(job)).collect()
}

fn onionskin(bench: &mut Bench, sock: Sock, id: u32, kind: Kind) {
    let mut client = Client::new(sock, theirs(id));
    let (_, command, body) = client.onionskin(kind, super::bench::OURS);
    bench.send(sock, theirs(id), command, &body);
}

/// However long a channel's queue of onionskins is, the next neighbour's is next, and a relay's before other
/// strangers'.
#[test]
fn a_long_queue_of_onionskins_delays_its_own_channel() {
    let mut bench = bench(Limits { onionskins_at_work: 1, ..Limits::default() });
    bench.list(&[1]);
    bench.working = false;
    let greedy = [bench.client_at(0, client(1)), bench.client_at(0, client(1))];
    for id in 1..=200 {
        onionskin(&mut bench, greedy[0], id, Kind::Fast);
        onionskin(&mut bench, greedy[1], id, Kind::Fast);
    }
    assert_eq!(bench.shards[0].relay.in_use().onionskins, 150, "a fifth of what is not reserved");
    let other = bench.client_at(0, client(2));
    (1..=3).for_each(|id| onionskin(&mut bench, other, id, Kind::Ntor));
    let relay = bench.relay_channel(0, 1);
    (1..=3).for_each(|id| onionskin(&mut bench, relay, id, Kind::NtorV3 { congestion_control: false }));
    let mut order = Vec::new();
    for _ in 0..11 {
        order.extend(kinds_at_work(&bench));
        bench.work_next(0);
    }
    use HandshakeType::{Fast, Ntor, NtorV3};
    // One was with the worker already. Then classes take turns, and among strangers neighbours.
    assert_eq!(order, [Fast, Fast, NtorV3, Ntor, NtorV3, Fast, NtorV3, Ntor, Fast, Ntor, Fast]);
}

/// Nobody waits for the answer any more, so no worker is kept busy with it.
#[test]
fn onionskins_of_circuits_that_are_gone_are_not_begun() {
    let mut bench = bench(Limits { onionskins_at_work: 1, ..Limits::default() });
    bench.working = false;
    let sock = bench.client_at(0, host(250));
    for id in 1..=100 {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        bench.send(sock, theirs(id), Command::DESTROY, &[0]);
    }
    onionskin(&mut bench, sock, 1000, Kind::Ntor);
    assert_eq!(kinds_at_work(&bench), [HandshakeType::Fast]);
    bench.work_next(0);
    assert_eq!(kinds_at_work(&bench), [HandshakeType::Ntor]);
    bench.work_next(0);
    let held = bench.shards[0].relay.in_use();
    assert_eq!((held.onionskins, held.circuits), (0, 1));
    assert_eq!((held.granted.onionskins, held.granted.circuits), (0, 1));
}

/// Who gives circuits up while they wait takes nobody's part: also a client behind a relay, whose part is that of many.
#[test]
fn an_onionskin_of_a_circuit_that_is_gone_takes_no_share() {
    let mut bench = bench(Limits { onionskins_at_work: 1, ..Limits::default() });
    bench.working = false;
    let sock = bench.client_at(0, host(250));
    bench.send(sock, theirs(1), Command::CREATE_FAST, &[1; 20]);
    for id in 2..1000 {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        bench.send(sock, theirs(id), Command::DESTROY, &[0]);
    }
    assert_eq!(bench.shards[0].relay.in_use().granted.onionskins, 1);
    assert_eq!(bench.cells(sock), [], "none is refused");
    onionskin(&mut bench, sock, 1000, Kind::Ntor);
    bench.work_next(0);
    assert_eq!(kinds_at_work(&bench), [HandshakeType::Ntor]);
}

/// Fifty greedy addresses, one after the other, would leave nothing. Whoever has least comes first then.
#[test]
fn when_all_circuits_are_in_use_the_greediest_gives_way() {
    let mut bench = bench(Limits { circuits: 100, ..Limits::default() });
    let greedy: Vec<Sock> = (1..=50).map(|number| bench.client_at(0, client(number))).collect();
    for sock in &greedy {
        (1..=40).for_each(|id| bench.send(*sock, theirs(id), Command::CREATE_FAST, &[1; 20]));
    }
    assert_eq!(bench.circuits(), 75);
    for number in 101..=120 {
        let late = bench.client_at(0, client(number));
        Client::create(&mut bench, late, theirs(1), Kind::Fast);
    }
    assert_eq!(bench.circuits(), 75);
    // Each of the fifty still has one or two of its forty.
    for sock in greedy {
        let destroys = bench.cells(sock).iter().filter(|cell| cell.command == Command::DESTROY).count();
        assert!((38..=39).contains(&destroys), "{destroys} of 40 ended");
    }
}

/// What a handshake is taken to hold at least.
const HANDSHAKE_BYTES: usize = 32 * 1024;

/// Connects from an address and says nothing.
fn knock(bench: &mut Bench, addr: IpAddr) -> Sock {
    bench.accept(0, SocketAddr::new(addr, 50_000))
}

fn with_handshakes(count: usize) -> Bench {
    let limits = Limits { handshake_bytes: count * HANDSHAKE_BYTES, ..Limits::default() };
    // They have an eighth of the memory at most.
    Bench::new(RelayConfig { limits, max_queue_bytes: 512 << 20, ..config() })
}

/// Whatever the limit says, handshakes of strangers have three quarters of an eighth of the memory.
#[test]
fn handshakes_have_an_eighth_of_the_memory_at_most() {
    let mut bench = Bench::new(RelayConfig { max_queue_bytes: 16 << 20, ..config() });
    let addr = |n: u32| IpAddr::from([60 + (n >> 8) as u8, n as u8, 1, 1]);
    let knocks: Vec<Sock> = (0..200).map(|n| knock(&mut bench, addr(n))).collect();
    let stand = knocks.iter().filter(|sock| bench.gone(**sock).is_none()).count();
    assert_eq!(stand, (16 << 20) / 8 / 4 * 3 / HANDSHAKE_BYTES);
}

#[test]
fn an_address_has_its_share_of_handshakes() {
    let mut bench = with_handshakes(100);
    let knocks: Vec<Sock> = (0..200).map(|_| knock(&mut bench, client(1))).collect();
    let stands = |bench: &Bench| knocks.iter().filter(|sock| bench.gone(**sock).is_none()).count();
    assert_eq!(stands(&bench), 15, "a fifth of what is not reserved");
    // Others do not notice.
    for number in 2..30 {
        let sock = bench.client_at(0, client(number));
        Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    }
    // At the same address whoever had two seconds makes room for who comes.
    bench.pass(Duration::from_secs(2));
    for _ in 0..10 {
        let sock = bench.client_at(0, client(1));
        Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    }
    assert_eq!(stands(&bench), 14, "one was enough for ten, one after the other");
    let held = bench.shards[0].relay.in_use();
    assert_eq!((held.granted.handshakes, held.channels), (14, 14 + 28 + 10));
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.shards[0].relay.in_use().granted.handshake_bytes, 0);
}

#[test]
fn however_many_addresses_knock_the_next_comes_in() {
    let mut bench = with_handshakes(100);
    for number in 0..=255 {
        for _ in 0..5 {
            knock(&mut bench, Ipv4Addr::new(192, 0, 2, number).into());
        }
    }
    assert_eq!(bench.shards[0].relay.in_use().granted.handshakes, 75);
    // All hold one each by now, so nobody is greedier than who comes until they had their time.
    let early = knock(&mut bench, client(1));
    assert_eq!(bench.gone(early), Some(Gone::Aborted));
    bench.pass(Duration::from_secs(2));
    for number in 2..100 {
        let sock = bench.client_at(0, client(number));
        Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    }
    // And a relay at once, because it is known by its address.
    bench.list(&[1]);
    for number in 0..=255 {
        for _ in 0..5 {
            knock(&mut bench, Ipv4Addr::new(192, 0, 2, number).into());
        }
    }
    let relay = bench.relay_channel(0, 1);
    Client::create(&mut bench, relay, theirs(1), Kind::Fast);
}

/// What came within a handshake was counted and never compared with a share. Two addresses at which relays listen,
/// proven by nothing, could hold so much that all handshakes of others were ended.
#[test]
fn handshakes_that_grow_end_at_their_share() {
    for hosts in [1, 2, 3] {
        let mut bench = with_handshakes(1024);
        bench.list(&(1..=hosts).collect::<Vec<_>>());
        let honest = knock(&mut bench, client(1));
        for number in 1..=hosts {
            let mut knocks: Vec<Sock> = (0..300).map(|_| knock(&mut bench, host(number))).collect();
            knocks.retain(|sock| bench.gone(*sock).is_none());
            assert!(knocks.len() > 90, "{}", knocks.len());
            for sock in knocks {
                bench.write(sock, &[FILLER; 60_000]);
                if bench.gone(sock).is_none() {
                    bench.write(sock, &[FILLER; 60_000]);
                }
            }
        }
        let held = bench.shards[0].relay.in_use().granted;
        assert!(
            held.handshake_bytes as usize <= 1024 * HANDSHAKE_BYTES / 4 * 3 + HANDSHAKE_BYTES,
            "{held:?}"
        );
        assert_eq!(bench.gone(honest), None, "it holds little");
        for number in 2..50 {
            let sock = bench.client_at(0, client(number));
            Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        }
    }
}

/// What comes with the end of a handshake is no part of it: a relay whose channel is wanted sends its CREATE2 cells at
/// once.
#[test]
fn cells_behind_a_handshake_are_no_part_of_it() {
    let mut bench = with_handshakes(4);
    bench.list(&[1]);
    let sock = knock(&mut bench, host(1));
    let mut bytes = relay_line(1, host(1));
    for id in 1..=200 {
        write_fixed(&mut bytes, theirs(id).get(), Command::CREATE_FAST, &[1; 20]);
    }
    bench.write(sock, &bytes);
    assert_eq!((bench.gone(sock), bench.circuits()), (None, 200));
}

#[test]
fn a_dial_counts_as_a_handshake_of_whom_it_leads_to() {
    let mut bench = with_handshakes(40);
    let mut extending = Vec::new();
    for id in 1..=12 {
        let sock = bench.client_at(0, client(id));
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let mut target = super::client::target(66);
        target.rsa_id = [id; 20];
        let (_, data) = client.extend2_at(66, target);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        extending.push(client);
        let (dialled, to) = bench.connect_next(0);
        assert_eq!(to, or_port(66));
        let is_refused = bench.gone(dialled).is_some();
        assert_eq!(is_refused, id > 6, "a fifth of thirty: {id}");
        bench.cells(sock);
    }
    assert_eq!(bench.shards[0].relay.in_use().granted.handshakes, 6);
}

#[test]
fn channels_have_shares_and_the_greediest_gives_way() {
    let mut bench = bench(Limits { channels: 80, ..Limits::default() });
    bench.list(&[1]);
    let mut greedy: Vec<Sock> = (0..60).map(|_| bench.client_at(0, client(1))).collect();
    greedy.retain(|sock| bench.gone(*sock).is_none());
    assert_eq!(
        greedy.len(),
        9,
        "a fifth of 45: a quarter is for dials, and of the rest a quarter for relays"
    );
    for number in 2..40 {
        for _ in 0..4 {
            bench.client_at(0, client(number));
        }
    }
    assert_eq!(bench.shards[0].relay.in_use().granted.channels, 45);
    for number in 101..=105 {
        let late = bench.client_at(0, client(number));
        Client::create(&mut bench, late, theirs(1), Kind::Fast);
    }
    assert!(bench.gone(greedy[0]).is_some(), "it held most");
    let relay = bench.relay_channel(0, 1);
    Client::create(&mut bench, relay, theirs(1), Kind::Fast);
}

/// Whoever connects from a relay's address is held for that relay, until it says that it is a client.
#[test]
fn who_only_shares_a_relays_address_does_not_get_its_reserve() {
    let mut bench = bench(Limits { channels: 80, ..Limits::default() });
    bench.list(&[1]);
    for number in 0..=255 {
        bench.client_at(0, Ipv4Addr::new(192, 0, 2, number).into());
    }
    assert_eq!(bench.shards[0].relay.in_use().granted.channels, 45);
    let sock = bench.accept(0, or_port(1));
    assert_eq!(bench.gone(sock), None);
    bench.write(sock, CLIENT_LINE);
    assert_eq!(bench.gone(sock), Some(Gone::Closed));
    let sock = bench.accept(0, or_port(1));
    bench.write(sock, &relay_line(1, host(1)));
    Client::create(&mut bench, sock, theirs(1), Kind::Fast);
}

/// A circuit of one hop through a listed relay.
fn exit_circuit(bench: &mut Bench, sock: Sock, id: u32) -> Client {
    Client::create(bench, sock, theirs(id), Kind::Fast)
}

/// Begins streams on a circuit until one is refused, but at most so many; returns how many were not.
fn fill_streams(bench: &mut Bench, client: &mut Client, first: u16, most: u16) -> u16 {
    for stream in first..first + most {
        client.begin(bench, stream, "203.0.114.7:80");
        // Other circuits of the channel may lose streams for it.
        let own = bench.cells(client.sock).into_iter().rfind(|cell| cell.circ_id == client.circ_id);
        if let Some(end) = own.map(|cell| client.open(&cell)) {
            assert_eq!((end.stream, end.command), (stream, RelayCommand::END));
            assert_eq!(End::parse(&end.data).reason, EndReason::RESOURCELIMIT);
            return stream - first;
        }
    }
    most
}

#[test]
fn circuits_and_neighbours_have_shares_of_streams() {
    let mut bench = bench(Limits { streams: 400, ..Limits::default() });
    bench.list(&[1, 2]);
    let [first, second] = [1, 2].map(|number| bench.relay_channel(0, number));
    let mut greedy = exit_circuit(&mut bench, first, 1);
    assert_eq!(fill_streams(&mut bench, &mut greedy, 1, 400), 23, "a seventeenth");
    let held: u16 = (2..60)
        .map(|id| {
            let mut more = exit_circuit(&mut bench, first, id);
            fill_streams(&mut bench, &mut more, 1, 400)
        })
        .sum();
    // The 23, and what the circuits with most lost to later ones.
    assert!(23 + held > 200);
    assert_eq!(bench.shards[0].relay.stats().granted.streams, 200, "half, however many circuits");
    let mut other = exit_circuit(&mut bench, second, 1);
    assert_eq!(fill_streams(&mut bench, &mut other, 1, 400), 11, "a seventeenth of the rest");
    let stats = bench.shards[0].relay.stats();
    assert_eq!(stats.granted.streams, 211);
    assert_eq!(stats.refused.keys().collect::<Vec<_>>(), [&("stream", "gave_way"), &("stream", "share")]);
    // What ends is free again: by END, with its circuit, and by an answer of the resolver.
    greedy.send(&mut bench, RelayCommand::END, 23, &[6]);
    assert_eq!(bench.shards[0].relay.stats().granted.streams, 210);
    bench.send(second, theirs(1), Command::DESTROY, &[0]);
    let mut asking = exit_circuit(&mut bench, second, 2);
    for stream in 1..=5 {
        asking.begin(&mut bench, stream, "a.example:80");
    }
    assert_eq!(bench.shards[0].relay.stats().granted.streams, 204);
    for _ in 1..=5 {
        bench.resolve_next(0, Err(ResolveError::NotFound));
    }
    assert_eq!(bench.shards[0].relay.stats().granted.streams, 199);
}

/// One client's circuits through a relay took all its streams once, idle, and everybody else behind it was refused for
/// as long as that client liked.
#[test]
fn behind_a_neighbour_that_has_its_share_the_circuit_with_most_streams_gives_way() {
    let mut bench = bench(Limits { streams: 400, ..Limits::default() });
    bench.list(&[1, 2]);
    let [first, second] = [1, 2].map(|number| bench.relay_channel(0, number));
    let mut beside = exit_circuit(&mut bench, second, 1);
    assert_eq!(fill_streams(&mut bench, &mut beside, 1, 5), 5);
    for id in 1..=60 {
        let mut greedy = exit_circuit(&mut bench, first, id);
        fill_streams(&mut bench, &mut greedy, 1, 30);
    }
    let before = bench.shards[0].relay.stats().granted.streams;
    for id in 501..=520 {
        let mut innocent = exit_circuit(&mut bench, first, id);
        assert_eq!(fill_streams(&mut bench, &mut innocent, 1, 2), 2);
    }
    assert_eq!(bench.shards[0].relay.stats().granted.streams, before, "of others behind it");
    assert!(beside.got(&mut bench).is_empty());
}

/// Clients ask another exit when a stream is refused, so only who has more than one gives way.
#[test]
fn the_circuit_with_most_streams_gives_way_when_all_are_taken() {
    let mut bench = bench(Limits { streams: 40, ..Limits::default() });
    bench.list(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let first = bench.relay_channel(0, 1);
    let mut greedy = exit_circuit(&mut bench, first, 1);
    assert_eq!(fill_streams(&mut bench, &mut greedy, 1, 40), 2);
    let begins = |bench: &mut Bench, sock: Sock, id: u32| {
        let mut client = exit_circuit(bench, sock, id);
        fill_streams(bench, &mut client, 1, 1) == 1
    };
    assert!((2..20).all(|id| begins(&mut bench, first, id)), "that is half");
    let begin_by = |bench: &mut Bench, sock: Sock| (2..60).take_while(|id| begins(bench, sock, *id)).count();
    let granted = [2, 3, 4, 5, 6, 7, 8].map(|number| {
        let sock = bench.relay_channel(0, number);
        begin_by(&mut bench, sock)
    });
    assert_eq!(granted, [10, 5, 3, 1, 2, 0, 0], "the last that is free, and one of the circuit with two");
    let lost = greedy.got_one(&mut bench);
    assert_eq!((lost.command, lost.stream), (RelayCommand::END, 1));
    assert_eq!(End::parse(&lost.data).reason, EndReason::RESOURCELIMIT);
}

/// Each channel that opens is compared with all others of its peer, so whoever has an identity of his own must not have
/// many. Whom he asks for circuits has nothing to do with it.
#[test]
fn an_identity_has_so_many_channels_and_keeps_those_with_circuits() {
    for listed in [&[1][..], &[1, 9]] {
        let mut bench = bench(Limits::default());
        bench.list(listed);
        let open = |bench: &mut Bench, number: u16| {
            let from = Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, number);
            let sock = bench.accept(0, SocketAddr::new(from.into(), 4000));
            // At its birth it is of the place that the peer names, or of another.
            let named = if number == 1 { from.into() } else { host(9) };
            bench.write(sock, &relay_line(9, named));
            sock
        };
        let canonical = open(&mut bench, 1);
        let used = open(&mut bench, 2);
        Client::create(&mut bench, used, theirs(1), Kind::Fast);
        let idle: Vec<Sock> = (3..=200).map(|number| open(&mut bench, number)).collect();
        let left = idle.iter().filter(|sock| bench.gone(**sock).is_none()).count();
        assert_eq!((left, bench.gone(canonical), bench.gone(used)), (62, None, None));
        assert_eq!(bench.gone(idle[idle.len() - 1]), None, "the newest is not refused");
        assert_eq!(bench.shards[0].relay.in_use().granted.channels, 64);
        let other = bench.relay_channel(0, 1);
        assert_eq!(bench.gone(other), None);
    }
}
