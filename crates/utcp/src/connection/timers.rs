//! The timers of a connection beside the sender's: one fixed place for each.

use super::{CloseReason, Connection, State};
use crate::send::Expired;
use crate::time::Instant;

/// When what is due; `None` when it is not set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// The peer's window is asked for (RFC 9293, section 3.8.6.1).
    pub persist: Option<Instant>,
    /// How often it was asked since it last grew.
    pub persist_backoff: u32,
    /// How many questions of any kind the peer has not answered.
    pub unanswered: u32,
    /// The peer is asked whether it is there.
    pub keep_alive: Option<Instant>,
    /// TIME-WAIT ends, or FIN-WAIT-2 of a connection that nobody reads.
    pub linger: Option<Instant>,
    /// Pacing lets the next segment go.
    pub pacing: Option<Instant>,
    /// An answer to something odd was last sent then (RFC 5961, section 7).
    pub challenge: Option<Instant>,
}

impl Connection {
    /// When [`handle_timeout`](Self::handle_timeout) has to be called; `None` when nothing is timed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = &self.timers;
        let own = [timers.persist, timers.keep_alive, timers.linger, timers.pacing];
        let others = [self.sender.timer(), self.receiver.acks.timer()];
        let is_open = self.state != State::Closed;
        own.into_iter().chain(others).flatten().min().filter(|_| is_open)
    }

    /// Handles the timers that are due; early calls do nothing. `poll_transmit` has to follow.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Closed {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.linger) {
            self.enter_closed(CloseReason::Finished);
            return;
        }
        if is_due(self.timers.pacing) {
            self.timers.pacing = None;
        }
        if self.sender.handle_timeout(now) == Some(Expired::Retransmission) {
            self.on_retransmission_timeout();
        }
        if is_due(self.timers.persist) {
            self.on_persist();
        }
        if is_due(self.timers.keep_alive) {
            self.on_keep_alive(now);
        }
    }

    /// The path was gone and is back: whatever was asked in vain is asked again at this time.
    pub(crate) fn on_path_back(&mut self, at: Instant) {
        self.sender.on_path_back(at);
        self.timers.unanswered = 0;
        if self.timers.persist_backoff > 0 {
            self.timers.persist_backoff = 0;
            self.timers.persist = self.timers.persist.map(|due| due.min(at));
        }
    }

    fn on_retransmission_timeout(&mut self) {
        let is_opening = matches!(self.state, State::SynSent | State::SynReceived);
        let most = if is_opening { self.options.syn_retries_max } else { self.options.retries_max };
        if self.sender.unexcused() > most {
            self.enter_closed(CloseReason::TimedOut);
        }
    }

    fn on_persist(&mut self) {
        self.timers.persist = None;
        self.timers.persist_backoff = (self.timers.persist_backoff + 1).min(20);
        let unit = u64::from(self.options.unit_bytes);
        // One that is longer than a segment has no effect: a window shorter than a segment might never grow.
        let unit = if unit > self.sender.mss { 1 } else { unit };
        let fits = self.peer_edge() >= self.sender.next + unit.min(self.unsent()) && self.unsent() > 0;
        (self.signals.force, self.signals.question) = (fits, !fits);
        self.ask();
    }

    fn on_keep_alive(&mut self, now: Instant) {
        let Some(keep_alive) = self.options.keep_alive else { return };
        if self.timers.unanswered >= keep_alive.probes_max {
            self.enter_closed(CloseReason::TimedOut);
            return;
        }
        if !self.sender.has_outstanding() {
            self.signals.question = true;
            self.timers.unanswered += 1;
        }
        self.timers.keep_alive = Some(now.plus_ns(keep_alive.interval_ns));
    }

    /// Counts a question; a peer that answers none is gone.
    fn ask(&mut self) {
        self.timers.unanswered += 1;
        if self.timers.unanswered > self.options.retries_max {
            self.enter_closed(CloseReason::TimedOut);
        }
    }

    /// Sets the persist timer while data waits for the peer's window and nothing else would wake us.
    pub(super) fn set_persist(&mut self, now: Instant) {
        if self.timers.persist.is_none() {
            let base_ns = self.sender.timeout_ns();
            let after_ns = base_ns.saturating_mul(1 << self.timers.persist_backoff);
            self.timers.persist = Some(now.plus_ns(after_ns.min(self.options.rto_max_ns)));
        }
    }

    /// Something came from the peer.
    pub(super) fn on_life(&mut self, now: Instant) {
        self.timers.unanswered = 0;
        if let Some(keep_alive) = self.options.keep_alive {
            self.timers.keep_alive = Some(now.plus_ns(keep_alive.idle_ns));
        }
    }

    /// Both ends are done: waits for stray segments to die.
    pub(super) fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.sender.stop();
        self.timers.persist = None;
        self.timers.keep_alive = None;
        self.timers.linger = Some(now.plus_ns(self.options.time_wait_ns));
    }
}
