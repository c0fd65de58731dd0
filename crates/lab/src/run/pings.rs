//! What pings tell, beside what the wires are said to be that they went over.

use heddle_netem::{DirectionOptions, Jitter, Loss};

use super::sampled::Sampled;
use crate::statistics::{mean, quantile};

/// What the two directions of a wire make of a ping.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Expected {
    mean_ms: f64,
    deviation_ms: f64,
    /// The probability that it does not come back; `None` where losses depend on each other.
    lost: Option<f64>,
}

/// The samples of one pair of hosts.
pub(super) fn samples(rtts_ms: &[Option<f64>], wire: [&DirectionOptions; 2]) -> Vec<Sampled> {
    let expected = Expected::of(wire);
    let came: Vec<f64> = rtts_ms.iter().copied().flatten().collect();
    let lost = (rtts_ms.len() - came.len()) as f64 / rtts_ms.len().max(1) as f64;
    let mut samples = vec![Sampled::one("ping_lost_pct", 100.0 * lost)];
    let beyond = expected.lost.map(|due| Sampled::one("ping_lost_beyond_wires_pct", 100.0 * (lost - due)));
    samples.extend(beyond);
    let Some(mean_ms) = mean(&came) else { return samples };
    let squares = came.iter().map(|rtt_ms| (rtt_ms - mean_ms).powi(2)).sum::<f64>();
    let deviation_ms = (squares / came.len() as f64).sqrt();
    let mut sorted = came.clone();
    sorted.sort_by(f64::total_cmp);
    let quantiles = [("ping_min_ms", 0.0), ("ping_p50_ms", 0.5), ("ping_p90_ms", 0.9), ("ping_max_ms", 1.0)];
    let quantiles = quantiles.into_iter().filter_map(|(name, q)| Some((name, quantile(&sorted, q)?)));
    let over = |name, ours: f64, due: f64| (due > 0.0).then(|| (name, ours / due));
    let ones = [("ping_mean_ms", mean_ms), ("ping_deviation_ms", deviation_ms)].into_iter();
    let ones = ones.chain(quantiles);
    let ones = ones.chain(over("ping_over_wires", mean_ms, expected.mean_ms));
    let ones = ones.chain(over("ping_deviation_over_wires", deviation_ms, expected.deviation_ms));
    samples.extend(ones.map(|(name, value)| Sampled::one(name, value)));
    samples.push(Sampled::new("ping_ms", came));
    samples
}

impl Expected {
    fn of(wire: [&DirectionOptions; 2]) -> Expected {
        let [there, back] = wire.map(takes_ms);
        let [lost_there, lost_back] = wire.map(lost);
        Expected {
            mean_ms: there[0] + back[0],
            deviation_ms: there[1].hypot(back[1]),
            lost: lost_there.zip(lost_back).map(|(there, back)| 1.0 - (1.0 - there) * (1.0 - back)),
        }
    }
}

/// Mean and standard deviation of what a packet takes. No packet takes less than nothing, so where jitter is as long as
/// the delay the mean is above it.
fn takes_ms(direction: &DirectionOptions) -> [f64; 2] {
    let ms = |ns: u64| ns as f64 / 1e6;
    let delay_ms = ms(direction.delay_ns);
    match &direction.jitter {
        Jitter::None => [delay_ms, 0.0],
        Jitter::Exponential { mean_ns } => [delay_ms + ms(*mean_ns), ms(*mean_ns)],
        Jitter::Normal { std_dev_ns } => {
            let deviations = steps(8.0).map(|z| (delay_ms + z * ms(*std_dev_ns), (-z * z / 2.0).exp()));
            of_times(deviations)
        }
        Jitter::Uniform { spread_ns } => {
            of_times(steps(ms(*spread_ns)).map(|offset| (delay_ms + offset, 1.0)))
        }
        Jitter::Table { offsets_ns } => {
            of_times(offsets_ns.iter().map(|ns| (delay_ms + *ns as f64 / 1e6, 1.0)))
        }
    }
}

/// The middles of equal steps from minus to plus a bound.
fn steps(bound: f64) -> impl Iterator<Item = f64> {
    const STEPS: usize = 4000;
    (0..STEPS).map(move |step| bound * ((2 * step + 1) as f64 / STEPS as f64 - 1.0))
}

