//! How circuits share a wire: with those of another connection, and with TCP as kernels have it.
//!
//! Scenarios are run with many seeds; what comes of it are means and least values of Jain's index and of what TCP had
//! of its fair share.

use crate::bench::{MS, S};
use crate::loads::{Load, Share, jain, run, tcp};
use heddle_netem::{CodelOptions, DirectionOptions, Jitter, Loss, QueueOptions, Rate, Seed};

/// Makes the load of a connection with so many circuits.
pub type Shared = fn(u32) -> Load;

/// 10 Mbit/s, 50 ms one way, and a queue of one bandwidth-delay product.
pub fn wire_10mbit() -> DirectionOptions {
    DirectionOptions {
        rate: Rate::BitsPerS(10_000_000),
        delay_ns: 50 * MS,
        queue: QueueOptions { packets_max: 1000, bytes_max: 125_000, codel: None },
        ..DirectionOptions::default()
    }
}

/// Loads on a wire.
pub struct Scenario {
    pub name: &'static str,
    pub wire: DirectionOptions,
    pub loads: Vec<Load>,
}

/// `count` connections of TCP after the loads.
fn beside_tcp(loads: &[Load], count: usize) -> Vec<Load> {
    [loads, &vec![tcp(); count]].concat()
}

fn later(load: Load) -> Load {
    Load { from_ns: 5 * S, ..load }
}

fn with_queue(bytes_max: u64) -> DirectionOptions {
    let queue = QueueOptions { packets_max: 10_000, bytes_max, codel: None };
    DirectionOptions { queue, ..wire_10mbit() }
}

fn faster(mbit: u64, one_way_ms: u64) -> DirectionOptions {
    let bytes_max = mbit * 125 * 2 * one_way_ms;
    DirectionOptions {
        rate: Rate::BitsPerS(mbit * 1_000_000),
        delay_ns: one_way_ms * MS,
        ..with_queue(bytes_max)
    }
}

fn codel() -> DirectionOptions {
    let queue = QueueOptions { packets_max: 1000, bytes_max: 250_000, codel: Some(CodelOptions::default()) };
    DirectionOptions { queue, ..wire_10mbit() }
}

/// The lab's plan `bottleneck-position`: 4 Mbit/s, 40 ms one way, and CoDel.
pub fn slow_codel() -> DirectionOptions {
    let queue = QueueOptions { codel: Some(CodelOptions::default()), ..QueueOptions::default() };
    DirectionOptions {
        rate: Rate::BitsPerS(4_000_000),
        delay_ns: 40 * MS,
        queue,
        ..DirectionOptions::default()
    }
}

/// The same with a drop-tail queue of four round trips.
pub fn slow_drop_tail() -> DirectionOptions {
    let queue = QueueOptions { bytes_max: 160_000, ..QueueOptions::default() };
    DirectionOptions { queue, ..slow_codel() }
}

/// CoDel at 10 Mbit/s, which marks what can be marked.
pub fn marking_codel(ecn: bool) -> DirectionOptions {
    let codel = Some(CodelOptions { ecn, ..CodelOptions::default() });
    let queue = QueueOptions { packets_max: 1000, bytes_max: 500_000, codel };
    DirectionOptions { queue, ..wire_10mbit() }
}

/// CoDel that marks keeps a queue of its target, which it does only if marks are heeded.
pub fn marks_shorten_the_queue(shared: Shared) {
    for circuits in [1, 20] {
        let share = |ecn| run(&marking_codel(ecn), &[shared(circuits)], 25, 7)[0];
        let (marked, dropped) = (share(true), share(false));
        assert_eq!(marked.lost, 0.0);
        assert!(marked.rtt_mean_ms <= dropped.rtt_mean_ms + 5.0, "{marked:?} where {dropped:?}");
        assert!(marked.bits_per_s >= 0.85 * dropped.bits_per_s, "{marked:?} where {dropped:?}");
    }
}

