//! Cells go to lanes: those that pass, and those that we say ourselves.

use super::Core;
use crate::keys::{CircuitKey, Side};
use crate::links::HELD_QUEUE_HIGH_CELLS;
use crate::table::{Circuit, Pushed};
use heddle_forwarding::DIGEST;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::{Command, relay};
use heddle_proto::crypto::tor1::CellDigest;
use heddle_proto::pool::SlotId;

impl Core {
    /// Queues a cell on a lane. The circuit may be gone when this returns: a lane that is too long
    /// ends its circuit.
    pub(super) fn enqueue(&mut self, key: CircuitKey, side: Side, slot: SlotId) {
        self.before_push(key, side);
        let Pushed::Queued(len) = self.table.push(&mut self.pool, self.now, (key, side), slot) else {
            return;
        };
        self.note_queued(key, side, len);
        if len > self.table.cells_max(side) {
            if side == Side::Next {
                self.note_full_queue(key);
            }
            self.close_circuit(key, DestroyReason::RESOURCELIMIT);
            return;
        }
        if self.hop_by_hop && len >= HELD_QUEUE_HIGH_CELLS {
            self.hold_supply(key, side.opposite(), len);
        }
        self.table.mark_ready(self.now, key, side);
    }

    /// A circuit ends because its queue towards the next relay is full: no honest client sends so much.
    fn note_full_queue(&mut self, key: CircuitKey) {
        let prev = self.table.get(key).map(|circuit| circuit.prev().link());
        let Some(addr) = prev.and_then(|link| self.links.counted_addr(link)) else { return };
        let held_off = self.dos.fill_queue(self.now, addr, &mut self.rng);
        self.meter.on_held_off_for_queues(held_off);
    }

    /// Sends a relay cell of ours to the client. `None` when the circuit did not survive it.
    pub(super) fn send_relay(
        &mut self,
        key: CircuitKey,
        command: RelayCommand,
        stream: Option<StreamId>,
        data: &[u8],
    ) -> Option<CellDigest> {
        let slot = self.take_slot(Command::RELAY)?;
        relay::write(self.pool.body_mut(&slot), command, stream, data, &mut self.rng);
        self.seal_and_queue(key, slot)
    }

    /// Seals a relay cell of ours that stands in `slot`, and queues it towards the client.
    pub(super) fn seal_and_queue(&mut self, key: CircuitKey, slot: SlotId) -> Option<CellDigest> {
        let body = self.pool.body_mut(&slot);
        if let Some(session) = self.table.get_mut(key).and_then(Circuit::session_mut) {
            let result = session.send(body);
            self.pool.free(slot);
            self.sessions.mark(key);
            return match result {
                Ok(()) => Some(DIGEST),
                Err(_) => {
                    self.close_circuit(key, DestroyReason::RESOURCELIMIT);
                    None
                }
            };
        }
        let sealed = self.table.get_mut(key).and_then(|circuit| circuit.originate(body));
        let Some(digest) = sealed else {
            self.pool.free(slot);
            return None;
        };
        self.enqueue(key, Side::Prev, slot);
        Some(digest)
    }
}
