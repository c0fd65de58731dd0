//! What circuits of QUIC do to a wire and to TCP beside them, beside what as many connections of TCP do in their place as
//! one pair stands for at most.
//!
//! `table` prints more than is asserted: `cargo test --release -p heddle-transport --test quic -- --ignored --nocapture table`.

use crate::bench::MS;
use crate::loads::{Outcome, ceilings, ceilings_are_kept, outcome, quic, tcp};
use heddle_netem::{CodelOptions, DirectionOptions, PolicerOptions, QueueOptions, Rate};
use heddle_proto::endpoint::CongestionParams;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// What becomes of what a wire cannot carry.
#[derive(Clone, Copy, Debug)]
pub enum Excess {
    /// It waits, for so many milliseconds at most.
    Waits(u64),
    Codel {
        marks: bool,
    },
    /// It is dropped at once, but for a burst of so many milliseconds.
    Policed(u64),
}

pub fn wire(mbit: u64, rtt_ms: u64, excess: Excess) -> DirectionOptions {
    let bytes = |ms: u64| mbit * 125 * ms;
    let queue = |bytes_max, codel| QueueOptions { packets_max: 10_000, bytes_max, codel };
    let plain = DirectionOptions {
        rate: Rate::BitsPerS(mbit * 1_000_000),
        delay_ns: rtt_ms * MS / 2,
        ..DirectionOptions::default()
    };
    match excess {
        Excess::Waits(ms) => DirectionOptions { queue: queue(bytes(ms), None), ..plain },
        Excess::Codel { marks } => {
            let codel = CodelOptions { ecn: marks, ..CodelOptions::default() };
            DirectionOptions { queue: queue(bytes(2 * rtt_ms), Some(codel)), ..plain }
        }
        Excess::Policed(ms) => {
            let policer = PolicerOptions { rate_bits_per_s: mbit * 1_000_000, burst_bytes: bytes(ms) };
            DirectionOptions { rate: Rate::BitsPerS(1_000_000_000), policer: Some(policer), ..plain }
        }
    }
}

/// So many circuits with `count` connections of TCP beside them, and as many connections as one pair stands for in the place
/// of the circuits.
fn beside(wire: &DirectionOptions, circuits: u32, count: usize, seconds: u64) -> [Outcome; 2] {
    let ours = [&[quic(circuits)][..], &vec![tcp(); count]].concat();
    let tcps = circuits.min(CongestionParams::TCPS_MAX.into()) as usize;
    let theirs = [vec![tcp(); tcps], vec![tcp(); count]].concat();
    [outcome(wire, &ours, 1, seconds), outcome(wire, &theirs, tcps, seconds)]
}

/// One TCP beside them makes it a hundredth of all packets where eight in their place make it 0.7 %
/// (docs/results/quic.md).
#[test]
fn many_circuits_lose_little_on_a_narrow_wire() {
    for (circuits, queue_ms, count, least) in [(100, 100, 1, 0.01), (300, 100, 1, 0.01), (300, 5, 0, 0.0)] {
        let [ours, theirs] = beside(&wire(10, 100, Excess::Waits(queue_ms)), circuits, count, 30);
        let name = format!("{circuits} circuits, {queue_ms} ms, {count} TCP");
        assert!(ours.dropped <= theirs.dropped.max(least), "{name}: {ours:?} where {theirs:?}");
    }
}

/// Where no queue shows, losses and marks tell of congestion, and those of a wire do not.
#[test]
fn tcp_keeps_what_it_has_beside_tcp_where_queues_are_short() {
    let codel = [false, true].map(|marks| Excess::Codel { marks });
    for excess in codel.into_iter().chain([Excess::Waits(5), Excess::Policed(100)]) {
        let [ours, theirs] = beside(&wire(10, 100, excess), 20, 2, 40);
        assert!(ours.beside >= 0.8 * theirs.beside, "{excess:?}: {ours:?} where {theirs:?}");
        assert!(ours.dropped <= theirs.dropped, "{excess:?}: {ours:?} where {theirs:?}");
    }
}

/// A wire of 20 ms holds so little that eight TCPs lose one packet in ten of it. Fewer would do.
#[test]
fn many_circuits_are_as_few_tcps_as_a_short_wire_has_room_for() {
    for excess in [Excess::Waits(20), Excess::Codel { marks: false }] {
        let [ours, theirs] = beside(&wire(10, 20, excess), 100, 2, 20);
        assert!(ours.dropped <= 0.9 * theirs.dropped, "{excess:?}: {ours:?} where {theirs:?}");
        assert!(ours.beside >= 0.8 * theirs.beside, "{excess:?}: {ours:?} where {theirs:?}");
    }
}

/// Eight circuits beside two TCPs: as the network lowers the ceiling and lifts it again, running connections follow.
#[test]
fn the_network_says_as_how_many_tcps_a_connection_contends() {
    let loads = [quic(8), tcp(), tcp()];
    ceilings_are_kept(&ceilings(&wire(10, 40, Excess::Waits(80)), &loads, 1, 25, &[8, 1, 8]));
}

/// One cell of the table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mbit: u64,
    rtt_ms: u64,
    excess: Excess,
    circuits: u32,
    tcps: usize,
}

impl Cell {
    fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for (mbit, rtt_ms) in [(10, 20), (10, 100), (50, 100), (10, 300)] {
            let waits = [5, rtt_ms / 2, rtt_ms, 4 * rtt_ms].map(Excess::Waits);
            let codel = [false, true].map(|marks| Excess::Codel { marks });
            for excess in waits.into_iter().chain(codel).chain([Excess::Policed(rtt_ms)]) {
                for (circuits, tcps) in [(1, 1), (4, 1), (20, 2), (100, 2), (300, 2), (300, 0)] {
                    cells.push(Cell { mbit, rtt_ms, excess, circuits, tcps });
                }
            }
        }
        cells
    }

    fn row(&self) -> String {
        let there = wire(self.mbit, self.rtt_ms, self.excess);
        let [ours, theirs] = beside(&there, self.circuits, self.tcps, 40);
        let cap = usize::from(CongestionParams::TCPS_MAX);
        let as_cap = outcome(&there, &vec![tcp(); cap + self.tcps], cap, 40);
        let rate = self.mbit as f64 * 1e6;
        format!(
            "{:>6} {:>4} {:>9} {:>4}  {:<22} {:>5.2} {:>5.2} {:>7.2} % {:>5.2} % {:>5.2} % {:>8.2} {:>6.2}",
            self.mbit,
            self.rtt_ms,
            self.circuits,
            self.tcps,
            format!("{:?}", self.excess),
            ours.ours / rate,
            (ours.ours + ours.beside) / rate,
            100.0 * ours.dropped,
            100.0 * theirs.dropped,
            100.0 * as_cap.dropped,
            ours.beside / theirs.beside.max(1.0),
            ours.ours / theirs.ours,
        )
    }
}

#[test]
#[ignore = "takes minutes, and prints figures"]
fn table() {
    println!(
        "Mbit/s  RTT  circuits  TCP  excess                   ours  used  dropped  as TCP   as 8   TCP kept  got"
    );
    let cells = Cell::all();
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let work = || {
        while let index = next.fetch_add(1, Relaxed)
            && let Some(cell) = cells.get(index)
        {
            let row = cell.row();
            rows.lock().expect("no row panics").push((index, row));
        }
    };
    thread::scope(|scope| [&work; 2].map(|work| drop(scope.spawn(work))));
    let mut rows = rows.into_inner().expect("no row panics");
    rows.sort();
    rows.iter().for_each(|(_, row)| println!("{row}"));
}
