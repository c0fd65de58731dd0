//! Two upgraded relays find each other, move circuits to flows, and go back to channels when that does not work.

use super::bench::{Bench, Gone, OURS, Sock, config, onion_keys, or_port};
use super::client::{Client, Hop, Kind, circ, extend as extend_over_channel, extended2, theirs};
use super::flows::{extend, paired};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::{Create2, DestroyReason};
use heddle_proto::cell::extend::Extend2;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::channel::Target;
use heddle_proto::endpoint::ConnectionError;
use heddle_relay::{Control, Event, ProbeHop, RelayConfig};
use heddle_seam::node::SocketError;
use heddle_seam::time::Duration;

pub fn new_client(bench: &mut Bench) -> Client {
    let sock = bench.client_channel(0);
    Client::create(bench, sock, theirs(1), Kind::Fast)
}

/// CREATE2 cells that came on a channel.
fn creates(bench: &mut Bench, sock: Sock) -> usize {
    bench.cells(sock).iter().filter(|cell| cell.command == Command::CREATE2).count()
}

/// Answers the CREATE2 cells that came on a channel of test relay 2. Returns how many there were.
fn answer_creates(bench: &mut Bench, sock: Sock) -> usize {
    let cells = bench.cells(sock);
    let creates: Vec<_> = cells.iter().filter(|cell| cell.command == Command::CREATE2).collect();
    for cell in &creates {
        let (hop, created2) = Hop::accept(sock, 2, cell);
        bench.send(sock, hop.circ_id, Command::CREATED2, &created2);
    }
    creates.len()
}

#[test]
fn only_relays_of_the_consensus_get_an_offer() {
    let mut bench = Bench::with_pipes(config());
    let before = bench.relay_channel(0, 2);
    assert_eq!(bench.paddings(before).len(), 0, "nobody is listed yet");
    bench.list(&[2]);
    assert_eq!(bench.paddings(before).len(), 1);
    let stranger = bench.relay_channel(0, 3);
    let client = bench.client_channel(0);
    assert_eq!((bench.paddings(stranger).len(), bench.paddings(client).len()), (0, 0));
    bench.list(&[2, 3]);
    assert_eq!((bench.paddings(before).len(), bench.paddings(stranger).len()), (0, 1));

    let mut without = Bench::new(config());
    without.list(&[2]);
    let sock = without.relay_channel(0, 2);
    assert_eq!(without.paddings(sock).len(), 0, "a relay without endpoints offers nothing");
}

/// Clients prove nothing, so nobody answers them, and no connection is awaited.
#[test]
fn a_clients_offer_is_heeded_by_nobody() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[2]);
    let relay = bench.relay_channel(0, 2);
    let ours = bench.paddings(relay).pop().expect("an offer of ours");
    let client = bench.client_channel(0);
    let peer = bench.answer_offer(client, &ours, 2, 1000);
    bench.pass(Duration::from_secs(40));
    assert_eq!(bench.paddings(client).len(), 0);
    assert!(!bench.peers[peer].ready);
    assert_eq!(bench.shards[0].relay.stats().transports[1].links_opened, 0);
}

/// Whoever opened the channel dials, and either side opens flows.
#[test]
fn both_sides_can_dial() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[2, 3]);
    bench.pair(0, 2);
    let mut client = new_client(&mut bench);
    let (_, data) = client.extend2(3);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let sock = bench.answer_dial(0, 3);
    assert_eq!(creates(&mut bench, sock), 1, "nobody waits for a connection");
    let peer = bench.offer(sock, 3, 1000);
    assert!(bench.peers[peer].ready);
    let mut second = new_client(&mut bench);
    let hop = extend(&mut bench, &mut second, peer, 3);
    assert!(hop.circ_id.get() >> 31 == 1, "the dialler's names have the highest bit");
    let stats = bench.shards[0].relay.stats();
    assert_eq!((stats.transports[1].links, stats.transports[1].links_opened), (2, 2));
    let ready = |event: &&Event| matches!(event, Event::ConnectionReady { transport: "pipe", .. });
    assert_eq!(bench.shards[0].events.iter().filter(ready).count(), 2);
}

