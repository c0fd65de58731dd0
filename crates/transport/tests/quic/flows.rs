//! Cells over flows: that they arrive, whole and in order, and how flows begin and end.

use crate::bench::{Bench, End, MS, S, awaited, body, delay, dialled, options};
use crate::circuits::{destroy_body, numbers, one_circuit, only_destroy};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Jitter, Loss};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_proto::time::Instant;
use heddle_transport::quic::QuicOptions;

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
    assert_eq!((room(&bench.ends[0]), room(&bench.ends[1])), (Some(256), Some(256)));
    let circuits: Vec<CircId> = (1..=200).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1);
    bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 200);
    assert!(room(&bench.ends[0]) >= Some(256), "{:?}", room(&bench.ends[0]));
    // Flows that end make room again.
    let now = bench.now;
    for name in (1..=200).map(dialled) {
        bench.ends[1].endpoint.send(now, b, name, Command::DESTROY, &destroy_body(DestroyReason::NONE));
    }
    bench.run_for(5 * S, &mut ());
    assert!(room(&bench.ends[0]) >= Some(500), "{:?}", room(&bench.ends[0]));
}

#[test]
fn circuits_that_begin_by_the_hundred_find_room() {
    const CIRCUITS: u32 = 5000;
    const UNANSWERED_MAX: u32 = 200;
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, heddle_proto::channel::Role::Responder);
    let here = bench.connection(0, 1, heddle_proto::channel::Role::Initiator);
    let there = heddle_proto::endpoint::ConnectionOptions { flows_max: 50_000, ..there };
    let b = bench.ends[1].endpoint.open(bench.now, there);
    let a = bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(S, &mut ());
    let (mut begun, mut answered, mut room) = (0, 0, 0);
    bench.run_for(10 * S, &mut |now: Instant, ends: &mut [End]| {
        for (_, event) in ends[0].events.drain(..) {
            if let ConnectionEvent::FlowRoom(flows) = event {
                room = flows;
            }
        }
        while begun < CIRCUITS && begun - answered < UNANSWERED_MAX && ends[0].endpoint.capacity(a) > 0 {
            assert!(room > 0, "{begun} have begun, of which {answered} are answered");
            (begun, room) = (begun + 1, room - 1);
            ends[0].endpoint.send(now, a, dialled(begun), Command::CREATE2, &body(0));
        }
        while let Some(got) = ends[1].cells.pop() {
            ends[1].endpoint.send(now, b, got.circ_id, Command::CREATED2, &body(0));
        }
        answered += ends[0].cells.len() as u32;
        ends[0].cells.clear();
    });
    assert_eq!((begun, answered), (CIRCUITS, CIRCUITS));
}

/// Who asks for events before anything is sent, as a relay does that works off what came first, hears of the room that sending
/// makes when it asks again, without anything that arrives.
#[test]
fn whoever_asks_before_all_is_sent_is_told_of_room_after_it() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, _) = bench.open_ready();
    let (now, endpoint) = (bench.now, &mut bench.ends[0].endpoint);
    let mut number = 0;
    while endpoint.capacity(a) > 0 {
        let command = if number == 0 { Command::CREATE2 } else { Command::RELAY };
        endpoint.send(now, a, dialled(1), command, &body(number));
        number += 1;
    }
    let capacity = Some((a, ConnectionEvent::Capacity));
    while let Some(event) = endpoint.poll_event(now) {
        assert_ne!(Some(event), capacity, "nothing has left");
    }
    let mut out = Vec::new();
    while endpoint.poll_transmit(now, 1 << 16, &mut out).is_some() {
        out.clear();
    }
    assert!(endpoint.capacity(a) > 0);
    assert_eq!(endpoint.poll_event(now), capacity);
}
