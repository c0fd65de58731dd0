//! Circuits begin, carry cells and end.

use crate::bench::{Bench, Gone, OURS, config};
use crate::client::{Client, Got, Hop, Kind, NTOR_V3_CC, circ, extend, theirs, two_hops};
use crate::datagrams::forward;
use heddle_forwarding::Part;
use heddle_proto::cell::create::{Create2, DestroyReason};
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{BODY_LEN, CELL_LEN, Command};
use heddle_proto::channel::ChannelError;
use heddle_proto::pool::SLOT_LEN;
use heddle_relay::{Control, Event, Limits, RelayConfig};
use heddle_seam::time::Duration;
use std::net::Ipv4Addr;

/// The DESTROY cells that came, as ids and reasons; nothing else may have come.
pub fn destroys(bench: &mut Bench, sock: crate::bench::Sock) -> Vec<(u32, DestroyReason)> {
    let cells = bench.cells(sock);
    assert!(cells.iter().all(|cell| cell.command == Command::DESTROY), "{cells:?}");
    cells.iter().map(|cell| (cell.circ_id.get(), DestroyReason::parse(&cell.body))).collect()
}

#[test]
fn every_handshake_makes_a_circuit() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let kinds = [Kind::Fast, Kind::Ntor, Kind::NtorV3 { congestion_control: false }, NTOR_V3_CC];
    for (id, kind) in (1..).zip(kinds) {
        let mut client = Client::create(&mut bench, sock, theirs(id), kind);
        client.begin(&mut bench, 7, "203.0.114.7:80");
        bench.connect_next(0);
        assert_eq!(client.got_one(&mut bench).command, RelayCommand::CONNECTED, "{kind:?}");
    }
    assert_eq!(bench.circuits(), kinds.len());
}

#[test]
fn congestion_control_is_refused_when_the_consensus_has_none() {
    let mut bench = Bench::new(config());
    bench.set_params(&[("cc_alg", 0)]);
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::new(sock, theirs(1));
    let (handshake, command, body) = client.onionskin(NTOR_V3_CC, OURS);
    bench.send(sock, theirs(1), command, &body);
    let cells = bench.cells(sock);
    assert_eq!(client.finish(handshake, &cells[0]).congestion, None);
}

/// The algorithms that 1 and 3 stood for are gone, and tor takes their numbers for Vegas.
#[test]
fn congestion_control_is_agreed_to_whichever_algorithm_the_consensus_names() {
    for (id, cc_alg) in (1..).zip([1, 2, 3]) {
        let mut bench = Bench::new(config());
        bench.set_params(&[("cc_alg", cc_alg)]);
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::new(sock, theirs(id));
        let (handshake, command, body) = client.onionskin(NTOR_V3_CC, OURS);
        bench.send(sock, theirs(id), command, &body);
        let cells = bench.cells(sock);
        assert!(client.finish(handshake, &cells[0]).congestion.is_some(), "cc_alg {cc_alg}");
    }
}

#[test]
fn creates_that_are_refused() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let create2 = |htype, hdata: &[u8]| {
        let mut body = Vec::new();
        Create2 { htype, hdata }.encode(&mut body);
        body
    };
    let mut truncated = create2(2, &[1; 84]);
    truncated[2..4].copy_from_slice(&1000_u16.to_be_bytes());
    let cases = [
        ("TAP, which is obsolete", Command::CREATE2, create2(0, &[1; 186])),
        ("an unknown type", Command::CREATE2, create2(77, &[1; 84])),
        ("a length beyond the cell", Command::CREATE2, truncated),
        ("an ntor onionskin that is too short", Command::CREATE2, create2(2, &[1; 83])),
        ("an onionskin for another relay", Command::CREATE2, create2(2, &[1; 84])),
        ("CREATE", Command::CREATE, vec![1; BODY_LEN]),
    ];
    for (id, (what, command, body)) in (1..).zip(cases) {
        bench.send(sock, theirs(id), command, &body);
        assert_eq!(destroys(&mut bench, sock), [(theirs(id).get(), DestroyReason::PROTOCOL)], "{what}");
    }
    bench.send(sock, circ(5), Command::CREATE_FAST, &[1; 20]);
    assert_eq!(destroys(&mut bench, sock), [(5, DestroyReason::PROTOCOL)], "an id of our half");
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
    Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
}