/// Until the connection is ready CREATE2 goes over the channel, and that circuit stays there.
#[test]
fn circuits_never_migrate() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[2]);
    let sock = bench.relay_channel(0, 2);
    bench.wires_up = false;
    let peer = bench.offer(sock, 2, 1000);
    assert!(!bench.peers[peer].ready);
    let mut client = new_client(&mut bench);
    let (handshake, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let mut hop = Hop::answer(&mut bench, sock, 2);
    let got = client.got_one(&mut bench);
    client.extended(handshake, &got);

    bench.wires_up = true;
    bench.pass(Duration::from_secs(31));
    let other = bench.relay_channel(0, 2);
    let peer = bench.offer(other, 2, 1000);
    assert!(bench.peers[peer].ready);
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    assert_eq!(client.got_one(&mut bench).data, [1]);
    client.send_to(&mut bench, 1, RelayCommand::DATA, 1, &[2]);
    assert_eq!(hop.got(&mut bench)[0].data, [2]);
    assert_eq!(bench.peer_flows(peer), 0);
}

/// Past the peer's limit circuits go over the channel at once.
#[test]
fn without_room_circuits_go_over_the_channel() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[2]);
    let sock = bench.relay_channel(0, 2);
    let peer = bench.offer(sock, 2, 2);
    let mut clients: Vec<Client> = (0..2).map(|_| new_client(&mut bench)).collect();
    for client in &mut clients {
        extend(&mut bench, client, peer, 2);
    }
    let mut third = new_client(&mut bench);
    let (handshake, data) = third.extend2(2);
    third.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    Hop::answer(&mut bench, sock, 2);
    let got = third.got_one(&mut bench);
    third.extended(handshake, &got);
    assert_eq!(bench.shards[0].relay.stats().fallbacks.get("no_room"), Some(&1));
}

/// A reset of the channel ends no circuit on flows. Whoever dialled the channel dials it again.
#[test]
fn flows_outlive_their_channel() {
    let (mut bench, socks) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    let mut hop = extend(&mut bench, &mut client, 0, 2);
    bench.fail(socks[0], SocketError::Reset);
    bench.pass(Duration::from_secs(60));
    let body = hop.seal(RelayCommand::DATA, 1, &[1]);
    bench.peer_send(0, hop.circ_id, Command::RELAY, &body);
    assert_eq!(client.got_one(&mut bench).data, [1]);
    let mut second = new_client(&mut bench);
    extend(&mut bench, &mut second, 0, 2);
    assert_eq!(bench.shards[0].connects.len(), 0, "the peer dialled");

    let mut bench = Bench::with_pipes(config());
    bench.list(&[3]);
    let mut client = new_client(&mut bench);
    extend_over_channel(&mut bench, &mut client, 3);
    let sock = *bench.connected(0).iter().find(|sock| sock.id.is_dialled()).expect("a channel");
    let peer = bench.offer(sock, 3, 1000);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, peer, 3);
    bench.fail(sock, SocketError::Reset);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.shards[0].connects.len(), 1, "this relay dialled");
    assert_eq!(bench.circuits(), 1);
}

/// The path dies: CREATE2 that nobody answered goes over the channel with the same handshake, other circuits end.
#[test]
fn a_dead_path_ends_circuits_but_not_those_in_the_making() {
    let (mut bench, socks) = paired(config(), &[2]);
    let mut joined = new_client(&mut bench);
    extend(&mut bench, &mut joined, 0, 2);
    let mut begun = Client::create(&mut bench, joined.sock, theirs(2), Kind::Fast);
    let mut other = new_client(&mut bench);
    bench.wires_up = false;
    let (handshake, data) = other.extend2(2);
    other.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    bench.pass(Duration::from_secs(8));

    let cells = bench.cells(joined.sock);
    let [destroy] = &cells[..] else { panic!("one DESTROY is expected: {cells:?}") };
    assert_eq!((destroy.circ_id, destroy.command), (joined.circ_id, Command::DESTROY));
    assert_eq!(DestroyReason::parse(&destroy.body), DestroyReason::CHANNEL_CLOSED);
    Hop::answer(&mut bench, socks[0], 2);
    let got = other.got_one(&mut bench);
    other.extended(handshake, &got);
    let (handshake, data) = begun.extend2(2);
    begun.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    Hop::answer(&mut bench, socks[0], 2);
    let got = begun.got_one(&mut bench);
    begun.extended(handshake, &got);

    let stats = bench.shards[0].relay.stats();
    assert_eq!(stats.fallbacks.get("create_again"), Some(&1));
    assert_eq!(stats.fallbacks.get("path_dead"), Some(&1));
    assert_eq!(stats.transports[1].links_ended.get("path_dead"), Some(&1));
    assert_eq!((stats.transports[1].links, bench.circuits()), (0, 2));
}

