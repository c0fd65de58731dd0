//! Round-trip times of a circuit (proposal 324, section 2.1), in the whole microseconds that
//! stock relays count in, so that both ends round alike.

use super::VegasParams;
use crate::flow_control::ewma;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

/// A round-trip time this many times the smoothed one, or that fraction of it, is the clock's
/// fault (proposal 324, section 2.1.1).
const JUMP_RATIO: u64 = 5_000;

/// The estimator: when the cells were sent that await a SENDME, and what their answers told.
#[derive(Clone, Debug, Default)]
pub(super) struct Rtt {
    sent: VecDeque<Instant>,
    /// Zero while nothing is measured.
    ewma_us: u64,
    /// Zero while nothing is measured.
    min_us: u64,
    /// Whether the last certain observation was that the clock stands still.
    clock_broken: bool,
}

/// What the estimator has to know of the congestion window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowState {
    pub slow_start: bool,
    /// Whether the window is the smallest allowed.
    pub at_min: bool,
    /// SENDMEs between two steps of the window.
    pub update_rate: u32,
}

impl Rtt {
    /// Remembers when a cell was sent that awaits a SENDME, if fewer than `max` already do.
    pub fn on_sent(&mut self, now: Instant, max: usize) {
        if self.sent.len() < max {
            self.sent.push_back(now);
        }
    }

    /// When the cell was sent that the next SENDME answers.
    pub fn take_sent(&mut self) -> Option<Instant> {
        self.sent.pop_front()
    }

    /// Learns from the SENDME at `now` for the cell of `sent`. False when the clock was at fault
    /// and nothing was learnt.
    pub fn measure(
        &mut self,
        sent: Instant,
        now: Instant,
        window: WindowState,
        params: &VegasParams,
    ) -> bool {
        let rtt_us = (now.as_nanos() / 1_000).saturating_sub(sent.as_nanos() / 1_000);
        if self.clock_stalled_or_jumped(rtt_us, window.slow_start) {
            return false;
        }
        self.ewma_us = ewma(rtt_us, self.ewma_us, ewma_count(window, params));
        if self.min_us == 0 {
            self.min_us = self.ewma_us;
        } else if window.at_min && !window.slow_start {
            // A smallest RTT that is too low holds the window down; here it has, so let go of it.
            self.min_us = mix(self.ewma_us, self.min_us, params.rtt_reset_pct);
        } else {
            self.min_us = self.min_us.min(self.ewma_us);
        }
        true
    }

    /// The bandwidth-delay product of a circuit with this window, if anything is measured: the
    /// part of the window that is not in queues.
    pub fn bdp_cells(&self, cwnd_cells: u32) -> Option<u32> {
        let product = u128::from(cwnd_cells) * u128::from(self.min_us);
        let bdp = product.checked_div(u128::from(self.ewma_us))?;
        Some(u32::try_from(bdp).unwrap_or(u32::MAX))
    }

    /// The smoothed round-trip time.
    pub fn ewma(&self) -> Option<Duration> {
        (self.ewma_us > 0).then(|| Duration::from_micros(self.ewma_us))
    }

    /// The smallest smoothed round-trip time.
    pub fn min(&self) -> Option<Duration> {
        (self.min_us > 0).then(|| Duration::from_micros(self.min_us))
    }

    fn clock_stalled_or_jumped(&mut self, rtt_us: u64, slow_start: bool) -> bool {
        if rtt_us == 0 {
            self.clock_broken = true;
            return true;
        }
        if slow_start || self.ewma_us == 0 {
            // Too little is known to compare with.
            return false;
        }
        if self.ewma_us > rtt_us.saturating_mul(JUMP_RATIO) {
            // A network can do this too, so only a clock that was seen to stand still is blamed.
            return self.clock_broken;
        }
        if rtt_us > self.ewma_us.saturating_mul(JUMP_RATIO) {
            // A network can do this too, so it says nothing of the clock later on.
            return true;
        }
        self.clock_broken = false;
        false
    }
}

