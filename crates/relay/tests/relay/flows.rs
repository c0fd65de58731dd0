//! Circuits over flows: they pass cells as circuits do, hold back whoever supplies them, and end with their flow.

use super::bench::{Bench, Cell, OURS, Sock, UDP_PORT, config, host};
use super::client::{Client, Hop, Kind, NO_SOCK, target, theirs};
use super::pipe::{CONN_WINDOW_CELLS, FLOW_STATE_BYTES, FLOW_WINDOW_CELLS, Pipe};
use super::plain::PlainTransport;
use heddle_proto::bucket::Limit;
use heddle_proto::cell::create::{Create2, DestroyReason};
use heddle_proto::cell::extend::Extend2;
use heddle_proto::cell::frame::write_fixed;
use heddle_proto::cell::relay::{DATA_LEN, RelayCommand};
use heddle_proto::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use heddle_proto::endpoint::{CongestionParams, Endpoint};
use heddle_proto::params::NetworkParams;
use heddle_relay::{Control, Input, Relay, RelayConfig, Scheduler};
use heddle_seam::node::{Node, PortId};
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::{Duration, Instant};
use std::sync::Arc;

/// The most cells that wait in a lane that a flow supplies.
const HELD_QUEUE_HIGH_CELLS: u32 = 64;
/// One GB of cells.
const GB_CELLS: usize = 1_000_000_000 / CELL_LEN;

/// A relay with pairs to the test relays of these numbers, all of which dialled it.
pub fn paired(config: RelayConfig, numbers: &[u8]) -> (Bench, Vec<Sock>) {
    let mut bench = Bench::with_pipes(config);
    bench.list(numbers);
    let socks = numbers.iter().map(|number| bench.pair(0, *number).1).collect();
    (bench, socks)
}

/// The test relay of that number, at far end `peer`, answers the CREATE2 that came on a flow.
pub fn answer(bench: &mut Bench, peer: usize, number: u8) -> Hop {
    let cells = bench.peer_cells(peer);
    let [cell] = &cells[..] else { panic!("CREATE2 is expected: {cells:?}") };
    let (hop, created2) = Hop::accept(NO_SOCK, number, cell);
    bench.peer_send(peer, hop.circ_id, Command::CREATED2, &created2);
    hop
}

/// Extends a circuit of a channel by the test relay of that number, over its flow.
pub fn extend(bench: &mut Bench, client: &mut Client, peer: usize, number: u8) -> Hop {
    let (handshake, data) = client.extend2(number);
    client.send_to(bench, 0, RelayCommand::EXTEND2, 0, &data);
    let hop = answer(bench, peer, number);
    let got = client.got_one(bench);
    client.extended(handshake, &got);
    hop
}

/// A circuit of a client on a channel that goes on over a flow to test relay 2, far end 0.
fn channel_to_flow(config: RelayConfig) -> (Bench, Client, Hop) {
    let (mut bench, _) = paired(config, &[2]);
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let hop = extend(&mut bench, &mut client, 0, 2);
    (bench, client, hop)
}

/// A circuit that begins on a flow of far end `peer`.
pub fn create_on_flow(bench: &mut Bench, peer: usize, circ_id: CircId) -> Client {
    let mut client = Client::new(NO_SOCK, circ_id);
    let (handshake, command, body) = client.onionskin(Kind::Ntor, super::bench::OURS);
    bench.peer_send(peer, circ_id, command, &body);
    let cells = bench.peer_cells(peer);
    let [cell] = &cells[..] else { panic!("CREATED2 is expected: {cells:?}") };
    client.finish(handshake, cell);
    client
}

/// Sends a relay cell of such a circuit to the relay under test.
pub fn send_on_flow(bench: &mut Bench, peer: usize, client: &mut Client, command: RelayCommand, data: &[u8]) {
    let body = client.seal(0, command, 0, data);
    let early = command == RelayCommand::EXTEND2;
    let cell = if early { Command::RELAY_EARLY } else { Command::RELAY };
    bench.peer_send(peer, client.circ_id, cell, &body);
}

