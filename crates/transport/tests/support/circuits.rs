//! What circuits of either transport do: cells arrive in order, and either side ends what it likes.

use crate::bench::{Bench, End, MS, S, awaited, body, delay, dialled, options};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Packet, QueueOptions, Rate, Step};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionOptions};
use heddle_seam::time::Instant;

/// The numbers of the cells that came on a circuit.
pub fn numbers(end: &End, circ_id: CircId) -> Vec<u32> {
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
pub fn one_circuit(bench: &mut Bench) -> (ConnId, ConnId, CircId) {
    let (a, b) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(5)], 1);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 1);
    let theirs = bench.ends[1].cells[0].circ_id;
    bench.ends[1].cells.clear();
    (a, b, theirs)
}

pub fn destroy_body(reason: DestroyReason) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    body[0] = reason.0;
    body
}

/// The reason of the only cell that came, which is DESTROY.
pub fn only_destroy(end: &mut End, circ_id: CircId) -> DestroyReason {
    let [got] = &end.cells[..] else {
        panic!("{:?}", end.cells);
    };
    assert_eq!((got.circ_id, got.command), (circ_id, Command::DESTROY));
    let reason = DestroyReason((got.number >> 24) as u8);
    end.cells.clear();
    reason
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

/// It is gone nearly as long as a connection lives without an answer. What is sent meanwhile is lost, however often it
/// is repeated.
#[test]
fn a_circuit_that_ends_while_the_path_is_gone_has_ended_when_it_is_back() {
    let down = |at_ns: u64, down: bool| Step { at_ns, down: Some(down), ..Step::default() };
    let schedule = vec![down(5 * S, true), down(60 * S, false)];
    let mut bench = Bench::pair(DirectionOptions { schedule, ..delay(10 * MS) }, &options());
    let (a, _, theirs) = one_circuit(&mut bench);
    bench.run_until(Instant::from_nanos(5 * S), &mut ());
    let body = destroy_body(DestroyReason::REQUESTED);
    bench.ends[0].endpoint.send(bench.now, a, dialled(5), Command::DESTROY, &body);
    bench.run_until(Instant::from_nanos(60 * S), &mut ());
    assert_eq!(bench.ends[1].cells, []);
    bench.run_for(10 * S, &mut ());
    assert_eq!(only_destroy(&mut bench.ends[1], theirs), DestroyReason::REQUESTED);
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
    for later in [Command::CREATE2, Command::PADDING, Command::NETINFO, Command::VPADDING] {
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
fn flows_beyond_the_limit_are_refused_at_once() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, Role::Responder);
    let here = bench.connection(0, 1, Role::Initiator);
    let there = ConnectionOptions { flows_max: 3, ..there };
    bench.ends[1].endpoint.open(bench.now, there);
    let a = bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(S, &mut ());
    let circuits: Vec<CircId> = (1..=5).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1);
    bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 3);
    let refused: Vec<CircId> = bench.ends[0].cells.iter().map(|got| got.circ_id).collect();
    assert_eq!(refused, [dialled(4), dialled(5)]);
    // Neither a datagram nor a timer has to bring the news.
    let (now, end) = (bench.now, &mut bench.ends[0]);
    end.endpoint.send(now, a, dialled(6), Command::CREATE2, &body(0));
    let told = end.endpoint.next_incoming(now).map(|cell| (cell.circ_id, cell.command));
    assert_eq!(told, Some((dialled(6), Command::DESTROY)));
}