/// A CREATE2 is sent twice at most: the second failure ends the circuit.
#[test]
fn a_circuit_is_tried_once_more_only() {
    let (mut bench, socks) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    bench.wires_up = false;
    let (_, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    bench.pass(Duration::from_secs(8));
    assert_eq!(creates(&mut bench, socks[0]), 1);
    bench.fail(socks[0], SocketError::Reset);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::CHANNEL_CLOSED));
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
}

/// One flow loses what it sends, again and again, on a path that answers all others: after three seconds, by a clock of
/// one second, the same handshake goes over the channel. What the flow answers late reaches nobody, and circuits beside
/// it go on.
#[test]
fn a_flow_that_does_not_answer_create2_is_given_up_though_its_path_answers() {
    let (mut bench, socks) = paired(config(), &[2]);
    let mut joined = new_client(&mut bench);
    let mut beside = extend(&mut bench, &mut joined, 0, 2);
    let mut client = Client::create(&mut bench, joined.sock, theirs(2), Kind::Fast);
    let (handshake, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let cells = bench.peer_cells(0);
    let [create2] = &cells[..] else { panic!("CREATE2 is expected: {cells:?}") };
    let mut pass_busily = |bench: &mut Bench| {
        bench.pass(Duration::from_secs(2));
        let body = beside.seal(RelayCommand::DATA, 1, &[1]);
        bench.peer_send(0, beside.circ_id, Command::RELAY, &body);
        assert_eq!(joined.got_one(bench).data, [1]);
    };
    pass_busily(&mut bench);
    assert_eq!(creates(&mut bench, socks[0]), 0);
    bench.wires_held = true;
    bench.pass(Duration::from_secs(2));
    // It is answered twice, at last on the flow too, of whose end the peer has not heard.
    let (_, created2) = Hop::accept(socks[0], 2, create2);
    bench.peer_send_across(0, create2.circ_id, Command::CREATED2, &created2);
    bench.wires_held = false;
    assert_eq!(client.got(&mut bench).len(), 0);
    let mut hop = Hop::answer(&mut bench, socks[0], 2);
    let got = client.got_one(&mut bench);
    client.extended(handshake, &got);

    let cells = bench.peer_cells(0);
    let [destroy] = &cells[..] else { panic!("the flow ends: {cells:?}") };
    assert_eq!((destroy.circ_id, destroy.command), (create2.circ_id, Command::DESTROY));
    hop.send(&mut bench, RelayCommand::DATA, 1, &[2]);
    assert_eq!(client.got_one(&mut bench).data, [2]);
    let stats = bench.shards[0].relay.stats();
    assert_eq!(stats.fallbacks.get("create_again"), Some(&1));
    assert_eq!((bench.circuits(), bench.peer_flows(0)), (2, 1));
}

/// A peer that takes flows and never answers on them, but answers over TLS, goes back to TLS, whoever waits.
#[test]
fn flows_that_never_answer_are_given_up_for_an_hour() {
    let (mut bench, socks) = paired(config(), &[2]);
    let mut clients: Vec<Client> = (0..17).map(|_| new_client(&mut bench)).collect();
    let begin = |bench: &mut Bench, client: &mut Client| {
        let (_, data) = client.extend2(2);
        client.send(bench, RelayCommand::EXTEND2, 0, &data);
    };
    let (last, first) = clients.split_last_mut().expect("there are some");
    first.iter_mut().for_each(|client| begin(&mut bench, client));
    bench.pass(Duration::from_secs(4));
    assert_eq!(answer_creates(&mut bench, socks[0]), 16);
    bench.pass(Duration::from_secs(3));
    begin(&mut bench, last);
    assert_eq!(creates(&mut bench, socks[0]), 1, "at once");
    assert_eq!(bench.shards[0].relay.stats().fallbacks.get("worse_than_tls"), Some(&1));
}

/// A circuit that ends before its CREATE2 left gives its place back, and the peer hears nothing of it.
#[test]
fn a_flow_that_never_began_takes_no_room() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[2]);
    let sock = bench.relay_channel(0, 2);
    let peer = bench.offer(sock, 2, 6);
    let mut bulk: Vec<Client> = (0..4).map(|_| new_client(&mut bench)).collect();
    for client in &mut bulk {
        extend(&mut bench, client, peer, 2);
    }
    bench.wires_held = true;
    for client in &mut bulk {
        (0..90).for_each(|_| client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]));
    }
    // The connection's window is full, so CREATE2 waits in its lane.
    for _ in 0..5 {
        let mut client = new_client(&mut bench);
        let (_, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        bench.send(client.sock, client.circ_id, Command::DESTROY, &[0]);
        assert_eq!(creates(&mut bench, sock), 0);
    }
    bench.wires_held = false;
    bench.settle();
    assert_eq!((bench.circuits(), bench.peer_flows(peer)), (4, 4));
}

