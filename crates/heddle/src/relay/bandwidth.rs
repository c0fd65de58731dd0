//! What the relay has been seen to carry, for the descriptor's observed bandwidth.

use std::collections::VecDeque;

/// The observed bandwidth is the best of so many seconds in a row (dir-spec, "bandwidth").
const WINDOW_S: usize = 10;
const HOUR_S: u64 = 3600;
/// A peak counts for so many hours (stock Tor keeps five days).
const PEAK_HOURS: usize = 5 * 24;

/// Bytes carried, second by second.
#[derive(Debug, Default)]
pub struct Observed {
    seconds: VecDeque<u64>,
    total: u64,
    last_second: Option<u64>,
    /// The best window of each of the last hours, newest last; at most [`PEAK_HOURS`].
    peaks: VecDeque<(u64, u64)>,
}

impl Observed {
    /// Notes the total of bytes carried, about once a second. What was carried since the last time counts as spread
    /// evenly, because whoever calls may have had to wait for a directory authority.
    pub fn sample(&mut self, now_s: u64, total: u64) {
        if self.last_second == Some(now_s) {
            return;
        }
        // A clock that was set back does not tell how long it was.
        let elapsed_s = self.last_second.map_or(1, |last| now_s.saturating_sub(last).max(1));
        self.last_second = Some(now_s);
        let each = total.saturating_sub(self.total) / elapsed_s;
        self.total = total;
        for _ in 0..elapsed_s.min(WINDOW_S as u64) {
            self.seconds.push_back(each);
        }
        while self.seconds.len() > WINDOW_S {
            self.seconds.pop_front();
        }
        let window = self.seconds.iter().sum::<u64>() / WINDOW_S as u64;
        let hour = now_s / HOUR_S;
        match self.peaks.back_mut() {
            Some((of, peak)) if *of == hour => *peak = window.max(*peak),
            _ => self.peaks.push_back((hour, window)),
        }
        if self.peaks.len() > PEAK_HOURS {
            self.peaks.pop_front();
        }
    }

    /// Bytes per second.
    pub fn bytes_per_s(&self) -> u32 {
        let best = self.peaks.iter().map(|(_, peak)| *peak).max().unwrap_or(0);
        u32::try_from(best).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_is_late_counts_for_all_seconds_since_the_last() {
        let mut observed = Observed::default();
        for second in [0, 1, 2, 63, 64, 75] {
            observed.sample(second, 1_000 * (second + 1));
        }
        assert_eq!(observed.bytes_per_s(), 1_000);
        observed.sample(20, 76_100);
        assert_eq!(observed.bytes_per_s(), 1_000, "the clock was set back");
    }

    #[test]
    fn the_best_ten_seconds_count_for_five_days() {
        let mut observed = Observed::default();
        let mut total = 0;
        for second in 0..100 {
            total += if (40..50).contains(&second) { 1_000 } else { 10 };
            observed.sample(second, total);
        }
        assert_eq!(observed.bytes_per_s(), 1_000);
        for hour in 1..=PEAK_HOURS as u64 {
            observed.sample(hour * HOUR_S, total);
        }
        assert!(observed.bytes_per_s() < 10);
    }
}
