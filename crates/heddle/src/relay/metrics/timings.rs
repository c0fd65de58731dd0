//! How long the steps of datagrams, cells and the event loop take, where `HeddleTimings` asks for it: a histogram for
//! each, of fixed size, which all shards fill and the metrics tell.

use heddle_net::time_buckets::{self, PER_OCTAVE, upper_bound_ns};
use heddle_seam::stopwatch::{Step, Timekeeper};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What takes 2^40 ns, about 18 minutes, or longer is in the last bucket: no step does.
const OCTAVES: u64 = 40;
const BUCKETS: usize = ((OCTAVES - 3) * PER_OCTAVE) as usize;

/// The times of all steps.
pub struct Timings {
    anchor: Instant,
    steps: [Histogram; Step::ALL.len()],
}

struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// What is told of one step.
pub struct Told {
    pub step: Step,
    /// Upper bounds in seconds and how many are at most that and above the bound before; buckets with none are left
    /// out.
    pub buckets: Vec<(f64, u64)>,
    pub sum_s: f64,
}

impl Timings {
    pub fn new() -> Self {
        let histogram =
            |_| Histogram { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) };
        Timings { anchor: Instant::now(), steps: std::array::from_fn(histogram) }
    }

    /// What was taken down so far.
    pub fn told(&self) -> impl Iterator<Item = Told> {
        Step::ALL.into_iter().zip(&self.steps).map(|(step, histogram)| {
            let count = |bucket: usize| {
                let count = histogram.counts[bucket].load(Ordering::Relaxed);
                (count > 0).then(|| (upper_bound_ns(bucket) as f64 / 1e9, count))
            };
            let sum_s = histogram.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
            Told { step, buckets: (0..BUCKETS).filter_map(count).collect(), sum_s }
        })
    }
}

impl Timekeeper for Timings {
    fn is_on(&self) -> bool {
        true
    }

    fn now_ns(&self) -> u64 {
        self.anchor.elapsed().as_nanos() as u64
    }

    fn took(&self, step: Step, ns: u64, times: u64) {
        let histogram = &self.steps[step as usize];
        histogram.counts[bucket(ns)].fetch_add(times, Ordering::Relaxed);
        histogram.sum_ns.fetch_add(ns.saturating_mul(times), Ordering::Relaxed);
    }
}

fn bucket(ns: u64) -> usize {
    time_buckets::bucket(ns).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_in_the_last_bucket() {
        assert_eq!((bucket(u64::MAX), upper_bound_ns(BUCKETS - 1)), (BUCKETS - 1, (1 << OCTAVES) - 1));
    }

    #[test]
    fn what_was_taken_down_is_told() {
        let timings = Timings::new();
        timings.took(Step::Emit, 10, 3);
        timings.took(Step::Emit, 1000, 1);
        let told: Vec<Told> = timings.told().collect();
        let emit = told.iter().find(|told| told.step == Step::Emit).unwrap();
        assert_eq!((emit.buckets.as_slice(), emit.sum_s), (&[(10e-9, 3), (1023e-9, 1)][..], 1030e-9));
        assert!(told.iter().filter(|told| told.step != Step::Emit).all(|told| told.buckets.is_empty()));
        assert!(timings.now_ns() <= timings.now_ns());
    }
}