/// A circuit from far end 0's flow that goes on to test relay `number`: over a channel, or over far end 1's flow.
fn from_flow(bench: &mut Bench, number: u8, to: Result<usize, Sock>) -> (Client, Hop) {
    let mut client = create_on_flow(bench, 0, theirs(1));
    let (handshake, command, onionskin) = client.onionskin(Kind::Ntor, number);
    assert_eq!(command, Command::CREATE2);
    let create2 = Create2::parse(&onionskin).expect("a CREATE2");
    let mut data = Vec::new();
    let specs = target(number).specs();
    Extend2 { specs, htype: create2.htype, hdata: create2.hdata }.encode(&mut data);
    send_on_flow(bench, 0, &mut client, RelayCommand::EXTEND2, &data);
    let hop = match to {
        Ok(peer) => answer(bench, peer, number),
        Err(sock) => Hop::answer(bench, sock, number),
    };
    let cells = bench.peer_cells(0);
    let got = client.open(&cells[0]);
    client.extended(handshake, &got);
    (client, hop)
}

fn destroys(cells: &[Cell]) -> Vec<(CircId, DestroyReason)> {
    let destroys = cells.iter().filter(|cell| cell.command == Command::DESTROY);
    destroys.map(|cell| (cell.circ_id, DestroyReason::parse(&cell.body))).collect()
}

#[test]
fn cells_pass_both_ways_and_stay_early() {
    let (mut bench, mut client, mut hop) = channel_to_flow(config());
    for round in 0..200 {
        let body = client.seal(1, RelayCommand::DATA, 3, &[round; 100]);
        let early = round % 50 == 49;
        let command = if early { Command::RELAY_EARLY } else { Command::RELAY };
        bench.send(client.sock, client.circ_id, command, &body);
        let cells = bench.peer_cells(0);
        assert_eq!((cells.len(), cells[0].command, cells[0].circ_id), (1, command, hop.circ_id));
        assert_eq!(hop.open(&cells[0]).data, [round; 100]);
        let body = hop.seal(RelayCommand::DATA, 3, &[round; 498]);
        bench.peer_send(0, hop.circ_id, Command::RELAY, &body);
        assert_eq!(client.got_one(&mut bench).data, [round; 498]);
    }
    assert_eq!(bench.queued_cells(), 0);
    let stats = bench.shards[0].relay.stats();
    let flows = &stats.transports[1];
    assert_eq!((flows.name, flows.cells_in, flows.cells_out), ("pipe", 201, 201));
    assert_eq!((flows.links, flows.lanes), (1, 1));
}

#[test]
fn a_peer_begins_circuits_on_flows() {
    let (mut bench, _) = paired(config(), &[2]);
    for id in 1..20 {
        let mut client = create_on_flow(&mut bench, 0, theirs(id));
        let body = client.seal(0, RelayCommand::BEGIN, 7, b"203.0.114.7:80\0");
        bench.peer_send(0, client.circ_id, Command::RELAY, &body);
        bench.connect_next(0);
        let cells = bench.peer_cells(0);
        assert_eq!(client.open(&cells[0]).command, RelayCommand::CONNECTED);
    }
    assert_eq!((bench.circuits(), bench.peer_flows(0)), (19, 19));
}

/// DESTROY on a flow is its reset. It goes on in its direction, and frees the name on both sides.
#[test]
fn the_end_of_a_circuit_is_the_reset_of_its_flow() {
    let (mut bench, client, _) = channel_to_flow(config());
    bench.send(client.sock, client.circ_id, Command::DESTROY, &[0]);
    let cells = bench.peer_cells(0);
    assert_eq!(destroys(&cells)[0].1, DestroyReason::DESTROYED);
    assert_eq!((bench.circuits(), bench.peer_flows(0)), (0, 0));

    let (mut bench, mut client, hop) = channel_to_flow(config());
    bench.peer_destroy(0, hop.circ_id, 5);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::DESTROYED));
    assert_eq!((bench.circuits(), bench.shards[0].relay.in_use().circ_ids), (0, 0));
    for _ in 0..3 {
        create_on_flow(&mut bench, 0, theirs(9));
        bench.peer_destroy(0, theirs(9), 0);
    }
    assert_eq!((bench.circuits(), bench.shards[0].relay.in_use().circ_ids), (0, 0));
}

