//! DATAGRAM cells: they pass, or bring our end of a session what the client says ([`crate::forwarding`]).

use super::Core;
use crate::forwarding::{OWN_WAITING_MAX, WAITING_MAX};
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::table::{Circuit, Next, Pushed};
use heddle_forwarding::DIGEST;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::pool::SlotId;
use heddle_seam::time::Duration;

/// How soon to look again whether there is room for a session's cells.
const ROOM_WAIT: Duration = Duration::from_millis(20);

impl Core {
    /// A DATAGRAM cell came in. One that nobody waits for is dropped, but counts among what its lane's neighbour may
    /// send.
    pub(super) fn on_datagram(&mut self, link: LinkKey, circ_id: CircId, body: &Body) {
        let Some((key, side)) = self.table.find(link, circ_id) else { return };
        self.log_cell_in(key, side, Command::DATAGRAM);
        if !self.count_arrival(key, side) {
            return;
        }
        if !self.config.forwards_datagrams {
            return self.end_cells(key, side, 1);
        }
        let Some(circuit) = self.table.get_mut(key) else { return };
        let mut body = *body;
        if circuit.pass_datagram(side, &mut body) {
            if !self.pass_on(key, side.opposite(), &body) {
                self.meter.on_dropped_datagram();
                self.end_cells(key, side, 1);
            }
            return;
        }
        let session = circuit.session_mut().filter(|_| side == Side::Prev);
        let result = session.map_or(Ok(()), |session| session.handle_cell(self.now, &mut body));
        self.sessions.mark(key);
        self.end_cells(key, side, 1);
        if result.is_err() {
            self.punish(key);
        }
    }

    /// Queues a datagram. False when too many cells wait already.
    fn pass_on(&mut self, key: CircuitKey, side: Side, body: &Body) -> bool {
        let has_room = |circuit: &Circuit| {
            let is_joined = side == Side::Prev || matches!(circuit.next(), Next::Joined(_));
            is_joined && circuit.lane(side).is_some_and(|lane| lane.queued_cells() < WAITING_MAX)
        };
        if !self.table.get(key).is_some_and(has_room) {
            return false;
        }
        let Some(slot) = self.take_slot_for_datagram() else { return false };
        *self.pool.body_mut(&slot) = *body;
        self.queue_datagram(key, side, slot);
        true
    }

    /// A slot for a cell that need not come. None where cells have half of the memory: no circuit is to end for its
    /// sake.
    fn take_slot_for_datagram(&mut self) -> Option<SlotId> {
        if self.is_room_for_datagrams() { self.pool.take(Command::DATAGRAM) } else { None }
    }

    fn is_room_for_datagrams(&self) -> bool {
        self.pool.used() < self.pool.max() / 2
    }

    fn queue_datagram(&mut self, key: CircuitKey, side: Side, slot: SlotId) {
        self.before_push(key, side);
        if let Pushed::Queued(len) = self.table.push(&mut self.pool, self.now, (key, side), slot) {
            self.note_queued(key, side, len);
            self.table.mark_ready(self.now, key, side);
        }
    }

    /// Works off what sessions have for us, and gives their cells to lanes.
    pub fn pump_sessions(&mut self) {
        while let Some(key) = self.sessions.next_due() {
            self.hear_session(key);
            self.fill_from_session(key);
        }
    }

    /// What the client said is as if it had come in relay cells.
    fn hear_session(&mut self, key: CircuitKey) {
        let mut body = [0; BODY_LEN];
        while let Some(session) = self.table.get_mut(key).and_then(Circuit::session_mut) {
            match session.next_message(self.now, &mut body) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.punish(key),
            }
            let Some(slot) = self.take_slot(Command::RELAY) else {
                return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
            };
            *self.pool.body_mut(&slot) = body;
            self.on_recognized(key, Command::RELAY, slot, DIGEST);
        }
    }

    fn fill_from_session(&mut self, key: CircuitKey) {
        loop {
            let waiting = self.table.get(key).map(|circuit| circuit.prev().queued_cells());
            if waiting.is_none_or(|waiting| waiting >= OWN_WAITING_MAX) {
                break;
            }
            let Some(slot) = self.take_slot_for_datagram() else { break };
            let session = self.table.get_mut(key).and_then(Circuit::session_mut);
            let body = self.pool.body_mut(&slot);
            if !session.is_some_and(|session| session.poll_cell(self.now, body)) {
                self.pool.free(slot);
                break;
            }
            self.queue_datagram(key, Side::Prev, slot);
        }
        let is_room = self.is_room_for_datagrams();
        let Some(session) = self.table.get_mut(key).and_then(Circuit::session_mut) else { return };
        if session.is_over() {
            return self.punish(key);
        }
        self.sessions.set_bytes(key, session.bytes());
        let again = if is_room { session.poll_timeout() } else { Some(self.now + ROOM_WAIT) };
        self.sessions.set_timer(key, again);
        self.on_backward_queue(key);
    }

    /// Sessions whose time has come.
    pub(super) fn wake_sessions(&mut self) {
        while let Some(key) = self.sessions.pop_expired(self.now) {
            if let Some(session) = self.table.get_mut(key).and_then(Circuit::session_mut) {
                session.handle_timeout(self.now);
            }
            self.sessions.mark(key);
        }
    }
}