/// Flows keep their channel from being closed for want of circuits; without any, both go.
#[test]
fn open_flows_keep_an_idle_channel() {
    let (mut bench, socks) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    let hop = extend(&mut bench, &mut client, 0, 2);
    bench.pass(Duration::from_secs(4600));
    assert_eq!(bench.gone(socks[0]), None);
    bench.peer_destroy(0, hop.circ_id, 0);
    bench.pass(Duration::from_secs(4600));
    assert_eq!(bench.gone(socks[0]), Some(Gone::Closed));
    assert_eq!(bench.peers[0].ended, Some(ConnectionError::PeerClosed));
    assert_eq!(bench.shards[0].relay.stats().transports[1].links, 0);
}

/// After a week a connection takes no new circuits, and goes with its last.
#[test]
fn an_old_connection_drains() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    let mut hop = extend(&mut bench, &mut client, 0, 2);
    // At one go, without the seconds in between.
    bench.now += Duration::from_secs(7 * 24 * 3600);
    bench.pass(Duration::from_secs(10));
    let mut second = new_client(&mut bench);
    let (_, data) = second.extend2(2);
    second.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert_eq!(bench.peer_cells(0).len(), 0);
    let body = hop.seal(RelayCommand::DATA, 1, &[1]);
    bench.peer_send(0, hop.circ_id, Command::RELAY, &body);
    assert_eq!(client.got_one(&mut bench).data, [1]);
    bench.peer_destroy(0, hop.circ_id, 0);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.peers[0].ended, Some(ConnectionError::PeerClosed));
}

/// Of two channels to a relay one goes on, and its connection with it; the other's drains.
#[test]
fn the_connection_of_a_channel_that_lost_drains() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[2]);
    let mut client = new_client(&mut bench);
    extend_over_channel(&mut bench, &mut client, 2);
    let ours = *bench.connected(0).iter().find(|sock| sock.id.is_dialled()).expect("a channel");
    let first = bench.offer(ours, 2, 1000);
    let mut client = new_client(&mut bench);
    let hop = extend(&mut bench, &mut client, first, 2);

    // Channels that the smaller identity opened win.
    let (second, _) = bench.pair(0, 2);
    let mut later = new_client(&mut bench);
    extend(&mut bench, &mut later, second, 2);
    client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    assert_eq!(bench.peer_cells(first).len(), 1, "what began there stays there");
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.peers[first].ended, None);
    bench.peer_destroy(first, hop.circ_id, 0);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.peers[first].ended, Some(ConnectionError::PeerClosed));
    assert_eq!((bench.peers[second].ended.clone(), bench.peer_flows(second)), (None, 1));
}

#[test]
fn a_relay_that_drains_takes_no_flows_and_one_that_stops_says_so() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, 0, 2);
    bench.control(0, Control::Drain);
    let mut newcomer = Client::new(client.sock, theirs(7));
    let (_, command, body) = newcomer.onionskin(Kind::Ntor, OURS);
    bench.peer_send(0, theirs(7), command, &body);
    let cells = bench.peer_cells(0);
    assert_eq!((cells.len(), cells[0].command), (1, Command::DESTROY));
    assert_eq!(DestroyReason::parse(&cells[0].body), DestroyReason::HIBERNATING);
    assert_eq!(bench.circuits(), 1);

    bench.control(0, Control::Shutdown);
    assert_eq!(bench.peers[0].ended, Some(ConnectionError::PeerClosed));
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
    let ended = |event: &Event| matches!(event, Event::ConnectionEnded { reason: "closed", .. });
    assert!(bench.shards[0].events.iter().any(ended));
}

