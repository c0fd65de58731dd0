//! The congestion control of RFC 9260, section 7.2: slow start, congestion avoidance, half after a loss.

use heddle_seam::time::Instant;
use heddle_utcp::congestion::{AckWait, SessionAck, SessionController};

/// RFC 9260, section 7.2.1: the first window in bytes, but two packets at least and four at most.
const WINDOW_INITIAL: u64 = 4404;

/// One association's window.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    window: u64,
    threshold: u64,
    /// Bytes acknowledged since the window last grew by a packet, beyond slow start.
    partial: u64,
    in_flight: u64,
    /// What left before this is of a loss that was answered.
    recovery_from: Option<Instant>,
    /// Window and threshold before the last stall.
    before_stall: Option<[u64; 2]>,
}

impl Reno {
    pub fn new(mss_bytes: u16) -> Self {
        let mss = u64::from(mss_bytes);
        Reno {
            mss,
            window: WINDOW_INITIAL.clamp(2 * mss, 4 * mss),
            threshold: u64::MAX,
            partial: 0,
            in_flight: 0,
            recovery_from: None,
            before_stall: None,
        }
    }

    fn halve(&mut self, now: Instant, sent: Instant) {
        if self.recovery_from.is_some_and(|from| sent <= from) {
            return;
        }
        self.recovery_from = Some(now);
        self.threshold = (self.window / 2).max(4 * self.mss);
        (self.window, self.partial) = (self.threshold, 0);
    }
}

impl SessionController for Reno {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn pacing_percent(&self) -> u64 {
        if self.window < self.threshold { 200 } else { 125 }
    }

    fn set_mss_bytes(&mut self, mss_bytes: u16) {
        self.mss = mss_bytes.into();
        self.window = self.window.max(2 * self.mss);
    }

    fn set_busy_flows(&mut self, _flows: f64) {}

    fn on_sent(&mut self, _now: Instant, bytes: u64) {
        self.in_flight += bytes;
    }

    fn set_ack_wait(&mut self, _wait: AckWait) {}

    fn on_ack(&mut self, ack: &SessionAck) {
        // Only a window that is used grows; what was in flight is known from before this acknowledgement.
        let is_used = self.in_flight + 2 * self.mss >= self.window;
        let is_repairing = self.recovery_from.zip(ack.newest_sent).is_some_and(|(from, sent)| sent <= from);
        if !is_used || is_repairing {
            return;
        }
        if self.window < self.threshold {
            self.window += ack.bytes.min(2 * self.mss);
            return;
        }
        self.partial += ack.bytes;
        if self.partial >= self.window {
            self.partial -= self.window;
            self.window += self.mss;
        }
    }

    fn on_loss(&mut self, now: Instant, sent: Instant, _bytes: u64) {
        self.halve(now, sent);
    }

    fn on_gone(&mut self, _bytes: u64) {}

    fn on_marked(&mut self, now: Instant, sent: Instant) {
        self.halve(now, sent);
    }

    fn set_in_flight(&mut self, bytes: u64) {
        self.in_flight = bytes;
    }

    fn on_probe(&mut self, _now: Instant, _round_trip_ns: u64) {}

    fn on_stall(&mut self, now: Instant) {
        self.before_stall = Some([self.window, self.threshold]);
        self.threshold = (self.window / 2).max(4 * self.mss);
        (self.window, self.partial, self.recovery_from) = (self.mss, 0, Some(now));
    }

    fn on_stall_undone(&mut self, _now: Instant) {
        if let Some([window, threshold]) = self.before_stall.take() {
            (self.window, self.threshold) = (window, threshold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn ack(now: Instant, sent: Instant, bytes: u64) -> SessionAck {
        SessionAck { now, newest_sent: Some(sent), bytes, deviation_ns: 0 }
    }

    #[test]
    fn it_doubles_halves_once_a_flight_and_grows_by_a_packet() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut reno = Reno::new(1000);
        assert_eq!(reno.window_bytes(), 4000);
        reno.set_in_flight(8000);
        (0..4).for_each(|_| reno.on_ack(&ack(at(100), at(0), 1000)));
        assert_eq!(reno.window_bytes(), 8000);
        reno.on_loss(at(200), at(150), 1000);
        reno.on_loss(at(210), at(190), 1000);
        assert_eq!(reno.window_bytes(), 4000);
        reno.set_in_flight(4000);
        (0..4).for_each(|_| reno.on_ack(&ack(at(300), at(190), 1000)));
        assert_eq!(reno.window_bytes(), 4000);
        (0..4).for_each(|_| reno.on_ack(&ack(at(400), at(250), 1000)));
        assert_eq!(reno.window_bytes(), 5000);
        reno.on_loss(at(500), at(450), 1000);
        assert_eq!(reno.window_bytes(), 4000);
    }

    #[test]
    fn a_time_out_leaves_a_packet_and_may_be_taken_back() {
        let mut reno = Reno::new(1000);
        reno.on_stall(Instant::ZERO);
        assert_eq!(reno.window_bytes(), 1000);
        reno.on_stall_undone(Instant::ZERO);
        assert_eq!(reno.window_bytes(), 4000);
    }

    #[test]
    fn a_window_that_is_not_used_stays() {
        let mut reno = Reno::new(1000);
        reno.set_in_flight(1000);
        reno.on_ack(&ack(Instant::ZERO, Instant::ZERO, 1000));
        assert_eq!(reno.window_bytes(), 4000);
    }
}
