//! What a connection takes and lends, and what it counts.

use super::{Connection, State};
use crate::connections::Served;
use crate::connections::circuits::Lent;
use crate::dtls::tunnelled::{BATCH_CELLS_MIN, Tunnelled};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::FlowState;
use heddle_seam::time::{Duration, Instant};

/// What a connection takes without flows: dimpl, keys and buffers.
const CONNECTION: usize = 30_000;
/// Between two looks at how many circuits share the window.
const EPOCH_MIN: Duration = Duration::from_millis(100);

impl<T: Tunnelled> Connection<T> {
    /// Tells the relay of room once there is some worth its while. Losses and a window that shrinks may use capacity
    /// up, too, while the relay has nothing to send; it must hear when there is some again.
    pub(in crate::dtls) fn note_capacity(&mut self) {
        let capacity = self.capacity();
        let State::Open(open) = &mut self.state else { return };
        open.is_full |= capacity == 0;
        if open.is_full && capacity >= BATCH_CELLS_MIN / 2 {
            open.is_full = false;
            self.notices.capacity = true;
        }
    }

    /// Takes a cell. [`Connection::note_capacity`] must follow.
    pub(in crate::dtls) fn send(
        &mut self,
        now: Instant,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let State::Open(open) = &mut self.state else { return FlowState::Open };
        let state = open.tunnelled.send(now, circ_id, command, body);
        self.count_circuits(now);
        state
    }

    /// Tells the controller, from time to time, how many circuits share the window.
    fn count_circuits(&mut self, now: Instant) {
        let epoch = self.session.round_trip().unwrap_or(EPOCH_MIN).max(EPOCH_MIN);
        let State::Open(open) = &mut self.state else { return };
        let since = now.since(open.epoch_since);
        if since < epoch {
            return;
        }
        open.epoch_since = now;
        // After a pause, one cell says nothing of how many follow.
        if since > 4 * epoch {
            return;
        }
        let flows = open.tunnelled.circuits_mut().next_epoch();
        if let (Some(flows), Some(controller)) = (flows, open.tunnelled.controller_mut()) {
            controller.set_busy_flows(flows);
        }
    }

    /// Sums up what it takes, after something happened to it.
    pub(in crate::dtls) fn count_memory(&mut self) {
        let open_bytes = self.open().map_or(0, |open| open.tunnelled.heap_bytes());
        self.memory.set(CONNECTION + open_bytes);
        if let State::Open(open) = &mut self.state {
            open.tunnelled.count_buffered();
        }
    }

    /// Gives up what is kept of flows that have ended; whether it may have any.
    pub(in crate::dtls) fn forget_ended(&mut self, now: Instant) -> bool {
        let State::Open(open) = &mut self.state else { return false };
        if let Err(error) = open.tunnelled.forget_ended(now) {
            self.session.give_up(now, error);
            self.on_events(now, 0);
        }
        true
    }

    pub(in crate::dtls) fn next_cell(&mut self, now: Instant, lent: &mut Lent) -> Option<(CircId, Command)> {
        let State::Open(open) = &mut self.state else { return None };
        open.tunnelled.next_cell(now, lent)
    }
}
