//! Times by how often they occurred, in constant memory.

use heddle_net::time_buckets::{self, bucket, upper_bound_ns};
use serde::Serialize;

/// A histogram of durations from 1 ns to centuries.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most_ns: u64,
}

/// What a histogram tells, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How many were counted.
    pub n: u64,
    /// The median, at most a sixteenth too high, as are the other quantiles.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest, exactly.
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; time_buckets::ALL], total: 0, most_ns: 0 }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, ns: u64, times: u64) {
        self.counts[bucket(ns)] += times;
        self.total += times;
        self.most_ns = self.most_ns.max(ns);
    }

    pub(super) fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// An upper bound of the quantile `q`, zero of nothing.
    pub(super) fn quantile_ns(&self, q: f64) -> u64 {
        let wanted = (q * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (number, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_bound_ns(number).min(self.most_ns);
            }
        }
        0
    }

    pub(super) fn times(&self) -> Times {
        let us = |ns: u64| ns as f64 / 1000.0;
        Times {
            n: self.total,
            p50_us: us(self.quantile_ns(0.5)),
            p99_us: us(self.quantile_ns(0.99)),
            p999_us: us(self.quantile_ns(0.999)),
            max_us: us(self.most_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|ns| histogram.add(ns, 1));
        for (q, exact) in [(0.5, 50_000), (0.99, 99_000), (1.0, 100_000)] {
            let found = histogram.quantile_ns(q);
            assert!(found >= exact && found <= exact + exact / 16, "{q}: {found}");
        }
        assert_eq!(histogram.most_ns(), 100_000);
        assert_eq!(Histogram::default().times(), Times::default());
    }
}
