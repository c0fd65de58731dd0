//! Cells over flows: that they arrive, whole and in order, and how flows begin and end.

use crate::bench::{Bench, End, MS, S, awaited, body, delay, dialled, options};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Jitter, Loss};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::endpoint::{ConnId, ConnectionEvent};
use heddle_proto::time::Instant;
use heddle_transport::quic::QuicOptions;

fn numbers(end: &End, circ_id: CircId) -> Vec<u32> {
    end.cells.iter().filter(|got| got.circ_id == circ_id).map(|got| got.number).collect()
}

#[test]
fn cells_arrive_in_order_on_flows_of_both_sides() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b) = bench.open_ready();
    let mut there = Source::new(0, a, &[dialled(7), dialled(9)], 3000);
    let mut back = Source::new(1, b, &[awaited(70)], 3000);
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| {
        there.step(now, ends);
        back.step(now, ends);
    });
    let all: Vec<u32> = (0..3000).collect();
    for name in [dialled(1), dialled(2)] {
        assert_eq!(numbers(&bench.ends[1], name), all);
    }
    assert_eq!(numbers(&bench.ends[0], awaited(1)), all);
    let first = |end: &End, name| end.cells.iter().find(|got| got.circ_id == name).expect("a cell").command;
    assert_eq!(first(&bench.ends[1], dialled(1)), Command::CREATE2);
    assert_eq!(first(&bench.ends[0], awaited(1)), Command::CREATE2);
}

/// Both sides' one circuit, opened by `a` and answered.
fn one_circuit(bench: &mut Bench) -> (ConnId, ConnId, CircId) {
    let (a, b) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(5)], 1);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 1);
    let theirs = bench.ends[1].cells[0].circ_id;
    bench.ends[1].cells.clear();
    (a, b, theirs)
}

fn destroy_body(reason: DestroyReason) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    body[0] = reason.0;
    body
}

/// The reason of the only cell that came, which is DESTROY.
fn only_destroy(end: &mut End, circ_id: CircId) -> DestroyReason {
    let [got] = &end.cells[..] else {
        panic!("{:?}", end.cells);
    };
    assert_eq!((got.circ_id, got.command), (circ_id, Command::DESTROY));
    let reason = DestroyReason((got.number >> 24) as u8);
    end.cells.clear();
    reason
}

#[test]
fn cells_survive_loss_and_reordering() {
    let there = DirectionOptions {
        loss: Loss::Bernoulli { probability: 0.03 },
        jitter: Jitter::Uniform { spread_ns: 10 * MS },
        jitter_reorders: true,
        ..delay(20 * MS)
    };
    let mut bench = Bench::pair(there, &options());
    let (a, b) = bench.open(0, 1);
    bench.run_for(10 * S, &mut ());
    let circuits: Vec<CircId> = (1..=5).map(dialled).collect();
    let mut there = Source::new(0, a, &circuits, 400);
    let mut back = Source::new(1, b, &[awaited(3)], 400);
    bench.run_for(40 * S, &mut |now: Instant, ends: &mut [End]| {
        there.step(now, ends);
        back.step(now, ends);
    });
    // Windows are so small here that each side would often wait for the other one's acknowledgement.
    let rtt_ns = bench.ends[0].endpoint.stats(a).rtt_ns;
    assert!(rtt_ns <= 100 * MS, "{rtt_ns}");
    let all: Vec<u32> = (0..400).collect();
    for name in &circuits {
        assert_eq!(numbers(&bench.ends[1], *name), all);
    }
    assert_eq!(numbers(&bench.ends[0], awaited(1)), all);
    assert!(bench.ends[0].endpoint.stats(a).lost_packets > 0);
}

#[test]
fn a_held_flow_stops_at_its_window_and_no_other_notices() {
    let options = QuicOptions { stream_receive_window_bytes: 64 * 1024, ..options() };
    let mut bench = Bench::pair(delay(10 * MS), &options);
    let (a, b) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(1), dialled(2)], 2000);
    let mut held = false;
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| {
        if !held && ends[1].cells.iter().any(|got| got.circ_id == dialled(1)) {
            ends[1].endpoint.hold(b, dialled(1), true);
            held = true;
        }
        source.step(now, ends);
    });
    let window_cells = 64 * 1024 / 510;
    let read = numbers(&bench.ends[1], dialled(1)).len() as u32;
    assert_eq!(numbers(&bench.ends[1], dialled(2)).len(), 2000);
    assert!(source.circuits[0].blocked);
    let sent = source.circuits[0].next;
    // The window, the rest of one packet that was read already, and the one cell that its sender keeps.
    assert!(sent - read <= window_cells + 4, "{sent} {read}");

    bench.ends[1].endpoint.hold(b, dialled(1), false);
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(numbers(&bench.ends[1], dialled(1)), (0..2000).collect::<Vec<u32>>());
}

#[test]
fn destroy_resets_a_flow_and_overtakes_what_nobody_reads() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b, theirs) = one_circuit(&mut bench);
    bench.ends[1].endpoint.hold(b, theirs, true);
    for number in 0..20 {
        let now = bench.now;
        bench.ends[0].endpoint.send(now, a, dialled(5), Command::RELAY, &body(number));
    }
    bench.run_for(S, &mut ());
    assert_eq!(bench.ends[1].cells, []);
    let now = bench.now;
    let body = destroy_body(DestroyReason::FINISHED);
    bench.ends[0].endpoint.send(now, a, dialled(5), Command::DESTROY, &body);
    bench.run_for(S, &mut ());
    assert_eq!(only_destroy(&mut bench.ends[1], theirs), DestroyReason::FINISHED);
    assert_eq!(bench.ends[0].cells, []);

    // Its name is free on the side that ended it, and the circuit of the same name is another one.
    let mut again = Source::new(0, a, &[dialled(5)], 2);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| again.step(now, ends));
    let commands: Vec<Command> = bench.ends[1].cells.iter().map(|got| got.command).collect();
    assert_eq!(commands, [Command::CREATE2, Command::RELAY]);
    assert_ne!(bench.ends[1].cells[0].circ_id, theirs);
}

