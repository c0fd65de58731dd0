//! What chance does follows the distributions that the options name.
//!
//! Each test would fail for one in a million seeds if the distribution is right; the seeds are fixed, so it either
//! fails always or never. Counts are compared by the normal approximation of the binomial distribution, whole
//! distributions by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, tables by Pearson's chi-square.

mod one_wire;

use heddle_netem::{DirectionOptions, DropReason, Jitter, Loss, Reorder};
use one_wire::{MS, S, carry, delays_ms, evenly, numbers, topology};

/// Two-sided quantile of the normal distribution for one in a million.
const Z: f64 = 4.892;

fn lost(loss: Loss, seed: u64, packets: u64) -> Vec<bool> {
    let mut topology = topology(DirectionOptions { loss, ..DirectionOptions::default() }, seed);
    let mut lost = vec![true; packets as usize];
    for number in numbers(&carry(&mut topology, evenly(packets, 1000))) {
        lost[number as usize] = false;
    }
    let stats = topology.direction_stats(one_wire::A, one_wire::B).expect("a wire");
    assert_eq!(stats.drops.get(DropReason::Loss), lost.iter().filter(|lost| **lost).count() as u64);
    lost
}

fn assert_binomial(successes: usize, trials: usize, probability: f64) {
    let expected = trials as f64 * probability;
    let deviation = (expected * (1.0 - probability)).sqrt();
    let distance = (successes as f64 - expected).abs();
    assert!(distance <= Z * deviation + 0.5, "{successes} of {trials}, expected {expected} ± {deviation}");
}

/// The mean of draws of a geometric distribution on 1, 2, … with this parameter.
fn assert_geometric_mean(draws: &[usize], parameter: f64) {
    let mean = draws.iter().sum::<usize>() as f64 / draws.len() as f64;
    let deviation = ((1.0 - parameter) / draws.len() as f64).sqrt() / parameter;
    assert!(
        (mean - 1.0 / parameter).abs() <= Z * deviation,
        "mean {mean}, expected {} ± {deviation}",
        1.0 / parameter
    );
}

fn assert_chi_square(observed: &[usize], probabilities: &[f64]) {
    let total = observed.iter().sum::<usize>() as f64;
    let cells = observed.iter().zip(probabilities);
    let statistic: f64 = cells.map(|(count, p)| (*count as f64 - total * p).powi(2) / (total * p)).sum();
    // Wilson and Hilferty's approximation of the one-sided quantile.
    let freedom = (observed.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let limit = freedom * (1.0 - spread + 4.753 * spread.sqrt()).powi(3);
    assert!(statistic <= limit, "chi-square {statistic}, at most {limit}");
}

fn assert_distribution(mut draws: Vec<f64>, distribution: impl Fn(f64) -> f64) {
    draws.sort_by(f64::total_cmp);
    let n = draws.len() as f64;
    let distance = |(place, draw): (usize, &f64)| {
        let expected = distribution(*draw);
        (expected - place as f64 / n).abs().max((expected - (place + 1) as f64 / n).abs())
    };
    let farthest = draws.iter().enumerate().map(distance).fold(0.0, f64::max);
    let limit = ((2.0f64 / 1e-6).ln() / (2.0 * n)).sqrt();
    assert!(farthest <= limit, "distance {farthest}, at most {limit}");
}

fn assert_uncorrelated(one: &[f64], other: &[f64]) {
    let n = one.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mean_one, mean_other) = (mean(one), mean(other));
    let product = |(a, b): (&f64, &f64)| (a - mean_one) * (b - mean_other);
    let covariance: f64 = one.iter().zip(other).map(product).sum();
    let variance = |values: &[f64], mean: f64| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let correlation = covariance / (variance(one, mean_one) * variance(other, mean_other)).sqrt();
    assert!(correlation.abs() <= Z / n.sqrt(), "correlation {correlation} of {n}");
}

fn jittered_ms(jitter: Jitter, seed: u64) -> Vec<f64> {
    let delay_ns = 100 * MS;
    let mut topology = topology(DirectionOptions { delay_ns, jitter, ..DirectionOptions::default() }, seed);
    delays_ms(&carry(&mut topology, evenly(200_000, 10 * S))).iter().map(|delay| delay - 100.0).collect()
}

#[test]
fn bernoulli_loss() {
    for (seed, probability) in [(1, 0.001), (2, 0.02), (3, 0.5)] {
        let lost = lost(Loss::Bernoulli { probability }, seed, 500_000);
        assert_binomial(lost.iter().filter(|lost| **lost).count(), lost.len(), probability);
        let numbers: Vec<f64> = lost.iter().map(|lost| f64::from(*lost)).collect();
        assert_uncorrelated(&numbers[1..], &numbers[..numbers.len() - 1]);
    }
}

