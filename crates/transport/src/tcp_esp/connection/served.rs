//! A connection as its endpoint serves it, and when it wants to be.

use super::super::control::Message;
use super::super::sockets::Sockets;
use super::{Connection, State};
use crate::connections::Served;
use crate::connections::path::Remedy;
use crate::connections::timers::Timed;
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionEvent, ConnectionStats};
use heddle_seam::time::{Duration, Instant};

/// Cells that the relay may give between two looks; each flow has its socket's credit besides.
const BATCH_CELLS: usize = 64;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Old keys are to be forgotten.
    Keys,
    /// The peer's proof has not come.
    Proof,
    /// A flow's first cell, or why it ended, has not come.
    Flows,
    /// The path is to be probed, or its silence means something else.
    Path,
    /// It has been over for long enough.
    Forgotten,
}

impl Timed for Connection {
    type Timer = Timer;

    const TIMERS: &'static [Timer] =
        &[Timer::Keys, Timer::Proof, Timer::Flows, Timer::Path, Timer::Forgotten];

    fn due_at(&self, timer: Timer) -> Option<Instant> {
        match (timer, &self.state) {
            (Timer::Keys, State::Proving(_) | State::Open(_)) => self.associations.poll_timeout(),
            (Timer::Proof, State::Proving(proving)) => Some(proving.deadline),
            (Timer::Flows, State::Open(open)) => open.flows.poll_timeout(),
            (Timer::Path, State::Open(open)) => Some(open.pings.poll_timeout()),
            (Timer::Forgotten, State::Over(over)) => Some(over.until),
            _ => None,
        }
    }
}

impl Connection {
    pub(in crate::tcp_esp) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        // One that is over and is to be forgotten waits for nothing but that the relay hears of it.
        self.next_due().filter(|at| !self.is_over() || *at > now)
    }

    fn on_due(&mut self, now: Instant, timer: Timer, is_late: bool, sockets: &mut Sockets) {
        match (timer, &mut self.state) {
            (Timer::Keys, _) => self.associations.turn(now),
            (Timer::Proof, _) => self.fail(now, ConnectionError::NoAnswer, sockets),
            (Timer::Flows, State::Open(open)) => open.flows.handle_timeout(now, sockets),
            (Timer::Path, State::Open(open)) => match open.pings.handle_timeout(now, is_late) {
                Some(Remedy::GiveUp) => self.fail(now, ConnectionError::PathDead, sockets),
                Some(Remedy::Probe) => self.probe(now),
                None => {}
            },
            // The endpoint forgets it.
            _ => {}
        }
    }
}

impl Served for Connection {
    type Context = Sockets;

    fn has_readable(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.flows.has_readable())
    }

    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, sockets: &mut Sockets) {
        if let (State::Open(open), Some(late)) = (&mut self.state, late) {
            open.pings.forgive(now, late);
        }
        self.for_each_due(now, |connection, timer| connection.on_due(now, timer, late.is_some(), sockets));
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let State::Open(open) = &mut self.state else { return None };
        let (pings, flows) = (&mut open.pings, &mut open.flows);
        pings
            .poll_event()
            .or_else(|| flows.poll_room().map(ConnectionEvent::FlowRoom))
            .or_else(|| flows.poll_writable().map(ConnectionEvent::Writable))
    }

    fn is_gone(&self, now: Instant) -> bool {
        matches!(&self.state, State::Over(over) if over.until <= now) && self.events.is_empty()
    }

    fn close(&mut self, now: Instant, sockets: &mut Sockets) {
        if !self.is_over() {
            self.say(now, Message::Close);
            self.end(now, sockets);
        }
    }

    fn probe(&mut self, now: Instant) {
        if let State::Open(open) = &mut self.state {
            let number = open.pings.next_ping(now);
            open.pings.on_question(now);
            self.say(now, Message::Ping(number));
        }
    }

    fn hold(&mut self, circ_id: CircId, hold: bool, sockets: &mut Sockets) {
        if let State::Open(open) = &mut self.state {
            open.flows.hold(circ_id, hold, sockets);
        }
    }

    fn capacity(&self) -> usize {
        if self.is_open() { BATCH_CELLS } else { 0 }
    }

    fn stats(&self) -> ConnectionStats {
        self.stats
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        if let State::Open(open) = &self.state {
            open.flows.backlogs(conn, each);
        }
    }
}