/// The scenarios, with connections that `shared` makes for so many circuits.
pub fn scenarios(shared: Shared) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name, wire: DirectionOptions, loads: Vec<Load>| all.push(Scenario { name, wire, loads });
    let ten = wire_10mbit;
    add("1 and 1", ten(), vec![shared(1), shared(1)]);
    add("1 and 6", ten(), vec![shared(1), shared(6)]);
    add("6, later 6", ten(), vec![shared(6), later(shared(6))]);
    add("1 and 100", ten(), vec![shared(1), shared(100)]);
    add("1, later 100", ten(), vec![shared(1), later(shared(100))]);
    add("100, later 1", ten(), vec![shared(100), later(shared(1))]);
    add("1 and 100 on 50 Mbit/s", faster(50, 25), vec![shared(1), shared(100)]);
    add("1 : 1 TCP", ten(), beside_tcp(&[shared(1)], 1));
    add("6 : 1 TCP", ten(), beside_tcp(&[shared(6)], 1));
    add("1 : 4 TCP", ten(), beside_tcp(&[shared(1)], 4));
    add("4 : 4 TCP", ten(), beside_tcp(&[shared(4)], 4));
    add("2+2 : 4 TCP", ten(), beside_tcp(&[shared(2), shared(2)], 4));
    add("20 : 5 TCP", ten(), beside_tcp(&[shared(20)], 5));
    add("4, later 4 TCP", ten(), [vec![shared(4)], vec![later(tcp()); 4]].concat());
    add("later 4 : 4 TCP", ten(), beside_tcp(&[later(shared(4))], 4));
    let lab = || DirectionOptions { delay_ns: 30 * MS, ..ten() };
    add("1 and 100, 60 ms", lab(), vec![shared(1), shared(100)]);
    add("1 : 1 TCP, 60 ms", lab(), beside_tcp(&[shared(1)], 1));
    add("4 : 4 TCP, 60 ms", lab(), beside_tcp(&[shared(4)], 4));
    add("1 : 1 TCP, 30 ms", faster(10, 15), beside_tcp(&[shared(1)], 1));
    add("4 : 4 TCP, 30 ms", faster(10, 15), beside_tcp(&[shared(4)], 4));
    add("6 : 1 TCP, 30 ms", faster(10, 15), beside_tcp(&[shared(6)], 1));
    add("4 : 4 TCP, 20 ms of queue", with_queue(25_000), beside_tcp(&[shared(4)], 4));
    add("4 : 4 TCP, 5 ms of queue", with_queue(6_250), beside_tcp(&[shared(4)], 4));
    add("1 : 1 TCP, 5 ms of queue", with_queue(6_250), beside_tcp(&[shared(1)], 1));
    add("1 : 1 TCP, 20 ms of queue", with_queue(25_000), beside_tcp(&[shared(1)], 1));
    add("4 : 4 TCP, 400 ms of queue", with_queue(500_000), beside_tcp(&[shared(4)], 4));
    add("1 : 1 TCP, 400 ms of queue", with_queue(500_000), beside_tcp(&[shared(1)], 1));
    add("4 : 4 TCP, CoDel", codel(), beside_tcp(&[shared(4)], 4));
    add("4 : 4 TCP, 50 Mbit/s", faster(50, 25), beside_tcp(&[shared(4)], 4));
    add("100 : 10 TCP, 50 Mbit/s", faster(50, 25), beside_tcp(&[shared(100)], 10));
    let fetching = |circuits| Load { fetches: true, ..shared(circuits) };
    add("1 on 4 Mbit/s", slow_drop_tail(), vec![shared(1)]);
    add("1 and pages on 4 Mbit/s", slow_drop_tail(), vec![fetching(2)]);
    add("1 on 4 Mbit/s, CoDel", slow_codel(), vec![shared(1)]);
    add("1 and pages on 4 Mbit/s, CoDel", slow_codel(), vec![fetching(2)]);
    add("6 on 10 Mbit/s, CoDel", codel(), vec![shared(6)]);
    add("100 on 10 Mbit/s, CoDel", codel(), vec![shared(100)]);
    add("1 and 6 on 10 Mbit/s, CoDel", codel(), vec![shared(1), shared(6)]);
    add("1 : 1 TCP, CoDel", codel(), beside_tcp(&[shared(1)], 1));
    let lossy = |probability| DirectionOptions { loss: Loss::Bernoulli { probability }, ..wire_10mbit() };
    add("6, 0.1 % lost", lossy(0.001), vec![shared(6)]);
    add("6, 1 % lost", lossy(0.01), vec![shared(6)]);
    add("1 and 6, 0.1 % lost", lossy(0.001), vec![shared(1), shared(6)]);
    let jitter = Jitter::Exponential { mean_ns: 5 * MS };
    let reordering = DirectionOptions { jitter, jitter_reorders: true, ..wire_10mbit() };
    add("6, reordered", reordering, vec![shared(6)]);
    all
}