/// Stock tor drops such a cell (`command_process_create_cell`).
#[test]
fn create_with_an_id_in_use_is_dropped() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    bench.send(sock, theirs(1), Command::CREATE_FAST, &[1; 20]);
    client.connect(&mut bench, 1);
    assert_eq!(client.others, []);
}

#[test]
fn an_id_is_free_again_after_destroy_went_out() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    bench.send(sock, theirs(1), Command::CREATE2, &[0; 10]);
    assert_eq!(destroys(&mut bench, sock).len(), 1);
    Client::create(&mut bench, sock, theirs(1), Kind::Fast);
}

#[test]
fn limits_are_answered_by_resourcelimit() {
    // A relay has half of what there is.
    let only = |limits: Limits| {
        let mut bench = Bench::new(RelayConfig { limits, ..config() });
        bench.list(&[1]);
        bench
    };
    let refused = |mut bench: Bench, id: u32| {
        let sock = bench.sockets(0)[0];
        bench.cells(sock);
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        assert_eq!(destroys(&mut bench, sock), [(theirs(id).get(), DestroyReason::RESOURCELIMIT)]);
    };
    let mut bench = only(Limits { circuits: 4, ..Limits::default() });
    let sock = bench.relay_channel(0, 1);
    for id in 1..=2 {
        Client::create(&mut bench, sock, theirs(id), Kind::Fast);
    }
    refused(bench, 3);

    let mut bench = only(Limits { onionskins: 6, ..Limits::default() });
    let sock = bench.relay_channel(0, 1);
    bench.working = false;
    for id in 1..=3 {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
    }
    refused(bench, 4);
}

/// A peer cannot keep more workers busy by destroying circuits before they are answered.
#[test]
fn an_onionskin_counts_until_its_worker_is_done() {
    let limits = Limits { onionskins: 6, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.list(&[1]);
    let sock = bench.relay_channel(0, 1);
    bench.working = false;
    for id in 1..=100 {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        bench.send(sock, theirs(id), Command::DESTROY, &[0]);
    }
    assert_eq!((bench.shards[0].jobs.len(), bench.circuits()), (3, 0));
    bench.working = true;
    bench.settle();
    bench.cells(sock);
    Client::create(&mut bench, sock, theirs(1), Kind::Fast);
}

/// Past the limit of a channel nothing is said, or a peer that does not read would make us remember.
#[test]
fn the_limit_of_a_channel_is_silent() {
    let limits = Limits { circuits_per_channel: 2, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    let sock = bench.relay_channel(0, 1);
    for id in 1..=2 {
        Client::create(&mut bench, sock, theirs(id), Kind::Fast);
    }
    bench.send(sock, theirs(3), Command::CREATE_FAST, &[1; 20]);
    assert_eq!(bench.cells(sock), []);
    let other = bench.relay_channel(0, 2);
    Client::create(&mut bench, other, theirs(1), Kind::Fast);
}

/// A stranger that does not read gets no more answers than we can remember for all, and is served again when it reads.
#[test]
fn a_stranger_that_reads_no_refusals_leaves_few_behind() {
    let mut bench = Bench::new(config());
    bench.list(&[1]);
    let sock = bench.client_at(0, Ipv4Addr::new(203, 0, 113, 1).into());
    bench.cells(sock);
    bench.set_willing(sock, false);
    bench.grant(sock, 0);
    for id in 1..=2_000 {
        bench.send(sock, theirs(id), Command::CREATE, &[1; 100]);
    }
    let held = bench.shards[0].relay.in_use();
    // The channel itself takes a few cells before it is full.
    assert!((256..300).contains(&held.circ_ids), "{held:?}");
    bench.send(sock, theirs(3_000), Command::CREATE_FAST, &[1; 20]);
    assert_eq!(bench.circuits(), 0);
    bench.set_willing(sock, true);
    bench.cells(sock);
    Client::create(&mut bench, sock, theirs(3_001), Kind::Fast);
}

#[test]
fn cells_for_a_circuit_that_is_handshaking_end_it() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    bench.working = false;
    bench.send(sock, theirs(1), Command::CREATE_FAST, &[1; 20]);
    bench.send(sock, theirs(1), Command::RELAY, &[1; BODY_LEN]);
    assert_eq!(destroys(&mut bench, sock), [(theirs(1).get(), DestroyReason::PROTOCOL)]);
    bench.working = true;
    bench.settle();
    assert_eq!((bench.cells(sock).len(), bench.circuits()), (0, 0));
}

#[test]
fn destroy_ends_a_circuit_that_is_handshaking() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    bench.working = false;
    bench.send(sock, theirs(1), Command::CREATE_FAST, &[1; 20]);
    bench.send(sock, theirs(1), Command::DESTROY, &[0]);
    bench.working = true;
    bench.settle();
    assert_eq!((bench.cells(sock).len(), bench.circuits()), (0, 0));
}

