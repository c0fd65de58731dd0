//! Connections that share a wire, each with as much to send as it may.

use crate::bench::{Bench, End, MS, S, body, dialled, options};
use heddle_netem::{DirectionOptions, HostOptions, Loss, Rate, TopologyOptions, WireOptions};
use heddle_proto::cell::Command;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, FlowState};
use heddle_proto::time::Instant;
use heddle_transport::quic::{CongestionControl, QuicOptions};

/// What does not count, since connections have to find their pace first.
const WARM_NS: u64 = 10 * S;

const SAMPLE_NS: u64 = 10 * MS;

/// One connection over the wire.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub control: CongestionControl,
    pub circuits: u32,
    pub from_ns: u64,
}

pub const fn shared(circuits: u32) -> Load {
    Load { control: CongestionControl::Shared, circuits, from_ns: 0 }
}

/// As one connection of TCP.
pub const fn cubic() -> Load {
    Load { control: CongestionControl::Cubic, circuits: 1, from_ns: 0 }
}

/// What a load got between `from_ns` and the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub bits_per_s: f64,
    /// Round trips as the connection's estimate had them, every 10 ms.
    pub rtt_mean_ms: f64,
    pub rtt_max_ms: f64,
    pub lost: f64,
}

/// A load while it runs.
struct Source {
    load: Load,
    conn: ConnId,
    /// Of each circuit, the number of its next cell and whether its flow is blocked.
    circuits: Vec<(u32, bool)>,
    turn: usize,
    cells: u64,
}

impl Source {
    /// Sends what may be sent, and takes out what came.
    fn step(&mut self, now: Instant, here: &mut End, there: &mut End) {
        for (_, event) in here.events.drain(..) {
            if let ConnectionEvent::Writable(id) = event {
                self.circuits[(id.get() & 0xffff) as usize - 1].1 = false;
            }
        }
        while now.as_nanos() >= self.load.from_ns && here.endpoint.capacity(self.conn) > 0 {
            let count = self.circuits.len();
            let mut order = (0..count).map(|step| (self.turn + step) % count);
            let Some(index) = order.find(|index| !self.circuits[*index].1) else {
                break;
            };
            self.turn = index + 1;
            let (number, blocked) = &mut self.circuits[index];
            let command = if *number == 0 { Command::CREATE2 } else { Command::RELAY };
            let state =
                here.endpoint.send(now, self.conn, dialled(index as u32 + 1), command, &body(*number));
            *blocked = state == FlowState::Blocked;
            *number += 1;
        }
        self.cells += there.cells.len() as u64;
        there.cells.clear();
        there.events.clear();
    }
}

fn step_all(sources: &mut [Source], now: Instant, ends: &mut [End]) {
    for (source, pair) in sources.iter_mut().zip(ends.chunks_exact_mut(2)) {
        if let [here, there] = pair {
            source.step(now, here, there);
        }
    }
}

/// Runs loads beside each other over one wire, all from its one end, for so many seconds. The first ten do not count.
pub fn run(there: &DirectionOptions, loads: &[Load], seconds: u64, seed: u64) -> Vec<Share> {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let back = DirectionOptions { rate: Rate::Unlimited, loss: Loss::None, ..there.clone() };
    let wire =
        WireOptions { from: "a".to_owned(), to: "b".to_owned(), there: there.clone(), back: Some(back) };
    let wires = TopologyOptions { hosts: vec![host("a"), host("b")], wires: vec![wire], default_wire: None };
    let ends = loads.iter().flat_map(|load| {
        // TCP takes three packets that overtake one for its loss.
        let is_tcp = load.control == CongestionControl::Cubic;
        let packet_threshold = if is_tcp { 3 } else { options().packet_threshold };
        let options = QuicOptions { congestion: load.control, packet_threshold, ..options() };
        [(0, options.clone()), (1, options)]
    });
    let mut bench = Bench::of(&wires, ends, seed);
    let open = |(index, load): (usize, &Load)| {
        let (conn, _) = bench.open(2 * index, 2 * index + 1);
        let circuits = vec![(0, false); load.circuits as usize];
        Source { load: *load, conn, circuits, turn: 0, cells: 0 }
    };
    let mut sources: Vec<Source> = loads.iter().enumerate().map(open).collect();
    let mut shares = vec![Share::default(); loads.len()];
    bench.run_until(Instant::from_nanos(WARM_NS), &mut |now: Instant, ends: &mut [End]| {
        step_all(&mut sources, now, ends);
    });
    let before: Vec<u64> = sources.iter().map(|source| source.cells).collect();
    let samples = (seconds * S - WARM_NS) / SAMPLE_NS;
    for _ in 0..samples {
        bench.run_for(SAMPLE_NS, &mut |now: Instant, ends: &mut [End]| {
            step_all(&mut sources, now, ends);
        });
        for ((share, source), pair) in shares.iter_mut().zip(&sources).zip(bench.ends.chunks_exact(2)) {
            let rtt_ms = pair[0].endpoint.stats(source.conn).rtt_ns as f64 / MS as f64;
            share.rtt_mean_ms += rtt_ms / samples as f64;
            share.rtt_max_ms = share.rtt_max_ms.max(rtt_ms);
        }
    }
    for (index, (share, source)) in shares.iter_mut().zip(&sources).enumerate() {
        let bits = (source.cells - before[index]) as f64 * 8.0 * 510.0;
        share.bits_per_s = bits * S as f64 / (samples * SAMPLE_NS) as f64;
        let stats = bench.ends[2 * index].endpoint.stats(source.conn);
        share.lost = stats.lost_packets as f64 / stats.sent_packets.max(1) as f64;
    }
    shares
}

/// Jain's index of what each circuit gets.
pub fn jain(loads: &[Load], shares: &[Share]) -> f64 {
    let each = |(load, share): (&Load, &Share)| {
        (f64::from(load.circuits), share.bits_per_s / f64::from(load.circuits))
    };
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    for (circuits, rate) in loads.iter().zip(shares).map(each) {
        sum += circuits * rate;
        squares += circuits * rate * rate;
        count += circuits;
    }
    sum * sum / (count * squares)
}