/// Bulk over a path that carries 1500 bytes, headers included, and 1280 from the fifth second on: cells in each second
/// there, and back if there is bulk both ways.
pub fn shrinking_path(bench: &mut Bench, both_ways: bool) -> Vec<[usize; 2]> {
    let (a, b) = bench.open_ready();
    let mut there = Source::new(0, a, &[1, 2, 3].map(dialled), u32::MAX);
    let mut back = Source::new(1, b, &[awaited(1)], if both_ways { u32::MAX } else { 1 });
    let mut cells = Vec::new();
    for second in 0..15 {
        if second == 5 {
            bench.alter = Some(|sent| sent.len_bytes() <= 1280);
        }
        bench.run_for(S, &mut |now: Instant, ends: &mut [End]| {
            there.step(now, ends);
            back.step(now, ends);
        });
        cells.push([1, 0].map(|end: usize| core::mem::take(&mut bench.ends[end].cells).len()));
    }
    cells
}

/// What comes to nothing until it is found is no more than three seconds' worth, and afterwards there is as much as
/// before.
pub fn is_found_out(cells: &[[usize; 2]], way: usize) {
    let of = |seconds: core::ops::Range<usize>| seconds.map(|second| cells[second][way]).sum::<usize>();
    assert!(of(10..15) >= 4 * of(0..5) / 5, "{cells:?}");
    assert!(of(5..10) >= 3 * of(0..5) / 10, "{cells:?}");
}

#[test]
fn a_path_that_carries_less_during_a_download_ends_no_circuit() {
    let there = DirectionOptions { rate: Rate::BitsPerS(10_000_000), ..delay(20 * MS) };
    let mut bench = Bench::pair(there, &options());
    let cells = shrinking_path(&mut bench, false);
    is_found_out(&cells, 0);
}

/// The shares of a wire of ten Mbit/s each way that two ends have which both send all the time over so many circuits:
/// those of the first five seconds, and of the next twenty-five.
fn shares_both_ways(circuits: [u32; 2], one_way_ms: u64) -> [[f64; 2]; 2] {
    const BITS_PER_S: u64 = 10_000_000;
    let wire = DirectionOptions {
        rate: Rate::BitsPerS(BITS_PER_S),
        queue: QueueOptions {
            packets_max: 10_000,
            bytes_max: BITS_PER_S / 8000 * 2 * one_way_ms,
            codel: None,
        },
        ..delay(one_way_ms * MS)
    };
    let mut bench = Bench::pair(wire, &options());
    let (a, b) = bench.open_ready();
    let ids: Vec<CircId> = (1..=circuits[0]).map(dialled).collect();
    let back_ids: Vec<CircId> = (1..=circuits[1]).map(awaited).collect();
    let mut there = Source::new(0, a, &ids, u32::MAX);
    let mut back = Source::new(1, b, &back_ids, u32::MAX);
    [5, 25].map(|seconds| {
        bench.run_for(seconds * S, &mut |now: Instant, ends: &mut [End]| {
            there.step(now, ends);
            back.step(now, ends);
        });
        let mut share = |end: usize| {
            let cells = core::mem::take(&mut bench.ends[end].cells).len();
            (cells * BODY_LEN * 8) as f64 / (BITS_PER_S * seconds) as f64
        };
        [share(1), share(0)]
    })
}

/// Each end's packets queue, and the other's acknowledgements wait behind them: neither may take that for a queue on
/// its own way.
#[test]
fn bulk_one_way_leaves_bulk_the_other_way_its_wire() {
    const FIRST_MIN: f64 = 0.5;
    const THEN_MIN: f64 = 0.7;
    let circuits = [[1, 1], [8, 1], [100, 1], [100, 100]];
    let cases =
        circuits.iter().flat_map(|circuits| [5, 20, 50, 100].map(|one_way_ms| (*circuits, one_way_ms)));
    let missed = cases.filter(|(circuits, one_way_ms)| {
        let [first, then] = shares_both_ways(*circuits, *one_way_ms);
        println!("{circuits:?} circuits, {one_way_ms} ms one way: {first:.2?} at first, then {then:.2?}");
        first.iter().any(|share| *share < FIRST_MIN) || then.iter().any(|share| *share < THEN_MIN)
    });
    assert_eq!(
        missed.count(),
        0,
        "of the shares above some are below {FIRST_MIN} at first, or {THEN_MIN} then"
    );
}
