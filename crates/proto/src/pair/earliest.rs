//! The time of the next thing to do, found while everything is looked at.

use heddle_seam::time::Instant;

/// Collects the earliest of several times.
pub(super) struct Earliest(pub Option<Instant>);

impl Earliest {
    /// Whether a time has come; it is remembered when not.
    pub fn due(&mut self, now: Instant, at: Instant) -> bool {
        if at > now {
            self.0 = Some(self.0.map_or(at, |other| other.min(at)));
        }
        at <= now
    }
}
