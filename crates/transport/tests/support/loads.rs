//! Connections that share a wire, each with as much to send as it may.

use crate::bench::{Bench, End, MS, Options, S, anchor, body, dialled};
use crate::tcp::TcpFlow;
use heddle_netem::{DirectionOptions, HostId, HostOptions, Loss, Rate, TopologyOptions, WireOptions};
use heddle_proto::cell::Command;
use heddle_proto::endpoint::{CongestionParams, ConnId, ConnectionEvent, Endpoint, FlowState};
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use heddle_transport::quic::{self, QuicOptions};
use heddle_transport::sctp_dtls::{self, SctpOptions};
use heddle_transport::tcp_dtls::{CongestionControl, DtlsOptions};
use zeroize::Zeroizing;

/// What does not count, because connections have to find their pace first.
const WARM_NS: u64 = 10 * S;

const SAMPLE_NS: u64 = 10 * MS;

/// What carries a load's circuits, and how it follows the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "of use to one of the two alone")]
pub enum Control {
    Quic(quic::CongestionControl),
    Dtls(CongestionControl),
    Sctp(sctp_dtls::CongestionControl),
}

impl Options for Control {
    fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
        match self {
            Control::Quic(congestion) => {
                let options = QuicOptions::new(anchor());
                // quinn-proto's CUBIC is as TCP is without RACK: three packets that overtake one are its loss.
                let is_cubic = congestion == quic::CongestionControl::Cubic;
                let packet_threshold = if is_cubic { 3 } else { options.packet_threshold };
                QuicOptions { congestion, packet_threshold, ..options }.endpoint(secret, seed)
            }
            Control::Dtls(congestion) => {
                DtlsOptions { congestion, ..DtlsOptions::new(anchor()) }.endpoint(secret, seed)
            }
            Control::Sctp(congestion) => {
                SctpOptions { congestion, ..SctpOptions::new(anchor()) }.endpoint(secret, seed)
            }
        }
    }
}

/// One connection over the wire.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Nothing for a connection of TCP as kernels have it.
    pub control: Option<Control>,
    pub circuits: u32,
    pub from_ns: u64,
    /// Whether the last circuit fetches a page now and then, instead of as much as it may.
    pub fetches: bool,
}

/// Cells of a page, and from the last of them to the next page's first.
const PAGE_CELLS: u32 = 62;
const PAUSE_NS: u64 = 1300 * MS;

pub const fn quic(circuits: u32) -> Load {
    Load {
        control: Some(Control::Quic(quic::CongestionControl::Shared)),
        circuits,
        from_ns: 0,
        fetches: false,
    }
}

#[allow(dead_code, reason = "of use to those over DTLS alone")]
pub const fn dtls(circuits: u32) -> Load {
    Load { control: Some(Control::Dtls(CongestionControl::Shared)), circuits, from_ns: 0, fetches: false }
}

#[allow(dead_code, reason = "of use to `sctp-dtls` alone")]
pub const fn sctp(circuits: u32) -> Load {
    let control = Some(Control::Sctp(sctp_dtls::CongestionControl::Shared));
    Load { control, circuits, from_ns: 0, fetches: false }
}

/// One connection of CUBIC by quinn-proto.
#[allow(dead_code, reason = "of use to QUIC alone")]
pub const fn cubic() -> Load {
    Load {
        control: Some(Control::Quic(quic::CongestionControl::Cubic)),
        circuits: 1,
        from_ns: 0,
        fetches: false,
    }
}