#[test]
fn cells_pass_both_ways() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    for round in 0..20 {
        client.send_to(&mut bench, 1, RelayCommand::DATA, 3, &[round; 100]);
        let got = hop.got(&mut bench);
        assert_eq!((got.len(), &got[0].data[..]), (1, &[round; 100][..]));
        hop.send(&mut bench, RelayCommand::DATA, 3, &[round; 498]);
        let got = client.got_one(&mut bench);
        assert_eq!((got.command, got.stream, &got.data[..]), (RelayCommand::DATA, 3, &[round; 498][..]));
    }
    assert_eq!(bench.queued_cells(), 0);
}

#[test]
fn a_circuit_carries_eight_relay_early() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    // EXTEND2 was the first.
    for _ in 0..7 {
        let body = client.seal(1, RelayCommand::DROP, 0, &[]);
        bench.send(client.sock, client.circ_id, Command::RELAY_EARLY, &body);
        let cells = bench.cells(hop.sock);
        assert_eq!(cells[0].command, Command::RELAY_EARLY);
        hop.open(&cells[0]);
    }
    let body = client.seal(1, RelayCommand::DROP, 0, &[]);
    bench.send(client.sock, client.circ_id, Command::RELAY_EARLY, &body);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
    assert_eq!(destroys(&mut bench, hop.sock), [(hop.circ_id.get(), DestroyReason::PROTOCOL)]);
}

#[test]
fn relay_early_towards_the_client_ends_the_circuit() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    let body = hop.seal(RelayCommand::DROP, 0, &[]);
    bench.send(hop.sock, hop.circ_id, Command::RELAY_EARLY, &body);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
    assert_eq!(destroys(&mut bench, hop.sock), [(hop.circ_id.get(), DestroyReason::PROTOCOL)]);
}

#[test]
fn an_unrecognized_cell_at_the_last_hop_ends_the_circuit() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    bench.send(sock, theirs(1), Command::RELAY, &[9; BODY_LEN]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
}

#[test]
fn a_relay_cell_that_claims_too_much_data_ends_the_circuit() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    let mut body = [0; BODY_LEN];
    body[0] = RelayCommand::DATA.0;
    body[9..11].copy_from_slice(&499_u16.to_be_bytes());
    client.layers.seal(0, &mut body);
    bench.send(sock, theirs(1), Command::RELAY, &body);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
}

