//! A stream that is held to a rate.

use std::time::Duration;

/// Holds a stream to its rate. What a stall kept back is made up for a tenth of a second at most.
pub(crate) struct Pace {
    bytes_per_s: f64,
    /// Bytes that may be sent; negative after a burst.
    credit: f64,
    at: Duration,
}

impl Pace {
    /// Zero bytes are no limit. All times are since the same moment.
    pub(crate) fn new(bytes_per_s: u64, now: Duration) -> Pace {
        Pace { bytes_per_s: bytes_per_s as f64, credit: 0.0, at: now }
    }

    /// How long to wait before the next burst, if at all.
    pub(crate) fn wait(&mut self, now: Duration) -> Option<Duration> {
        if self.bytes_per_s == 0.0 {
            return None;
        }
        let earned = now.saturating_sub(self.at).as_secs_f64() * self.bytes_per_s;
        self.at = now;
        self.credit = (self.credit + earned).min(self.bytes_per_s / 10.0);
        // No wait is longer than a second, so that the end of the server is noticed in any case.
        (self.credit < 0.0).then(|| Duration::from_secs_f64((-self.credit / self.bytes_per_s).min(1.0)))
    }

    pub(crate) fn sent(&mut self, len: usize) {
        self.credit -= len as f64;
    }
}