/// One connection of TCP.
pub const fn tcp() -> Load {
    Load { control: None, circuits: 1, from_ns: 0, fetches: false }
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
    /// When the next page is due, if the last circuit fetches pages.
    page_at: Instant,
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
            let is_pause = |index: usize| self.load.fetches && index + 1 == count && now < self.page_at;
            let Some(index) = order.find(|index| !self.circuits[*index].1 && !is_pause(*index)) else {
                break;
            };
            self.turn = index + 1;
            let (number, blocked) = &mut self.circuits[index];
            let command = if *number == 0 { Command::CREATE2 } else { Command::RELAY };
            let state =
                here.endpoint.send(now, self.conn, dialled(index as u32 + 1), command, &body(*number));
            *blocked = state == FlowState::Blocked;
            *number += 1;
            if index + 1 == count && number.is_multiple_of(PAGE_CELLS) {
                self.page_at = now + Duration::from_nanos(PAUSE_NS);
            }
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

/// Hosts `a` and `b` with a wire whose way back is only as long.
fn one_wire(there: &DirectionOptions) -> TopologyOptions {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let back = DirectionOptions { rate: Rate::Unlimited, loss: Loss::None, ..there.clone() };
    let wire =
        WireOptions { from: "a".to_owned(), to: "b".to_owned(), there: there.clone(), back: Some(back) };
    TopologyOptions { hosts: vec![host("a"), host("b")], wires: vec![wire], default_wire: None }
}

/// Loads beside each other over one wire, all from its one end.
struct Run {
    bench: Bench,
    sources: Vec<Source>,
}

impl Run {
    fn new(there: &DirectionOptions, loads: &[Load], seed: u64) -> Self {
        let ours = loads.iter().filter_map(|load| Some((load, load.control?)));
        let ends = ours.clone().flat_map(|(_, control)| [(0, control), (1, control)]);
        let mut bench = Bench::of(&one_wire(there), ends, seed);
        let mut sources = Vec::new();
        for (index, (load, _)) in ours.enumerate() {
            let (conn, _) = bench.open(2 * index, 2 * index + 1);
            let circuits = vec![(0, false); load.circuits as usize];
            sources.push(Source { load: *load, conn, circuits, turn: 0, cells: 0, page_at: Instant::ZERO });
        }
        for load in loads.iter().filter(|load| load.control.is_none()) {
            let (flow, from) = (bench.tcp.len(), Instant::from_nanos(load.from_ns.max(1)));
            bench.tcp.push(TcpFlow::new(flow, [0, 1], from, seed));
        }
        Run { bench, sources }
    }

    fn run_until(&mut self, ns: u64) {
        let sources = &mut self.sources;
        self.bench.run_until(Instant::from_nanos(ns), &mut |now: Instant, ends: &mut [End]| {
            step_all(sources, now, ends);
        });
    }

    /// Packets that were offered to the wire so far, and those of them that it dropped.
    fn offered(&self) -> [u64; 2] {
        let stats = self.bench.wires.direction_stats(HostId(0), HostId(1)).expect("a wire");
        [stats.packets_in, stats.drops.total()]
    }

    /// What comes of the loads until `end_ns`, of which the first ten seconds do not count. The first `ours` of them
    /// are compared with the rest.
    fn outcome(&mut self, ours: usize, end_ns: u64) -> Outcome {
        let begin_ns = self.bench.now.as_nanos() + WARM_NS;
        self.run_until(begin_ns);
        let (before, [packets_before, drops_before]) = (self.bytes(), self.offered());
        self.run_until(end_ns);
        let seconds = (end_ns - begin_ns) as f64 / S as f64;
        let rate = |(before, after): (&u64, u64)| (after - before) as f64 * 8.0 / seconds;
        let rates: Vec<f64> = before.iter().zip(self.bytes()).map(rate).collect();
        let (first, rest) = rates.split_at(ours);
        let [packets, drops] = self.offered();
        let dropped = (drops - drops_before) as f64 / (packets - packets_before).max(1) as f64;
        Outcome { ours: first.iter().sum(), beside: rest.iter().sum(), dropped }
    }

    /// What each load has had so far, ours before TCP.
    fn bytes(&self) -> Vec<u64> {
        let ours = self.sources.iter().map(|source| source.cells * 510);
        ours.chain(self.bench.tcp.iter().map(|flow| flow.read_bytes)).collect()
    }
}

/// Runs loads beside each other over one wire, all from its one end, for so many seconds. The first ten do not count.
/// Gives shares of ours before those of TCP.
pub fn run(there: &DirectionOptions, loads: &[Load], seconds: u64, seed: u64) -> Vec<Share> {
    let mut run = Run::new(there, loads, seed);
    run.run_until(WARM_NS);
    let before = run.bytes();
    let mut shares = vec![Share::default(); loads.len()];
    let samples = (seconds * S - WARM_NS) / SAMPLE_NS;
    for sample in 1..=samples {
        run.run_until(WARM_NS + sample * SAMPLE_NS);
        for ((share, source), pair) in shares.iter_mut().zip(&run.sources).zip(run.bench.ends.chunks_exact(2))
        {
            let rtt_ms = pair[0].endpoint.stats(source.conn).rtt_ns as f64 / MS as f64;
            share.rtt_mean_ms += rtt_ms / samples as f64;
            share.rtt_max_ms = share.rtt_max_ms.max(rtt_ms);
        }
    }
    let seconds = (samples * SAMPLE_NS) as f64 / S as f64;
    for (share, (before, after)) in shares.iter_mut().zip(before.iter().zip(run.bytes())) {
        share.bits_per_s = (after - before) as f64 * 8.0 / seconds;
    }
    for (share, (source, pair)) in
        shares.iter_mut().zip(run.sources.iter().zip(run.bench.ends.chunks_exact(2)))
    {
        let stats = pair[0].endpoint.stats(source.conn);
        share.lost = stats.lost_packets as f64 / stats.sent_packets.max(1) as f64;
    }
    shares
}

/// What loads made of a wire in the seconds that count.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Bits per second of the first loads, and of the others.
    pub ours: f64,
    pub beside: f64,
    /// The share of what was sent that the wire dropped.
    #[allow(dead_code, reason = "of use to QUIC alone")]
    pub dropped: f64,
}