/// "The first cell is CREATE2; anything else resets it."
#[test]
fn a_flow_begins_with_create2_or_is_reset() {
    let (mut bench, _) = paired(config(), &[2]);
    for command in
        [Command::RELAY, Command::RELAY_EARLY, Command::CREATE_FAST, Command::CREATED2, Command(99)]
    {
        let peer = &mut bench.peers[0];
        peer.pipe.forge_flow(peer.conn, theirs(1), command);
        bench.settle();
        let cells = bench.peer_cells(0);
        assert_eq!(destroys(&cells), [(theirs(1), DestroyReason::PROTOCOL)], "{command}");
    }
    let refused = create_on_flow_with(&mut bench, theirs(2), &[0, 0]);
    assert_eq!(refused, [(theirs(2), DestroyReason::PROTOCOL)], "TAP");
    assert_eq!((bench.peer_flows(0), bench.shards[0].relay.in_use().circ_ids), (0, 0));
    create_on_flow(&mut bench, 0, theirs(1));
}

fn create_on_flow_with(bench: &mut Bench, circ_id: CircId, body: &[u8]) -> Vec<(CircId, DestroyReason)> {
    bench.peer_send(0, circ_id, Command::CREATE2, body);
    destroys(&bench.peer_cells(0))
}

/// Past the limit of a link a channel says nothing; a flow is reset, or it would stay for ever.
#[test]
fn past_the_limit_a_flow_is_reset() {
    let limits = heddle_relay::Limits { circuits_per_channel: 2, ..Default::default() };
    let (mut bench, _, _) = channel_to_flow(RelayConfig { limits, ..config() });
    create_on_flow(&mut bench, 0, theirs(1));
    let mut client = Client::new(NO_SOCK, theirs(2));
    let (_, _, body) = client.onionskin(Kind::Ntor, super::bench::OURS);
    assert_eq!(
        create_on_flow_with(&mut bench, theirs(2), &body),
        [(theirs(2), DestroyReason::RESOURCELIMIT)]
    );
    assert_eq!((bench.circuits(), bench.peer_flows(0)), (2, 2));
}

/// What a far end supplies on a flow, one GB of it, stays there but for what windows and marks let through.
fn supply(bench: &mut Bench, peer: usize, mut body: impl FnMut() -> (CircId, [u8; BODY_LEN])) -> usize {
    let mut supplied = 0;
    while supplied < GB_CELLS && bench.peer_waiting(peer) < 200 {
        for _ in 0..100 {
            let (circ_id, body) = body();
            bench.peer_queue(peer, circ_id, Command::RELAY, &body);
            supplied += 1;
        }
        bench.settle();
        assert!(bench.queued_cells() <= HELD_QUEUE_HIGH_CELLS, "{} cells wait", bench.queued_cells());
    }
    supplied
}

fn hop_by_hop() -> RelayConfig {
    RelayConfig { hop_by_hop_flow_control: Some(true), ..config() }
}

