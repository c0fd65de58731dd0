//! Times by how often they occurred, in constant memory, over all the time and second by second.

use heddle_net::time_buckets::{self, bucket, upper_bound_ns};
use heddle_netem::Instant as Time;
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

/// How long a part is for which a quantile is told, and how many times it has at least.
const PART_NS: u64 = 1_000_000_000;
const PART_TIMES_MIN: u64 = 1000;

/// A histogram of all times, and one of the 99th percentiles of its parts: each of a second, or longer where that has
/// less than a thousand times. A bad second among many good ones does not show in the 99th percentile of all.
#[derive(Clone, Debug, Default)]
pub(super) struct BySecond {
    all: Histogram,
    part: Histogram,
    part_began_ns: u64,
    p99s: Histogram,
    /// Those since somebody began to measure, while he does, and the 99th percentiles of what was measured.
    measured: Option<Histogram>,
    measured_p99s: Histogram,
}

impl BySecond {
    /// Counts a duration that ended now.
    pub(super) fn add(&mut self, now: Time, ns: u64, times: u64) {
        let now_ns = now.as_nanos();
        if now_ns.saturating_sub(self.part_began_ns) >= PART_NS && self.part.total >= PART_TIMES_MIN {
            self.p99s.add(self.part.quantile_ns(0.99), 1);
            self.part = Histogram::default();
            self.part_began_ns = now_ns;
        }
        self.all.add(ns, times);
        self.part.add(ns, times);
        if let Some(measured) = &mut self.measured {
            measured.add(ns, times);
        }
    }

    /// Somebody measures from now on, or no more.
    pub(super) fn measuring(&mut self, on: bool) {
        let measured = core::mem::replace(&mut self.measured, on.then(Histogram::default));
        if let Some(measured) = measured.filter(|measured| measured.total > 0) {
            self.measured_p99s.add(measured.quantile_ns(0.99), 1);
        }
    }

    /// The 99th percentiles of what was measured.
    pub(super) fn measured_p99s(&self) -> &Histogram {
        &self.measured_p99s
    }

    /// All durations.
    pub(super) fn all(&self) -> &Histogram {
        &self.all
    }

    /// The 99th percentiles of the parts that are over.
    pub(super) fn p99s(&self) -> &Histogram {
        &self.p99s
    }
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
    fn a_bad_second_shows_among_good_ones() {
        let mut times = BySecond::default();
        for second in 0..200 {
            for number in 0..2000 {
                let now = Time::from_nanos(second * PART_NS + number * (PART_NS / 2000));
                // One second in ten has a hundred that are 20 ms late: half a percent of all.
                let is_late = second % 10 == 9 && number < 100;
                times.add(now, if is_late { 20_000_000 } else { 50_000 }, 1);
            }
        }
        assert!(times.all().quantile_ns(0.99) < 60_000 && times.all().most_ns() == 20_000_000);
        let p99s = times.p99s();
        assert_eq!(p99s.total, 199);
        assert!(p99s.quantile_ns(0.85) < 60_000 && p99s.quantile_ns(0.95) >= 20_000_000);
    }

    /// A tenth of what was measured for ten seconds is late, which is nothing among all.
    #[test]
    fn what_is_measured_is_told_apart() {
        let mut times = BySecond::default();
        for second in 0..250 {
            times.measuring((200..210).contains(&second));
            for number in 0..2000 {
                let now = Time::from_nanos(second * PART_NS + number * (PART_NS / 2000));
                let is_late = (200..210).contains(&second) && number < 200;
                times.add(now, if is_late { 20_000_000 } else { 50_000 }, 1);
            }
        }
        assert!(times.all().quantile_ns(0.99) < 60_000 && times.p99s().quantile_ns(0.95) < 60_000);
        let measured = times.measured_p99s();
        assert!(measured.total == 10 && measured.most_ns() >= 19_000_000, "{measured:?}");
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
