//! The distributions of delays in a Markov model.

use std::f64::consts::TAU;

use heddle_netem::Rng;

/// The longest delay, whatever a heavy tail says, in microseconds: ten minutes.
pub(super) const DELAY_MAX_US: f64 = 600e6;

/// A distribution of delays in microseconds, with the parameters of TGen's models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distribution {
    /// Between `low` and `high`.
    Uniform { low: f64, high: f64 },
    /// With this mean and standard deviation.
    Normal { location: f64, scale: f64 },
    /// Whose logarithm is normal with this mean and standard deviation.
    Lognormal { location: f64, scale: f64 },
    /// With the mean 1 / `rate`.
    Exponential { rate: f64 },
    /// At least `scale`, with the tail (`scale` / x)^`shape`.
    Pareto { scale: f64, shape: f64 },
}

impl Distribution {
    /// One delay in whole microseconds, from zero to ten minutes. Every draw takes two numbers from
    /// the generator, so that what follows does not depend on the distribution.
    pub(super) fn delay_us(self, rng: &mut Rng) -> u32 {
        let delay_us = self.sample(rng).round().clamp(0.0, DELAY_MAX_US);
        delay_us as u32
    }

    fn sample(self, rng: &mut Rng) -> f64 {
        // Never zero, so that its logarithm is finite.
        let u = 1.0 - rng.unit();
        let v = rng.unit();
        // Box and Muller's method, of which one half is enough.
        let normal = || (-2.0 * u.ln()).sqrt() * (TAU * v).cos();
        match self {
            Distribution::Uniform { low, high } => low + (high - low) * v,
            Distribution::Normal { location, scale } => location + scale * normal(),
            Distribution::Lognormal { location, scale } => (location + scale * normal()).exp(),
            Distribution::Exponential { rate } => -u.ln() / rate,
            Distribution::Pareto { scale, shape } => scale / u.powf(1.0 / shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_netem::Seed;

    /// The greatest distance between the empirical and the given distribution function
    /// (Kolmogorov and Smirnov), times the square root of the sample's size.
    fn distance(distribution: Distribution, cdf: impl Fn(f64) -> f64) -> f64 {
        let mut rng = Seed::from_number(11).child(&[&format!("{distribution:?}")]).rng();
        let n = 20_000;
        let mut drawn: Vec<f64> = (0..n).map(|_| distribution.sample(&mut rng)).collect();
        drawn.sort_by(f64::total_cmp);
        let n = f64::from(n);
        let distances = drawn.iter().enumerate().map(|(i, x)| {
            let expected = cdf(*x);
            (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
        });
        distances.fold(0.0, f64::max) * n.sqrt()
    }

    /// Abramowitz and Stegun 7.1.26, within 1.5e-7.
    fn normal_cdf(z: f64) -> f64 {
        let x = z.abs() / 2_f64.sqrt();
        let t = 1.0 / (1.0 + 0.327_591_1 * x);
        let poly = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
        let erf = 1.0 - poly.iter().fold(0.0, |sum, a| (sum + a) * t) * (-x * x).exp();
        if z < 0.0 { (1.0 - erf) / 2.0 } else { f64::midpoint(1.0, erf) }
    }

    #[test]
    fn samples_follow_their_distributions() {
        // The 0.1 % quantile of Kolmogorov's distribution is 1.95; the seeds are fixed.
        let cases: [(Distribution, &dyn Fn(f64) -> f64); 5] = [
            (Distribution::Uniform { low: 5.0, high: 25.0 }, &|x| (x - 5.0) / 20.0),
            (Distribution::Normal { location: 9.0, scale: 3.0 }, &|x| normal_cdf((x - 9.0) / 3.0)),
            (Distribution::Lognormal { location: 9.6, scale: 4.3 }, &|x| normal_cdf((x.ln() - 9.6) / 4.3)),
            (Distribution::Exponential { rate: 0.004 }, &|x| 1.0 - (-0.004 * x).exp()),
            (Distribution::Pareto { scale: 10.0, shape: 1.5 }, &|x| 1.0 - (10.0 / x).powf(1.5)),
        ];
        for (distribution, cdf) in cases {
            let distance = distance(distribution, cdf);
            assert!(distance < 1.95, "{distribution:?} is off by {distance}");
        }
    }

    #[test]
    fn delays_stay_in_their_bounds() {
        let mut rng = Seed::from_number(1).rng();
        let below = Distribution::Normal { location: 0.0, scale: 1e9 };
        let delays: Vec<u32> = (0..100).map(|_| below.delay_us(&mut rng)).collect();
        assert!(delays.contains(&0) && delays.contains(&600_000_000));
        let constant = Distribution::Uniform { low: 7.0, high: 7.0 };
        assert_eq!(constant.delay_us(&mut rng), 7);
    }
}