/// Without hop-by-hop flow control a relay takes as many cells from a flow as stock Tor takes from a channel, and then
/// ends the circuit: what is sent to it tells nobody of what kind the next hop is.
#[test]
fn a_flow_is_read_up_to_the_end_of_the_queue() {
    let (mut bench, client, mut hop) = channel_to_flow(config());
    bench.set_params(&[("circ_max_cell_queue_size", 1000)]);
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 0);
    for sent in 1..=1000 {
        let body = hop.seal(RelayCommand::DROP, 0, &[]);
        bench.peer_send(0, hop.circ_id, Command::RELAY, &body);
        assert_eq!((bench.queued_cells(), bench.peer_waiting(0)), (sent, 0));
    }
    let body = hop.seal(RelayCommand::DROP, 0, &[]);
    bench.peer_send(0, hop.circ_id, Command::RELAY, &body);
    assert_eq!(destroys(&bench.peer_cells(0)), [(hop.circ_id, DestroyReason::RESOURCELIMIT)]);
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
}

/// The consensus turns hop-by-hop flow control on and off, where the operator does not.
#[test]
fn a_held_flow_is_read_again_once_the_consensus_wants_it() {
    let (mut bench, client, mut hop) = channel_to_flow(config());
    bench.set_params(&[("heddle_hop_by_hop_flow_control", 1)]);
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 0);
    let supplied = supply(&mut bench, 0, || (hop.circ_id, hop.seal(RelayCommand::DROP, 0, &[])));
    assert_eq!(bench.queued_cells(), HELD_QUEUE_HIGH_CELLS);
    bench.set_params(&[]);
    bench.settle();
    assert_eq!((bench.queued_cells() as usize, bench.peer_waiting(0)), (supplied, 0));
}

/// Endpoints hear as how many TCPs a connection may contend whenever a consensus comes, and never of values out of
/// range.
#[test]
fn endpoints_hear_what_the_consensus_wants_of_congestion_control() {
    let pipe = Pipe::default();
    let heard = pipe.congestion.clone();
    let transport = Box::new(PlainTransport { number: OURS, addr: host(OURS), state_bytes: 0 });
    let entropy = Box::new(Repeatable::new(&Seed::from_number(1)));
    let endpoints: Vec<(_, _, Box<dyn Endpoint>)> = vec![(PortId(0), UDP_PORT, Box::new(pipe))];
    let mut relay = Relay::with_endpoints(config(), transport, endpoints, entropy);
    for (wanted, tcps_max) in [(None, 8), (Some(3), 3), (Some(0), 1), (Some(-1), 1), (Some(300), 8)] {
        let params = wanted.map(|wanted| (String::from("heddle_cc_tcps_max"), wanted)).into_iter().collect();
        let params = Control::Params(Arc::new(NetworkParams(params)));
        relay.handle_input(Instant::ZERO, Input::Control(params));
        let heard = heard.lock().expect("nobody panicked").pop();
        assert_eq!(heard, Some(CongestionParams { tcps_max }), "{wanted:?}");
    }
}

/// The client stops reading, for less than the 50 minutes after which its channel would end: the flow behind it is read
/// no further, and nothing is lost when it goes on.
#[test]
fn a_client_that_stops_holds_the_flow_back() {
    let (mut bench, mut client, mut hop) = channel_to_flow(hop_by_hop());
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 0);
    let mut sent = 0_u32;
    let supplied = supply(&mut bench, 0, || {
        sent += 1;
        (hop.circ_id, hop.seal(RelayCommand::DATA, 1, &sent.to_be_bytes()))
    });
    assert!(supplied < 1000, "the supplier has to wait: {supplied}");
    assert_eq!(bench.queued_cells(), HELD_QUEUE_HIGH_CELLS);
    bench.pass(Duration::from_secs(2990));
    assert_eq!(bench.queued_cells(), HELD_QUEUE_HIGH_CELLS);
    assert_eq!(bench.shards[0].relay.stats().held_queue_cells_max, HELD_QUEUE_HIGH_CELLS.into());

    // Another circuit of the same connection does not notice.
    let sock = bench.client_channel(0);
    let mut other = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let mut other_hop = extend(&mut bench, &mut other, 0, 2);
    let body = other_hop.seal(RelayCommand::DATA, 1, &[7]);
    bench.peer_send(0, other_hop.circ_id, Command::RELAY, &body);
    assert_eq!(other.got_one(&mut bench).data, [7]);

    bench.set_willing(client.sock, true);
    let got = client.got(&mut bench);
    assert_eq!(got.len(), supplied);
    assert!(got.iter().zip(1_u32..).all(|(got, number)| got.data == number.to_be_bytes()));
    assert_eq!((bench.queued_cells(), bench.peer_waiting(0)), (0, 0));
}