#[test]
fn what_is_not_understood_is_dropped() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    for (command, stream) in
        [(200, 0), (200, 5), (RelayCommand::DROP.0, 0), (RelayCommand::BEGIN.0, 0), (2, 0)]
    {
        client.send(&mut bench, RelayCommand(command), stream, &[1, 2, 3]);
    }
    for command in [0, 8, 12, 99] {
        bench.send(sock, theirs(1), Command(command), &[1]);
    }
    bench.send(sock, theirs(77), Command::RELAY, &[1]);
    bench.send(sock, theirs(77), Command::DESTROY, &[1]);
    bench.send(sock, theirs(77), Command::CREATED2, &[1]);
    assert_eq!(bench.cells(sock), []);
    client.connect(&mut bench, 1);
}

/// "Relays now propagate DESTROY cells in either direction", without the reason they came with.
#[test]
fn destroy_goes_on_with_the_reason_destroyed() {
    let mut bench = Bench::new(config());
    let (mut client, hop) = two_hops(&mut bench);
    bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[DestroyReason::INTERNAL.0]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::DESTROYED));
    assert_eq!(bench.cells(hop.sock), []);

    let mut bench = Bench::new(config());
    let (client, hop) = two_hops(&mut bench);
    bench.send(client.sock, client.circ_id, Command::DESTROY, &[DestroyReason::INTERNAL.0]);
    assert_eq!(destroys(&mut bench, hop.sock), [(hop.circ_id.get(), DestroyReason::DESTROYED)]);
    assert_eq!(bench.cells(client.sock), []);
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
}

#[test]
fn destroy_overtakes_the_cells_that_wait_and_drops_them() {
    let mut bench = Bench::new(config());
    let (client, mut hop) = two_hops(&mut bench);
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 0);
    for _ in 0..50 {
        hop.send(&mut bench, RelayCommand::DATA, 1, &[1; 498]);
    }
    assert_eq!(bench.queued_cells(), 50);
    bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[1]);
    assert_eq!(bench.queued_cells(), 0);
    bench.grant(client.sock, 10 * CELL_LEN);
    assert_eq!(destroys(&mut bench, client.sock), [(client.circ_id.get(), DestroyReason::DESTROYED)]);
}

#[test]
fn truncate_ends_the_circuit_here_and_it_can_be_extended_again() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    client.send(&mut bench, RelayCommand::TRUNCATE, 0, &[DestroyReason::FINISHED.0]);
    let got = client.got_one(&mut bench);
    assert_eq!((got.command, &got.data[..]), (RelayCommand::TRUNCATED, &[DestroyReason::REQUESTED.0][..]));
    assert_eq!(destroys(&mut bench, hop.sock), [(hop.circ_id.get(), DestroyReason::FINISHED)]);
    // What was under way comes too late.
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    client.layers.truncate(1);
    let mut next = extend(&mut bench, &mut client, 3);
    next.send(&mut bench, RelayCommand::DATA, 1, &[5]);
    assert_eq!(client.got_one(&mut bench).data, [5]);
    bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[0]);
    bench.fail(hop.sock, heddle_seam::node::SocketError::Reset);
    next.send(&mut bench, RelayCommand::DATA, 1, &[6]);
    assert_eq!(client.got_one(&mut bench).data, [6]);
}

/// Cells of the relay ahead that come while the DESTROY still waits belong to no circuit.
#[test]
fn a_truncated_lane_leads_nowhere_even_before_its_destroy_is_sent() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    bench.set_willing(hop.sock, false);
    bench.grant(hop.sock, 0);
    client.send(&mut bench, RelayCommand::TRUNCATE, 0, &[0]);
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::TRUNCATED);
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    bench.send(hop.sock, hop.circ_id, Command::CREATED2, &[0]);
    client.layers.truncate(1);
    let mut next = extend(&mut bench, &mut client, 3);
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[0]);
    bench.fail(hop.sock, heddle_seam::node::SocketError::Reset);
    next.send(&mut bench, RelayCommand::DATA, 1, &[6]);
    assert_eq!(client.got_one(&mut bench).data, [6]);
}

#[test]
fn truncate_without_a_further_hop_is_answered_too() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    client.send(&mut bench, RelayCommand::TRUNCATE, 0, &[]);
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::TRUNCATED);
}