/// Over how many SENDMEs to smooth: few in slow start, which looks at every one.
fn ewma_count(window: WindowState, params: &VegasParams) -> u32 {
    let count = if window.slow_start {
        params.ewma_ss_sendmes
    } else {
        let share = u64::from(window.update_rate) * u64::from(params.ewma_cwnd_pct) / 100;
        u32::try_from(share).unwrap_or(u32::MAX).min(params.ewma_max_sendmes)
    };
    count.max(2)
}

/// `larger_pct` percent of the larger number and the rest of the smaller.
fn mix(a: u64, b: u64, larger_pct: u32) -> u64 {
    let part = |number: u64, pct: u32| u128::from(number) * u128::from(pct) / 100;
    let sum = part(a.max(b), larger_pct) + part(a.min(b), 100 - larger_pct);
    u64::try_from(sum).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_us(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    /// The numbers of stock tor's own test of its clock heuristics: smoothed RTT and new RTT,
    /// slow start; whether the clock counts as broken after, and whether the RTT is refused.
    #[test]
    fn clock_heuristics_as_stock_tor_tests_them() {
        let vectors = [
            (0, 1, true, false, false),
            (0, 0, true, true, true),
            (1, 1, true, true, false),
            (1, 4_999, false, false, false),
            (4_999, 1, false, false, false),
            (5_001, 1, false, false, false),
            (5_001, 0, false, true, true),
            (5_001, 1, false, true, true),
            (5_001, 1, true, true, false),
            (0, 5_001, false, true, false),
            (1, 5_001, true, true, false),
            (1, 1, false, false, false),
            (5_001, 1, false, false, false),
            (1, 5_001, false, false, true),
            (0, 5_001, false, false, false),
            (5_001, 1, true, false, false),
            (1, 1, false, false, false),
        ];
        let mut rtt = Rtt::default();
        for (row, (ewma_us, new_us, slow_start, broken, refused)) in vectors.into_iter().enumerate() {
            rtt.ewma_us = ewma_us;
            assert_eq!(rtt.clock_stalled_or_jumped(new_us, slow_start), refused, "row {row}");
            assert_eq!(rtt.clock_broken, broken, "row {row}");
        }
    }

    /// The numbers of stock tor's own test of its RTT estimator: sent, answered, window, slow
    /// start; smoothed RTT and smallest RTT after.
    #[test]
    fn estimates_as_stock_tor_tests_them() {
        let vectors = [
            (100_000, 200_000, 124, true, 100_000, 100_000),
            (200_000, 300_000, 124, true, 100_000, 100_000),
            (350_000, 500_000, 124, true, 133_333, 100_000),
            (500_000, 550_000, 124, true, 77_777, 77_777),
            (600_000, 700_000, 124, true, 92_592, 77_777),
            (700_000, 750_000, 124, true, 64_197, 64_197),
            (750_000, 875_000, 124, false, 104_732, 104_732),
            (875_000, 900_000, 124, false, 51_577, 104_732),
            (900_000, 950_000, 200, false, 50_525, 50_525),
        ];
        let (params, mut rtt) = (VegasParams::default(), Rtt::default());
        for (sent_us, now_us, cwnd, slow_start, ewma_us, min_us) in vectors {
            let window = WindowState { slow_start, at_min: cwnd == params.cwnd_min_cells, update_rate: 0 };
            assert!(rtt.measure(at_us(sent_us), at_us(now_us), window, &params));
            assert_eq!((rtt.ewma_us, rtt.min_us), (ewma_us, min_us));
        }
    }

    #[test]
    fn the_smallest_rtt_moves_by_the_percentage() {
        assert_eq!(mix(100, 200, 0), 100);
        assert_eq!(mix(100, 200, 50), 150);
        assert_eq!(mix(200, 100, 100), 200);
    }
}
