//! What loss on the wire of two circuits does to the one that sends little.

use crate::bench::{Bench, End, MS, S, body, dialled, options};
use heddle_netem::{DirectionOptions, Loss};
use heddle_proto::cell::Command;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, FlowState};
use heddle_seam::time::Instant;
use std::collections::VecDeque;

/// The lab's plan `isolation`: 40 ms one way, a cell every 10 ms, beside 400 kB/s.
const DELAY_NS: u64 = 40 * MS;
const EVERY_NS: u64 = 10 * MS;
const BULK_CELL_NS: u64 = S * 498 / 400_000;

/// A circuit that has a cell to send every so often.
#[derive(Default)]
struct Circuit {
    every_ns: u64,
    next_ns: u64,
    /// The numbers of cells that wait for the connection.
    waiting: VecDeque<u32>,
    blocked: bool,
    /// When each cell was due, by its number.
    due_ns: Vec<u64>,
    /// How long each cell took that arrived.
    took_ns: Vec<u64>,
}

impl Circuit {
    fn new(from_ns: u64, every_ns: u64) -> Self {
        Circuit { every_ns, next_ns: from_ns, ..Circuit::default() }
    }
}

struct Script {
    conn: ConnId,
    /// The one that sends little comes first.
    circuits: [Circuit; 2],
    turn: usize,
}

impl Script {
    fn step(&mut self, now: Instant, ends: &mut [End]) {
        let [here, there] = ends else { panic!("two ends") };
        for (_, event) in here.events.drain(..) {
            if let ConnectionEvent::Writable(id) = event {
                self.circuits[(id.get() & 0xffff) as usize - 1].blocked = false;
            }
        }
        for circuit in &mut self.circuits {
            while circuit.next_ns <= now.as_nanos() {
                // A source that is not read stops, as an exit does.
                if circuit.waiting.len() < 64 {
                    circuit.waiting.push_back(circuit.due_ns.len() as u32);
                    circuit.due_ns.push(circuit.next_ns);
                }
                circuit.next_ns += circuit.every_ns;
            }
        }
        while here.endpoint.capacity(self.conn) > 0 {
            let Some(index) = (0..2).map(|step| (self.turn + step) % 2).find(|index| {
                let circuit = &self.circuits[*index];
                !circuit.blocked && !circuit.waiting.is_empty()
            }) else {
                break;
            };
            self.turn = index + 1;
            let circuit = &mut self.circuits[index];
            let number = circuit.waiting.pop_front().expect("checked");
            let command = if number == 0 { Command::CREATE2 } else { Command::RELAY };
            let state = here.endpoint.send(now, self.conn, dialled(index as u32 + 1), command, &body(number));
            circuit.blocked = state == FlowState::Blocked;
        }
        for cell in there.cells.drain(..) {
            let index = ((cell.circ_id.get() & 0xffff) - 1) as usize;
            let circuit = &mut self.circuits[index];
            circuit.took_ns.push(now.as_nanos() - circuit.due_ns[cell.number as usize]);
        }
        there.events.clear();
    }
}

/// How long cells of the small circuit took beyond the wire at these percentiles, in milliseconds, and what the bulk
/// circuit got, in 1000 bytes per second.
fn beside_bulk(loss: f64, percentiles: &[usize], seed: u64) -> (Vec<f64>, f64) {
    const SECONDS: u64 = 40;
    const WARM: usize = 500;
    let loss = Loss::Bernoulli { probability: loss };
    let there = DirectionOptions { delay_ns: DELAY_NS, loss, ..DirectionOptions::default() };
    let mut bench = Bench::pair_of(there, None, &options(), seed);
    let (conn, _) = bench.open_ready();
    let from_ns = bench.now.as_nanos();
    let circuits = [EVERY_NS, BULK_CELL_NS].map(|every_ns| Circuit::new(from_ns, every_ns));
    let mut script = Script { conn, circuits, turn: 0 };
    bench.run_for(SECONDS * S, &mut |now: Instant, ends: &mut [End]| script.step(now, ends));
    let [small, bulk] = &mut script.circuits;
    let took_ns = &mut small.took_ns[WARM..];
    took_ns.sort_unstable();
    let at = |percentile: &usize| took_ns[(took_ns.len() - 1) * percentile / 100] - DELAY_NS;
    let took_ms = percentiles.iter().map(|percentile| at(percentile) as f64 / MS as f64).collect();
    (took_ms, bulk.took_ns.len() as f64 * 498.0 / 1000.0 / SECONDS as f64)
}

/// Of the cells a hundredth is lost and sent again a round trip and a quarter later, and nine behind each of them wait
/// for it: a tenth is late by 50 ms in the mean. More than that would be the other circuit's doing.
#[test]
fn a_small_circuit_waits_for_its_own_losses_only() {
    for seed in 1..=3 {
        let (took_ms, bulk) = beside_bulk(0.01, &[50, 90], seed);
        assert!(took_ms[0] <= 5.0 && took_ms[1] <= 50.0, "seed {seed}: {took_ms:?} ms");
        assert!(bulk >= 360.0, "seed {seed}: {bulk} kB/s");
    }
    let (took_ms, bulk) = beside_bulk(0.0, &[99], 1);
    assert!(took_ms[0] <= 2.0, "{took_ms:?} ms");
    assert!(bulk >= 390.0, "{bulk} kB/s");
}
