//! A connection as its endpoint serves it.

use super::room::{BATCH_CELLS_MIN, CAPACITY_CELLS};
use super::{Connection, Open, State};
use crate::circuits::{self, FLOW_CELL_LEN};
use crate::connections::Served;
use crate::sctp_dtls::flows::Flow;
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionEvent, ConnectionStats};
use heddle_seam::time::{Duration, Instant};

/// What a flow takes beside its circuit's place: streams and a lane, each in a tree.
const FLOW_BYTES: usize = 600;

impl Served for Connection {
    type Context = ();

    fn has_readable(&self) -> bool {
        self.open().is_some_and(|open| open.flows.circuits.has_readable())
    }

    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, _context: &mut ()) {
        self.session.handle_timeout(now, late);
        self.on_events(now, 0);
        let State::Open(open) = &mut self.state else { return };
        let Open { association, flows, deadline, .. } = &mut **open;
        association.handle_timeout(now);
        flows.handle_timeout(now, association);
        let has_expired = association.take_expired();
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.session.give_up(now, ConnectionError::NoAnswer);
        }
        self.on_association(now);
        self.session.check_length(now, has_expired);
        self.on_events(now, 0);
        self.note_capacity();
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if core::mem::take(&mut self.notices.ready) {
            return Some(ConnectionEvent::Ready);
        }
        if let State::Open(open) = &mut self.state
            && open.deadline.is_none()
        {
            if let Some(room) = open.flows.poll_room() {
                return Some(ConnectionEvent::FlowRoom(room));
            }
            if core::mem::take(&mut self.notices.capacity) {
                return Some(ConnectionEvent::Capacity);
            }
            if let Some(event) = self.session.poll_silence() {
                return Some(event);
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
        let [window, ..] = open.association.window();
        // Two milliseconds' worth, as the pacer lets go.
        const BURST_NS: u64 = 2_000_000;
        let rtt = self.session.round_trip().unwrap_or_default();
        let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).max(BURST_NS);
        let burst = usize::try_from(window.saturating_mul(BURST_NS) / rtt_ns).unwrap_or(usize::MAX);
        let cells = (burst / FLOW_CELL_LEN).clamp(BATCH_CELLS_MIN, CAPACITY_CELLS);
        cells.saturating_sub(open.association.queued_messages()).min(self.pool_cells())
    }

    fn stats(&self) -> ConnectionStats {
        let rtt = self.session.round_trip();
        let stats = ConnectionStats {
            rtt_ns: rtt.map_or(0, |rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX)),
            sent_bytes: self.counts.sent_bytes,
            received_bytes: self.counts.received_bytes,
            sent_packets: self.counts.sent_datagrams,
            ..ConnectionStats::default()
        };
        let Some(open) = self.open() else { return stats };
        let [window_bytes, in_flight, _] = open.association.window();
        ConnectionStats {
            window_bytes,
            lost_packets: open.association.retransmissions(),
            queued_cells: open.association.queued_messages() as u64 + in_flight / FLOW_CELL_LEN as u64,
            ..stats
        }
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        let Some(Open { association, flows, .. }) = self.open() else { return };
        for circuit in flows.circuits.iter() {
            let ([sent, received], since) = association.stream_bytes(circuit.flow.stream);
            let written = (sent > 0).then(|| circuit.flow.written_since());
            let since = since.into_iter().chain(written).min().unwrap_or(circuit.flow.moved_at);
            let bytes = sent + received;
            let state_bytes = FLOW_BYTES + circuits::PLACE_BYTES + size_of::<Flow>();
            each(Backlog { conn, circ_id: circuit.circ_id, bytes, state_bytes, since });
        }
    }
}