/// A transport that says it cannot hold back one flow without the others is read whatever waits, also with hop-by-hop
/// flow control: the queue ends the circuit.
#[test]
fn a_flow_that_would_hold_back_others_is_read() {
    let mut bench = Bench::make(hop_by_hop(), 1, Some(Pipe::of_one_credit));
    bench.list(&[2]);
    bench.pair(0, 2);
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let mut hop = extend(&mut bench, &mut client, 0, 2);
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 0);
    let sent = 4 * HELD_QUEUE_HIGH_CELLS;
    for _ in 0..sent {
        let body = hop.seal(RelayCommand::DROP, 0, &[]);
        bench.peer_send(0, hop.circ_id, Command::RELAY, &body);
    }
    assert_eq!((bench.queued_cells(), bench.peer_waiting(0)), (sent, 0));
}

/// The same where both neighbours are on flows: the one that stops holds back the other.
#[test]
fn a_flow_that_is_not_read_holds_the_flow_before_it_back() {
    let (mut bench, _) = paired(hop_by_hop(), &[2, 3]);
    let (mut client, hop) = from_flow(&mut bench, 3, Ok(1));
    bench.set_reading(1, false);
    let circ_id = client.circ_id;
    let supplied = supply(&mut bench, 0, || (circ_id, client.seal(1, RelayCommand::DROP, 0, &[])));
    assert!(supplied < 1000, "the supplier has to wait: {supplied}");
    bench.set_reading(1, true);
    let cells = bench.peer_cells(1);
    assert_eq!((cells.len(), bench.queued_cells()), (supplied, 0));
    assert!(cells.iter().all(|cell| cell.circ_id == hop.circ_id));
}

/// A flow's last cell used capacity up and could not leave. The room that there was after all is told of when nothing
/// has left, and the cell of another circuit that waits for it must not wait until something arrives.
#[test]
fn room_is_heard_of_when_nothing_could_leave() {
    let mut bench = Bench::make(config(), 1, Some(Pipe::of_single_cells));
    bench.list(&[2]);
    bench.pair(0, 2);
    let sock = bench.client_channel(0);
    let mut stuck = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let stuck_hop = extend(&mut bench, &mut stuck, 0, 2);
    let mut other = Client::create(&mut bench, sock, theirs(2), Kind::Fast);
    let other_hop = extend(&mut bench, &mut other, 0, 2);
    bench.set_reading(0, false);
    // CREATE2 was one.
    for _ in 1..FLOW_WINDOW_CELLS {
        stuck.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    }
    let mut both = Vec::new();
    for client in [&mut stuck, &mut other] {
        let body = client.seal(1, RelayCommand::DROP, 0, &[]);
        write_fixed(&mut both, client.circ_id.get(), Command::RELAY, &body);
    }
    bench.write(sock, &both);
    assert_eq!(bench.queued_cells(), 0, "both were taken");
    bench.set_reading(0, true);
    let cells = bench.peer_cells(0);
    let of = |hop: &Hop| cells.iter().filter(|cell| cell.circ_id == hop.circ_id).count();
    assert_eq!((of(&stuck_hop), of(&other_hop)), (FLOW_WINDOW_CELLS as usize, 1));
}

