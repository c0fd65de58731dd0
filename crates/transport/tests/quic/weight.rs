//! What the number of busy circuits between two relays does to others on the wire, and how well these can tell it.
//!
//! Everything is fixed before a run: who looks, at what, for how long, and which way the number is to move it. An
//! attacker has calibrated himself on the same wire, so all that he lacks is a threshold; how well the best one does is
//! told by the probability that of two runs, one with each number, he takes the right one for the larger (the area
//! under the ROC curve, AUC). A half is chance. Runs differ by their seeds: when each connection begins, a millisecond
//! of jitter, and one loss in ten thousand.

use crate::bench::{MS, S};
use crate::evaluation::{Excess, wire};
use crate::loads::{Glimpse, Load, glimpses, quic, tcp};
use heddle_netem::{DirectionOptions, Jitter, Loss};
use heddle_seam::rng::Seed;

/// A wire that is full, with a queue of 100 ms in front.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    pub mbit: u64,
    pub rtt_ms: u64,
}

/// It has room for a dozen TCPs: more circuits than that are no more TCPs, whatever the ceiling.
pub const NARROW: Bottleneck = Bottleneck { mbit: 10, rtt_ms: 40 };
/// It has room for fifty TCPs, so that the ceiling of eight is what counts.
pub const WIDE: Bottleneck = Bottleneck { mbit: 25, rtt_ms: 80 };
/// Connections find their pace for so long.
const WARM_S: u64 = 10;
/// By then all have begun.
const BEGIN_NS: u64 = 2 * S;

/// What carries the circuits.
#[allow(dead_code, reason = "the figures have more of them than the tests")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A pair's connection of QUIC.
    Quic,
    /// One connection of a kernel's TCP, as over TLS.
    OneTcp,
    /// A connection of a kernel's TCP for each circuit.
    TcpEach,
}

impl Carrier {
    fn loads(self, circuits: u32) -> Vec<Load> {
        match self {
            Carrier::Quic => vec![quic(circuits)],
            Carrier::OneTcp => vec![tcp()],
            Carrier::TcpEach => vec![tcp(); circuits as usize],
        }
    }
}

/// Who looks.
#[allow(dead_code, reason = "the figures have more of them than the tests")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attacker {
    /// He sends as good as nothing and measures delays, or counts bytes on the wire.
    Watches,
    /// He sends as much as he may over one connection of TCP.
    Tcp,
    /// The same over one circuit of a pair of his own.
    Pair,
}

impl Attacker {
    fn loads(self) -> Vec<Load> {
        match self {
            Attacker::Watches => vec![],
            Attacker::Tcp => vec![tcp()],
            Attacker::Pair => vec![quic(1)],
        }
    }
}

/// What he makes of what he saw, in a number that grows with the number of circuits if he is right about how they act.
#[allow(dead_code, reason = "the figures have more of them than the tests")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The mean wait in front of the wire.
    Delay,
    /// What he had himself, which others leave to him.
    OwnRate,
    /// How even the number of bytes is that the others send in each round trip.
    Evenness,
}

impl Measure {
    /// From what was seen of the wire; the attacker's own load, if he has one, is the last.
    pub fn of(self, on: Bottleneck, seen: &[Glimpse]) -> f64 {
        let mean = |of: &dyn Fn(&Glimpse) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
        match self {
            Measure::Delay => mean(&|at| at.queue_bytes as f64) / (on.mbit * 125) as f64,
            Measure::OwnRate => -mean(&|at| at.bytes.last().copied().unwrap_or(0) as f64),
            Measure::Evenness => {
                let bytes = mean(&|at| at.offered_bytes as f64);
                -mean(&|at| (at.offered_bytes as f64 - bytes).powi(2)).sqrt() / bytes
            }
        }
    }
}

