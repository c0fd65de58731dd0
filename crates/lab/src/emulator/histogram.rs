//! Times by how often they occurred, in constant memory.

use serde::Serialize;

/// Buckets per doubling: a quantile is at most a sixteenth too high.
const PER_OCTAVE: u64 = 16;
const BUCKETS: usize = 61 * PER_OCTAVE as usize;

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
        Histogram { counts: vec![0; BUCKETS], total: 0, most_ns: 0 }
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

/// Below 16 each number has a bucket; above, its highest five bits choose one.
fn bucket(ns: u64) -> usize {
    if ns < PER_OCTAVE {
        return ns as usize;
    }
    let shift = u64::from(ns.ilog2()) - 4;
    (shift * PER_OCTAVE + (ns >> shift)) as usize
}

fn upper_bound_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let start = (bucket % PER_OCTAVE + PER_OCTAVE) << shift;
    start + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_under_the_bound_of_its_bucket_and_above_the_one_before() {
        let edges = (0..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for ns in edges.chain([3, 17, 31, 32, 33, 1000, 123_456_789, u64::MAX]) {
            let number = bucket(ns);
            assert!(number < BUCKETS && ns <= upper_bound_ns(number), "{ns}");
            assert!(number == 0 || ns > upper_bound_ns(number - 1), "{ns}");
        }
    }

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
