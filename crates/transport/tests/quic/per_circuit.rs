//! A connection for each circuit: that cells pass, and how connections come, go, and are bounded.

use crate::bench::{Bench, End, MS, Options, S, Sent, addr, anchor, awaited, body, delay, dialled, options};
use crate::circuits::{destroy_body, numbers};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Jitter, Loss};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::{ConnId, ConnectionError, ConnectionEvent, Endpoint, FlowState};
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use heddle_transport::fuzz_endpoint::{Fuzzed, flows};
use heddle_transport::per_circuit::PerCircuitEndpoint;
use heddle_transport::quic::{QuicEndpoint, QuicOptions};
use proptest::prelude::*;
use std::collections::BTreeSet;
use zeroize::Zeroizing;

/// Circuits that may begin in one round trip, and connections of a pair.
const SPARES: u32 = 16;
const CONNECTIONS_MAX: u32 = 256;

#[derive(Clone)]
struct PerCircuit(QuicOptions);

impl Options for PerCircuit {
    fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
        let quic = QuicEndpoint::new(self.0, secret, seed).expect("good options");
        Box::new(PerCircuitEndpoint::new(quic))
    }
}

fn pair(there: DirectionOptions) -> Bench {
    Bench::pair(there, &PerCircuit(options()))
}

/// What the end was last told of room for circuits.
fn room(end: &End) -> Option<u32> {
    let rooms = end.events.iter().rev().filter_map(|(_, event)| match event {
        ConnectionEvent::FlowRoom(room) => Some(*room),
        _ => None,
    });
    rooms.take(1).next()
}

/// A pair with spares on both sides.
fn ready(bench: &mut Bench) -> (ConnId, ConnId) {
    let conns = bench.open(0, 1);
    bench.run_for(2 * S, &mut ());
    for (end, conn) in [(0, conns.0), (1, conns.1)] {
        assert_eq!(bench.ends[end].events.first(), Some(&(conn, ConnectionEvent::Ready)));
        assert_eq!(room(&bench.ends[end]), Some(SPARES));
        bench.ends[end].events.clear();
    }
    conns
}

fn names(end: &End) -> BTreeSet<CircId> {
    end.cells.iter().map(|got| got.circ_id).collect()
}

#[test]
fn circuits_of_both_sides_have_connections_between_the_same_two_ports() {
    let there = DirectionOptions {
        loss: Loss::Bernoulli { probability: 0.02 },
        jitter: Jitter::Uniform { spread_ns: 5 * MS },
        jitter_reorders: true,
        ..delay(10 * MS)
    };
    let mut bench = pair(there);
    bench.record = Some(Vec::new());
    let (a, b) = bench.open(0, 1);
    bench.run_for(5 * S, &mut ());
    let circuits: Vec<CircId> = (1..=5).map(dialled).collect();
    let mut there = Source::new(0, a, &circuits, 300);
    let mut back = Source::new(1, b, &[awaited(3), awaited(4)], 300);
    bench.run_for(40 * S, &mut |now: Instant, ends: &mut [End]| {
        there.step(now, ends);
        back.step(now, ends);
    });
    let all: Vec<u32> = (0..300).collect();
    for (end, count) in [(1, 5), (0, 2)] {
        let names = names(&bench.ends[end]);
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| numbers(&bench.ends[end], *name) == all));
    }
    let record = bench.record.take().expect("it was recorded");
    let ports: BTreeSet<_> = record.iter().map(|sent| (sent.from, sent.to)).collect();
    assert_eq!(ports.len(), 2);
    assert!(bench.ends[0].endpoint.stats(a).lost_packets > 0);
}