/// Mean and standard deviation of times by their weights, where none is less than nothing.
fn of_times(times: impl Iterator<Item = (f64, f64)>) -> [f64; 2] {
    let [mut weights, mut sum, mut squares] = [0.0; 3];
    for (time_ms, weight) in times {
        let time_ms = time_ms.max(0.0);
        weights += weight;
        sum += weight * time_ms;
        squares += weight * time_ms * time_ms;
    }
    let mean_ms = sum / weights;
    [mean_ms, (squares / weights - mean_ms * mean_ms).max(0.0).sqrt()]
}

/// The probability that a packet is lost, whatever became of others.
fn lost(direction: &DirectionOptions) -> Option<f64> {
    match direction.loss {
        Loss::None => Some(0.0),
        Loss::Bernoulli { probability } => Some(probability),
        Loss::GilbertElliott { .. } | Loss::EveryNth { .. } | Loss::Listed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(delay_ns: u64, jitter: Jitter, loss: Loss) -> DirectionOptions {
        DirectionOptions { delay_ns, jitter, loss, ..DirectionOptions::default() }
    }

    #[test]
    fn a_wire_says_what_to_expect() {
        let there = direction(
            50_000_000,
            Jitter::Exponential { mean_ns: 3_000_000 },
            Loss::Bernoulli { probability: 0.1 },
        );
        let back = direction(20_000_000, Jitter::Normal { std_dev_ns: 4_000_000 }, Loss::None);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-4;
        let Expected { mean_ms, deviation_ms, lost } = Expected::of([&there, &back]);
        assert!(near(mean_ms, 73.0) && near(deviation_ms, 5.0), "{mean_ms} {deviation_ms}");
        assert!(near(lost.unwrap(), 0.1));
        let nth = direction(9_000_000, Jitter::Uniform { spread_ns: 3_000_000 }, Loss::EveryNth { n: 3 });
        let Expected { mean_ms, deviation_ms, lost } = Expected::of([&nth, &nth]);
        assert!(near(mean_ms, 18.0) && near(deviation_ms, 6_f64.sqrt()) && lost.is_none(), "{deviation_ms}");
        let table = Jitter::Table { offsets_ns: [-5_000_000, 3_000_000].into() };
        assert_eq!(takes_ms(&direction(1_000_000, table, Loss::None)), [2.0, 2.0]);
        // Half of the packets take nothing: the mean is that of the other half of a normal distribution.
        let all = Jitter::Normal { std_dev_ns: 1_000_000 };
        let half = 1.0 / (2.0 * std::f64::consts::PI).sqrt();
        let [mean_ms, deviation_ms] = takes_ms(&direction(0, all, Loss::None));
        assert!(near(mean_ms, half) && near(deviation_ms, (0.5 - half * half).sqrt()), "{mean_ms}");
    }

    #[test]
    fn pings_become_what_a_table_of_them_has() {
        let rtts_ms: Vec<Option<f64>> =
            (0..100).map(|at| (at % 10 > 0).then_some(90.0 + at as f64)).collect();
        let half = Loss::Bernoulli { probability: 0.5 };
        let wire = direction(50_000_000, Jitter::None, half);
        let samples = samples(&rtts_ms, [&wire, &wire]);
        let of =
            |name: &str| samples.iter().find(|sampled| sampled.name == name).map(|sampled| &*sampled.values);
        assert_eq!(of("ping_lost_pct"), Some(&[10.0][..]));
        assert!((of("ping_lost_beyond_wires_pct").unwrap()[0] + 65.0).abs() < 1e-9);
        assert_eq!((of("ping_min_ms"), of("ping_max_ms")), (Some(&[91.0][..]), Some(&[189.0][..])));
        assert_eq!((of("ping_mean_ms"), of("ping_over_wires")), (Some(&[140.0][..]), Some(&[1.4][..])));
        assert_eq!((of("ping_ms").unwrap().len(), of("ping_deviation_over_wires")), (90, None));
        let gone = super::samples(&[None, None], [&wire, &wire]);
        assert_eq!(gone.len(), 2);
        assert_eq!(gone[0].values, [100.0]);
    }
}
