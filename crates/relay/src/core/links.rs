//! Links come and lead somewhere: what the table, admission and other shards are told of it.

use super::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::language::Output;
use crate::links::{Answer, ChannelLink, Hold, Link, OWNER, ReadyConnection};
use crate::message::{ShardMessage, Wanted};
use crate::relays::Relays;
use crate::scheduler::LinkScheduler;
use core::net::SocketAddr;
use heddle_proto::channel::{ChannelError, Role};
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::{RelayIds, RsaId};
use heddle_seam::node::{ShardId, SocketId};
use std::sync::Arc;

/// Links come, and who is behind them.
impl Core {
    /// Links to all other shards; they stay.
    pub(super) fn open_crossings(&mut self) {
        let ours = self.config.shard;
        for shard in (0..self.config.shards).map(ShardId).filter(|shard| *shard != ours) {
            let link = self.links.add_crossing(shard);
            self.serve(link);
            self.crossings.insert(shard, link);
        }
    }

    /// Makes a link of a connected socket, in either role.
    pub fn add_channel(&mut self, socket: SocketId, role: Role, addr: SocketAddr) -> LinkKey {
        let link = self.links.add_channel(self.now, socket, role, addr);
        self.serve(link);
        link
    }

    /// A connection is ready: circuits may go over it once it is in use.
    pub fn add_flow_link(&mut self, connection: ReadyConnection) -> LinkKey {
        let link = self.links.add_flows(self.now, connection);
        self.serve(link);
        self.meter.on_link_opened(connection.transport());
        self.announce(connection.peer.rsa, true);
        link
    }

    /// The table has a place for a link's lanes, which are served as the operator chose.
    fn serve(&mut self, link: LinkKey) {
        let hash_seed = self.rng.next_u64();
        self.table.add_link(link, LinkScheduler::new(self.config.scheduler), hash_seed);
    }

    /// The relays of the consensus are others now, and with them who counts as one.
    pub fn set_listed(&mut self, listed: Arc<Relays>) {
        for (link, party, socket) in self.links.set_listed(listed) {
            self.admission.channel_moves(link, party);
            if let Some(socket) = socket {
                self.admission.dial_moves(socket, party);
            }
        }
        for (key, circuit) in self.table.iter_mut() {
            // Those of other shards, and our own, stay what they were.
            let link = self.links.get(circuit.prev().link()).filter(|link| link.role().is_some());
            if let Some(link) = link.filter(|link| link.party() != circuit.party()) {
                self.admission.circuit_moves(key, link.party());
                circuit.move_to(link.party());
            }
        }
    }
}

/// Where circuits go on.
impl Core {
    pub(super) fn link_for(&self, key: CircuitKey) -> Option<LinkKey> {
        self.link_to(self.table.get(key)?.wanted()?)
    }

    /// The link that is to carry a circuit on.
    pub(super) fn link_to(&self, wanted: &Wanted) -> Option<LinkKey> {
        self.links.way_to(wanted, |link| self.table.ids_len(link))
    }

    /// Tells the owner of the directory that this shard has a channel to a relay, or has none any more.
    pub(super) fn announce(&mut self, rsa: RsaId, open: bool) {
        if let Some(message) = self.crossings.announce(rsa, open) {
            self.send_shard(OWNER, message);
        }
    }

    /// Takes this shard out of the directory unless it has a channel or flows to a relay, or is dialling.
    pub(super) fn release(&mut self, rsa: RsaId) {
        if self.links.to(&rsa).next().is_none() && !self.dials.is_dialling(rsa) {
            self.announce(rsa, false);
        }
    }

    pub(super) fn send_shard(&mut self, to: ShardId, message: ShardMessage) {
        self.outputs.push_back(Output::ToShard { to, message });
    }
}

/// What is noted of lanes that come and go.
impl Core {
    /// A lane was taken or given up on a link.
    pub(super) fn touch(&mut self, link: LinkKey) {
        self.links.touch(link, self.table.is_idle(link));
    }

    /// Notes when a link's last circuit leaves.
    pub(super) fn note_if_idle(&mut self, link: LinkKey) {
        if self.table.is_idle(link) {
            self.links.note_idle(self.now, link);
        }
    }

    /// DESTROY cells that wait to be sent count for who is to read them ([`crate::links::Farewells`]): one joined a
    /// link's, or left.
    pub(super) fn count_farewells(&mut self, link: LinkKey) {
        let waiting = self.table.farewells_len(link);
        if let Some((party, counted)) = self.links.count_farewells(self.now, link, waiting) {
            self.admission.farewells_wait(self.now, link, party, counted);
        }
    }

    /// A channel is to end, because DESTROY cells that wait there keep others from circuits.
    pub(super) fn end_for_farewells(&mut self, link: LinkKey) {
        if let Some(channel) = self.links.channel(link) {
            self.dials.end_soon(channel.socket(), ChannelError::Crowded);
        }
    }
}

/// What the shard asks of links, and tells them.
impl Core {
    pub fn link(&self, link: LinkKey) -> Option<&Link> {
        self.links.get(link)
    }

    pub fn channel(&self, link: LinkKey) -> Option<&ChannelLink> {
        self.links.channel(link)
    }

    /// A connection that is ready.
    pub fn connection(&self, link: LinkKey) -> Option<ReadyConnection> {
        Some(self.links.flows(link)?.connection())
    }

    /// All connections that are ready.
    pub fn connections(&self) -> Vec<(LinkKey, ReadyConnection)> {
        let flows = self.links.iter().filter_map(|(key, link)| Some((key, link.flows()?)));
        flows.map(|(key, flows)| (key, flows.connection())).collect()
    }

    /// The channel to `peer` that takes new circuits.
    pub fn best_channel(&self, peer: &RelayIds) -> Option<&ChannelLink> {
        self.links.best_channel(peer)
    }

    pub fn is_listed(&self, peer: &RelayIds) -> bool {
        self.links.is_listed(peer)
    }

    /// Whether the peer of a channel leaves DESTROY cells unread.
    pub fn leaves_farewells(&self, link: LinkKey) -> bool {
        self.links.leaves_farewells(self.now, link)
    }

    /// A connection says how many flows we may open.
    pub fn on_flow_room(&mut self, link: LinkKey, flows_max: u32) {
        self.links.on_flow_room(link, flows_max);
    }

    /// From now on circuits to a relay prefer this connection of an endpoint, or none of it.
    pub fn use_flows(&mut self, rsa: &RsaId, port: usize, in_use: Option<ConnId>) {
        self.links.use_flows(rsa, port, in_use);
    }

    /// There are pairs, which are to be told of answers to CREATE2.
    pub fn count_answers(&mut self) {
        self.links.count_answers();
    }

    /// A connection that got its first flow or lost its last since its pair was told, and which.
    pub fn next_occupancy(&mut self) -> Option<(ReadyConnection, bool)> {
        self.links.next_occupancy(|link| self.table.is_idle(link))
    }

    /// What became of a CREATE2.
    pub fn pop_answer(&mut self) -> Option<Answer> {
        self.links.pop_answer()
    }

    /// Relays one of whose channels grew old.
    pub fn take_retired(&mut self) -> Vec<RelayIds> {
        self.links.take_retired()
    }

    /// What an endpoint is to be told next of a flow that is to be read or not, and of which connection.
    pub fn pop_hold(&mut self) -> Option<(ReadyConnection, Hold)> {
        self.links.pop_hold()
    }
}
