//! A cell comes in, over whichever link, and goes to what it is about.

use super::Core;
use crate::keys::{LinkKey, Side};
use crate::stats::CHANNELS;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};

impl Core {
    /// A cell came in on a channel.
    pub fn on_channel_cell(&mut self, link: LinkKey, circ_id: CircId, command: Command, body: &Body) {
        self.meter.on_cells_in(CHANNELS, 1);
        self.on_cell(link, circ_id, command, body);
    }

    /// A cell of a circuit came in on `link`.
    pub(super) fn on_cell(&mut self, link: LinkKey, circ_id: CircId, command: Command, body: &Body) {
        match command {
            Command::RELAY | Command::RELAY_EARLY => drop(self.on_relay(link, circ_id, command, body)),
            Command::CREATE2 | Command::CREATE_FAST | Command::CREATE => {
                self.on_create(link, circ_id, command, body)
            }
            Command::CREATED2 | Command::CREATED_FAST | Command::CREATED => {
                self.on_created(link, circ_id, command, body)
            }
            Command::DESTROY => self.on_destroy(link, circ_id, DestroyReason::parse(body)),
            Command::DATAGRAM => self.on_datagram(link, circ_id, body),
            // Unknown commands are ignored (tor-spec, "Cell packet format").
            _ => {}
        }
    }

    /// A cell of a flow came in. Returns a reason when the flow leads nowhere and is to be reset: "The first cell is
    /// CREATE2; anything else resets it" (`docs/reference/pair.md`).
    pub fn on_flow_cell(
        &mut self,
        link: LinkKey,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> Option<DestroyReason> {
        let is_known = |core: &Core| core.table.is_taken(link, circ_id);
        match command {
            Command::RELAY | Command::RELAY_EARLY => {
                let found = self.on_relay(link, circ_id, command, body);
                (!found && !is_known(self)).then_some(DestroyReason::PROTOCOL)
            }
            Command::DESTROY => {
                self.on_destroy(link, circ_id, DestroyReason::parse(body));
                self.forget_farewell(link, circ_id);
                None
            }
            Command::CREATE2 => {
                self.on_cell(link, circ_id, command, body);
                // Past a link's limit a channel says nothing, but a flow would stay.
                (!is_known(self)).then_some(DestroyReason::RESOURCELIMIT)
            }
            // One that was on its way when its circuit ended means nothing.
            Command::DATAGRAM => {
                self.on_datagram(link, circ_id, body);
                None
            }
            _ if is_known(self) => {
                self.on_cell(link, circ_id, command, body);
                None
            }
            _ => Some(DestroyReason::PROTOCOL),
        }
    }

    /// DESTROY came. From behind or from ahead, it ends the circuit and goes on: "relays now
    /// propagate DESTROY cells in either direction" (tor-spec, "Tearing down circuits"). What a peer
    /// gives as its reason stays here, or reasons would be a side channel.
    pub(super) fn on_destroy(&mut self, link: LinkKey, circ_id: CircId, reason: DestroyReason) {
        let from_shard = self.links.get(link).is_some_and(|link| link.shard().is_some());
        if let Some((key, side)) = self.table.find(link, circ_id) {
            self.log_destroy_in(key, side, reason);
            if side == Side::Next && self.table.unanswered_on(key).is_some() {
                // The onionskin is refused, or the peer has no room for one more: it is there, and any client can bring
                // about either.
                let refused = [DestroyReason::PROTOCOL, DestroyReason::RESOURCELIMIT].contains(&reason);
                if refused {
                    self.note_create_answered(link, key, reason != DestroyReason::RESOURCELIMIT);
                }
                self.links.note_answer(link, refused);
            }
            let reason = if from_shard { reason } else { DestroyReason::DESTROYED };
            self.end_circuit(key, reason, Some(side));
        }
    }

    /// A flow is gone, and its name may come back: our own last word about it is not sent any more.
    pub fn forget_farewell(&mut self, link_key: LinkKey, circ_id: CircId) {
        if self.table.forget_id(link_key, circ_id) {
            self.touch(link_key);
        }
    }
}