#[test]
fn whoever_did_not_open_a_flow_may_end_it_too() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (_, b, theirs) = one_circuit(&mut bench);
    let now = bench.now;
    let body = destroy_body(DestroyReason::DESTROYED);
    bench.ends[1].endpoint.send(now, b, theirs, Command::DESTROY, &body);
    bench.run_for(S, &mut ());
    assert_eq!(only_destroy(&mut bench.ends[0], dialled(5)), DestroyReason::DESTROYED);
    assert_eq!(bench.ends[1].cells, []);
}

#[test]
fn a_destroy_of_both_sides_at_once_is_told_to_neither_twice() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b, theirs) = one_circuit(&mut bench);
    let (now, body) = (bench.now, destroy_body(DestroyReason::FINISHED));
    bench.ends[0].endpoint.send(now, a, dialled(5), Command::DESTROY, &body);
    bench.ends[1].endpoint.send(now, b, theirs, Command::DESTROY, &body);
    bench.run_for(S, &mut ());
    assert_eq!(bench.ends[0].cells, []);
    assert_eq!(bench.ends[1].cells, []);
}

#[test]
fn cells_for_a_flow_that_has_ended_open_no_other() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b, theirs) = one_circuit(&mut bench);
    let now = bench.now;
    bench.ends[0].reads = false;
    bench.ends[1].endpoint.send(now, b, theirs, Command::DESTROY, &destroy_body(DestroyReason::NONE));
    bench.run_for(S, &mut ());
    let now = bench.now;
    bench.ends[0].endpoint.send(now, a, dialled(5), Command::RELAY, &body(1));
    bench.run_for(S, &mut ());
    assert_eq!(bench.ends[1].cells, []);
    bench.ends[0].reads = true;
    bench.run_for(S, &mut ());
    assert_eq!(only_destroy(&mut bench.ends[0], dialled(5)), DestroyReason::NONE);
}

#[test]
fn a_flow_begins_with_create2_and_carries_nothing_but_circuits() {
    for first in [Command::RELAY, Command::PADDING, Command::CREATE_FAST, Command::CREATED2] {
        let mut bench = Bench::pair(delay(10 * MS), &options());
        let (a, _) = bench.open_ready();
        let now = bench.now;
        bench.ends[0].endpoint.send(now, a, dialled(5), first, &body(0));
        bench.run_for(S, &mut ());
        assert_eq!(bench.ends[1].cells, [], "{first}");
        assert_eq!(only_destroy(&mut bench.ends[0], dialled(5)), DestroyReason::PROTOCOL);
    }
    for later in [Command::CREATE2, Command::NETINFO, Command::VPADDING, Command::PADDING_NEGOTIATE] {
        let mut bench = Bench::pair(delay(10 * MS), &options());
        let (a, _, theirs) = one_circuit(&mut bench);
        let now = bench.now;
        bench.ends[0].endpoint.send(now, a, dialled(5), later, &body(0));
        bench.run_for(S, &mut ());
        assert_eq!(only_destroy(&mut bench.ends[1], theirs), DestroyReason::PROTOCOL, "{later}");
        assert_eq!(only_destroy(&mut bench.ends[0], dialled(5)), DestroyReason::PROTOCOL);
    }
}

#[test]
fn room_for_flows_grows_as_it_is_used() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b) = bench.open(0, 1);
    bench.run_for(S, &mut ());
    let room = |end: &End| {
        let rooms = end.events.iter().filter_map(|(_, event)| match event {
            ConnectionEvent::FlowRoom(room) => Some(*room),
            _ => None,
        });
        rooms.max()
    };
    assert_eq!((room(&bench.ends[0]), room(&bench.ends[1])), (Some(64), Some(64)));
    let circuits: Vec<CircId> = (1..=60).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1);
    bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 60);
    assert!(room(&bench.ends[0]) >= Some(64), "{:?}", room(&bench.ends[0]));
    // Flows that end make room again.
    let now = bench.now;
    for name in (1..=60).map(dialled) {
        bench.ends[1].endpoint.send(now, b, name, Command::DESTROY, &destroy_body(DestroyReason::NONE));
    }
    bench.run_for(5 * S, &mut ());
    assert!(room(&bench.ends[0]) >= Some(120), "{:?}", room(&bench.ends[0]));
}

#[test]
fn flows_beyond_the_limit_are_refused_at_once() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, heddle_proto::channel::Role::Responder);
    let here = bench.connection(0, 1, heddle_proto::channel::Role::Initiator);
    let there = heddle_proto::endpoint::ConnectionOptions { flows_max: 3, ..there };
    bench.ends[1].endpoint.open(bench.now, there);
    let a = bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(S, &mut ());
    let circuits: Vec<CircId> = (1..=5).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1);
    bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 3);
    let refused: Vec<CircId> = bench.ends[0].cells.iter().map(|got| got.circ_id).collect();
    assert_eq!(refused, [dialled(4), dialled(5)]);
}
