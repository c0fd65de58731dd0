//! Known values, and how often intervals cover what they should, in experiments drawn by seed.

use heddle_netem::{Rng, Seed};

use super::*;

#[test]
fn quantiles_interpolate() {
    let sorted = [1.0, 2.0, 3.0, 4.0];
    assert_eq!(quantile(&sorted, 0.0), Some(1.0));
    assert_eq!(quantile(&sorted, 0.5), Some(2.5));
    assert_eq!(quantile(&sorted, 1.0), Some(4.0));
    assert!((quantile(&sorted, 0.9).unwrap() - 3.7).abs() < 1e-12);
    assert_eq!(quantile(&[], 0.5), None);
}

#[test]
fn students_t_matches_the_published_table() {
    for (df, t) in [(1, 12.706), (5, 2.571), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (120, 1.980)]
    {
        assert!((t_975(df) - t).abs() < 0.0006, "{df}: {} is not {t}", t_975(df));
    }
}

#[test]
fn the_interval_of_a_known_sample() {
    // R: t.test(c(9, 10, 11, 12, 13)) gives 9.036757 and 12.963243.
    let [low, high] = estimate(&[9.0, 10.0, 11.0, 12.0, 13.0], Scale::Any).unwrap().ci95.unwrap();
    assert!((low - 9.036757).abs() < 1e-3 && (high - 12.963243).abs() < 1e-3);
    let one = estimate(&[1.0], Scale::Amount).unwrap();
    assert_eq!((one.value, one.ci95), (1.0, None));
    assert_eq!(estimate(&[], Scale::Any), None);
}

#[test]
fn twice_as_much_and_half_as_much_come_to_one() {
    let ratio = estimate(&[2.0, 0.5], Scale::Ratio).unwrap();
    let [low, high] = ratio.ci95.unwrap();
    assert!((ratio.value - 1.0).abs() < 1e-12 && (low * high - 1.0).abs() < 1e-9);
    let pairs = estimate_pairs(&[[4.0, 2.0], [1.0, 2.0]], Scale::Ratio).unwrap();
    assert!((pairs.value - 1.0).abs() < 1e-12);
    // A quarter less is a ratio of three quarters, and its bounds change places.
    let loss = estimate_pairs(&[[3.0, 4.0], [3.0, 4.2]], Scale::LossPct).unwrap();
    let ratio = estimate_pairs(&[[3.0, 4.0], [3.0, 4.2]], Scale::Ratio).unwrap();
    assert!((loss.value - 100.0 * (1.0 - ratio.value)).abs() < 1e-9);
    let ([low, high], [least, most]) = (loss.ci95.unwrap(), ratio.ci95.unwrap());
    assert!((low - 100.0 * (1.0 - most)).abs() < 1e-9 && (high - 100.0 * (1.0 - least)).abs() < 1e-9);
}

#[test]
fn fiellers_interval_of_a_known_sample() {
    // R: ttestratio(y, x, var.equal...) has no pairs; by hand: means 1 and 10, variances of means 1/3 and 1/3, no
    // covariance.
    let pairs = [[0.0, 10.0], [2.0, 10.0], [1.0, 9.0], [1.0, 11.0]];
    let Estimate { value, ci95 } = fieller(&pairs).unwrap();
    let (t2, v) = (3.1824_f64.powi(2), 2.0 / 3.0 / 4.0);
    let (square, linear, constant) = (100.0 - t2 * v, 10.0, 1.0 - t2 * v);
    let root = (linear * linear - square * constant).sqrt();
    let [low, high] = ci95.unwrap();
    assert!((value - 0.1).abs() < 1e-12);
    assert!(
        (low - (linear - root) / square).abs() < 1e-12 && (high - (linear + root) / square).abs() < 1e-12
    );
    // Where nothing tells the second of the pairs from zero, nothing is said.
    assert_eq!(fieller(&[[1.0, -1.0], [1.0, 1.5]]).unwrap().ci95, None);
    assert_eq!(fieller(&[[1.0, 0.0]]), None);
}

