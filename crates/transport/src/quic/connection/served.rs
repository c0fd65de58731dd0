//! A connection as its endpoint serves it.

use super::Connection;
use super::memory::RECEIVED_HALF;
use crate::connections::Served;
use crate::connections::path::Remedy;
use crate::quic::connection::{CLOSE_DONE, FLOW_CELL_LEN, Notices, State};
use crate::quic::flows::Flows;
use bytes::Bytes;
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionEvent, ConnectionStats};
use heddle_seam::time::{Duration, Instant};
use quinn_proto::VarInt;

impl Served for Connection {
    type Context = ();

    fn has_readable(&self) -> bool {
        self.is_open() && self.flows.circuits.has_readable()
    }

    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, _context: &mut ()) {
        if let Some(late) = late {
            self.gauge.forgive(now, late);
        }
        if self.quinn.poll_timeout().is_some_and(|at| self.clock.ours(at) <= now) {
            self.quinn.handle_timeout(self.clock.std(now));
            self.may_probe = self.gauge.is_overdue(now, self.quinn.rtt());
        }
        self.on_quinn_events(now);
        self.pace_at = self.pace_at.filter(|at| *at > now);
        match &self.state {
            State::Handshaking(opening) | State::Proving(opening) if opening.deadline <= now => {
                self.give_up(now, ConnectionError::NoAnswer);
            }
            State::Open => {
                self.flows.handle_timeout(now, &mut self.quinn);
                match self.path.handle_timeout(now, late.is_some(), self.due()) {
                    Some(Remedy::GiveUp) => self.give_up(now, ConnectionError::PathDead),
                    Some(Remedy::Probe) => self.probe(now),
                    None => {}
                }
            }
            _ => {}
        }
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        let notices = &mut self.notices;
        if core::mem::take(&mut notices.ready) {
            return Some(ConnectionEvent::Ready);
        }
        if core::mem::take(&mut notices.room) {
            return Some(ConnectionEvent::FlowRoom(self.flows.room()));
        }
        if core::mem::take(&mut notices.capacity) {
            return Some(ConnectionEvent::Capacity);
        }
        if self.is_open()
            && let Some(event) = self.path.poll_event()
        {
            return Some(event);
        }
        let writable = self.flows.circuits.poll_writable().map(ConnectionEvent::Writable);
        writable.or_else(|| self.notices.ended.take().map(ConnectionEvent::Ended))
    }

    fn is_gone(&self, _now: Instant) -> bool {
        // quinn-proto has forgotten it.
        self.quinn.is_drained() && self.notices.ended.is_none()
    }

    fn close(&mut self, now: Instant, _context: &mut ()) {
        self.quinn.close(self.clock.std(now), VarInt::from_u32(CLOSE_DONE), Bytes::new());
        self.end(ConnectionError::Closed);
        self.notices = Notices::default();
    }

    fn probe(&mut self, now: Instant) {
        if self.is_open() {
            self.path.on_probe(now);
            self.is_probe_unsent = true;
            self.quinn.ping();
        }
    }

    fn hold(&mut self, circ_id: CircId, hold: bool, _context: &mut ()) {
        self.flows.hold(circ_id, hold);
    }

    fn capacity(&self) -> usize {
        if !self.is_open() {
            return 0;
        }
        self.batch_bytes.saturating_sub(self.unsent) / FLOW_CELL_LEN
    }

    fn stats(&self) -> ConnectionStats {
        let stats = self.quinn.stats();
        ConnectionStats {
            rtt_ns: u64::try_from(stats.path.rtt.as_nanos()).unwrap_or(u64::MAX),
            window_bytes: stats.path.cwnd,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            lost_packets: stats.path.lost_packets,
            sent_packets: stats.path.sent_packets,
            queued_cells: self.gauge.in_flight().saturating_add(self.unsent as u64) / FLOW_CELL_LEN as u64,
        }
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        for (circ_id, flow) in self.flows.iter() {
            let (bytes, since) = (flow.backlog.buffered_bytes(), flow.backlog.since());
            each(Backlog {
                conn,
                circ_id,
                bytes,
                state_bytes: Flows::state_bytes_of(flow) + RECEIVED_HALF,
                since,
            });
        }
    }
}