/// The relay probes whether it can be reached, over relay 2 and then 3, which comes back over a flow of far end `peer`.
fn probe(bench: &mut Bench, peer: usize) -> Vec<Event> {
    let probe_target = |number: u8| {
        let ids = super::plain::ids(number);
        Target { rsa: ids.rsa, ed25519: Some(ids.ed25519), addrs: vec![or_port(number)] }
    };
    let ntor_key = |number| *onion_keys(number).ntor_current.public();
    let via = [2, 3].map(|number| ProbeHop { target: probe_target(number), ntor_key: ntor_key(number) });
    let ourselves = probe_target(OURS);
    bench.shards[0].events.clear();
    bench.control(0, Control::ProbeReachability { via: via.to_vec(), ourselves });
    let sock = bench.answer_dial(0, 2);
    let mut second = Hop::answer(bench, sock, 2);
    let extend2 = second.got(bench).pop().expect("EXTEND2 to the third relay");
    let (mut third, data) = Hop::extend(3, &extend2.data);
    second.send(bench, RelayCommand::EXTENDED2, 0, &data);
    let cells = bench.cells(sock);
    let extend2 = third.open(&second.pass(&cells[0]));
    let extend = Extend2::parse(&extend2.data).expect("an EXTEND2");
    let mut create2 = Vec::new();
    Create2 { htype: extend.htype, hdata: extend.hdata }.encode(&mut create2);
    let half = if bench.peers[peer].is_dialler() { 1 << 31 } else { 0 };
    bench.peer_send(peer, circ(half | 77), Command::CREATE2, &create2);
    let cells = bench.peer_cells(peer);
    assert_eq!(cells[0].command, Command::CREATED2);
    let body = third.seal(RelayCommand::EXTENDED2, 0, &extended2(&cells[0].body));
    let body = second.wrap(&body);
    bench.send(sock, second.circ_id, Command::RELAY, &body);
    let events = core::mem::take(&mut bench.shards[0].events);
    events.into_iter().filter(|event| matches!(event, Event::Reachable | Event::ProbeFailed)).collect()
}

/// A probe that comes back over a flow shows that the ORPort can be reached if the peer dialled the channel that
/// vouched for it, whether or not that is still there. If this relay did, it shows nothing.
#[test]
fn a_probe_over_a_flow_counts_who_dialled() {
    let (mut bench, _) = paired(config(), &[3]);
    assert_eq!(probe(&mut bench, 0), [Event::Reachable]);

    let mut bench = Bench::with_pipes(config());
    bench.list(&[3]);
    let mut client = new_client(&mut bench);
    extend_over_channel(&mut bench, &mut client, 3);
    let sock = *bench.connected(0).iter().find(|sock| sock.id.is_dialled()).expect("a channel");
    let peer = bench.offer(sock, 3, 1000);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, peer, 3);
    bench.fail(sock, SocketError::Reset);
    assert_eq!(probe(&mut bench, peer), [Event::ProbeFailed]);
}

/// A client cannot extend a circuit back to the relay whose flow it came over.
#[test]
fn a_circuit_does_not_go_back_over_its_flow() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = super::flows::create_on_flow(&mut bench, 0, theirs(1));
    let (_, data) = client.extend2(2);
    super::flows::send_on_flow(&mut bench, 0, &mut client, RelayCommand::EXTEND2, &data);
    let cells = bench.peer_cells(0);
    assert_eq!((cells.len(), cells[0].command), (1, Command::DESTROY));
    assert_eq!(DestroyReason::parse(&cells[0].body), DestroyReason::PROTOCOL);
}

/// The numbers for metrics come when they are asked for.
#[test]
fn stats_are_reported() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, 0, 2);
    bench.control(0, Control::Stats);
    let stats = bench.shards[0].events.iter().find_map(|event| match event {
        Event::Stats(stats) => Some(stats.clone()),
        _ => None,
    });
    let stats = stats.expect("they were asked for");
    assert_eq!(*stats, bench.shards[0].relay.stats());
    assert_eq!(
        stats.transports.iter().map(|transport| transport.name).collect::<Vec<_>>(),
        ["plain", "pipe"]
    );
    assert_eq!((stats.transports[0].links, stats.transports[0].lanes, stats.circuits), (2, 1, 1));
    assert_eq!(stats.queue_delay.counts.iter().sum::<u64>(), 3, "CREATED_FAST, CREATE2, EXTENDED2");
    let mut sum = (*stats).clone();
    sum.add(&stats);
    assert_eq!(sum.transports[1].cells_out, 2 * stats.transports[1].cells_out);
}

