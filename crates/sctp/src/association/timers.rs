//! Time: what is sent again, and what is given up.

use super::{Association, Closed, State};
use heddle_seam::time::Instant;

/// What an association waits for by itself.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// The answer to INIT, COOKIE ECHO, SHUTDOWN or SHUTDOWN ACK, and how often that was sent again.
    pub(super) handshake: Option<Instant>,
    pub(super) retries: u32,
    /// When the peer is asked next whether it is there, and how often it was without an answer.
    pub(super) heartbeat: Option<Instant>,
    pub(super) unanswered: u32,
}

impl Association {
    /// When [`Association::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Ended {
            return None;
        }
        let own = [self.timers.handshake, self.timers.heartbeat, self.resets.poll_timeout()];
        let halves = [self.receiver.poll_timeout(), self.sender.poll_timeout()];
        own.into_iter().chain(halves).flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Ended {
            return;
        }
        self.receiver.handle_timeout(now);
        if self.resets.handle_timeout(now) {
            return self.end(Closed::Misbehaved("it answers no reset"));
        }
        self.sender.handle_timeout(now);
        if self.options.timeouts_max.is_some_and(|max| self.sender.silent() + self.timers.unanswered > max) {
            return self.end(Closed::NoAnswer);
        }
        if self.timers.handshake.is_some_and(|at| at <= now) {
            self.repeat();
        }
        if self.timers.heartbeat.is_some_and(|at| at <= now) {
            self.timers.unanswered += 1;
            (self.timers.heartbeat, self.due.heartbeat) = (None, true);
        }
    }

    /// What was to be answered was not.
    fn repeat(&mut self) {
        self.timers.handshake = None;
        self.timers.retries += 1;
        if self.timers.retries > self.options.init_retries_max {
            return self.end(Closed::NoAnswer);
        }
        match self.state {
            State::CookieWait => self.due.init = true,
            State::CookieEchoed => self.due.cookie_echo = true,
            State::ShutdownSent => self.due.shutdown = true,
            State::ShutdownAckSent => self.due.shutdown_ack = true,
            _ => {}
        }
    }

    /// Something leaves that is to be answered.
    pub(super) fn await_answer(&mut self, now: Instant) {
        let wait = self.options.rto_initial.saturating_mul(1 << self.timers.retries.min(16));
        self.timers.handshake = Some(now + wait.min(self.options.rto_max));
    }

    /// It was.
    pub(super) fn on_step(&mut self) {
        (self.timers.handshake, self.timers.retries) = (None, 0);
    }

    /// The peer is asked whether it is there, a while after something was heard.
    pub(super) fn arm_heartbeat(&mut self, now: Instant) {
        self.timers.heartbeat = self.options.heartbeat.map(|every| now + every);
    }
}