/// Loads that begin within a second of each other, however the seed has it.
fn scattered(loads: &[Load], seed: u64) -> Vec<Load> {
    let mut rng = Seed::from_number(seed).child(&["begin"]).rng();
    let begin = |load: &Load| Load { from_ns: load.from_ns + rng.below(S), ..*load };
    loads.iter().map(begin).collect()
}

/// What a run came to.
pub struct Outcome {
    pub jain: f64,
    #[allow(dead_code, reason = "of use to the figures alone")]
    pub used: f64,
    /// What connections of TCP had of their fair share, in the mean.
    pub tcp: Option<f64>,
    /// What the first load's circuits had of theirs.
    #[allow(dead_code, reason = "of no use to `sctp-dtls`")]
    pub first: f64,
    #[allow(dead_code, reason = "of use to the figures alone")]
    pub rtt_ms: f64,
}

pub fn outcome(wire: &DirectionOptions, loads: &[Load], seconds: u64, seed: u64) -> Outcome {
    let loads = scattered(loads, seed);
    let shares = run(wire, &loads, seconds, seed);
    let total: f64 = shares.iter().map(|share| share.bits_per_s).sum();
    let circuits: f64 = loads.iter().map(|load| f64::from(load.circuits)).sum();
    let Rate::BitsPerS(rate) = wire.rate else { panic!("a wire with a rate") };
    let tcp: Vec<&Share> = loads
        .iter()
        .zip(&shares)
        .filter(|(load, _)| load.control.is_none())
        .map(|(_, share)| share)
        .collect();
    let tcp_bits: f64 = tcp.iter().map(|share| share.bits_per_s).sum();
    let fair = total / circuits * tcp.len() as f64;
    Outcome {
        jain: jain(&loads, &shares),
        used: total / rate as f64,
        tcp: (!tcp.is_empty()).then(|| tcp_bits / fair),
        first: shares[0].bits_per_s * circuits / (total * f64::from(loads[0].circuits)),
        rtt_ms: shares[0].rtt_mean_ms,
    }
}

pub fn mean_and_min(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    (values.clone().sum::<f64>() / count, values.fold(f64::INFINITY, f64::min))
}

fn outcomes(shared: Shared, name: &str, seeds: u64, seconds: u64) -> Vec<Outcome> {
    let all = scenarios(shared);
    let scenario = all.iter().find(|scenario| scenario.name == name).expect("a scenario of that name");
    (1..=seeds).map(|seed| outcome(&scenario.wire, &scenario.loads, seconds, seed)).collect()
}

/// What the first load's circuits had of their fair share, by seed. Jain's index hardly sees what becomes of one among
/// a hundred.
#[allow(dead_code, reason = "of no use to `sctp-dtls`")]
pub fn first_of_seeds(shared: Shared, name: &str, seeds: u64, seconds: u64) -> Vec<f64> {
    outcomes(shared, name, seeds, seconds).iter().map(|outcome| outcome.first).collect()
}

/// The mean of Jain's index, and the least that TCP had of its share, over some seeds.
pub fn of_seeds(shared: Shared, name: &str, seeds: u64, seconds: u64) -> (f64, f64) {
    let outcomes = outcomes(shared, name, seeds, seconds);
    let (jain, _) = mean_and_min(outcomes.iter().map(|outcome| outcome.jain));
    let (_, tcp) = mean_and_min(outcomes.iter().filter_map(|outcome| outcome.tcp));
    (jain, tcp)
}
