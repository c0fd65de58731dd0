//! How flows find room.

use crate::bench::{Bench, End, MS, S, awaited, body, delay, dialled, options, with_flow_window};
use crate::circuits::{destroy_body, shrinking_path};
use crate::source::Source;
use heddle_netem::{DirectionOptions, HostId, Loss, Rate};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::Instant;
use heddle_transport::quic::QuicOptions;

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

/// Flows that are not read hold eight times what the connection's window is at first, and one that is read does not
/// notice.
#[test]
fn flows_that_are_not_read_hold_up_no_other() {
    const HELD: u32 = 32;
    let mut bench = Bench::pair(delay(10 * MS), &with_flow_window(64 * 1024));
    let (a, b) = bench.open_ready();
    let circuits: Vec<CircId> = (1..=HELD + 1).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1000);
    let mut held = 0;
    bench.run_for(10 * S, &mut |now: Instant, ends: &mut [End]| {
        let firsts = ends[1].cells.iter().filter(|got| got.number == 0 && got.circ_id != dialled(HELD + 1));
        let names: Vec<CircId> = firsts.map(|got| got.circ_id).collect();
        names[held..].iter().for_each(|name| ends[1].endpoint.hold(b, *name, true));
        held = names.len();
        source.step(now, ends);
    });
    let read = bench.ends[1].cells.iter().filter(|got| got.circ_id == dialled(HELD + 1)).count();
    assert_eq!((held, read), (HELD as usize, 1000));
    assert!(bench.ends[1].endpoint.buffered_bytes() >= 31 * 64 * 1024);
    for name in circuits {
        bench.ends[1].endpoint.hold(b, name, false);
    }
    bench.run_for(10 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!((bench.ends[1].cells.len(), bench.ends[1].endpoint.buffered_bytes()), (33 * 1000, 0));
}

/// How many seconds' worth of a path of 50 Mbit/s and 100 ms there and as much back is read after each of the first
/// seconds.
fn read_after_seconds(options: &QuicOptions) -> Vec<f64> {
    const RATE: f64 = 50e6;
    let rate = Rate::BitsPerS(RATE as u64);
    let there = DirectionOptions { rate, delay_ns: 100 * MS, ..DirectionOptions::default() };
    let mut bench = Bench::pair_of(there, None, options, 1);
    let (a, _) = bench.open_ready();
    let circuits: Vec<CircId> = (1..=6).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, u32::MAX);
    let mut read = Vec::new();
    for _ in 0..6 {
        bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
        read.push(bench.ends[1].cells.len() as f64 * 510.0 * 8.0 / RATE);
    }
    read
}

/// What a path takes is never held up by the window of its reader, from the first round trips on: it is as much as with
/// a window of 1 GiB, which holds up nobody. Seconds by themselves differ by more, because what a full path loses is
/// other packets.
#[test]
fn the_reader_s_window_grows_ahead_of_the_sender() {
    let read = read_after_seconds(&options());
    let without = read_after_seconds(&QuicOptions { receive_window_bytes_min: 1 << 30, ..options() });
    let is_as_much = |(with, without): (&f64, &f64)| *with > 0.98 * without;
    assert!(read.iter().zip(&without).all(is_as_much), "{read:?} of {without:?}");
    let seconds = |read: &[f64]| -> Vec<f64> { read.windows(2).map(|two| two[1] - two[0]).collect() };
    let (in_seconds, without_it) = (seconds(&read), seconds(&without));
    let is_near = |(with, without): (&f64, &f64)| *with > 0.95 * without;
    assert!(in_seconds.iter().zip(&without_it).all(is_near), "{in_seconds:?} of {without_it:?}");
    assert!(without[5] - without[4] > 0.8, "the path was never full: {without:?}");
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

/// Who asks for events before anything is sent, as a relay does that works off what came first, hears of the room that
/// sending makes when it asks again, without anything that arrives.
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
    while endpoint.poll_transmit(now, &mut out).is_some() {
        out.clear();
    }
    assert!(endpoint.capacity(a) > 0);
    assert_eq!(endpoint.poll_event(now), capacity);
}

/// Both windows are full of what is lost, so that all that each end hears is what the other sends beyond its own.
#[test]
fn a_path_that_carries_less_while_both_ends_send_bulk_goes_on_both_ways() {
    for one_way_ms in [5, 20, 50, 100] {
        let there = DirectionOptions { rate: Rate::BitsPerS(10_000_000), ..delay(one_way_ms * MS) };
        let mut bench = Bench::pair(there, &options());
        let cells = shrinking_path(&mut bench, true);
        // The change comes in the sixth second. Which of both ways has how much of its wire is another matter.
        assert!(cells[6..].iter().flatten().all(|cells| *cells > 0), "{one_way_ms} ms: {cells:?}");
        let of = |seconds: &[[usize; 2]]| seconds.iter().flatten().sum::<usize>();
        assert!(of(&cells[7..12]) >= 4 * of(&cells[..5]) / 5, "{one_way_ms} ms: {cells:?}");
    }
}

/// TCP's mean window at such losses is √(1.5 / loss), or 3.9, 2.7 and 1.9, without its time-outs. Acknowledgements that
/// do not wait for the window take data along, and must not make it much more.
#[test]
fn a_path_that_loses_much_is_sent_little_both_ways() {
    const RTT_MS: u64 = 40;
    for (probability, most) in [(0.1, 6.0), (0.2, 3.0), (0.4, 1.5)] {
        let there = DirectionOptions { loss: Loss::Bernoulli { probability }, ..delay(RTT_MS / 2 * MS) };
        let mut bench = Bench::pair(there, &options());
        let (a, b) = bench.open_ready();
        let source = |end, conn, id| Source::new(end, conn, &[id], u32::MAX);
        let mut sources = [source(0, a, dialled(1)), source(1, b, awaited(1))];
        let mut sent_in = |seconds: u64| {
            let sent = |bench: &Bench, from: u32| {
                let stats = bench.wires.direction_stats(HostId(from), HostId(1 - from));
                stats.expect("a wire").packets_in
            };
            let before = [0, 1].map(|from| sent(&bench, from));
            bench.run_for(seconds * S, &mut |now: Instant, ends: &mut [End]| {
                sources.iter_mut().for_each(|source| source.step(now, ends));
            });
            [0, 1].map(|from: u32| sent(&bench, from) - before[from as usize])
        };
        sent_in(5);
        let sent = sent_in(20).map(|packets| packets as f64 * RTT_MS as f64 / 20_000.0);
        assert!(
            sent.iter().all(|sent| *sent > 0.5 && *sent <= most),
            "{probability}: {sent:?} in a round trip"
        );
    }
}
