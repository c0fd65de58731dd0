//! Links whose lanes are flows: circuits that have windows of their own all the way to the next relay.
//!
//! - *Late binding.* Cells wait in their circuits' lanes, under the link's scheduler. The connection gets as many as
//!   its capacity says, and a flow that takes none at the moment is out of the round until it does.
//! - *No back-pressure from hop to hop*, unless asked for. A flow is read whatever waits in the circuit's other lane,
//!   up to the end that stock Tor sets to a queue too (`circ_max_cell_queue_size`). A relay that stopped reading would
//!   stop the relay before it, and so an exit that sends beyond its windows would learn which relays of the path are
//!   upgraded.
//! - *Hop-by-hop flow control*, where it is on: a flow is not read while too many of its cells wait in the circuit's
//!   other lane, whatever that leads to. Its window then holds the relay before us back, which does the same, and so on
//!   to whoever sends.
//! - *No migration.* A circuit lives and dies with its flow. Only a CREATE2 that was never answered is sent once more,
//!   over a channel.

use super::answers::Notes;
use super::late::Late;
use super::link::{FlowLink, Link, LinkKind};
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::message::Wanted;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Target;
use heddle_proto::ids::{RelayIds, RsaId};
use std::collections::BTreeMap;

/// With hop-by-hop flow control a flow is not read while so many of its cells wait in the circuit's other lane. It is
/// looked at after every cell, so this is also the most that wait: 64 cells, 33 KB, are what one call to a kernel
/// takes, in a super-datagram or a send buffer. More would not leave sooner, since what comes next lies in the flow's
/// window already.
pub(crate) const HELD_QUEUE_HIGH_CELLS: u32 = 64;
/// At this many it is read again: the rest leaves while the flow is read.
pub(crate) const HELD_QUEUE_LOW_CELLS: u32 = 32;

/// What an endpoint is to be told: whether a flow is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub link: LinkKey,
    pub circ_id: CircId,
    pub hold: bool,
}

/// The shard's connections that are ready, by relay.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    links: BTreeMap<RsaId, Vec<LinkKey>>,
    /// What endpoints have not been told yet: they are after each cell and before each output.
    holds: Vec<Hold>,
    pub(super) notes: Notes,
    pub(super) late: Late,
}

impl Flows {
    /// The connections to a relay.
    pub fn links_to(&self, rsa: &RsaId) -> &[LinkKey] {
        self.links.get(rsa).map_or(&[], Vec::as_slice)
    }

    pub fn has_holds(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Takes what endpoints are to be told. Of two words on one flow the later one counts.
    pub fn take_holds(&mut self) -> impl Iterator<Item = Hold> {
        self.holds.drain(..)
    }
}

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
