//! What the core does with connections whose lanes are flows: which circuits go over them, and which are held.

use super::Hold;
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::links::{FlowLink, Link, LinkKind};
use crate::message::Wanted;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Target;
use heddle_proto::ids::RelayIds;

impl Core {
    /// A connection is ready: circuits may go over it.
    pub fn add_flow_link(&mut self, flows: FlowLink) -> LinkKey {
        let rsa = flows.peer.rsa;
        let transport = flows.port + 1;
        let hash_seed = self.rng.next_u64();
        let link = self.insert_link(LinkKind::Flows(flows), hash_seed);
        self.flows.links.entry(rsa).or_default().push(link);
        self.meter.transports[transport].links_opened += 1;
        self.announce(rsa, true);
        link
    }

    /// A connection is over.
    pub fn forget_flow_link(&mut self, link_key: LinkKey, peer: &RelayIds) {
        let Some(links) = self.flows.links.get_mut(&peer.rsa) else {
            return;
        };
        links.retain(|key| *key != link_key);
        if links.is_empty() {
            self.flows.links.remove(&peer.rsa);
            self.release(peer.rsa);
        }
    }

    /// The link that is to carry a circuit on: a connection if one has room, else a channel.
    pub fn link_to(&self, wanted: &Wanted) -> Option<LinkKey> {
        let flows = (!wanted.over_channel).then(|| self.flow_link_to(&wanted.target)).flatten();
        flows.or_else(|| self.channel_to(&wanted.target))
    }

    /// The best connection to `target` that takes one circuit more.
    fn flow_link_to(&self, target: &Target) -> Option<LinkKey> {
        let usable = |key: &LinkKey| {
            let link = self.links.get(*key)?;
            let flows = link.flows().filter(|flows| !flows.draining && flows.room > flows.opening)?;
            let has_room = self.table.ids_len(*key) < self.config.limits.circuits_per_channel;
            (has_room && link.leads_to(target)).then_some((flows.port, flows.opened_at, *key))
        };
        let best = self.flows.links_to(&target.rsa).iter().filter_map(usable).min();
        best.map(|(_, _, key)| key)
    }

    /// A circuit goes over a channel. That is noted if a flow failed it, or if its relay has a connection without room.
    pub fn count_fallback(&mut self, channel: LinkKey, flow_failed: bool) {
        let Some(peer) = self.links.get(channel).and_then(|link| link.peer()) else { return };
        let mut links = self.flows.links_to(&peer.rsa).iter().filter_map(|key| self.links.get(*key)?.flows());
        if flow_failed {
            self.meter.on_fallback("create_again");
        } else if links.any(|flows| !flows.draining) {
            self.meter.on_fallback("no_room");
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
            _ if is_known(self) => {
                self.on_cell(link, circ_id, command, body);
                None
            }
            _ => Some(DestroyReason::PROTOCOL),
        }
    }

    /// A flow is gone, and its name may come back: our own last word about it is not sent any more.
    pub fn forget_farewell(&mut self, link_key: LinkKey, circ_id: CircId) {
        if self.table.forget_id(link_key, circ_id) {
            self.touch(link_key);
        }
    }

    /// CREATE2 left, so that the flow exists.
    pub fn on_flow_begun(&mut self, link_key: LinkKey, circ_id: CircId) {
        if let Some(flows) = self.links.get_mut(link_key).and_then(|link| link.flows_mut()) {
            flows.opening = flows.opening.saturating_sub(1);
            flows.room = flows.room.saturating_sub(1);
        }
        self.table.begin_flow(link_key, circ_id);
    }

    /// Whether flows are held, as the operator or else the consensus says. Those that are held are read again when they
    /// are to be no more: nothing else would look at a circuit whose reader has stopped for good.
    pub fn choose_hop_by_hop(&mut self) {
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
    pub fn hold_supply(&mut self, key: CircuitKey, side: Side, queue_cells: u32) {
        let Some(link) = self.table.get(key).and_then(|circuit| Some(circuit.lane(side)?.link())) else {
            return;
        };
        if !self.links.get(link).and_then(Link::flows).is_some_and(|flows| flows.may_hold) {
            return;
        }
        self.meter.held_queue_cells_max = self.meter.held_queue_cells_max.max(queue_cells);
        if let Some((link, circ_id)) = self.table.set_held(key, side, true) {
            self.flows.holds.push(Hold { link, circ_id, hold: true });
        }
    }

    /// The circuit's other lane has room: a flow that was held is read again.
    pub fn release_supply(&mut self, key: CircuitKey, side: Side) {
        if let Some((link, circ_id)) = self.table.set_held(key, side, false) {
            self.flows.holds.push(Hold { link, circ_id, hold: false });
        }
    }

    /// Circuits whose CREATE2 this link has not answered go over channels.
    pub fn leave_flows(&mut self, link_key: LinkKey) {
        for key in self.table.led_on_by(link_key) {
            self.extend_again(key);
        }
    }

    /// The flow broke, or did not answer CREATE2 for long, or the path is silent: a channel is asked, with the same
    /// handshake. False when that was not so, or was done already.
    pub fn extend_again(&mut self, key: CircuitKey) -> bool {
        let Some(lane) = self.table.create_again(key) else { return false };
        self.drop_lane(lane, Some(DestroyReason::FINISHED));
        self.find_channel(key);
        true
    }
}
