//! Reno's window (RFC 5681) with appropriate byte counting (RFC 3465).
//!
//! Slow start adds what was delivered; congestion avoidance adds a segment for each window delivered; congestion
//! halves.

use super::{AckSample, Congestion, CongestionController};
use crate::time::Instant;

/// The most segments that one acknowledgement adds in slow start: L of RFC 3465. It is generous because receivers
/// stretch acknowledgements; pacing keeps the burst off the wire.
const SLOW_START_SEGMENTS_MAX: u64 = 8;

/// The lowest threshold, in segments (RFC 5681, equation 4).
const THRESHOLD_SEGMENTS_MIN: u64 = 2;

/// Reno's state.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    window: u64,
    threshold: u64,
    /// Bytes delivered towards the next segment of congestion avoidance.
    counted: u64,
    /// Window and threshold before the last congestion.
    prior: Option<(u64, u64)>,
}

impl Reno {
    /// Reno with this window, in slow start.
    pub fn new(mss_bytes: u64, window_bytes: u64) -> Self {
        Reno { mss: mss_bytes, window: window_bytes, threshold: u64::MAX, counted: 0, prior: None }
    }
}

impl CongestionController for Reno {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn threshold_bytes(&self) -> u64 {
        self.threshold
    }

    fn on_ack(&mut self, sample: &AckSample) {
        if !sample.is_window_limited {
            return;
        }
        let mut delivered = sample.delivered_bytes;
        if self.is_in_slow_start() {
            let growth = delivered.min(SLOW_START_SEGMENTS_MAX * self.mss).min(self.threshold - self.window);
            self.window += growth;
            delivered -= growth;
            if self.is_in_slow_start() {
                return;
            }
        }
        self.counted += delivered;
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window += self.mss;
        }
    }

    fn on_congestion(&mut self, _now: Instant, cause: Congestion) {
        if cause == Congestion::TimeoutAgain {
            self.window = self.mss;
            return;
        }
        self.prior = Some((self.window, self.threshold));
        // Whole segments: with a part of one, the window would be what no segment fits into and grow more slowly for
        // it.
        let segments = self.window / self.mss / 2;
        self.threshold = segments.max(THRESHOLD_SEGMENTS_MIN) * self.mss;
        self.counted = 0;
        self.window = match cause {
            Congestion::Signal => self.threshold,
            Congestion::Timeout | Congestion::TimeoutAgain => self.mss,
        };
    }

    fn on_undo(&mut self) {
        if let Some((window, threshold)) = self.prior.take() {
            self.window = self.window.max(window);
            self.threshold = threshold;
        }
    }

    fn on_idle(&mut self, window_bytes: u64) {
        self.window = self.window.min(window_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(delivered_bytes: u64) -> AckSample {
        AckSample {
            now: Instant::ZERO,
            delivered_bytes,
            round_trip_ns: None,
            smoothed_ns: 0,
            una: 0,
            next: 0,
            is_window_limited: true,
        }
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_a_segment() {
        let mut reno = Reno::new(1000, 10_000);
        (0..10).for_each(|_| reno.on_ack(&ack(1000)));
        assert_eq!(reno.window_bytes(), 20_000);
        reno.on_congestion(Instant::ZERO, Congestion::Signal);
        assert_eq!((reno.window_bytes(), reno.threshold_bytes()), (10_000, 10_000));
        (0..10).for_each(|_| reno.on_ack(&ack(1000)));
        assert_eq!(reno.window_bytes(), 11_000);
        reno.on_congestion(Instant::ZERO, Congestion::Timeout);
        assert_eq!((reno.window_bytes(), reno.threshold_bytes()), (1000, 5000));
        reno.on_undo();
        assert_eq!((reno.window_bytes(), reno.threshold_bytes()), (11_000, 10_000));
    }

    #[test]
    fn divided_acknowledgements_gain_nothing() {
        let (mut whole, mut divided) = (Reno::new(1000, 10_000), Reno::new(1000, 10_000));
        (0..20).for_each(|_| whole.on_ack(&ack(1000)));
        (0..20_000).for_each(|_| divided.on_ack(&ack(1)));
        assert_eq!(whole.window_bytes(), divided.window_bytes());
    }
}