/// What flows that are not read leave with the endpoint counts as memory in use. When that is too much, the circuit
/// whose cells are oldest ends at once, and the others live.
#[test]
fn stuck_flows_end_when_memory_is_short() {
    let stuck_bytes = (FLOW_WINDOW_CELLS + HELD_QUEUE_HIGH_CELLS) as usize * 520;
    let config = RelayConfig { max_queue_bytes: stuck_bytes * 7 / 2, ..hop_by_hop() };
    let (mut bench, _) = paired(config, &[2]);
    let mut circuits = Vec::new();
    for _ in 0..4 {
        let sock = bench.client_channel(0);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let hop = extend(&mut bench, &mut client, 0, 2);
        circuits.push((client, hop));
    }
    for (client, hop) in &mut circuits {
        bench.set_willing(client.sock, false);
        bench.grant(client.sock, 0);
        for _ in 0..500 {
            let body = hop.seal(RelayCommand::DROP, 0, &[]);
            bench.peer_queue(0, hop.circ_id, Command::RELAY, &body);
        }
        bench.settle();
        bench.pass(Duration::from_millis(1));
    }
    let cells = bench.peer_cells(0);
    assert_eq!(destroys(&cells), [(circuits[0].1.circ_id, DestroyReason::RESOURCELIMIT)]);
    assert_eq!((bench.circuits(), bench.queued_cells()), (3, 3 * HELD_QUEUE_HIGH_CELLS));
    for (client, _) in &mut circuits[1..] {
        bench.set_willing(client.sock, true);
        assert_eq!(client.got(&mut bench).len(), 500);
    }
}

/// What a rate leaves unread counts as memory in use, too, though no flow is held.
#[test]
fn flows_that_a_rate_leaves_unread_end_when_memory_is_short() {
    const QUEUE_BYTES: usize = 150_000;
    let limit = Limit { rate_bytes_per_s: 10_000, burst_bytes: 200_000 };
    let config = RelayConfig {
        relay_bandwidth: Some(limit),
        count_private_bandwidth: true,
        max_queue_bytes: QUEUE_BYTES,
        ..config()
    };
    let (mut bench, _) = paired(config, &[2]);
    let mut clients: Vec<Client> = (1..=10).map(|name| create_on_flow(&mut bench, 0, theirs(name))).collect();
    for client in &mut clients {
        for _ in 1..FLOW_WINDOW_CELLS {
            send_on_flow(&mut bench, 0, client, RelayCommand::DROP, &[]);
        }
        bench.pass(Duration::from_millis(10));
        let held = bench.shards[0].relay.in_use();
        assert!(held.flow_bytes + held.slots as usize * 528 <= QUEUE_BYTES, "{held:?}");
    }
    let ended = destroys(&bench.peer_cells(0));
    let kept = 10 - ended.len();
    assert!((1..10).contains(&kept), "{ended:?}");
    assert!(ended.iter().all(|(_, reason)| *reason == DestroyReason::RESOURCELIMIT));
    assert_eq!((bench.circuits(), bench.peer_flows(0)), (kept, kept));
    bench.pass(Duration::from_secs(60));
    assert_eq!((bench.circuits(), bench.shards[0].relay.in_use().flow_bytes), (kept, 0));
}

/// Flows themselves count as memory in use. Above half of it a neighbour with many loses those that were idle longest,
/// and one with few loses none, however long they were idle.
#[test]
fn of_idle_flows_those_end_whose_neighbour_has_most() {
    const MAX: usize = 60 * FLOW_STATE_BYTES;
    let config = RelayConfig { max_queue_bytes: MAX, ..config() };
    let mut bench = Bench::make(config, 1, Some(Pipe::of_heavy_flows));
    bench.list(&[2, 3]);
    let [few, many] = [2, 3].map(|number| bench.pair(0, number).0);
    for name in 1..=4 {
        create_on_flow(&mut bench, few, theirs(name));
    }
    let mut busy = create_on_flow(&mut bench, many, theirs(1));
    for name in 2..=60 {
        bench.pass(Duration::from_secs(1));
        send_on_flow(&mut bench, many, &mut busy, RelayCommand::DROP, &[]);
        let (_, command, body) = Client::new(NO_SOCK, theirs(name)).onionskin(Kind::Ntor, OURS);
        bench.peer_send(many, theirs(name), command, &body);
        let stats = bench.shards[0].relay.stats();
        let state_bytes = stats.flow_state_bytes + stats.circuit_state_bytes;
        assert!(state_bytes as usize <= MAX, "{state_bytes}");
    }
    // What is left is a tenth less than half of it, a flow with its circuit taking 12 KB, and what came since: four
    // flows of the one, and fifteen of the other.
    assert_eq!((bench.peer_flows(few), bench.peer_flows(many)), (4, 15 + 14));
}

