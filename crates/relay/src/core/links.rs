//! Links come: channels, connections that are ready and crossings, each with who is behind it.

use super::Core;
use crate::admission::Party;
use crate::keys::LinkKey;
use crate::links::{Answer, ChannelLink, FlowLink, Link, LinkKind, ReadyConnection};
use crate::relays::Relays;
use crate::scheduler::LinkScheduler;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::channel::Role;
use heddle_proto::ids::RelayIds;
use heddle_seam::node::{ShardId, SocketId};
use std::sync::Arc;

impl Core {
    /// Links to all other shards; they stay.
    pub(super) fn open_crossings(&mut self) {
        let ours = self.config.shard;
        for shard in (0..self.config.shards).map(ShardId).filter(|shard| *shard != ours) {
            let hash_seed = self.rng.next_u64();
            let link = self.insert_link(LinkKind::Shard(shard), hash_seed);
            self.crossings.insert(shard, link);
        }
    }

    /// Makes a link of a connected socket, in either role.
    pub fn add_channel(&mut self, socket: SocketId, role: Role, addr: SocketAddr) -> LinkKey {
        let hash_seed = self.rng.next_u64();
        let channel = ChannelLink::new(self.now, socket, role, addr);
        self.insert_link(LinkKind::Channel(channel), hash_seed)
    }

    /// A connection is ready: circuits may go over it once it is in use.
    pub fn add_flow_link(&mut self, connection: ReadyConnection) -> LinkKey {
        let rsa = connection.peer.rsa;
        let flows = FlowLink::new(self.now, connection);
        let transport = flows.transport();
        let hash_seed = self.rng.next_u64();
        let link = self.insert_link(LinkKind::Flows(flows), hash_seed);
        self.flows.insert(rsa, link);
        self.meter.on_link_opened(transport);
        self.announce(rsa, true);
        link
    }

    /// A link without lanes, served as the operator chose.
    fn insert_link(&mut self, kind: LinkKind, hash_seed: u64) -> LinkKey {
        let party = self.party_of(&kind);
        let link = self.links.insert(Link::new(kind, party));
        self.table.add_link(link, LinkScheduler::new(self.config.scheduler), hash_seed);
        link
    }

    /// Who somebody is who connects from an address.
    pub(super) fn party_at(&self, addr: IpAddr) -> Party {
        Party::at(addr, self.listed.has_addr(addr))
    }

    fn party_of(&self, kind: &LinkKind) -> Party {
        let (peer, addr) = match kind {
            LinkKind::Channel(channel) if !channel.is_open() => return self.party_at(channel.addr().ip()),
            LinkKind::Channel(channel) => (channel.peer(), channel.addr().ip()),
            LinkKind::Flows(flows) => (Some(flows.peer()), flows.connection().addr.ip()),
            LinkKind::Shard(_) => return Party::Relay(self.config.ids.rsa),
        };
        self.party_of_peer(peer, addr)
    }

    /// Who somebody is who proved to be `peer`, or nobody.
    pub(super) fn party_of_peer(&self, peer: Option<RelayIds>, addr: IpAddr) -> Party {
        match peer.filter(|peer| self.listed.contains(peer)) {
            Some(peer) => Party::Relay(peer.rsa),
            None => Party::at(addr, false),
        }
    }

    /// The relays of the consensus are others now, and with them who counts as one.
    pub fn set_listed(&mut self, listed: Arc<Relays>) {
        self.listed = listed;
        let parties: Vec<_> =
            self.links.iter().map(|(key, link)| (key, self.party_of(link.kind()))).collect();
        for (key, party) in parties {
            if !self.links[key].move_to(party) {
                continue;
            }
            self.admission.channel_moves(key, party);
            let channel = self.links[key].channel().filter(|channel| channel.is_open());
            if let Some(socket) = channel.map(ChannelLink::socket) {
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

/// What the shard asks of links.
impl Core {
    pub fn link(&self, link: LinkKey) -> Option<&Link> {
        self.links.get(link)
    }

    pub fn channel(&self, link: LinkKey) -> Option<&ChannelLink> {
        self.link(link)?.channel()
    }

    /// A connection that is ready.
    pub fn connection(&self, link: LinkKey) -> Option<ReadyConnection> {
        Some(self.link(link)?.flows()?.connection())
    }

    /// All connections that are ready.
    pub fn connections(&self) -> Vec<(LinkKey, ReadyConnection)> {
        let flows = self.links.iter().filter_map(|(key, link)| Some((key, link.flows()?)));
        flows.map(|(key, flows)| (key, flows.connection())).collect()
    }

    pub fn is_listed(&self, peer: &RelayIds) -> bool {
        self.listed.contains(peer)
    }

    /// A connection says how many flows we may open.
    pub fn on_flow_room(&mut self, link: LinkKey, flows_max: u32) {
        if let Some(flows) = self.links.get_mut(link).and_then(Link::flows_mut) {
            flows.on_room(flows_max);
        }
    }

    /// There are pairs, which are to be told of answers to CREATE2.
    pub fn count_answers(&mut self) {
        self.flows.count_answers();
    }

    /// A connection that got its first flow or lost its last since its pair was told, and which.
    pub fn next_occupancy(&mut self) -> Option<(ReadyConnection, bool)> {
        loop {
            let link = self.flows.pop_touched()?;
            let is_occupied = !self.table.is_idle(link);
            let flows = self.links.get_mut(link).and_then(Link::flows_mut);
            if let Some(flows) = flows.filter(|flows| !flows.knows_occupied(is_occupied)) {
                flows.tell_occupied(is_occupied);
                return Some((flows.connection(), is_occupied));
            }
        }
    }

    /// What became of a CREATE2.
    pub fn pop_answer(&mut self) -> Option<Answer> {
        self.flows.pop_answer()
    }

    /// Relays one of whose channels grew old.
    pub fn take_retired(&mut self) -> Vec<RelayIds> {
        self.flows.take_retired()
    }
}