#[test]
fn certain_loss_takes_all_and_impossible_loss_none() {
    assert!(lost(Loss::Bernoulli { probability: 1.0 }, 1, 1000).iter().all(|lost| *lost));
    assert!(lost(Loss::Bernoulli { probability: 0.0 }, 1, 1000).iter().all(|lost| !*lost));
}

#[test]
fn gilbert_elliott_bursts_and_gaps_are_geometric() {
    let (good_to_bad, bad_to_good) = (0.01, 0.25);
    let loss = Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good: 0.0, loss_bad: 1.0 };
    let lost = lost(loss, 4, 2_000_000);
    let runs: Vec<&[bool]> = lost.chunk_by(|one, other| one == other).collect();
    // The first run begins where we began to look and the last ends where we stopped.
    let inner = &runs[1..runs.len() - 1];
    let lengths = |of: bool| inner.iter().filter(|run| run[0] == of).map(|run| run.len()).collect::<Vec<_>>();
    assert_geometric_mean(&lengths(true), bad_to_good);
    assert_geometric_mean(&lengths(false), good_to_bad);

    let mut observed = [0; 12];
    for length in lengths(true) {
        observed[length.min(12) - 1] += 1;
    }
    let mut expected: Vec<f64> =
        (0..11).map(|longer| (1.0f64 - bad_to_good).powi(longer) * bad_to_good).collect();
    expected.push((1.0f64 - bad_to_good).powi(11));
    assert_chi_square(&observed, &expected);
}

#[test]
fn gilbert_elliott_loses_the_share_of_both_states() {
    let (good_to_bad, bad_to_good, loss_good, loss_bad) = (0.05, 0.2, 0.01, 0.6);
    let lost = lost(Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad }, 5, 1_000_000);
    let share_bad = good_to_bad / (good_to_bad + bad_to_good);
    let expected = share_bad * loss_bad + (1.0 - share_bad) * loss_good;
    let share = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
    // The variance of a chain's mean: the binomial one, and what neighbours have in common through the state.
    let memory: f64 = 1.0 - good_to_bad - bad_to_good;
    let common =
        share_bad * (1.0 - share_bad) * (loss_bad - loss_good).powi(2) * 2.0 * memory / (1.0 - memory);
    let deviation = ((expected * (1.0 - expected) + common) / lost.len() as f64).sqrt();
    assert!((share - expected).abs() <= Z * deviation, "{share}, expected {expected} ± {deviation}");
}

#[test]
fn exponential_jitter() {
    let draws = jittered_ms(Jitter::Exponential { mean_ns: 5 * MS }, 6);
    assert_uncorrelated(&draws[1..], &draws[..draws.len() - 1]);
    assert_distribution(draws, |x| 1.0 - (-x / 5.0).exp());
}

#[test]
fn normal_jitter() {
    let draws = jittered_ms(Jitter::Normal { std_dev_ns: 5 * MS }, 7);
    assert_uncorrelated(&draws[1..], &draws[..draws.len() - 1]);
    assert_distribution(draws, |x| 0.5 * libm::erfc(-x / 5.0 / core::f64::consts::SQRT_2));
}

#[test]
fn uniform_jitter() {
    let draws = jittered_ms(Jitter::Uniform { spread_ns: 20 * MS }, 8);
    assert!(draws.iter().all(|draw| (-20.0..=20.0).contains(draw)));
    assert_distribution(draws, |x| (x + 20.0) / 40.0);
}

#[test]
fn jitter_from_a_table() {
    let offsets_ns = [-3, 0, 0, 0, 4, 9].map(|ms| ms * MS as i64);
    let draws = jittered_ms(Jitter::Table { offsets_ns: offsets_ns.into() }, 9);
    let count = |ms: f64| draws.iter().filter(|draw| **draw == ms).count();
    let observed = [-3.0, 0.0, 4.0, 9.0].map(count);
    assert_eq!(observed.iter().sum::<usize>(), draws.len());
    assert_chi_square(&observed, &[1.0 / 6.0, 3.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0]);
}

#[test]
fn a_negative_sum_is_no_delay() {
    let jitter = Jitter::Table { offsets_ns: [-5 * MS as i64].into() };
    let mut topology = topology(DirectionOptions { delay_ns: MS, jitter, ..DirectionOptions::default() }, 1);
    assert!(delays_ms(&carry(&mut topology, evenly(10, S))).iter().all(|delay| *delay == 0.0));
}

#[test]
fn duplication() {
    let mut topology = topology(DirectionOptions { duplicate: 0.03, ..DirectionOptions::default() }, 10);
    let arrived = carry(&mut topology, evenly(300_000, 1000));
    let copies = arrived.iter().filter(|delivery| delivery.copy).count();
    assert_eq!(arrived.len(), 300_000 + copies);
    assert_binomial(copies, 300_000, 0.03);
    assert!(arrived.windows(2).all(|pair| !pair[1].copy || pair[0].packet == pair[1].packet));
}

