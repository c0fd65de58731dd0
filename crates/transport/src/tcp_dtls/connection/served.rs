//! A connection as its endpoint serves it.

use super::room::{BATCH_CELLS_MIN, CAPACITY_CELLS};
use super::{Connection, Open, State};
use crate::circuits;
use crate::circuits::FLOW_CELL_LEN;
use crate::connections::Served;
use crate::tcp_dtls::flow::Flow;
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionEvent, ConnectionStats};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::compact::Mux;

impl Served for Connection {
    type Context = ();

    fn has_readable(&self) -> bool {
        self.open().is_some_and(|open| open.flows.circuits.has_readable())
    }

    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, _context: &mut ()) {
        self.session.handle_timeout(now, late);
        self.on_events(now, 0);
        if let State::Open(open) = &mut self.state {
            let Open { mux, flows, .. } = &mut **open;
            mux.handle_timeout(now);
            flows.handle_timeout(now, mux);
            flows.feed(mux);
            flows.on_events(now, mux);
            self.session.check_length(now, mux.take_expired());
            self.on_events(now, 0);
            self.note_capacity();
        }
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if core::mem::take(&mut self.notices.ready) {
            return Some(ConnectionEvent::Ready);
        }
        if let State::Open(open) = &mut self.state {
            if let Some(room) = open.flows.poll_room() {
                return Some(ConnectionEvent::FlowRoom(room));
            }
            if core::mem::take(&mut self.notices.capacity) {
                return Some(ConnectionEvent::Capacity);
            }
            if let Some(event) = self.session.poll_silence() {
                return Some(event);
            }
            if let Some(circ_id) = open.flows.circuits.poll_writable() {
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
            open.flows.circuits.hold(circ_id, hold);
        }
    }

    fn capacity(&self) -> usize {
        let Some(open) = self.open() else { return 0 };
        let Some([window, _, ready]) = open.mux.shared_window() else {
            return open.pool_cells();
        };
        // Two milliseconds' worth, as the pacer lets go.
        const BURST_NS: u64 = 2_000_000;
        let rtt = self.session.round_trip().unwrap_or_default();
        let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).max(BURST_NS);
        let burst = usize::try_from(window.saturating_mul(BURST_NS) / rtt_ns).unwrap_or(usize::MAX);
        let cells = (burst / FLOW_CELL_LEN).clamp(BATCH_CELLS_MIN, CAPACITY_CELLS);
        let ready_cells = usize::try_from(ready).unwrap_or(usize::MAX) / FLOW_CELL_LEN;
        cells.saturating_sub(ready_cells).min(open.pool_cells())
    }

    fn stats(&self) -> ConnectionStats {
        let mut stats = ConnectionStats {
            rtt_ns: self
                .session
                .round_trip()
                .map_or(0, |rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX)),
            sent_bytes: self.counts.sent_bytes,
            received_bytes: self.counts.received_bytes,
            sent_packets: self.counts.sent_datagrams,
            ..ConnectionStats::default()
        };
        let mux = self.open().map(|open| &open.mux);
        for flow in mux.iter().flat_map(|mux| mux.ids().filter_map(|id| mux.stats(id))) {
            stats.window_bytes += flow.window_bytes;
            stats.lost_packets += flow.counts.retransmissions;
            stats.queued_cells += flow.unacknowledged_bytes / FLOW_CELL_LEN as u64;
        }
        if let Some([window_bytes, ..]) = mux.and_then(Mux::shared_window) {
            stats.window_bytes = window_bytes;
        }
        stats
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        let Some(Open { mux, flows, .. }) = self.open() else { return };
        for circuit in flows.circuits.iter() {
            let Some(tcp) = mux.get(circuit.id) else { continue };
            let circ_id = circuit.circ_id;
            let since = mux.buffered_since(circuit.id).unwrap_or(circuit.flow.moved_at);
            let state_bytes = Mux::FLOW_BYTES + tcp.heap_bytes() + circuits::PLACE_BYTES + size_of::<Flow>();
            each(Backlog { conn, circ_id, bytes: tcp.pool_bytes(), state_bytes, since });
        }
    }
}
