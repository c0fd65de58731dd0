//! A connection as its endpoint serves it.

use super::super::control::Message;
use super::super::sockets::Sockets;
use super::{Connection, LINGER, State};
use crate::links::Served;
use crate::path::Remedy;
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionEvent, ConnectionStats};
use heddle_seam::time::{Duration, Instant};

/// Cells that the relay may give between two looks; each flow has its socket's credit besides.
const BATCH_CELLS: usize = 64;

impl Served for Connection {
    type Context = Sockets;

    fn has_readable(&self) -> bool {
        self.flows.has_readable()
    }

    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, sockets: &mut Sockets) {
        self.turn_keys(now);
        match self.state {
            State::Proving { deadline, .. } if deadline <= now => {
                self.fail(now, ConnectionError::NoAnswer, sockets);
            }
            State::Open => {
                self.flows.handle_timeout(now, sockets);
                match self.pings.handle_timeout(now, late) {
                    Some(Remedy::GiveUp) => self.fail(now, ConnectionError::PathDead, sockets),
                    Some(Remedy::Probe) => self.probe(now),
                    None => {}
                }
            }
            State::Proving { .. } | State::Over { .. } => {}
        }
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if !self.is_open() {
            return None;
        }
        self.pings
            .poll_event()
            .or_else(|| self.flows.poll_room().map(ConnectionEvent::FlowRoom))
            .or_else(|| self.flows.poll_writable().map(ConnectionEvent::Writable))
    }

    fn is_gone(&self, now: Instant) -> bool {
        matches!(self.state, State::Over { until, .. } if until <= now) && self.events.is_empty()
    }

    fn close(&mut self, now: Instant, sockets: &mut Sockets) {
        if !matches!(self.state, State::Over { .. }) {
            self.say(now, Message::Close);
            self.state = State::Over { until: now + LINGER, last_words: 1 };
            self.end(sockets);
        }
    }

    fn probe(&mut self, now: Instant) {
        if self.is_open() {
            let number = self.pings.next_ping(now);
            self.pings.on_question(now);
            self.say(now, Message::Ping(number));
        }
    }

    fn hold(&mut self, circ_id: CircId, hold: bool, sockets: &mut Sockets) {
        self.flows.hold(circ_id, hold, sockets);
    }

    fn capacity(&self) -> usize {
        if self.is_open() { BATCH_CELLS } else { 0 }
    }

    fn stats(&self) -> ConnectionStats {
        self.stats
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        self.flows.backlogs(conn, each);
    }
}
