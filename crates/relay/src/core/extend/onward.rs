//! A circuit goes on over a link that was found for it: CREATE2 goes out, or waits for its turn.

use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::links::{FlowLink, Link, LinkKind};
use crate::table::{Lane, LaneFlow};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::channel::Role;
use heddle_seam::rng::Rng;

impl Core {
    /// A link was found for a circuit that waits: CREATE2 goes out when it is its turn, which most often is at once.
    pub(in crate::core) fn extend_over(&mut self, key: CircuitKey, link_key: LinkKey) {
        let max = self.config.limits.creates_unanswered;
        match self.links.takes_create(link_key, max) {
            true => self.send_create(key, link_key),
            false => self.queue_extend(key, link_key),
        }
    }

    /// CREATE2 goes out for a circuit that waits.
    pub(super) fn send_create(&mut self, key: CircuitKey, link_key: LinkKey) {
        let Some(circ_id) = self.new_circ_id(link_key) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        let Some(slot) = self.take_slot(Command::CREATE2) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        // The full pool may have cost just this circuit its life.
        let Some(mut wanted) = self.table.take_wanted(key) else {
            return self.pool.free(slot);
        };
        let tried = wanted.over_channel;
        self.pool.body_mut(&slot).copy_from_slice(&wanted.create2);
        let begins_flow = self.links.begin_create(self.now, link_key, key);
        let flow = begins_flow.then(LaneFlow::to_begin);
        wanted.over_channel |= begins_flow;
        let again = begins_flow.then_some(wanted);
        self.table.create(key, Lane::unanswered(link_key, circ_id, flow), again, self.now);
        match begins_flow {
            true => self.touch(link_key),
            false => self.note_fallback(link_key, tried),
        }
        self.enqueue(key, Side::Next, slot);
    }

    /// An unused id of the half that is ours on this link.
    pub(super) fn new_circ_id(&mut self, link_key: LinkKey) -> Option<CircId> {
        let role = match self.links.get(link_key)?.kind() {
            LinkKind::Channel(channel) => channel.role(),
            LinkKind::Flows(flows) => flows.connection().role,
            // Neither shard dialled the other, so the lower one counts as who did.
            LinkKind::Shard(other) if self.config.shard < *other => Role::Initiator,
            LinkKind::Shard(_) => Role::Responder,
        };
        self.open_lane(link_key, &move |rng| loop {
            if let Some(id) = role.circ_id(rng.next_u32() >> 1) {
                break id;
            }
        })
    }

    /// Makes room for a circuit on a link, under an id of our choice. `None` when the link is full.
    fn open_lane(&mut self, link_key: LinkKey, candidate: &dyn Fn(&mut Rng) -> CircId) -> Option<CircId> {
        let max = match self.links.get(link_key)?.kind() {
            LinkKind::Channel(_) | LinkKind::Flows(_) => self.config.limits.circuits_per_channel,
            // Clients of all channels share it, so the circuits' shares alone decide who has how many.
            LinkKind::Shard(_) => usize::MAX,
        };
        if self.table.ids_len(link_key) >= max {
            return None;
        }
        self.table.free_id(link_key, &mut self.rng, candidate)
    }

    /// Lets a circuit wait for its turn on a link.
    fn queue_extend(&mut self, key: CircuitKey, link_key: LinkKey) {
        self.table.queue_on(key, link_key);
        let Some(circuit) = self.table.get(key) else { return };
        let queued = (circuit.party(), circuit.prev().link(), key);
        self.links.queue_create(link_key, queued, &|key| self.table.is_queued_on(*key, link_key));
    }

    /// A circuit goes over a channel. That is noted if a flow failed it, or if its relay has a connection without room.
    fn note_fallback(&mut self, channel: LinkKey, flow_failed: bool) {
        let Some(peer) = self.links.get(channel).and_then(|link| link.peer()) else { return };
        if flow_failed {
            self.meter.on_fallback("create_again");
        } else if self.links.to(&peer.rsa).filter_map(Link::flows).any(FlowLink::is_in_use) {
            self.meter.on_fallback("no_room");
        }
    }
}
