//! Our time, and the system's as libraries want it.

use heddle_seam::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The instant that [`Instant::ZERO`] stands for.
    pub(crate) anchor: std::time::Instant,
}

impl Clock {
    pub(crate) fn std(self, at: Instant) -> std::time::Instant {
        self.anchor + Duration::from_nanos(at.as_nanos())
    }

    pub(crate) fn ours(self, at: std::time::Instant) -> Instant {
        Instant::ZERO + at.saturating_duration_since(self.anchor)
    }
}