#[test]
fn a_channel_that_breaks_takes_its_circuits_and_leaves_others() {
    let mut bench = Bench::new(config());
    let (mut client, hop) = two_hops(&mut bench);
    let mut other = Client::create(&mut bench, client.sock, theirs(9), Kind::Fast);
    client.got(&mut bench);
    bench.fail(hop.sock, heddle_seam::node::SocketError::Reset);
    assert_eq!(destroys(&mut bench, client.sock), [(client.circ_id.get(), DestroyReason::CHANNEL_CLOSED)]);
    extend(&mut bench, &mut other, 2);

    let mut bench = Bench::new(config());
    let (client, hop) = two_hops(&mut bench);
    bench.finish(client.sock);
    assert_eq!(bench.gone(client.sock), Some(Gone::Closed));
    assert_eq!(destroys(&mut bench, hop.sock), [(hop.circ_id.get(), DestroyReason::CHANNEL_CLOSED)]);
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
}

/// A relay with room for 256 cells beside its circuits, and so many circuits of clients that do not read, over one
/// channel to the next relay.
fn hoarders(count: u16) -> (Bench, Vec<(Client, Hop)>) {
    let (bench, _) = hoarders_within(count, 64 << 20);
    let circuits_bytes = bench.shards[0].relay.stats().circuit_state_bytes as usize;
    hoarders_within(count, 256 * SLOT_LEN + circuits_bytes)
}

fn hoarders_within(count: u16, max_queue_bytes: usize) -> (Bench, Vec<(Client, Hop)>) {
    let mut bench = Bench::new(RelayConfig { max_queue_bytes, forwards_datagrams: true, ..config() });
    let mut circuits = vec![two_hops(&mut bench)];
    let next = circuits[0].1.sock;
    for _ in 1..count {
        let sock = bench.client_channel(0);
        let client = Client::create(&mut bench, sock, theirs(2), Kind::Fast);
        circuits.push(extend_over(&mut bench, client, next));
    }
    for (client, _) in &circuits {
        bench.set_willing(client.sock, false);
        bench.grant(client.sock, 0);
    }
    (bench, circuits)
}

fn hoard(bench: &mut Bench, hop: &mut Hop, cells: usize) {
    for _ in 0..cells {
        hop.send(bench, RelayCommand::DATA, 1, &[1; 498]);
    }
}

/// How many cells were freed each time that memory was used up.
fn freed(bench: &Bench) -> Vec<u32> {
    let freed = |event: &Event| match event {
        Event::MemoryPressure { freed_cells } => Some(*freed_cells),
        _ => None,
    };
    bench.shards[0].events.iter().filter_map(freed).collect()
}

