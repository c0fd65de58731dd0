//! CUBIC (RFC 9438) with HyStart++ in the initial slow start (RFC 9406).
//!
//! 1. Slow start, until HyStart++ ends it or something is lost.
//! 2. An epoch of congestion avoidance: the window follows W_cubic(t) = C (t − K)³ + W_max (section 4.2), or the
//!    window that Reno would have where that is larger (section 4.3).
//! 3. Congestion: W_max is the window, or less while it is falling (section 4.7); the window is multiplied by β.

use super::hystart::{Growth, HyStart};
use super::{AckSample, Congestion, CongestionController};
use crate::time::Instant;

/// C of section 5.1, in segments per second cubed.
const C: f64 = 0.4;
/// β of section 4.6.
const BETA: f64 = 0.7;
/// α of section 4.3. The RFC would have 1 above the window before the congestion; Linux stays at this, and so do we:
/// otherwise a connection takes up to two thirds of a wire that it shares with one of Linux.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// While no loss has told a plateau, the window grows by at least this part of what is delivered, as Linux' does:
/// otherwise a slow start that HyStart++ ended too early would leave a long wire idle for minutes.
const SEARCH: f64 = 1.0 / 20.0;
/// The lowest threshold, in segments.
const THRESHOLD_SEGMENTS_MIN: u64 = 2;

/// CUBIC's state. Windows of the formulae are in segments.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: u64,
    hystart: HyStart,
    now: State,
    /// The state before the last congestion.
    prior: Option<State>,
    /// When an acknowledgement was last counted, which tells how long an epoch has to be shifted after a pause.
    last_ack: Instant,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The window in bytes, with the fraction that single acknowledgements add.
    window: f64,
    threshold: u64,
    /// W_max; zero when congestion avoidance was not entered by congestion.
    w_max: f64,
    epoch: Option<Epoch>,
}

/// One stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Instant,
    /// K, in seconds.
    k: f64,
    /// The plateau.
    w_max: f64,
    /// W_est, what Reno would have.
    w_est: f64,
}

impl Cubic {
    /// CUBIC with this window, in slow start.
    pub fn new(mss_bytes: u64, window_bytes: u64, is_paced: bool) -> Self {
        Cubic {
            mss: mss_bytes,
            hystart: HyStart::new(is_paced),
            now: State { window: window_bytes as f64, threshold: u64::MAX, w_max: 0.0, epoch: None },
            prior: None,
            last_ack: Instant::ZERO,
        }
    }

    /// Grows exponentially. Gives the bytes that are left for congestion avoidance.
    fn slow_start(&mut self, sample: &AckSample) -> u64 {
        if self.now.threshold == u64::MAX {
            match self.hystart.on_ack(sample, self.mss) {
                Growth::By(bytes) => self.now.window += bytes as f64,
                Growth::End => self.now.threshold = self.window_bytes(),
            }
            return 0;
        }
        let room = self.now.threshold - self.window_bytes();
        let growth = sample.delivered_bytes.min(room);
        self.now.window += growth as f64;
        sample.delivered_bytes - growth
    }

    fn avoid(&mut self, sample: &AckSample, delivered_bytes: u64) {
        let mss = self.mss as f64;
        let window = self.now.window / mss;
        let epoch = match &mut self.now.epoch {
            Some(epoch) => epoch,
            empty => empty.insert(Epoch::begin(sample.now, window, self.now.w_max)),
        };
        let acked = delivered_bytes as f64 / mss;
        epoch.w_est += ALPHA * acked / window;
        let t = seconds(sample.now.ns_since(epoch.began));
        let grown = if epoch.at(t) < epoch.w_est {
            window.max(epoch.w_est)
        } else {
            let target = epoch.at(t + seconds(sample.smoothed_ns)).clamp(window, 1.5 * window);
            window + (target - window) / window * acked
        };
        let searched = if self.now.w_max == 0.0 { window + SEARCH * acked } else { 0.0 };
        self.now.window = grown.max(searched) * mss;
    }
}

impl Epoch {
    fn begin(now: Instant, window: f64, w_max: f64) -> Self {
        let w_max = w_max.max(window);
        let k = libm::cbrt((w_max - window) / C);
        Epoch { began: now, k, w_max, w_est: window }
    }

    /// W_cubic.
    fn at(&self, t: f64) -> f64 {
        let distance = t - self.k;
        C * distance * distance * distance + self.w_max
    }
}

impl CongestionController for Cubic {
    fn window_bytes(&self) -> u64 {
        self.now.window as u64
    }

    fn threshold_bytes(&self) -> u64 {
        self.now.threshold
    }

