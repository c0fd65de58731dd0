//! What several seeds tell of a figure, and of a bound on it.
//!
//! A figure is its mean over seeds with the 95 % interval by Student's t; of a ratio it is the geometric mean. What the
//! mean misses is missed, and beyond doubt where the whole interval does.

use core::fmt;

/// The 97.5 % quantiles of Student's t with one degree of freedom, two, and so on.
const T_975: [f64; 9] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622];

/// So many seeds there are quantiles for.
#[allow(dead_code, reason = "of use to the figures alone")]
pub const SEEDS_MAX: usize = T_975.len() + 1;

/// A figure as all seeds tell it: the mean, and the bounds of its interval.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    pub fn of(samples: impl Iterator<Item = f64> + Clone) -> Self {
        let count = samples.clone().count();
        let mean = samples.clone().sum::<f64>() / count as f64;
        let squares = samples.map(|sample| (sample - mean).powi(2)).sum::<f64>();
        let half = match count.checked_sub(2).and_then(|place| T_975.get(place)) {
            Some(t_975) => t_975 * (squares / ((count - 1) * count) as f64).sqrt(),
            None => f64::INFINITY,
        };
        Estimate { mean, low: mean - half, high: mean + half }
    }

    #[allow(dead_code, reason = "of use to the figures alone")]
    pub fn of_ratios(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        let Estimate { mean, low, high } = Estimate::of(ratios.map(f64::ln));
        Estimate { mean: mean.exp(), low: low.exp(), high: high.exp() }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = format!("({:.2} to {:.2})", self.low, self.high);
        write!(f, "{:>6.2} {interval:<17}", self.mean)
    }
}

/// Whether a bound is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Kept,
    Missed,
    MissedBeyondDoubt,
}

impl Verdict {
    pub fn at_most(bound: f64, of: Estimate) -> Self {
        match of.mean > bound {
            false => Verdict::Kept,
            true if of.low > bound => Verdict::MissedBeyondDoubt,
            true => Verdict::Missed,
        }
    }

    pub fn at_least(bound: f64, of: Estimate) -> Self {
        Verdict::at_most(-bound, Estimate { mean: -of.mean, low: -of.high, high: -of.low })
    }
}

#[test]
fn what_is_missed_is_missed_beyond_doubt_where_the_whole_interval_is() {
    // Half of the interval is 12.7062 · √(0.5² + 0.5²) / √2.
    let estimate = Estimate::of([1.0, 2.0].into_iter());
    assert_eq!((estimate.mean, estimate.high), (1.5, 1.5 + 12.7062 * 0.5));
    let estimate = Estimate { mean: 1.0, low: 0.5, high: 1.5 };
    for (bound, verdict) in [(1.2, Verdict::Kept), (0.7, Verdict::Missed), (0.4, Verdict::MissedBeyondDoubt)]
    {
        assert_eq!(Verdict::at_most(bound, estimate), verdict, "{bound}");
        assert_eq!(Verdict::at_least(2.0 - bound, estimate), verdict, "{bound}");
    }
    assert_eq!(Estimate::of([1.0].into_iter()).low, f64::NEG_INFINITY);
}