#[test]
fn of_hoards_as_old_memory_pressure_ends_the_heaviest_only() {
    let (mut bench, mut circuits) = hoarders(2);
    hoard(&mut bench, &mut circuits[0].1, 30);
    hoard(&mut bench, &mut circuits[1].1, 226);
    assert_eq!(bench.queued_cells(), 256);
    hoard(&mut bench, &mut circuits[0].1, 1);
    assert_eq!((bench.queued_cells(), freed(&bench)), (31, vec![226]));
    for (client, _) in &circuits {
        bench.set_willing(client.sock, true);
    }
    let [(light, _), (heavy, _)] = &mut circuits[..] else { panic!("two circuits") };
    assert_eq!(heavy.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
    assert_eq!(light.got(&mut bench).len(), 31);
    assert_eq!(bench.queued_cells(), 0);
}

/// Cells of all circuits lie beside each other in the pool's blocks, and those of a few that end leave none empty.
#[test]
fn memory_pressure_ends_a_tenth_of_many_hoards_whose_cells_came_in_turn() {
    const HOARDS: u16 = 40;
    let (mut bench, mut circuits) = hoarders_within(HOARDS, 40 << 20);
    while freed(&bench).is_empty() {
        for (_, hop) in &mut circuits {
            hoard(&mut bench, hop, 1);
        }
    }
    let ended = usize::from(HOARDS) - bench.circuits();
    assert!((3..=6).contains(&ended), "{ended} of {HOARDS}");
    assert_eq!(freed(&bench).len(), 1);
    let cells = bench.queued_cells() as usize * SLOT_LEN;
    assert!(cells > (40 << 20) / 4 * 3, "{cells} bytes are left");
    // What comes fills the holes before memory is short again.
    for (_, hop) in &mut circuits[usize::from(HOARDS) - 10..] {
        hoard(&mut bench, hop, 500);
    }
    assert_eq!(freed(&bench).len(), 1);
}

/// Many small hoards, and one honest circuit that holds more than any of them for a moment: it lives, and of the hoards
/// only those end that a tenth of the memory takes.
#[test]
fn memory_pressure_ends_the_oldest_hoards_and_not_the_heaviest() {
    let (mut bench, mut circuits) = hoarders(13);
    for (_, hop) in &mut circuits[..12] {
        hoard(&mut bench, hop, 16);
        bench.pass(Duration::from_millis(100));
    }
    let (mut honest, mut honest_hop) = circuits.pop().expect("the last");
    hoard(&mut bench, &mut honest_hop, 64);
    assert_eq!(bench.queued_cells(), 256);
    hoard(&mut bench, &mut honest_hop, 1);
    assert_eq!((bench.queued_cells(), freed(&bench)), (256 - 32 + 1, vec![32]));
    let ended = |(client, _): &mut (Client, Hop)| {
        bench.set_willing(client.sock, true);
        client.destroyed(&mut bench)
    };
    let reasons: Vec<_> = circuits.iter_mut().map(ended).collect();
    assert_eq!(reasons[..2], [Some(DestroyReason::RESOURCELIMIT); 2]);
    assert_eq!(reasons[2..], [None; 10]);
    bench.set_willing(honest.sock, true);
    assert_eq!(honest.got(&mut bench).len(), 65);
}

/// Memory that is full costs datagrams, which need not come, and no circuit its life.
#[test]
fn datagrams_end_nobody_for_want_of_memory() {
    let (mut bench, mut circuits) = hoarders(2);
    let (client, hop) = &mut circuits[1];
    client.send_to(&mut bench, 0, RelayCommand::FORWARD, 0, &forward(Part::Pass));
    bench.set_willing(hop.sock, false);
    bench.grant(hop.sock, 0);
    hoard(&mut bench, &mut circuits[0].1, 150);
    let client = &circuits[1].0;
    for _ in 0..100 {
        bench.send(client.sock, client.circ_id, Command::DATAGRAM, &[7; 509]);
    }
    assert_eq!((bench.circuits(), freed(&bench)), (2, vec![]));
    let dropped = bench.shards[0].relay.stats().dropped_datagrams;
    assert!(dropped > 40, "half of what there is for cells and circuits, and the other has 150: {dropped}");
    assert_eq!(u64::from(bench.queued_cells()) + dropped, 150 + 1 + 100, "FORWARDED waits, too");
}

/// Extends a circuit over a channel that is there already.
fn extend_over(bench: &mut Bench, mut client: Client, next: crate::bench::Sock) -> (Client, Hop) {
    let (handshake, data) = client.extend2(2);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
    let hop = Hop::answer(bench, next, 2);
    let got: Got = client.got_one(bench);
    client.extended(handshake, &got);
    (client, hop)
}

/// A lane never holds more than the consensus allows (`circ_max_cell_queue_size`).
#[test]
fn a_lane_that_grows_too_long_ends_its_circuit() {
    let mut bench = Bench::new(config());
    bench.set_params(&[("circ_max_cell_queue_size", 1000)]);
    let (mut client, mut hop) = two_hops(&mut bench);
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 0);
    for _ in 0..1000 {
        hop.send(&mut bench, RelayCommand::DATA, 1, &[1; 498]);
    }
    assert_eq!(bench.queued_cells(), 1000);
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1; 498]);
    assert_eq!(bench.queued_cells(), 0);
    bench.set_willing(client.sock, true);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
}