#[test]
fn a_circuit_that_nobody_reads_takes_nothing_from_the_window_of_another() {
    let mut bench = pair(delay(10 * MS));
    let (a, b) = ready(&mut bench);
    let mut source = Source::new(0, a, &[dialled(1), dialled(2)], 2000);
    let mut held = None;
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| {
        if held.is_none()
            && let Some(got) = ends[1].cells.first()
        {
            ends[1].endpoint.hold(b, got.circ_id, true);
            held = Some(got.circ_id);
        }
        source.step(now, ends);
    });
    let held = held.expect("cells came");
    let other = names(&bench.ends[1]).into_iter().find(|name| *name != held).expect("two circuits");
    assert_eq!(numbers(&bench.ends[1], other).len(), 2000);
    assert!(numbers(&bench.ends[1], held).len() < 100);
    bench.ends[1].endpoint.hold(b, held, false);
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(numbers(&bench.ends[1], held), (0..2000).collect::<Vec<u32>>());
}

#[test]
fn destroy_carries_its_reason_and_closes_the_connection_on_both_sides() {
    let mut bench = pair(delay(10 * MS));
    let (a, b) = ready(&mut bench);
    let mut source = Source::new(0, a, &[dialled(1), dialled(2)], 1);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    let theirs: Vec<CircId> = bench.ends[1].cells.drain(..).map(|got| got.circ_id).collect();
    let now = bench.now;
    let [finished, destroyed] = [DestroyReason::FINISHED, DestroyReason::DESTROYED].map(destroy_body);
    bench.ends[0].endpoint.send(now, a, dialled(1), Command::DESTROY, &finished);
    bench.ends[1].endpoint.send(now, b, theirs[1], Command::DESTROY, &destroyed);
    bench.record = Some(Vec::new());
    bench.run_for(5 * S, &mut ());
    let told = |end: &End| -> Vec<(CircId, Command, u8)> {
        end.cells.iter().map(|got| (got.circ_id, got.command, (got.number >> 24) as u8)).collect()
    };
    assert_eq!(told(&bench.ends[1]), [(theirs[0], Command::DESTROY, DestroyReason::FINISHED.0)]);
    assert_eq!(told(&bench.ends[0]), [(dialled(2), Command::DESTROY, DestroyReason::DESTROYED.0)]);
    // Their names are free, and nothing about them is left to be said.
    assert_eq!(bench.ends[0].endpoint.send(now, a, dialled(1), Command::DESTROY, &finished), FlowState::Open);
    let mut again = Source::new(0, a, &[dialled(1)], 2);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| again.step(now, ends));
    let name = bench.ends[1].cells.last().expect("cells came").circ_id;
    assert!(!theirs.contains(&name) && numbers(&bench.ends[1], name) == [0, 1]);
}

#[test]
fn connections_come_ahead_of_circuits_and_are_bounded() {
    let mut bench = pair(delay(10 * MS));
    let (a, b) = ready(&mut bench);
    // More than the spares at once: those beyond are refused, as past any room.
    let now = bench.now;
    for name in 1..=SPARES + 2 {
        bench.ends[0].endpoint.send(now, a, dialled(name), Command::CREATE2, &body(0));
    }
    bench.run_for(S, &mut ());
    let refused: Vec<CircId> = bench.ends[0].cells.drain(..).map(|got| got.circ_id).collect();
    assert_eq!(refused, [dialled(SPARES + 1), dialled(SPARES + 2)]);
    assert_eq!(bench.ends[1].cells.len(), SPARES as usize);
    assert_eq!(room(&bench.ends[0]), Some(SPARES), "there are new ones");
    // One after the other, until there are as many as there may be.
    let mut opened = SPARES;
    loop {
        bench.run_for(100 * MS, &mut ());
        if opened + SPARES == CONNECTIONS_MAX {
            break;
        }
        let now = bench.now;
        bench.ends[0].endpoint.send(now, a, dialled(1000 + opened), Command::CREATE2, &body(0));
        opened += 1;
    }
    assert_eq!(bench.ends[0].cells, []);
    // What is left are the spares for the listener's circuits.
    bench.run_for(60 * S, &mut ());
    assert_eq!(bench.ends[1].cells.len(), opened as usize);
    let now = bench.now;
    bench.ends[0].endpoint.send(now, a, dialled(5000), Command::CREATE2, &body(0));
    bench.run_for(S, &mut ());
    assert_eq!(bench.ends[0].cells.len(), 1, "one too many");
    // Circuits that end make room again, many times over.
    for _ in 0..3 {
        let names = names(&bench.ends[1]);
        bench.ends[1].cells.clear();
        let now = bench.now;
        for name in names {
            let reason = destroy_body(DestroyReason::NONE);
            bench.ends[1].endpoint.send(now, b, name, Command::DESTROY, &reason);
        }
        bench.run_for(20 * S, &mut ());
        assert_eq!(room(&bench.ends[0]), Some(SPARES));
        for batch in 0..10 {
            let now = bench.now;
            for name in 1..=SPARES {
                let name = dialled(9000 + batch * SPARES + name);
                bench.ends[0].endpoint.send(now, a, name, Command::CREATE2, &body(0));
            }
            bench.run_for(S, &mut ());
        }
        assert_eq!(bench.ends[1].cells.len(), 10 * SPARES as usize);
    }
}