/// Runs loads as [`run`] does, of which the first `ours` are compared with the rest.
#[allow(dead_code, reason = "of use to QUIC alone")]
pub fn outcome(there: &DirectionOptions, loads: &[Load], ours: usize, seconds: u64, seed: u64) -> Outcome {
    Run::new(there, loads, seed).outcome(ours, seconds * S)
}

/// What all loads together have in bits per second between each two of these times, in milliseconds from the begin.
#[allow(dead_code, reason = "of use to QUIC alone")]
pub fn rates(there: &DirectionOptions, loads: &[Load], seed: u64, bounds_ms: &[u64]) -> Vec<f64> {
    let mut run = Run::new(there, loads, seed);
    let mut bytes_at = |at_ms: &u64| -> u64 {
        run.run_until(at_ms * MS);
        run.bytes().iter().sum()
    };
    let bytes: Vec<u64> = bounds_ms.iter().map(&mut bytes_at).collect();
    let spans = bounds_ms.windows(2).zip(bytes.windows(2));
    spans.map(|(ms, bytes)| (bytes[1] - bytes[0]) as f64 * 8000.0 / (ms[1] - ms[0]) as f64).collect()
}

/// What is to be seen of a wire at the end of a span of time.
#[allow(dead_code, reason = "of use to QUIC alone")]
#[derive(Clone, Debug)]
pub struct Glimpse {
    /// What each load had in this span, in their order.
    pub bytes: Vec<u64>,
    /// What was sent into the wire in this span and not dropped.
    pub offered_bytes: u64,
    /// How much waits in front of the wire.
    pub queue_bytes: u64,
}

/// What somebody sees who looks at a wire `count` times, every `span_ns`, from `from_ns` on.
#[allow(dead_code, reason = "of use to QUIC alone")]
pub fn glimpses(
    there: &DirectionOptions,
    loads: &[Load],
    seed: u64,
    from_ns: u64,
    span_ns: u64,
    count: u64,
) -> Vec<Glimpse> {
    let mut run = Run::new(there, loads, seed);
    let mut places: Vec<usize> = (0..loads.len()).collect();
    places.sort_by_key(|place| loads[*place].control.is_none());
    let mut look_at = |ns: u64| {
        run.run_until(ns);
        let stats = run.bench.wires.direction_stats(HostId(0), HostId(1)).expect("a wire");
        let sent = stats.bytes_out + stats.in_flight_bytes + stats.queue.bytes;
        (run.bytes(), sent, stats.queue.bytes)
    };
    let (mut had, mut sent) = (vec![0; loads.len()], 0);
    let mut seen = Vec::new();
    for look in 0..=count {
        let (have, sent_now, queue_bytes) = look_at(from_ns + look * span_ns);
        let mut bytes = vec![0; loads.len()];
        for (place, (had, have)) in places.iter().zip(had.iter().zip(&have)) {
            bytes[*place] = have - had;
        }
        seen.push(Glimpse { bytes, offered_bytes: sent_now.saturating_sub(sent), queue_bytes });
        (had, sent) = (have, sent_now);
    }
    // The first has all that was before.
    seen.split_off(1)
}

/// What the first `ours` loads have of all that arrives, with each of these ceilings on TCPs at all endpoints in turn,
/// for so many seconds each, while connections run on. The mean of three seeds, because one that contends as a single
/// TCP has a twentieth more or less in a run.
pub fn ceilings(
    there: &DirectionOptions,
    loads: &[Load],
    ours: usize,
    seconds: u64,
    tcps_max: &[u8],
) -> Vec<f64> {
    let mut shares = vec![0.0; tcps_max.len()];
    for seed in SEEDS_OF_CEILINGS {
        let mut run = Run::new(there, loads, seed);
        for (turn, (share, tcps_max)) in (1..).zip(shares.iter_mut().zip(tcps_max)) {
            let params = CongestionParams { tcps_max: *tcps_max };
            run.bench.ends.iter_mut().for_each(|end| end.endpoint.set_congestion(params));
            let outcome = run.outcome(ours, turn * seconds * S);
            *share += outcome.ours / (outcome.ours + outcome.beside) / SEEDS_OF_CEILINGS.len() as f64;
        }
    }
    shares
}

const SEEDS_OF_CEILINGS: [u64; 3] = [1, 2, 3];

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

/// With ceilings of eight and one TCPs in turn, eight circuits beside two TCPs have much more than half, and a third.
pub fn ceilings_are_kept(shares: &[f64]) {
    let is_kept = |(turn, share): (usize, &f64)| {
        if turn % 2 == 0 { *share > 0.6 } else { (0.2..0.47).contains(share) }
    };
    assert!(shares.iter().enumerate().all(is_kept), "{shares:?}");
}
