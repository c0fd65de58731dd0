//! Hop-by-hop flow control: which flows are not read, because their cells wait in the circuit's other lane.

use super::Core;
use crate::keys::{CircuitKey, Side};

impl Core {
    /// Whether flows are held, as the operator or else the consensus says. Those that are held are read again when they
    /// are to be no more: nothing else would look at a circuit whose reader has stopped for good.
    pub(super) fn choose_hop_by_hop(&mut self) {
        let by_consensus = || self.params.get("heddle_hop_by_hop_flow_control", 0, 0, 1) == 1;
        let wanted = self.config.hop_by_hop_flow_control.unwrap_or_else(by_consensus);
        if core::mem::replace(&mut self.hop_by_hop, wanted) && !wanted {
            let all: Vec<_> = self.table.iter().map(|(key, _)| key).collect();
            for key in all {
                self.release_supply(key, Side::Prev);
                self.release_supply(key, Side::Next);
            }
        }
    }

    /// The circuit's other lane holds `queue_cells`, which is much: a flow that supplies them is not read.
    pub(super) fn hold_supply(&mut self, key: CircuitKey, side: Side, queue_cells: u32) {
        let Some(link) = self.table.get(key).and_then(|circuit| Some(circuit.lane(side)?.link())) else {
            return;
        };
        if !self.links.flows(link).is_some_and(|flows| flows.connection().may_hold) {
            return;
        }
        self.meter.on_held_queue(queue_cells);
        if let Some((link, circ_id)) = self.table.set_held(key, side, true) {
            self.links.hold(link, circ_id, true);
        }
    }

    /// The circuit's other lane has room: a flow that was held is read again.
    pub(super) fn release_supply(&mut self, key: CircuitKey, side: Side) {
        if let Some((link, circ_id)) = self.table.set_held(key, side, false) {
            self.links.hold(link, circ_id, false);
        }
    }
}