/// Circuits count as well, also those that came on channels.
#[test]
fn of_idle_circuits_those_end_whose_neighbour_has_most() {
    const MAX: usize = 100_000;
    let mut bench = Bench::new(RelayConfig { max_queue_bytes: MAX, ..config() });
    bench.list(&[1, 2]);
    let [few, many] = [1, 2].map(|number| bench.relay_channel(0, number));
    (1..=4).for_each(|id| drop(Client::create(&mut bench, few, theirs(id), Kind::Ntor)));
    let mut ended = Vec::new();
    for id in 1..=60 {
        bench.pass(Duration::from_millis(10));
        let (_, command, body) = Client::new(many, theirs(id)).onionskin(Kind::Ntor, OURS);
        bench.send(many, theirs(id), command, &body);
        ended.extend(destroys(&bench.cells(many)).into_iter().map(|(circ_id, _)| circ_id));
        let state_bytes = bench.shards[0].relay.stats().circuit_state_bytes;
        assert!(state_bytes as usize <= MAX, "{state_bytes}");
    }
    assert_eq!(destroys(&bench.cells(few)), []);
    assert!((20..50).contains(&ended.len()), "{ended:?}");
    let oldest: Vec<_> = (1..).map(theirs).take(ended.len()).collect();
    assert_eq!(ended, oldest);
}

/// A channel cannot be left unread for one circuit, so what comes over it is bounded as in stock Tor: the queue has an
/// end, and a client that ignores its windows meets it. No other circuit does.
#[test]
fn a_channel_before_a_flow_is_bounded_by_the_queue() {
    let (mut bench, mut client, _) = channel_to_flow(config());
    bench.set_params(&[("circ_max_cell_queue_size", 1000)]);
    let sock = client.sock;
    let mut other = Client::create(&mut bench, sock, theirs(2), Kind::Fast);
    bench.set_reading(0, false);
    for _ in 0..2000 {
        client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
        assert!(bench.queued_cells() <= 1000);
    }
    assert_eq!((bench.circuits(), bench.queued_cells()), (1, 0));
    let reasons: Vec<_> = destroys(&bench.cells(sock));
    assert_eq!(reasons, [(theirs(1), DestroyReason::RESOURCELIMIT)]);
    bench.set_reading(0, true);
    assert_eq!(bench.peer_flows(0), 0);
    other.send(&mut bench, RelayCommand::RESOLVE, 5, b"203.0.114.7\0");
    bench.settle();
    assert_eq!(bench.circuits(), 1);
}

/// An exit does not read its server while the flow back is full.
#[test]
fn an_exit_reads_no_server_while_the_flow_back_is_full() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = create_on_flow(&mut bench, 0, theirs(1));
    let body = client.seal(0, RelayCommand::BEGIN, 7, b"203.0.114.7:80\0");
    bench.peer_send(0, client.circ_id, Command::RELAY, &body);
    let (server, _) = bench.connect_next(0);
    bench.peer_cells(0);
    bench.set_reading(0, false);
    bench.write(server, &vec![7; 2000 * DATA_LEN]);
    let waiting = bench.queued_cells();
    assert!((128..128 + 32).contains(&waiting), "{waiting} cells wait");
    assert!(!bench.is_read(server));
    bench.set_reading(0, true);
    assert_eq!(bench.peer_cells(0).len(), 500, "the circuit's and the stream's windows");
}