#[test]
fn corruption_flips_one_bit_anywhere() {
    let mut topology = topology(DirectionOptions { corrupt: 0.2, ..DirectionOptions::default() }, 11);
    let arrived = carry(&mut topology, (0..400_000).map(|number| (number * 1000, 5)));
    assert_eq!(arrived.len(), 400_000);
    assert!(arrived.iter().all(|delivery| delivery.packet.flipped.len() == usize::from(delivery.corrupted)));
    assert_binomial(arrived.iter().filter(|delivery| delivery.corrupted).count(), arrived.len(), 0.2);
    let mut observed = [0; 40];
    for delivery in arrived.iter().filter(|delivery| delivery.corrupted) {
        observed[delivery.packet.flipped[0]] += 1;
    }
    assert_chi_square(&observed, &[1.0 / 40.0; 40]);
}

#[test]
fn reordering_holds_its_share_back_and_no_other() {
    let reorder = Some(Reorder { probability: 0.05, hold_ns: 3 * MS });
    let mut topology =
        topology(DirectionOptions { delay_ns: 10 * MS, reorder, ..DirectionOptions::default() }, 12);
    let arrived = carry(&mut topology, evenly(200_000, MS));
    let delays = delays_ms(&arrived);
    assert!(delays.iter().all(|delay| *delay == 10.0 || *delay == 13.0));
    assert_binomial(delays.iter().filter(|delay| **delay == 13.0).count(), delays.len(), 0.05);
    // The two that leave within the 3 ms overtake, and the third arrives together with it but set out later.
    let order = numbers(&arrived);
    let is_late = |place: usize| order[..place].iter().rev().take(3).any(|earlier| *earlier > order[place]);
    let late = (0..order.len()).filter(|place| is_late(*place)).count();
    assert!(late > 0 && late <= delays.iter().filter(|delay| **delay == 13.0).count());
}

#[test]
fn the_two_directions_are_independent() {
    let direction =
        DirectionOptions { loss: Loss::Bernoulli { probability: 0.3 }, ..DirectionOptions::default() };
    let mut topology = topology(direction, 13);
    let mut outcomes = [Vec::new(), Vec::new()];
    for number in 0..200_000 {
        for (outcome, (from, to)) in
            outcomes.iter_mut().zip([(one_wire::A, one_wire::B), (one_wire::B, one_wire::A)])
        {
            let now = heddle_netem::Instant::from_nanos(number);
            let packet = one_wire::Numbered { number, bytes: 1, flipped: Vec::new() };
            topology.send(now, from, to, packet).expect("a wire");
            outcome.push(f64::from(topology.poll(now).is_some()));
        }
    }
    assert_uncorrelated(&outcomes[0], &outcomes[1]);
}

#[test]
fn the_effects_on_a_packet_are_independent() {
    let direction = DirectionOptions {
        delay_ns: 100 * MS,
        jitter: Jitter::Uniform { spread_ns: 20 * MS },
        loss: Loss::Bernoulli { probability: 0.3 },
        reorder: Some(Reorder { probability: 0.3, hold_ns: S }),
        duplicate: 0.3,
        corrupt: 0.3,
        ..DirectionOptions::default()
    };
    let arrived = carry(&mut topology(direction, 14), evenly(300_000, 10 * S));
    let (copies, originals): (Vec<_>, Vec<_>) = arrived.into_iter().partition(|delivery| delivery.copy);
    let delays = delays_ms(&originals);
    let held: Vec<f64> = delays.iter().map(|delay| f64::from(*delay > 1000.0)).collect();
    let jitter: Vec<f64> =
        delays.iter().zip(&held).map(|(delay, held)| delay - 100.0 - 1000.0 * held).collect();
    let corrupted: Vec<f64> = originals.iter().map(|delivery| f64::from(delivery.corrupted)).collect();
    let copied: std::collections::BTreeSet<u64> = numbers(&copies).into_iter().collect();
    let duplicated: Vec<f64> =
        numbers(&originals).iter().map(|number| f64::from(copied.contains(number))).collect();
    let place =
        |delivery: &heddle_netem::Delivery<one_wire::Numbered>| delivery.packet.flipped.first().copied();
    let places: Vec<f64> = originals.iter().map(|delivery| place(delivery).unwrap_or(4000) as f64).collect();
    let effects = [&held, &jitter, &corrupted, &duplicated, &places];
    for (number, one) in effects.iter().enumerate().filter(|(number, _)| *number != 4) {
        effects[number + 1..].iter().for_each(|other| assert_uncorrelated(one, other));
    }
    // What is left by the loss is what was drawn, so the loss did not choose.
    for share in [&held, &corrupted, &duplicated] {
        assert_binomial(share.iter().sum::<f64>() as usize, share.len(), 0.3);
    }
    assert_distribution(jitter, |x| (x + 20.0) / 40.0);
}
