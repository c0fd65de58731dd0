//! What a connection takes and lends, and what it counts.

use super::{Connection, Open};
use crate::circuits::{self, FLOW_CELL_LEN, Lent};
use crate::tcp_dtls::flow::Flow;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionStats, FlowState};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::compact::Mux;
use heddle_utcp::pool::CHUNK_BYTES;

/// Cells that may be taken at once.
const CAPACITY_CELLS: usize = 256;
/// Cells that may wait for a window which flows share, at least.
const BATCH_CELLS_MIN: usize = 8;
/// What a connection takes without flows: dimpl, keys and buffers.
const CONNECTION: usize = 30_000;
/// Between two looks at how many circuits share the window.
const EPOCH_MIN: Duration = Duration::from_millis(100);

impl Connection {
    /// Tells the relay of room once there is some worth its while. Losses and a window that shrinks may use capacity
    /// up, too, while the relay has nothing to send; it must hear when there is some again.
    pub(in crate::tcp_dtls) fn note_capacity(&mut self) {
        let capacity = self.capacity();
        let Some(open) = &mut self.open else { return };
        open.is_full |= capacity == 0;
        if open.is_full && capacity >= BATCH_CELLS_MIN / 2 {
            open.is_full = false;
            self.notices.capacity = true;
        }
    }

    /// Cells that may be taken now: as many as there is memory for, and as leave promptly where flows share a window.
    /// Otherwise each flow says so for itself.
    pub(in crate::tcp_dtls) fn capacity(&self) -> usize {
        let Some(open) = &self.open else { return 0 };
        let Some([window, _, ready]) = open.mux.shared_window() else {
            return self.pool_cells();
        };
        // Two milliseconds' worth, as the pacer lets go.
        const BURST_NS: u64 = 2_000_000;
        let rtt = self.session.round_trip().unwrap_or_default();
        let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).max(BURST_NS);
        let burst = usize::try_from(window.saturating_mul(BURST_NS) / rtt_ns).unwrap_or(usize::MAX);
        let cells = (burst / FLOW_CELL_LEN).clamp(BATCH_CELLS_MIN, CAPACITY_CELLS);
        let ready_cells = usize::try_from(ready).unwrap_or(usize::MAX) / FLOW_CELL_LEN;
        cells.saturating_sub(ready_cells).min(self.pool_cells())
    }

    /// Whether there is too little memory to tell the relay of room, so that nothing but another look finds more.
    pub(in crate::tcp_dtls) fn lacks_memory(&self) -> bool {
        self.pool_cells() < BATCH_CELLS_MIN / 2
    }

    /// Cells that there is memory for, if each is of another flow, which takes a chunk.
    pub(super) fn pool_cells(&self) -> usize {
        (self.pool.writable_bytes() / CHUNK_BYTES).min(CAPACITY_CELLS)
    }

    /// Takes a cell. [`Connection::note_capacity`] must follow.
    pub(in crate::tcp_dtls) fn send(
        &mut self,
        now: Instant,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let Some(Open { mux, flows, .. }) = &mut self.open else {
            return FlowState::Open;
        };
        let state = flows.send(now, mux, circ_id, command, body);
        self.count_circuits(now);
        state
    }

    /// Tells the controller, from time to time, how many circuits share the window.
    fn count_circuits(&mut self, now: Instant) {
        let epoch = self.session.round_trip().unwrap_or(EPOCH_MIN).max(EPOCH_MIN);
        let Some(Open { mux, flows, epoch_since, .. }) = &mut self.open else { return };
        let since = now.since(*epoch_since);
        if since < epoch {
            return;
        }
        *epoch_since = now;
        // After a pause, one cell says nothing of how many follow.
        if since > 4 * epoch {
            return;
        }
        if let (Some(flows), Some(controller)) = (flows.circuits.next_epoch(), mux.controller_mut()) {
            controller.set_busy_flows(flows);
        }
    }

    /// Sums up what it takes, after something happened to it.
    pub(in crate::tcp_dtls) fn count_memory(&mut self) {
        let open_bytes = |open: &Open| open.mux.heap_bytes() + open.flows.circuits.heap_bytes();
        self.memory.set(CONNECTION + self.open.as_ref().map_or(0, open_bytes));
    }

    /// Gives up what is kept of flows that have ended; whether it has any flows.
    pub(in crate::tcp_dtls) fn forget_ended(&mut self, now: Instant) -> bool {
        let Some(open) = &mut self.open else { return false };
        open.mux.give_up_remains(now);
        true
    }

    /// What its flows have of the pool; `conn` is how the relay knows it.
    pub(in crate::tcp_dtls) fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        let Some(Open { mux, flows, .. }) = &self.open else { return };
        for circuit in flows.circuits.iter() {
            let Some(tcp) = mux.get(circuit.id) else { continue };
            let circ_id = circuit.circ_id;
            let since = mux.held_since(circuit.id).unwrap_or(circuit.flow.moved_at);
            let state_bytes = Mux::FLOW_BYTES + tcp.heap_bytes() + circuits::PLACE_BYTES + size_of::<Flow>();
            each(Backlog { conn, circ_id, bytes: tcp.pool_bytes(), state_bytes, since });
        }
    }

    /// Sums over the flows that there are.
    pub(in crate::tcp_dtls) fn stats(&self) -> ConnectionStats {
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
        let mux = self.open.as_ref().map(|open| &open.mux);
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

    pub(in crate::tcp_dtls) fn has_readable(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.flows.circuits.has_readable())
    }

    pub(in crate::tcp_dtls) fn next_cell(
        &mut self,
        now: Instant,
        lent: &mut Lent,
    ) -> Option<(CircId, Command)> {
        let Open { mux, flows, .. } = self.open.as_mut()?;
        flows.next_cell(now, mux, lent)
    }

    pub(in crate::tcp_dtls) fn hold(&mut self, circ_id: CircId, hold: bool) {
        if let Some(open) = &mut self.open {
            open.flows.circuits.hold(circ_id, hold);
        }
    }
}
