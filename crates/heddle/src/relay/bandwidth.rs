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
    /// Notes the total of bytes carried, about once a second.
    pub fn sample(&mut self, now_s: u64, total: u64) {
        if self.last_second == Some(now_s) {
            return;
        }
        self.last_second = Some(now_s);
        self.seconds.push_back(total.saturating_sub(self.total));
        self.total = total;
        if self.seconds.len() > WINDOW_S {
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
