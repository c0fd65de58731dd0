//! A circuit's hop at work: relay cells pass or are for us.
//!
//! - Away from the client our layer is taken off. What it leaves is either recognized, then it is
//!   for us, or goes on to the next lane.
//! - Towards the client our layer is put on, and the cell goes on to the previous lane.
//!
//! The layer is applied as the move into a slot of the pool: one copy inside the relay.

use super::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::table::Next;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{RelayCommand, RelayHeader};
use heddle_proto::cell::{Body, CircId, Command, relay};
use heddle_proto::crypto::tor1::{CellDigest, Recognized};
use heddle_proto::pool::SlotId;

impl Core {
    /// A relay cell came in. False when there is no such circuit: the cell was on its way when that was closed.
    pub(super) fn on_relay(&mut self, link: LinkKey, circ_id: CircId, command: Command, body: &Body) -> bool {
        let Some((key, side)) = self.table.find(link, circ_id) else { return false };
        self.log_cell_in(key, side, command);
        if self.count_arrival(key, side) {
            match side {
                Side::Prev => self.on_forward(key, command, body),
                Side::Next => self.on_backward(key, command, body),
            }
        }
        true
    }

    /// A cell on its way from the client.
    pub(super) fn on_forward(&mut self, key: CircuitKey, command: Command, body: &Body) {
        let Some(slot) = self.take_slot(command) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        // The full pool may have cost just this circuit its life.
        let Some(circuit) = self.table.get_mut(key) else {
            return self.pool.free(slot);
        };
        let Some(recognized) = circuit.forward(command, body, self.pool.body_mut(&slot)) else {
            self.pool.free(slot);
            return self.close_circuit(key, DestroyReason::PROTOCOL);
        };
        match (recognized, circuit.next()) {
            // Where there is a session all that is for us comes in it.
            (Recognized::Yes { .. }, _) if circuit.session().is_some() => {
                self.pool.free(slot);
                self.punish(key);
            }
            (Recognized::Yes { digest }, _) => {
                self.on_recognized(key, command, slot, digest);
                self.end_cells(key, Side::Prev, 1);
            }
            (Recognized::No, Next::Joined(_)) => self.enqueue(key, Side::Next, slot),
            // Nobody is left to whom the cell could be meant (tor-spec, "Routing relay cells").
            (Recognized::No, _) => {
                self.pool.free(slot);
                self.close_circuit(key, DestroyReason::PROTOCOL);
            }
        }
    }

    /// A cell on its way to the client.
    fn on_backward(&mut self, key: CircuitKey, command: Command, body: &Body) {
        // RELAY_EARLY towards a client marks circuits for an observer; it is never legitimate.
        let joined = self.table.get(key).is_some_and(|circuit| matches!(circuit.next(), Next::Joined(_)));
        if command == Command::RELAY_EARLY || !joined {
            return self.close_circuit(key, DestroyReason::PROTOCOL);
        }
        let Some(slot) = self.take_slot(command) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        let Some(circuit) = self.table.get_mut(key) else {
            return self.pool.free(slot);
        };
        circuit.backward(body, self.pool.body_mut(&slot));
        self.enqueue(key, Side::Prev, slot);
    }

    /// A relay cell for us.
    pub(super) fn on_recognized(
        &mut self,
        key: CircuitKey,
        command: Command,
        slot: SlotId,
        digest: CellDigest,
    ) {
        let Ok((header, _)) = relay::parse(self.pool.body(&slot)) else {
            self.pool.free(slot);
            return self.close_circuit(key, DestroyReason::PROTOCOL);
        };
        match header.command {
            RelayCommand::DATA => self.on_data(key, header, slot, digest),
            _ => {
                let body = *self.pool.body(&slot);
                self.pool.free(slot);
                let data = &body[relay::HEADER_LEN..][..usize::from(header.length)];
                self.on_control(key, command, header, data);
            }
        }
    }

    /// A relay cell for us that is not DATA.
    fn on_control(&mut self, key: CircuitKey, command: Command, header: RelayHeader, data: &[u8]) {
        let has_session = || self.table.get(key).is_some_and(|circuit| circuit.session().is_some());
        match (header.command, header.stream_id) {
            // A session is with the last hop, and stays so.
            (RelayCommand::EXTEND2 | RelayCommand::TRUNCATE, None) if has_session() => self.punish(key),
            (RelayCommand::EXTEND2, None) => self.on_extend2(key, command, data),
            (RelayCommand::TRUNCATE, None) => self.on_truncate(key, data),
            (RelayCommand::SENDME, None) => self.on_circuit_sendme(key, data),
            (RelayCommand::FORWARD, None) => self.on_forward_asked(key, data),
            (RelayCommand::MEASURE, None) => self.on_measure_asked(key, data),
            (_, Some(stream)) => self.on_stream_cell(key, stream, header.command, data),
            // DROP is padding; what is not understood is dropped.
            _ => {}
        }
    }

    /// The client wants the circuit to end with us from now on, and names the reason for the relay
    /// ahead.
    fn on_truncate(&mut self, key: CircuitKey, data: &[u8]) {
        let farewell = DestroyReason::parse(data);
        match self.table.cut(key) {
            Some(Next::Waiting(wanted)) => self.stop_waiting(key, &wanted),
            Some(Next::Creating { lane, .. } | Next::Joined(lane)) => {
                // What waits there goes nowhere any more.
                self.end_cells(key, Side::Prev, lane.queued_cells());
                self.drop_lane(lane, Some(farewell));
            }
            Some(Next::None | Next::Queued { .. }) => {}
            None => return,
        }
        self.note_used(key);
        self.send_relay(key, RelayCommand::TRUNCATED, None, &[DestroyReason::REQUESTED.0]);
    }
}
