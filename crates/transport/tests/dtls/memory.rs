//! What flows that nobody reads take of the memory that all connections of an endpoint share.

use crate::bench::{Bench, End, MS, S, anchor, awaited, dialled};
use crate::source::Source;
use heddle_netem::{DirectionOptions, HostOptions, QueueOptions, Rate, TopologyOptions, WireOptions};
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::ConnId;
use heddle_seam::time::Instant;
use heddle_transport::tcp_dtls::DtlsOptions;

/// Circuits that nobody reads: at 64 KiB each they would take more than three quarters of the pool.
const HELD: u32 = 200;
const POOL_BYTES: usize = 16 << 20;

/// The end in the middle, whose memory it is, and those that send to it.
const MIDDLE: usize = 1;
const GREEDY: usize = 0;
const OTHER: usize = 2;

fn star() -> Bench {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let there = DirectionOptions {
        delay_ns: 10 * MS,
        rate: Rate::BitsPerS(16_000_000),
        queue: QueueOptions { bytes_max: 20_000, ..QueueOptions::default() },
        ..DirectionOptions::default()
    };
    let wire = |from: &str| WireOptions {
        from: from.to_owned(),
        to: "middle".to_owned(),
        there: there.clone(),
        back: Some(there.clone()),
    };
    let wires = TopologyOptions {
        hosts: vec![host("greedy"), host("middle"), host("other")],
        wires: vec![wire("greedy"), wire("other")],
        default_wire: None,
    };
    let mut options = DtlsOptions::new(anchor());
    options.session.pool_bytes_max = POOL_BYTES;
    Bench::new(&wires, &options, 1)
}

/// Cells that came on a connection to an end.
fn came(end: &End, conn: ConnId) -> usize {
    end.cells.iter().filter(|got| got.conn == conn).count()
}

/// Two circuits that the middle reads from each side, and two that it sends on to the other: cells of each pair in
/// three seconds. On the connection with the greedy one there are 200 more that are not read, and have sent for eight
/// seconds if `is_greedy`.
fn shares(is_greedy: bool) -> [usize; 3] {
    let mut bench = star();
    let (greedy, from_greedy) = bench.open(GREEDY, MIDDLE);
    let (from_other, other) = bench.open(MIDDLE, OTHER);
    bench.run_for(S, &mut ());
    let held: Vec<CircId> = (1..=HELD).map(dialled).collect();
    let mut first = Source::new(GREEDY, greedy, &held, 1);
    bench.run_for(3 * S, &mut |now: Instant, ends: &mut [End]| first.step(now, ends));
    let names: Vec<CircId> = bench.ends[MIDDLE].cells.iter().map(|got| got.circ_id).collect();
    assert_eq!(names.len(), HELD as usize);
    names.iter().for_each(|name| bench.ends[MIDDLE].endpoint.hold(from_greedy, *name, true));
    let mut hoard = Source::new(GREEDY, greedy, &held, if is_greedy { u32::MAX } else { 0 });
    hoard.circuits.iter_mut().for_each(|it| it.next = 1);
    bench.run_for(8 * S, &mut |now: Instant, ends: &mut [End]| hoard.step(now, ends));
    bench.ends.iter_mut().for_each(|end| end.cells.clear());
    let mut sources = [
        Source::new(GREEDY, greedy, &[dialled(201), dialled(202)], u32::MAX),
        Source::new(OTHER, other, &[awaited(1), awaited(2)], u32::MAX),
        Source::new(MIDDLE, from_other, &[dialled(301), dialled(302)], u32::MAX),
    ];
    bench.run_for(3 * S, &mut |now: Instant, ends: &mut [End]| {
        sources.iter_mut().for_each(|source| source.step(now, ends));
        hoard.step(now, ends);
    });
    let ends = &bench.ends;
    [came(&ends[MIDDLE], from_greedy), came(&ends[MIDDLE], from_other), came(&ends[OTHER], other)]
}

#[test]
fn flows_that_nobody_reads_slow_nobody_else() {
    let (before, beside) = (shares(false), shares(true));
    println!("{before:?} cells alone, {beside:?} beside {HELD} circuits that nobody reads");
    for (before, beside) in before.into_iter().zip(beside) {
        assert!(10 * beside >= 9 * before, "{beside} cells instead of {before}");
    }
}
