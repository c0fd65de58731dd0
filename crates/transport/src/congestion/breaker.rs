//! A circuit breaker (RFC 8084, section 4): who loses a quarter of what it sends for a quarter of a minute, whatever
//! its controller made of it, sends next to nothing for a minute.

use super::counts::{Limit, Streak};
use heddle_seam::time::{Duration, Instant};

/// A share that is too much. A controller that heeds losses comes nowhere near it unless the path itself drops as much.
const TOO_MUCH: Limit = Limit { interval: Duration::from_secs(5), packets_min: 100.0, share_max: 0.25 };
const INTERVALS: u32 = 3;

/// For how long it stays open, and what may be in flight meanwhile: RFC 5681's loss window, twice.
const OPEN_FOR: Duration = Duration::from_secs(60);
pub(super) const PACKETS_OPEN: f64 = 2.0;

/// One connection's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Breaker {
    streak: Streak,
    open_until: Option<Instant>,
}

impl Breaker {
    pub(super) fn new(now: Instant) -> Self {
        Breaker { streak: Streak::new(now, TOO_MUCH), open_until: None }
    }

    pub(super) fn on_lost(&mut self, packets: f64) {
        self.streak.counts.lost += packets;
    }

    pub(super) fn on_sent(&mut self, now: Instant, packets: f64) {
        if self.open_until.is_some_and(|until| until <= now) {
            *self = Breaker::new(now);
        }
        if self.streak.ended(now).is_some_and(|intervals| intervals >= INTERVALS) {
            let open_until = Some(now + OPEN_FOR);
            *self = Breaker { open_until, ..Breaker::new(now) };
        }
        self.streak.counts.packets += packets;
    }

    pub(super) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is open at the end of so many seconds of 100 packets, of which so many are lost.
    fn open_after(seconds: u64, lost: f64) -> Breaker {
        let mut breaker = Breaker::new(Instant::ZERO);
        for ms in (0..seconds * 1000).step_by(10) {
            breaker.on_sent(Instant::ZERO + Duration::from_millis(ms), 1.0);
            breaker.on_lost(lost / 100.0);
        }
        breaker
    }

    #[test]
    fn it_opens_when_a_quarter_is_lost_for_long_and_closes_after_a_minute() {
        assert!(!open_after(14, 30.0).is_open());
        assert!(!open_after(600, 20.0).is_open());
        let mut breaker = open_after(16, 30.0);
        assert!(breaker.is_open());
        breaker.on_sent(Instant::ZERO + Duration::from_secs(74), 1.0);
        assert!(breaker.is_open());
        breaker.on_sent(Instant::ZERO + Duration::from_secs(76), 1.0);
        assert!(!breaker.is_open());
    }
}