impl Bottleneck {
    fn options(self) -> DirectionOptions {
        DirectionOptions {
            jitter: Jitter::Uniform { spread_ns: MS / 2 },
            loss: Loss::Bernoulli { probability: 1e-4 },
            ..wire(self.mbit, self.rtt_ms, Excess::Waits(100))
        }
    }
}

/// Who is on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub on: Bottleneck,
    pub carrier: Carrier,
    pub attacker: Attacker,
}

impl Scene {
    /// What is seen, round trip by round trip, for so many seconds.
    pub fn seen(self, circuits: u32, run: u64, seconds: u64) -> Vec<Glimpse> {
        // No two numbers of circuits have a run's chance in common.
        let seed = 1_000 * u64::from(circuits) + run;
        let mut chance = Seed::from_number(seed).child("begin", 0).rng();
        let mut loads = [self.carrier.loads(circuits), self.attacker.loads()].concat();
        for load in &mut loads {
            load.from_ns = chance.below(BEGIN_NS);
        }
        let looks = seconds * 1000 / self.on.rtt_ms;
        glimpses(&self.on.options(), &loads, seed, WARM_S * S, self.on.rtt_ms * MS, looks)
    }

    /// What each of some runs measured.
    fn measured(self, measure: Measure, circuits: u32, runs: u64, seconds: u64) -> Vec<f64> {
        (0..runs).map(|run| measure.of(self.on, &self.seen(circuits, run, seconds))).collect()
    }
}

/// The probability that one of `more` is larger than one of `fewer`; those that are equal count half.
pub fn auc(fewer: &[f64], more: &[f64]) -> f64 {
    let pairs = fewer.iter().flat_map(|a| more.iter().map(move |b| (a, b)));
    let right = pairs
        .map(|(a, b)| {
            if a < b {
                1.0
            } else if a == b {
                0.5
            } else {
                0.0
            }
        })
        .sum::<f64>();
    right / (fewer.len() * more.len()) as f64
}

/// With eight runs of eight and of fifty, chance alone leaves the AUC within 0.3 of a half in 95 of 100 comparisons:
/// two standard deviations of Mann and Whitney's count are 2 · √((8 + 8 + 1) / (12 · 8 · 8)). With 32 runs of each, one
/// and eight differ by 0.87.
#[test]
fn a_tcp_beside_tells_one_circuit_from_eight_and_not_eight_from_fifty() {
    let scene = Scene { on: WIDE, carrier: Carrier::Quic, attacker: Attacker::Tcp };
    let [one, eight, fifty] =
        [(1, 8), (8, 8), (50, 8)].map(|(count, runs)| scene.measured(Measure::OwnRate, count, runs, 20));
    let (below, beyond) = (auc(&one, &eight), auc(&eight, &fifty));
    println!("seeds 1000 N + 0..8: 1 or 8 {below}, 8 or 50 {beyond}");
    assert!((0.2..=0.8).contains(&beyond), "{beyond}: {eight:?} {fifty:?}");
    assert!(below > 0.8, "he sees something at all, {below}: {one:?} {eight:?}");
}

/// Where nobody contends, every number shows, beyond eight too. What `docs/reference/anonymity.md` tells
/// of it, and no more.
#[test]
fn a_queue_that_is_followed_grows_with_the_circuits_as_told() {
    let scene = Scene { on: NARROW, carrier: Carrier::Quic, attacker: Attacker::Watches };
    let waits = [1, 2, 8, 50].map(|count| {
        let waits = scene.measured(Measure::Delay, count, 2, 10);
        waits.iter().sum::<f64>() / waits.len() as f64
    });
    println!("seeds 1000 N + 0..2: {waits:.2?} ms");
    let told = [6.9, 7.2, 9.0, 13.6];
    let grown = |waits: [f64; 4]| [waits[1] - waits[0], waits[2] - waits[0], waits[3] - waits[0]];
    for (grown, told) in grown(waits).iter().zip(grown(told)) {
        assert!(*grown > 0.0 && *grown <= 1.3 * told, "{waits:?} where {told} more is told");
    }
}
