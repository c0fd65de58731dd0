//! What time it is: the driver's, and the wall's.

use heddle_seam::time::{Instant, UnixTime};

/// The wall clock as it was said last, and since when the relay runs.
pub struct Clock {
    said: UnixTime,
    at: Instant,
    started: Option<Instant>,
}

impl Clock {
    /// A clock that is set and goes once the first input comes.
    pub fn new(now_unix_s: u64) -> Self {
        let said = UnixTime { ns: now_unix_s.saturating_mul(1_000_000_000) };
        Clock { said, at: Instant::ZERO, started: None }
    }

    /// The first input came.
    pub fn start(&mut self, now: Instant) {
        if self.started.is_none() {
            self.started = Some(now);
            self.at = now;
        }
    }

    pub fn set(&mut self, now: Instant, said: UnixTime) {
        (self.at, self.said) = (now, said);
    }

    /// Seconds since 1970.
    pub fn unix_s(&self, now: Instant) -> u64 {
        UnixTime { ns: self.said.ns.saturating_add(now.ns_since(self.at)) }.as_secs()
    }

    /// For how long the relay has run.
    pub fn uptime_s(&self, now: Instant) -> u64 {
        self.started.map_or(0, |started| now.since(started).as_secs())
    }
}
