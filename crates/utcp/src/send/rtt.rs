//! The round-trip time and the retransmission time-out (RFC 6298, with Linux' refinements).
//!
//! The RFC was written for one sample in a round trip. With one for every acknowledgement its variance decays within a
//! fraction of a round trip, so, like Linux, the time-out follows the largest deviation of each round trip, and the
//! floor of 200 ms bounds the deviation instead of the sum. A lower round trip than expected does not widen the
//! time-out.

use crate::options::Options;
use crate::time::{Instant, S};

/// How long a lowest round trip counts, as in Linux (`tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW_NS: u64 = 300 * S;

/// The time-out where a SYN was lost and no round trip was measured (RFC 6298, section 5.7).
const SYN_LOST_NS: u64 = 3 * S;

/// The round trip's estimates. All in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    smoothed_ns: Option<u64>,
    /// The time-out as long as no round trip was measured, if it is not the options'.
    unmeasured_ns: Option<u64>,
    /// Four times the mean deviation.
    deviation_ns: u64,
    /// The largest of those since the round trip began.
    round_deviation_ns: u64,
    /// What is added to the smoothed round trip.
    margin_ns: u64,
    /// The round trip ends when this sequence number is acknowledged.
    round_end: u64,
    min: Minimum,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Rtt {
            smoothed_ns: None,
            unmeasured_ns: None,
            deviation_ns: 0,
            round_deviation_ns: 0,
            margin_ns: 0,
            round_end: 0,
            min: Minimum::default(),
        }
    }

    /// The smoothed round trip, once there was a sample.
    pub(crate) fn smoothed_ns(&self) -> Option<u64> {
        self.smoothed_ns
    }

    /// The lowest sample of the last five minutes.
    pub(crate) fn min_ns(&self) -> Option<u64> {
        self.min.value_ns
    }

    /// The time-out without back-off.
    pub(crate) fn timeout_ns(&self, options: &Options) -> u64 {
        let timeout_ns = match self.smoothed_ns {
            Some(smoothed_ns) => smoothed_ns + self.margin_ns.max(options.rto_min_ns),
            None => self.unmeasured_ns.unwrap_or(options.rto_initial_ns),
        };
        timeout_ns.min(options.rto_max_ns)
    }

    /// Another connection over the same path measured this: the time-out is as if it were the first sample (RFC 9040).
    pub(crate) fn expect(&mut self, smoothed_ns: u64, options: &Options) {
        self.unmeasured_ns = Some(smoothed_ns + (2 * smoothed_ns).max(options.rto_min_ns));
    }

    /// A SYN was lost. Gives whether the time-out is three seconds because of it; where others know the path it is not.
    pub(crate) fn on_syn_lost(&mut self) -> bool {
        let is_unknown = self.unmeasured_ns.is_none();
        self.unmeasured_ns.get_or_insert(SYN_LOST_NS);
        is_unknown
    }

    /// Takes a sample. `una` and `next` are the lowest sequence number not acknowledged and the next to be sent.
    pub(crate) fn on_sample(&mut self, now: Instant, sample_ns: u64, una: u64, next: u64, floor_ns: u64) {
        let sample_ns = sample_ns.max(1);
        self.min.on_sample(now, sample_ns);
        let Some(smoothed_ns) = self.smoothed_ns else {
            self.smoothed_ns = Some(sample_ns);
            self.deviation_ns = 2 * sample_ns;
            self.margin_ns = self.deviation_ns.max(floor_ns);
            self.round_deviation_ns = self.margin_ns;
            self.round_end = next;
            return;
        };
        let error_ns = sample_ns as i64 - smoothed_ns as i64;
        self.smoothed_ns = Some(smoothed_ns.saturating_add_signed(error_ns / 8).max(1));
        let mean_ns = (self.deviation_ns / 4) as i64;
        let mut change_ns = error_ns.abs() - mean_ns;
        if error_ns < 0 && change_ns > 0 {
            // The round trip shrank: an eighth of the gain keeps the time-out from growing for it.
            change_ns /= 8;
        }
        self.deviation_ns = self.deviation_ns.saturating_add_signed(change_ns);
        self.round_deviation_ns = self.round_deviation_ns.max(self.deviation_ns);
        self.margin_ns = self.margin_ns.max(self.round_deviation_ns);
        if una > self.round_end {
            let surplus_ns = self.margin_ns.saturating_sub(self.round_deviation_ns);
            self.margin_ns -= surplus_ns / 4;
            self.round_end = next;
            self.round_deviation_ns = floor_ns;
        }
    }
}

/// The lowest of the samples in a sliding window, to within half a window: the lower of two half windows.
#[derive(Clone, Debug, Default)]
struct Minimum {
    value_ns: Option<u64>,
    half_ns: Option<u64>,
    half_began: Instant,
}

impl Minimum {
    fn on_sample(&mut self, now: Instant, sample_ns: u64) {
        if now.ns_since(self.half_began) > MIN_RTT_WINDOW_NS / 2 {
            self.value_ns = self.half_ns;
            self.half_ns = None;
            self.half_began = now;
        }
        let lower = |old: Option<u64>| Some(old.map_or(sample_ns, |old_ns| old_ns.min(sample_ns)));
        self.half_ns = lower(self.half_ns);
        self.value_ns = lower(self.value_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    const FLOOR: u64 = 200 * MS;

    fn fed(samples_ms: &[u64]) -> Rtt {
        let mut rtt = Rtt::new();
        for (place, sample_ms) in samples_ms.iter().enumerate() {
            // Each sample is a round trip of its own.
            let next = 10 * (place as u64 + 1);
            rtt.on_sample(Instant::from_nanos(next), sample_ms * MS, next - 8, next, FLOOR);
        }
        rtt
    }

    #[test]
    fn the_first_sample_is_rfc_6298_section_2_2() {
        let options = Options::default();
        assert_eq!(Rtt::new().timeout_ns(&options), 1000 * MS);
        assert_eq!(fed(&[300]).timeout_ns(&options), 900 * MS);
        assert_eq!(fed(&[10]).timeout_ns(&options), 210 * MS);
    }

    #[test]
    fn a_steady_round_trip_ends_at_the_floor() {
        let steady = fed(&[100; 200]);
        assert_eq!(steady.timeout_ns(&Options::default()), 300 * MS);
        assert_eq!(steady.min_ns(), Some(100 * MS));
    }

    #[test]
    fn variance_widens_and_a_shorter_round_trip_does_not() {
        let options = Options::default();
        let varied: Vec<u64> = (0..200).map(|n| if n % 2 == 0 { 100 } else { 500 }).collect();
        assert!(fed(&varied).timeout_ns(&options) > 900 * MS);
        let mut shrunk = vec![500; 100];
        shrunk.push(100);
        assert!(fed(&shrunk).timeout_ns(&options) < fed(&[500; 100]).timeout_ns(&options) + 10 * MS);
    }

    #[test]
    fn the_lowest_is_forgotten() {
        let mut rtt = Rtt::new();
        rtt.on_sample(Instant::ZERO, 10 * MS, 0, 1, FLOOR);
        for second in 1..=310 {
            rtt.on_sample(Instant::from_nanos(second * S), 50 * MS, second, second, FLOOR);
        }
        assert_eq!(rtt.min_ns(), Some(50 * MS));
    }
}
