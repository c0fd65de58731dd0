//! Whether the peer can be reached: when it is to be asked for an answer, and when its silence is enough to give it up.

use crate::connections::setup::Timeouts;
use crate::connections::silence::{Due, Silence, probe_at};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::{Duration, Instant};

/// What is known of the way to the peer and back. What the peer owes us is an argument, because transports know it by
/// different means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    keep_alive: Duration,
    heard_at: Instant,
    probed_at: Instant,
    silence: Silence,
}

/// What is to be done about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The peer is asked for an answer.
    Probe,
    /// It is dead.
    GiveUp,
}

impl Path {
    pub(crate) fn new(now: Instant, timeouts: &Timeouts) -> Self {
        Path {
            keep_alive: timeouts.keep_alive,
            heard_at: now,
            probed_at: now,
            silence: Silence::new(timeouts.path_suspect_min, timeouts.path_dead_min),
        }
    }

    /// Something of the peer came. It need not answer anything: where the path is dead one way only, who sends is heard
    /// and hears nothing.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// A probe leaves now.
    pub(crate) fn on_probe(&mut self, now: Instant) {
        self.probed_at = now;
    }

    pub(crate) fn probed_at(&self) -> Instant {
        self.probed_at
    }

    /// The peer answered something, and owes us no more than this, which may end a suspicion. Returns whether there was
    /// one.
    pub(crate) fn on_answer(&mut self, now: Instant, due: Option<Due>) -> bool {
        let was_suspect = self.silence.is_suspect();
        self.silence.on_heard(now, due);
        was_suspect
    }

    /// When the path is to be probed, or its silence will mean something else than now.
    pub(crate) fn poll_timeout(&self, due: Option<Due>) -> Instant {
        let probe_at = probe_at(due, self.heard_at, self.probed_at, self.keep_alive);
        self.silence.poll_timeout(due).map_or(probe_at, |silent_at| probe_at.min(silent_at))
    }

    /// Time passed, so much that nobody looked meanwhile if it `is_late`: then an answer may be here that was not read,
    /// and silence means nothing.
    pub(crate) fn handle_timeout(&mut self, now: Instant, is_late: bool, due: Option<Due>) -> Option<Remedy> {
        if !is_late && self.silence.handle_timeout(now, due) {
            return Some(Remedy::GiveUp);
        }
        let probe_at = probe_at(due, self.heard_at, self.probed_at, self.keep_alive);
        (probe_at <= now).then_some(Remedy::Probe)
    }

    /// What the relay is to hear of it.
    pub(crate) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.silence.poll_event()
    }
}
