//! What a connection takes and lends, and what it counts.

use super::{Connection, Open, State};
use crate::circuits::Lent;
use crate::connections::Served;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::FlowState;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::pool::CHUNK_BYTES;

/// Cells that may be taken at once.
pub(super) const CAPACITY_CELLS: usize = 256;
/// Cells that may wait for a window which flows share, at least.
pub(super) const BATCH_CELLS_MIN: usize = 8;
/// What a connection takes without flows: dimpl, keys and buffers.
const CONNECTION: usize = 30_000;
/// Between two looks at how many circuits share the window.
const EPOCH_MIN: Duration = Duration::from_millis(100);

impl Connection {
    /// Tells the relay of room once there is some worth its while. Losses and a window that shrinks may use capacity
    /// up, too, while the relay has nothing to send; it must hear when there is some again.
    pub(in crate::tcp_dtls) fn note_capacity(&mut self) {
        let capacity = self.capacity();
        let State::Open(open) = &mut self.state else { return };
        open.is_full |= capacity == 0;
        if open.is_full && capacity >= BATCH_CELLS_MIN / 2 {
            open.is_full = false;
            self.notices.capacity = true;
        }
    }

    /// Takes a cell. [`Connection::note_capacity`] must follow.
    pub(in crate::tcp_dtls) fn send(
        &mut self,
        now: Instant,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let State::Open(open) = &mut self.state else { return FlowState::Open };
        let state = open.flows.send(now, &mut open.mux, circ_id, command, body);
        self.count_circuits(now);
        state
    }

    /// Tells the controller, from time to time, how many circuits share the window.
    fn count_circuits(&mut self, now: Instant) {
        let epoch = self.session.round_trip().unwrap_or(EPOCH_MIN).max(EPOCH_MIN);
        let State::Open(open) = &mut self.state else { return };
        let Open { mux, flows, epoch_since, .. } = &mut **open;
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
        self.memory.set(CONNECTION + self.open().map_or(0, open_bytes));
    }

    /// Gives up what is kept of flows that have ended; whether it has any flows.
    pub(in crate::tcp_dtls) fn forget_ended(&mut self, now: Instant) -> bool {
        let State::Open(open) = &mut self.state else { return false };
        open.mux.give_up_remains(now);
        true
    }

    pub(in crate::tcp_dtls) fn next_cell(
        &mut self,
        now: Instant,
        lent: &mut Lent,
    ) -> Option<(CircId, Command)> {
        let State::Open(open) = &mut self.state else { return None };
        open.flows.next_cell(now, &mut open.mux, lent)
    }
}

impl Open {
    /// Whether there is too little memory to tell the relay of room, so that nothing but another look finds more.
    pub(super) fn lacks_memory(&self) -> bool {
        self.pool_cells() < BATCH_CELLS_MIN / 2
    }

    /// Cells that there is memory for, if each is of another flow, which takes a chunk.
    pub(super) fn pool_cells(&self) -> usize {
        (self.pool.writable_bytes() / CHUNK_BYTES).min(CAPACITY_CELLS)
    }
}