/// A pair belongs to the shard whose channel vouched for it; circuits of other shards cross to it.
#[test]
fn circuits_cross_to_the_shard_of_the_pair() {
    for (shards, owner, from) in [(2, 0, 1), (2, 1, 0), (3, 1, 2), (3, 2, 0)] {
        let mut bench =
            Bench::with_pipes(RelayConfig { shards, hop_by_hop_flow_control: Some(true), ..config() });
        bench.list(&[2]);
        let (peer, sock) = bench.pair(owner, 2);
        let client_sock = bench.client_channel(from);
        let mut client = Client::create(&mut bench, client_sock, theirs(1), Kind::Fast);
        let mut hop = extend(&mut bench, &mut client, peer, 2);
        for round in 0..100 {
            client.send_to(&mut bench, 1, RelayCommand::DATA, 3, &[round]);
            let cells = bench.peer_cells(peer);
            assert_eq!(hop.open(&cells[0]).data, [round]);
            let body = hop.seal(RelayCommand::DATA, 3, &[round]);
            bench.peer_send(peer, hop.circ_id, Command::RELAY, &body);
            assert_eq!(client.got_one(&mut bench).data, [round]);
        }

        // With hop-by-hop flow control a client that stops is felt at the peer: its window, one lane of the crossing,
        // and the mark.
        bench.set_willing(client.sock, false);
        bench.grant(client.sock, 0);
        for _ in 0..2000 {
            let body = hop.seal(RelayCommand::DATA, 1, &[1; 498]);
            bench.peer_queue(peer, hop.circ_id, Command::RELAY, &body);
        }
        bench.settle();
        assert!(bench.queued_cells() <= 64 + 64, "{} cells wait", bench.queued_cells());
        assert!(bench.peer_waiting(peer) > 1500);
        bench.set_willing(client.sock, true);
        assert_eq!(client.got(&mut bench).len(), 2000);

        // The pair goes on without its channel, and the directory still leads there.
        bench.fail(sock, SocketError::Reset);
        let mut second = Client::create(&mut bench, client_sock, theirs(2), Kind::Fast);
        extend(&mut bench, &mut second, peer, 2);
        assert!(bench.shards.iter().all(|shard| shard.connects.is_empty()));

        // When the path dies, a circuit in the making is dialled for once more.
        let mut third = Client::create(&mut bench, client_sock, theirs(3), Kind::Fast);
        bench.wires_up = false;
        let (_, data) = third.extend2(2);
        third.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        bench.pass(Duration::from_secs(8));
        let dials: usize = bench.shards.iter().map(|shard| shard.connects.len()).sum();
        assert_eq!(dials, 1);
    }
}

/// A client that gives up at once says nothing about the peer; one that waited in vain on a flow, and not over TLS,
/// does.
#[test]
fn clients_that_give_up_at_once_count_for_nothing() {
    for (patience_s, counted) in [(1, None), (6, Some(&1))] {
        let (mut bench, socks) = paired(config(), &[2]);
        for _ in 0..20 {
            let mut client = new_client(&mut bench);
            let (_, data) = client.extend2(2);
            client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
            bench.peer_cells(0);
            for _ in 0..patience_s {
                bench.pass(Duration::from_secs(1));
                answer_creates(&mut bench, socks[0]);
            }
            bench.send(client.sock, client.circ_id, Command::DESTROY, &[0]);
        }
        assert_eq!(bench.shards[0].relay.stats().fallbacks.get("worse_than_tls"), counted, "{patience_s}");
    }
}

/// A peer without room for one more circuit is a busy peer: a client that fills its queue of onionskins moves nobody to
/// TLS.
#[test]
fn a_peer_without_room_is_no_worse_than_over_tls() {
    let (mut bench, _) = paired(config(), &[2]);
    refuse_circuits(&mut bench, DestroyReason::RESOURCELIMIT, 100);
    assert_eq!(bench.shards[0].relay.stats().fallbacks.get("worse_than_tls"), None);
    // The next circuit is on a flow again.
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, 0, 2);
}

/// The peer ends every circuit that is begun on a flow, until none is begun there any more.
fn refuse_circuits(bench: &mut Bench, reason: DestroyReason, count: usize) {
    for _ in 0..count {
        let mut client = new_client(bench);
        let (_, data) = client.extend2(2);
        client.send(bench, RelayCommand::EXTEND2, 0, &data);
        let Some(create2) = bench.peer_cells(0).into_iter().next() else { break };
        bench.peer_destroy(0, create2.circ_id, reason.0);
    }
}

#[test]
fn answers_of_flows_count() {
    let (mut bench, socks) = paired(config(), &[2]);
    refuse_circuits(&mut bench, DestroyReason::INTERNAL, 20);
    assert_eq!(bench.shards[0].relay.stats().fallbacks.get("worse_than_tls"), Some(&1));
    let mut client = new_client(&mut bench);
    let (_, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert!(creates(&mut bench, socks[0]) > 0);
}