    fn on_ack(&mut self, sample: &AckSample) {
        let pause_ns = sample.now.ns_since(self.last_ack);
        self.last_ack = sample.now;
        if !sample.is_window_limited {
            // Time that the application did not use is not time for the window to grow in (section 4.2).
            if let Some(epoch) = &mut self.now.epoch {
                epoch.began = epoch.began.plus_ns(pause_ns).min(sample.now);
            }
            return;
        }
        let mut delivered_bytes = sample.delivered_bytes;
        if self.is_in_slow_start() {
            delivered_bytes = self.slow_start(sample);
        }
        if delivered_bytes > 0 && !self.is_in_slow_start() {
            self.avoid(sample, delivered_bytes);
        }
    }

    fn on_congestion(&mut self, _now: Instant, cause: Congestion) {
        if cause == Congestion::TimeoutAgain {
            self.now = State { window: self.mss as f64, w_max: 0.0, epoch: None, ..self.now };
            return;
        }
        self.prior = Some(self.now);
        let window = self.now.window / self.mss as f64;
        let w_max = if window < self.now.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        let threshold = ((self.now.window * BETA) as u64).max(THRESHOLD_SEGMENTS_MIN * self.mss);
        self.now = match cause {
            Congestion::Signal => State { window: threshold as f64, threshold, w_max, epoch: None },
            // After a time-out the plateau is where slow start ends (section 4.8).
            Congestion::Timeout | Congestion::TimeoutAgain => {
                State { window: self.mss as f64, threshold, w_max: 0.0, epoch: None }
            }
        };
    }

    fn on_undo(&mut self) {
        if let Some(prior) = self.prior.take() {
            self.now = State { window: prior.window.max(self.now.window), ..prior };
        }
    }

    fn on_idle(&mut self, window_bytes: u64) {
        self.now.window = self.now.window.min(window_bytes as f64);
        self.now.epoch = None;
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    const MSS: u64 = 1000;

    /// Delivers a window in each round trip of 100 ms, in segments, and gives the window in segments after each.
    fn rounds(cubic: &mut Cubic, now: &mut Instant, count: usize) -> Vec<f64> {
        let mut una = now.as_nanos();
        let mut after = Vec::new();
        for _ in 0..count {
            let segments = cubic.window_bytes() / MSS;
            for _ in 0..segments {
                *now = now.plus_ns(100 * MS / segments);
                una += MSS;
                cubic.on_ack(&AckSample {
                    now: *now,
                    delivered_bytes: MSS,
                    round_trip_ns: Some(100 * MS),
                    smoothed_ns: 100 * MS,
                    una,
                    next: una + segments * MSS,
                    is_window_limited: true,
                });
            }
            after.push(cubic.window_bytes() as f64 / MSS as f64);
        }
        after
    }

    #[test]
    fn the_window_returns_to_its_plateau_after_k() {
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut cubic = Cubic::new(MSS, 1000 * MSS, true);
        cubic.on_congestion(now, Congestion::Signal);
        assert_eq!(cubic.window_bytes(), 700 * MSS);
        // K = ∛(300 / 0.4) = 9.09 s.
        let after = rounds(&mut cubic, &mut now, 150);
        assert!((985.0..1000.0).contains(&after[70]), "{}", after[70]);
        assert!((999.0..1001.5).contains(&after[90]), "{}", after[90]);
        assert!(after[149] > 1050.0);
        assert!(after.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn small_windows_grow_like_reno() {
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut cubic = Cubic::new(MSS, 20 * MSS, true);
        cubic.on_congestion(now, Congestion::Signal);
        // α = 0.53 segments in a round trip.
        let after = rounds(&mut cubic, &mut now, 8);
        assert!((17.5..19.0).contains(&after[7]), "{after:?}");
    }

    #[test]
    fn a_falling_window_makes_room() {
        let mut cubic = Cubic::new(MSS, 100 * MSS, true);
        cubic.on_congestion(Instant::ZERO, Congestion::Signal);
        cubic.on_congestion(Instant::ZERO, Congestion::Signal);
        assert!((cubic.now.w_max - 70.0 * 0.85).abs() < 0.01);
        cubic.on_undo();
        assert_eq!(cubic.window_bytes(), 70 * MSS);
        assert!((cubic.now.w_max - 100.0).abs() < 0.01);
    }

    #[test]
    fn time_without_data_does_not_count() {
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut cubic = Cubic::new(MSS, 1000 * MSS, true);
        cubic.on_congestion(now, Congestion::Signal);
        let before = rounds(&mut cubic, &mut now, 10)[9];
        now = now.plus_ns(60_000_000_000);
        let sample = AckSample {
            now,
            delivered_bytes: MSS,
            round_trip_ns: None,
            smoothed_ns: 100 * MS,
            una: 0,
            next: 0,
            is_window_limited: false,
        };
        cubic.on_ack(&sample);
        assert!(rounds(&mut cubic, &mut now, 1)[0] < before + 25.0);
    }
}
