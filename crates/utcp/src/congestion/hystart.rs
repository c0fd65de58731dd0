//! HyStart++ (RFC 9406): leaves slow start when round trips grow, before the queue overflows.
//!
//! 1. Each round in slow start has a lowest round trip, of the first samples in it.
//! 2. A round that is an eighth slower than the one before (4 to 16 ms) begins conservative slow start: a quarter of
//!    the growth.
//! 3. Rounds that are fast again resume slow start; five slow ones end it.

use super::AckSample;
use crate::time::MS;

/// The constants of section 4.3, with its names.
const MIN_RTT_THRESH_NS: u64 = 4 * MS;
const MAX_RTT_THRESH_NS: u64 = 16 * MS;
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u8 = 5;
const L_NOT_PACED: u64 = 8;

/// What to do with an acknowledgement in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Add this many bytes.
    By(u64),
    /// Slow start is over: the threshold is the present window.
    End,
}

/// The rounds of one slow start.
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    is_paced: bool,
    window_end: u64,
    last_round_min_ns: Option<u64>,
    round_min_ns: Option<u64>,
    samples: u32,
    /// In conservative slow start: the round trip it began with and how many rounds it has lasted.
    conservative: Option<(u64, u8)>,
}

impl HyStart {
    /// Before the first round.
    pub fn new(is_paced: bool) -> Self {
        HyStart {
            is_paced,
            window_end: 0,
            last_round_min_ns: None,
            round_min_ns: None,
            samples: 0,
            conservative: None,
        }
    }

    /// How much a window grows with this acknowledgement.
    pub fn on_ack(&mut self, sample: &AckSample, mss: u64) -> Growth {
        if sample.una >= self.window_end && self.begin_round(sample.next) {
            return Growth::End;
        }
        if let Some(round_trip_ns) = sample.round_trip_ns {
            self.samples += 1;
            let min_ns = self.round_min_ns.map_or(round_trip_ns, |min_ns| min_ns.min(round_trip_ns));
            self.round_min_ns = Some(min_ns);
            self.judge(min_ns);
        }
        let most = if self.is_paced { u64::MAX } else { L_NOT_PACED * mss };
        let growth = sample.delivered_bytes.min(most);
        Growth::By(if self.conservative.is_some() { growth / CSS_GROWTH_DIVISOR } else { growth })
    }

    /// Begins a round that ends when `next` is acknowledged. True when it was one slow round too many.
    fn begin_round(&mut self, next: u64) -> bool {
        self.window_end = next;
        self.last_round_min_ns = self.round_min_ns.take().or(self.last_round_min_ns);
        self.samples = 0;
        match &mut self.conservative {
            Some((_, rounds)) => {
                *rounds += 1;
                *rounds > CSS_ROUNDS
            }
            None => false,
        }
    }

    fn judge(&mut self, min_ns: u64) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match (self.conservative, self.last_round_min_ns) {
            (Some((baseline_ns, _)), _) if min_ns < baseline_ns => self.conservative = None,
            (None, Some(last_ns)) => {
                let threshold_ns = (last_ns / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_NS, MAX_RTT_THRESH_NS);
                if min_ns >= last_ns + threshold_ns {
                    self.conservative = Some((min_ns, 1));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    /// One round of ten segments with this round trip. Gives the growth of its last acknowledgement.
    fn round(hystart: &mut HyStart, number: u64, round_trip_ns: u64) -> Growth {
        let mut growth = Growth::End;
        for segment in 0..10 {
            let sample = AckSample {
                now: Instant::ZERO,
                delivered_bytes: 1000,
                round_trip_ns: Some(round_trip_ns),
                smoothed_ns: round_trip_ns,
                una: number * 10 + segment,
                next: (number + 1) * 10,
                is_window_limited: true,
            };
            growth = hystart.on_ack(&sample, 1000);
            if growth == Growth::End {
                break;
            }
        }
        growth
    }

    #[test]
    fn slow_rounds_end_it_after_five() {
        let mut hystart = HyStart::new(true);
        assert_eq!(round(&mut hystart, 1, 100 * MS), Growth::By(1000));
        assert_eq!(round(&mut hystart, 2, 110 * MS), Growth::By(1000));
        for number in 3..8 {
            assert_eq!(round(&mut hystart, number, 130 * MS), Growth::By(250), "{number}");
        }
        assert_eq!(round(&mut hystart, 8, 130 * MS), Growth::End);
    }

    #[test]
    fn a_passing_delay_does_not() {
        let mut hystart = HyStart::new(true);
        round(&mut hystart, 1, 100 * MS);
        assert_eq!(round(&mut hystart, 2, 130 * MS), Growth::By(250));
        assert_eq!(round(&mut hystart, 3, 100 * MS), Growth::By(1000));
    }
}
