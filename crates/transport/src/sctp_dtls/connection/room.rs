//! What a connection takes and lends, what it counts, and its share of memory.
//!
//! ```text
//!   pool = what waits to be sent or acknowledged (1/2) + what came (1/2)
//!   of each half a connection has RESERVE, which is its own whatever others have,
//!                                and a quarter of what all have left of it, but SHARE_MAX at most
//! ```

use super::{Connection, Open, State};
use crate::circuits::{FLOW_CELL_LEN, Lent};
use crate::connections::Served;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{ConnectionError, FlowState};
use heddle_seam::time::{Duration, Instant};

/// Cells that may be taken at once.
pub(super) const CAPACITY_CELLS: usize = 256;
/// Cells that may wait for the window, at least.
pub(super) const BATCH_CELLS_MIN: usize = 8;
/// What a cell takes while it waits and while it is under way, about.
const CELL_BYTES: usize = FLOW_CELL_LEN + 200;
/// What a connection takes without flows: dimpl, keys and buffers.
const CONNECTION: usize = 30_000;
/// Between two looks at how many circuits share the window.
const EPOCH_MIN: Duration = Duration::from_millis(100);

/// Fragments that wait so long for others cost the connection where memory is short. A dead path is given up before.
const STUCK_FOR: Duration = Duration::from_secs(120);

const RESERVE: usize = 64 * 1024;
const SHARE_MAX: usize = 8 * 1024 * 1024;

impl Connection {
    /// Tells the relay of room once there is some worth its while. Losses and a window that shrinks may use capacity
    /// up, too, while the relay has nothing to send; it must hear when there is some again.
    pub(in crate::sctp_dtls) fn note_capacity(&mut self) {
        let capacity = self.capacity();
        let State::Open(open) = &mut self.state else { return };
        open.is_full |= capacity == 0;
        if open.is_full && capacity >= BATCH_CELLS_MIN / 2 {
            open.is_full = false;
            self.notices.capacity = true;
        }
    }

    /// Takes a cell. [`Connection::note_capacity`] must follow.
    pub(in crate::sctp_dtls) fn send(
        &mut self,
        now: Instant,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let State::Open(open) = &mut self.state else { return FlowState::Open };
        let state = open.flows.send(now, &mut open.association, circ_id, command, body);
        self.count_circuits(now);
        state
    }

    /// Tells the controller, from time to time, how many circuits share the window.
    fn count_circuits(&mut self, now: Instant) {
        let epoch = self.session.round_trip().unwrap_or(EPOCH_MIN).max(EPOCH_MIN);
        let State::Open(open) = &mut self.state else { return };
        let Open { association, flows, epoch_since, .. } = &mut **open;
        let since = now.since(*epoch_since);
        if since < epoch {
            return;
        }
        *epoch_since = now;
        // After a pause, one cell says nothing of how many follow.
        if since > 4 * epoch {
            return;
        }
        if let Some(flows) = flows.circuits.next_epoch() {
            association.controller_mut().set_busy_flows(flows);
        }
    }

    /// Sums up what it takes, after something happened to it.
    pub(in crate::sctp_dtls) fn count_memory(&mut self) {
        let open_bytes = |open: &Open| open.association.heap_bytes() + open.flows.heap_bytes();
        self.memory.set(CONNECTION + self.open().map_or(0, open_bytes));
        let taken = self.taken();
        self.buffered.iter_mut().zip(taken).for_each(|(part, taken)| part.set(taken));
    }

    /// Memory is short: gives the connection up if its peer keeps what nobody can take back, ends of circuits that it
    /// does not agree to and fragments of messages that it does not send. Whether it did.
    pub(in crate::sctp_dtls) fn forget_ended(&mut self, now: Instant) -> bool {
        let State::Open(open) = &mut self.state else { return false };
        let is_hopeless = open.flows.owes_ends(now) || open.association.is_stuck(now, STUCK_FOR);
        if is_hopeless {
            let why = "it keeps memory that is short".to_owned();
            self.session.give_up(now, ConnectionError::PeerMisbehaved(why));
            self.on_events(now, 0);
        }
        is_hopeless
    }

    pub(in crate::sctp_dtls) fn next_cell(
        &mut self,
        now: Instant,
        lent: &mut Lent,
    ) -> Option<(CircId, Command)> {
        let State::Open(open) = &mut self.state else { return None };
        open.flows.next_cell(now, &mut open.association, lent)
    }

    /// What may take memory of one half of the pool.
    fn share(&self, half: usize) -> usize {
        let used = self.buffered[half].others() + self.taken()[half];
        RESERVE + ((self.options.pool_bytes_max / 2).saturating_sub(used) / 4).min(SHARE_MAX)
    }

    /// What came may take so much.
    pub(super) fn receive_bytes_max(&self) -> usize {
        self.share(1)
    }

    /// What waits to leave or to be acknowledged, and what came.
    fn taken(&self) -> [usize; 2] {
        self.open().map_or([0; 2], |open| open.association.buffered_bytes())
    }

    /// Cells that there is memory for.
    pub(super) fn pool_cells(&self) -> usize {
        if self.open().is_none() {
            return 0;
        }
        (self.share(0).saturating_sub(self.taken()[0]) / CELL_BYTES).min(CAPACITY_CELLS)
    }

    /// Whether there is too little memory to tell the relay of room, so that nothing but another look finds more.
    pub(super) fn lacks_memory(&self) -> bool {
        self.pool_cells() < BATCH_CELLS_MIN / 2
    }
}