/// Cells wait in their lanes, not in the connection, and the scheduler chooses among them.
#[test]
fn a_quiet_circuit_goes_first_where_the_scheduler_says_so() {
    let ewma = Scheduler::Ewma { half_life: Duration::from_secs(30) };
    for (scheduler, bulk_first) in [(Scheduler::RoundRobin, 4), (ewma, 0)] {
        let (mut bench, _) = paired(RelayConfig { scheduler, ..config() }, &[2]);
        let mut circuits = Vec::new();
        for _ in 0..5 {
            let sock = bench.client_channel(0);
            let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
            let hop = extend(&mut bench, &mut client, 0, 2);
            circuits.push((client, hop));
        }
        let (mut web, web_hop) = circuits.pop().expect("five circuits");
        // Nothing is acknowledged while the wire holds datagrams, so the connection fills up.
        bench.wires_held = true;
        for _ in 0..90 {
            for (bulk, _) in &mut circuits {
                bulk.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
            }
        }
        for _ in 0..3 {
            web.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
        }
        let waiting = 4 * 90 - CONN_WINDOW_CELLS;
        assert_eq!(bench.queued_cells() as usize, waiting + 3);
        let stats = bench.shards[0].relay.stats();
        assert_eq!(stats.queue_cells as usize, waiting + 3);
        bench.wires_held = false;
        let cells = bench.peer_cells(0);
        assert_eq!(cells.len(), 4 * 90 + 3);
        let late = cells[CONN_WINDOW_CELLS..].iter();
        let before = late.take_while(|cell| cell.circ_id != web_hop.circ_id).count();
        assert_eq!(before, bulk_first, "{scheduler:?}");
    }
}

fn limit(rate_bytes_per_s: u64) -> Limit {
    Limit { rate_bytes_per_s, burst_bytes: rate_bytes_per_s }
}

/// Flows are read at the operator's rate, and the rest waits with the peer. Every datagram is taken.
#[test]
fn flows_are_read_at_the_operators_rate() {
    let rate = 100_000;
    let (mut bench, _) = paired(RelayConfig { bandwidth: limit(rate), ..config() }, &[2]);
    let sock = bench.accept(0, std::net::SocketAddr::from(([10, 0, 0, 9], 5000)));
    bench.write(sock, super::plain::CLIENT_LINE);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let mut hop = extend(&mut bench, &mut client, 0, 2);
    bench.pass(Duration::from_secs(5));
    for _ in 0..5000 {
        let body = hop.seal(RelayCommand::DROP, 0, &[]);
        bench.peer_queue(0, hop.circ_id, Command::RELAY, &body);
    }
    bench.settle();
    bench.pass(Duration::from_secs(9));
    let read = client.got(&mut bench).len() * CELL_LEN;
    let share = read as f64 / (10 * rate) as f64;
    assert!((0.97..=1.03).contains(&share), "{read} bytes were read");
}

/// What goes to flows is sent at the operator's rate; until then it waits in its lanes.
#[test]
fn flows_are_written_at_the_operators_rate() {
    let rate = 100_000;
    let config = RelayConfig { bandwidth: limit(rate), ..config() };
    let (mut bench, _) = paired(config, &[2]);
    let sock = bench.accept(0, std::net::SocketAddr::from(([10, 0, 0, 9], 5000)));
    bench.write(sock, super::plain::CLIENT_LINE);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    extend(&mut bench, &mut client, 0, 2);
    bench.pass(Duration::from_secs(5));
    bench.peer_cells(0);
    let before = bench.shards[0].relay.stats().transports[1].sent_bytes;
    for _ in 0..5000 {
        client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    }
    bench.pass(Duration::from_secs(9));
    let sent = bench.shards[0].relay.stats().transports[1].sent_bytes - before;
    let share = sent as f64 / (10 * rate) as f64;
    assert!((0.97..=1.03).contains(&share), "{sent} bytes were sent");
    assert!(bench.queued_cells() > 2500, "the rest waits in its lane");
}