/// How often in a thousand experiments the interval covers the truth, and whether its bounds were always possible
/// values.
fn covered(scale: Scale, runs: usize, truth: f64, draw: &mut dyn FnMut(&mut Rng) -> f64) -> (f64, bool) {
    const EXPERIMENTS: usize = 4000;
    let mut rng = Seed::from_number(8).rng();
    let (mut covers, mut possible) = (0, true);
    for _ in 0..EXPERIMENTS {
        let samples: Vec<f64> = (0..runs).map(|_| draw(&mut rng)).collect();
        let [low, high] = estimate(&samples, scale).unwrap().ci95.unwrap();
        covers += usize::from(low <= truth && truth <= high);
        possible &= match scale {
            Scale::Share => low >= 0.0 && high <= 1.0,
            Scale::Amount | Scale::Ratio => low > 0.0,
            _ => true,
        };
    }
    (covers as f64 / EXPERIMENTS as f64, possible)
}

/// A normal deviate (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle) = ((-2.0 * (1.0 - rng.unit()).ln()).sqrt(), rng.unit());
    radius * (std::f64::consts::TAU * angle).cos()
}

/// Jain's index of so many shares, each one with a deviation of a fifth.
fn jain(rng: &mut Rng, streams: usize) -> f64 {
    let rates: Vec<f64> = (0..streams).map(|_| (1.0 + 0.2 * normal(rng)).abs()).collect();
    let (sum, squares): (f64, f64) = (rates.iter().sum(), rates.iter().map(|rate| rate * rate).sum());
    sum * sum / (streams as f64 * squares)
}

#[test]
fn intervals_cover_what_they_should_and_nothing_impossible() {
    // By 200,000 draws.
    for (streams, truth) in [(2, 0.9806), (8, 0.9661)] {
        for runs in [3, 4, 6] {
            let (share, possible) = covered(Scale::Share, runs, truth, &mut |rng| jain(rng, streams));
            assert!(possible && share > 0.90 && share < 0.97, "jain of {streams}, {runs} runs: {share}");
        }
    }
    // The ratio of two rates, each with a deviation of a fifth: its logarithm's mean is 0.
    for runs in [2, 3, 4, 6] {
        let mut ratio =
            |rng: &mut Rng| (1.0 + 0.2 * normal(rng)).max(0.05) / (1.0 + 0.2 * normal(rng)).max(0.05);
        let (share, possible) = covered(Scale::Ratio, runs, 1.0, &mut ratio);
        assert!(possible && share > 0.93 && share < 0.97, "ratio, {runs} runs: {share}");
    }
    for runs in [2, 3, 4, 6] {
        let (share, possible) =
            covered(Scale::Amount, runs, 1.0, &mut |rng| (1.0 + 0.3 * normal(rng)).max(0.001));
        assert!(possible && share > 0.93 && share < 0.97, "amount, {runs} runs: {share}");
    }
}

#[test]
fn the_plain_interval_would_cover_less() {
    // What the scale of shares is for: the same draws, and the plain interval.
    let (share, _) = covered(Scale::Any, 4, 0.9806, &mut |rng| jain(rng, 2));
    assert!(share < 0.86, "{share}");
    // And of a lognormal ratio the mean of the ratios, which is not the one that is asked for.
    let (share, _) = covered(Scale::Any, 4, 0.32_f64.exp(), &mut |rng| (0.8 * normal(rng)).exp());
    let (logs, _) = covered(Scale::Ratio, 4, 1.0, &mut |rng| (0.8 * normal(rng)).exp());
    assert!(share < 0.93 && (logs - 0.95).abs() < 0.015, "{share} {logs}");
}

#[test]
fn what_is_all_at_a_bound_has_no_width() {
    assert_eq!(estimate(&[1.0; 3], Scale::Share).unwrap().ci95, Some([1.0; 2]));
    assert_eq!(estimate(&[100.0; 3], Scale::Percent).unwrap().ci95, Some([100.0; 2]));
    assert_eq!(estimate(&[0.0; 3], Scale::Amount).unwrap().ci95, Some([0.0; 2]));
    let [low, high] = estimate(&[100.0, 90.0], Scale::Percent).unwrap().ci95.unwrap();
    assert!(low > 0.0 && high < 100.0);
}