#[test]
fn lanes_take_turns() {
    let mut bench = Bench::new(config());
    let (first, mut first_hop) = two_hops(&mut bench);
    let second = Client::create(&mut bench, first.sock, theirs(2), Kind::Fast);
    let (_second, mut second_hop) = extend_over(&mut bench, second, first_hop.sock);
    bench.set_willing(first.sock, false);
    bench.grant(first.sock, 0);
    for _ in 0..10 {
        first_hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    }
    for _ in 0..3 {
        second_hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    }
    bench.set_willing(first.sock, true);
    let order: Vec<u32> = bench.cells(first.sock).iter().map(|cell| cell.circ_id.get() & 3).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn draining_accepts_nothing_new_and_keeps_what_is_there() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    bench.control(0, Control::Drain);
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    assert_eq!(client.got_one(&mut bench).data, [1]);
    bench.send(client.sock, theirs(5), Command::CREATE_FAST, &[1; 20]);
    assert_eq!(destroys(&mut bench, client.sock), [(theirs(5).get(), DestroyReason::HIBERNATING)]);
    let late = bench.accept(0, crate::bench::or_port(7));
    assert_eq!(bench.gone(late), Some(Gone::Aborted));
}

#[test]
fn shutdown_ends_everything_and_begins_nothing() {
    let mut bench = Bench::new(config());
    let (mut client, hop) = two_hops(&mut bench);
    let exit = bench.relay_channel(0, 1);
    let mut streams = Client::create(&mut bench, exit, theirs(1), Kind::Fast);
    let server = streams.connect(&mut bench, 1);
    client.layers.truncate(1);
    // One dial whose address is being connected, one whose handshake is under way.
    for (id, number) in [(11, 3), (12, 4)] {
        let mut waiting = Client::create(&mut bench, client.sock, theirs(id), Kind::Fast);
        let (_, data) = waiting.extend2(number);
        waiting.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    }
    bench.connect_next(0);
    bench.control(0, Control::Shutdown);
    assert_eq!(bench.sockets(0), []);
    assert_eq!(bench.gone(hop.sock), Some(Gone::Closed));
    assert_eq!(bench.gone(server), Some(Gone::Closed));
    assert_eq!((bench.circuits(), bench.queued_cells(), bench.shards[0].connects.len()), (0, 0, 0));
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.sockets(0), []);
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_channel_after_what_it_sent_before() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut bytes = Vec::new();
    heddle_proto::cell::frame::write_fixed(&mut bytes, theirs(1).get(), Command::CREATE_FAST, &[1; 20]);
    bench.write(sock, &bytes);
    assert_eq!(bench.circuits(), 1);
    let stranger = bench.accept(0, crate::bench::or_port(9));
    bench.write(stranger, b"nonsense\n");
    assert_eq!(bench.gone(stranger), Some(Gone::Closed));
    assert_eq!(bench.circuits(), 1);
    let silent = bench.accept(0, crate::bench::or_port(9));
    bench.pass(Duration::from_secs(59));
    assert_eq!(bench.gone(silent), None);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.gone(silent), Some(Gone::Closed));
    assert!(
        !bench.shards[0]
            .events
            .iter()
            .any(|event| matches!(event, Event::ChannelClosed { error: ChannelError::Idle, .. }))
    );
}

/// Turns of lanes that are over do not pile up at a peer that makes circuits and never reads.
#[test]
fn a_peer_that_never_reads_cannot_make_a_link_grow() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    bench.set_willing(sock, false);
    bench.grant(sock, 0);
    for round in 0..2000 {
        bench.send(sock, theirs(round % 7 + 1), Command::CREATE_FAST, &[1; 20]);
        bench.send(sock, theirs(round % 7 + 1), Command::DESTROY, &[0]);
    }
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
    bench.set_willing(sock, true);
    bench.cells(sock);
    Client::create(&mut bench, sock, theirs(1), Kind::Fast);
}