#[test]
fn numbers_that_nobody_dialled_are_awaited_again() {
    let mut bench = pair(delay(10 * MS));
    let (a, _) = ready(&mut bench);
    bench.run_for(100 * S, &mut ());
    let circuits: Vec<CircId> = (1..=SPARES).map(dialled).collect();
    for round in 0..3 {
        let circuits: Vec<CircId> =
            circuits.iter().map(|name| dialled(100 * round + (name.get() & 0xff))).collect();
        let mut source = Source::new(0, a, &circuits, 1);
        bench.run_for(100 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    }
    assert_eq!((bench.ends[0].cells.len(), bench.ends[1].cells.len()), (0, 3 * SPARES as usize));
}

#[test]
fn a_pair_ends_with_its_first_connection() {
    let mut bench = pair(delay(10 * MS));
    let (a, b) = ready(&mut bench);
    let mut source = Source::new(0, a, &[dialled(1)], 10);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    bench.ends[0].events.clear();
    bench.ends[0].endpoint.close(bench.now, a);
    bench.run_for(60 * S, &mut ());
    assert_eq!(bench.ends[0].events, []);
    let ended = ConnectionEvent::Ended(ConnectionError::PeerClosed);
    assert_eq!(bench.ends[1].events.last(), Some(&(b, ended)));
    bench.record = Some(Vec::new());
    bench.run_for(60 * S, &mut ());
    assert_eq!(bench.record.take().map(|record| record.len()), Some(0), "no connection is left");
}

#[test]
fn what_was_overheard_of_further_connections_is_worth_nothing() {
    let mut bench = pair(delay(10 * MS));
    bench.record = Some(Vec::new());
    let (a, _) = ready(&mut bench);
    let mut source = Source::new(0, a, &[dialled(1)], 10);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    let overheard = bench.record.take().expect("it was recorded");
    let initials: Vec<&Sent> =
        overheard.iter().filter(|sent| sent.from == addr(0) && sent.data[0] & 0xF0 == 0xC0).collect();
    assert!(initials.len() > 2 * SPARES as usize, "each connection begins with a token of its own");
    let stranger = "192.0.2.9:443".parse().expect("an address");
    for (from, counted) in [(stranger, true), (addr(0), false)] {
        let before = bench.ends[1].endpoint.refused_datagrams().strangers;
        bench.record = Some(Vec::new());
        for sent in &initials {
            bench.deliver(1, Sent { from, ..(*sent).clone() });
        }
        bench.run_for(MS, &mut ());
        let answers = bench.record.take().expect("it was recorded");
        assert!(answers.iter().all(|answer| answer.data[0] & 0x80 == 0), "no handshake");
        let after = bench.ends[1].endpoint.refused_datagrams().strangers;
        assert!(!counted || after - before == initials.len() as u64);
    }
}

#[test]
fn a_script_of_cells_delivers_them() {
    let script: Vec<u8> = (0..200).flat_map(|step: u8| [[0, step], [7, 0]]).flatten().collect();
    assert!(flows(Fuzzed::PerCircuit, anchor(), &script) > 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn circuits_keep_order_whatever_happens(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        flows(Fuzzed::PerCircuit, anchor(), &script);
    }
}
