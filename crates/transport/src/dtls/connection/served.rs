//! A connection as its endpoint serves it.

use super::{Connection, State};
use crate::connections::Served;
use crate::connections::circuits::FLOW_CELL_LEN;
use crate::dtls::tunnelled::{BATCH_CELLS_MIN, CAPACITY_CELLS, Tunnelled};
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionEvent, ConnectionStats};
use heddle_seam::time::{Duration, Instant};

impl<T: Tunnelled> Served for Connection<T> {
    type Context = ();

    fn has_readable(&self) -> bool {
        self.open().is_some_and(|open| open.tunnelled.has_readable())
    }

    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, _context: &mut ()) {
        self.session.handle_timeout(now, late);
        self.on_events(now, 0);
        let State::Open(open) = &mut self.state else { return };
        let result = open.tunnelled.handle_timeout(now);
        let has_expired = open.tunnelled.take_expired();
        if let Err(error) = result {
            self.session.give_up(now, error);
        }
        self.session.check_length(now, has_expired);
        self.on_events(now, 0);
        self.note_capacity();
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if let State::Open(open) = &mut self.state
            && open.tunnelled.is_ready()
        {
            if !core::mem::replace(&mut self.notices.told_ready, true) {
                return Some(ConnectionEvent::Ready);
            }
            if let Some(room) = open.tunnelled.poll_room() {
                return Some(ConnectionEvent::FlowRoom(room));
            }
            if core::mem::take(&mut self.notices.capacity) {
                return Some(ConnectionEvent::Capacity);
            }
            if let Some(event) = self.session.poll_silence() {
                return Some(event);
            }
            if let Some(circ_id) = open.tunnelled.circuits_mut().poll_writable() {
                return Some(ConnectionEvent::Writable(circ_id));
            }
        }
        self.session.take_ended().map(ConnectionEvent::Ended)
    }

    fn is_gone(&self, now: Instant) -> bool {
        self.session.is_gone(now)
    }

    fn close(&mut self, now: Instant, _context: &mut ()) {
        self.session.close(now);
        self.on_events(now, 0);
    }

    fn probe(&mut self, now: Instant) {
        self.session.ask(now);
    }

    fn hold(&mut self, circ_id: CircId, hold: bool, _context: &mut ()) {
        if let State::Open(open) = &mut self.state {
            open.tunnelled.hold(circ_id, hold);
        }
    }

    fn capacity(&self) -> usize {
        let Some(open) = self.open() else { return 0 };
        let cells_max = open.tunnelled.cells_max();
        let Some(window) = open.tunnelled.window() else { return cells_max };
        // Two milliseconds' worth, as the pacer lets go.
        const BURST_NS: u64 = 2_000_000;
        let rtt = self.session.round_trip().unwrap_or_default();
        let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).max(BURST_NS);
        let burst = usize::try_from(window.bytes.saturating_mul(BURST_NS) / rtt_ns).unwrap_or(usize::MAX);
        let cells = (burst / FLOW_CELL_LEN).clamp(BATCH_CELLS_MIN, CAPACITY_CELLS);
        cells.saturating_sub(window.waiting_cells).min(cells_max)
    }

    fn stats(&self) -> ConnectionStats {
        let rtt = self.session.round_trip();
        let mut stats = ConnectionStats {
            rtt_ns: rtt.map_or(0, |rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX)),
            sent_bytes: self.counts.sent_bytes,
            received_bytes: self.counts.received_bytes,
            sent_packets: self.counts.sent_datagrams,
            ..ConnectionStats::default()
        };
        if let Some(open) = self.open() {
            open.tunnelled.add_stats(&mut stats);
        }
        stats
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        if let Some(open) = self.open() {
            open.tunnelled.backlogs(conn, each);
        }
    }
}
