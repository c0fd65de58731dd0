//! What the core does with channels: they open, are compared, grow idle and end.

use super::CHANNELS_PER_RELAY;
use crate::admission::Party;
use crate::core::Core;
use crate::keys::LinkKey;
use crate::links::link::{ChannelLink, Link, LinkKind};
use crate::message::Event;
use crate::relays::Relays;
use crate::scheduler::LinkScheduler;
use crate::stats::CHANNELS;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::channel::{ChannelError, Opened, Role};
use heddle_proto::ids::{RelayIds, RsaId};
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A channel without circuits is closed after this time, and a random part of as much again
/// (stock Tor: 180 s, and 900 s for relays that pad).
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
/// A retired one is closed after this time.
const RETIRED_TIMEOUT: Duration = Duration::from_secs(10);
/// A channel takes new circuits for a week (tor: `TIME_BEFORE_OR_CONN_IS_TOO_OLD`).
const CHANNEL_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Core {
    /// Makes a link of a connected socket, in either role.
    pub fn add_channel(&mut self, socket: SocketId, role: Role, addr: SocketAddr) -> LinkKey {
        let hash_seed = self.rng.next_u64();
        let channel = ChannelLink {
            socket,
            role,
            addr,
            peer: None,
            open: false,
            handshake_bytes: 0,
            counted: false,
            canonical: false,
            opened_at: self.now,
            idle_since: self.now,
            retired: false,
        };
        self.insert_link(LinkKind::Channel(channel), hash_seed)
    }

    /// A link without lanes, served as the operator chose.
    pub fn insert_link(&mut self, kind: LinkKind, hash_seed: u64) -> LinkKey {
        let party = self.party_of(&kind);
        let link = self.links.insert(Link::new(kind, party));
        self.table.add_link(link, LinkScheduler::new(self.config.scheduler), hash_seed);
        link
    }

    /// Who somebody is who connects from an address.
    pub fn party_at(&self, addr: IpAddr) -> Party {
        Party::at(addr, self.listed.has_addr(addr))
    }

    fn party_of(&self, kind: &LinkKind) -> Party {
        let (peer, addr) = match kind {
            LinkKind::Channel(channel) if !channel.open => return self.party_at(channel.addr.ip()),
            LinkKind::Channel(channel) => (channel.peer, channel.addr.ip()),
            LinkKind::Flows(flows) => (Some(flows.peer), flows.addr.ip()),
            LinkKind::Shard(_) => return Party::Relay(self.config.ids.rsa),
        };
        self.party_of_peer(peer, addr)
    }

    /// Who somebody is who proved to be `peer`, or nobody.
    fn party_of_peer(&self, peer: Option<RelayIds>, addr: IpAddr) -> Party {
        match peer.filter(|peer| self.listed.contains(peer)) {
            Some(peer) => Party::Relay(peer.rsa),
            None => Party::at(addr, false),
        }
    }

    /// The relays of the consensus are others now, and with them who counts as one.
    pub fn set_listed(&mut self, listed: Arc<Relays>) {
        self.listed = listed;
        let parties: Vec<_> = self.links.iter().map(|(key, link)| (key, self.party_of(&link.kind))).collect();
        for (key, party) in parties {
            if core::mem::replace(&mut self.links[key].party, party) == party {
                continue;
            }
            self.admission.channel_moves(key, party);
            let channel = self.links[key].channel().filter(|channel| channel.open);
            if let Some(socket) = channel.map(|channel| channel.socket) {
                self.admission.dial_moves(socket, party);
            }
        }
        for (key, circuit) in self.table.iter_mut() {
            // Those of other shards, and our own, stay what they were.
            let link = self.links.get(circuit.prev().link()).filter(|link| link.role().is_some());
            if let Some(link) = link.filter(|link| link.party != circuit.party) {
                self.admission.circuit_moves(key, link.party);
                circuit.party = link.party;
            }
        }
    }

    /// A channel's handshake is over. Returns others that are to be ended for it, and fails when there is no place for
    /// it.
    pub fn on_opened(&mut self, link_key: LinkKey, opened: Opened) -> Result<Vec<LinkKey>, ChannelError> {
        let now = self.now;
        let Some(channel) = self.links.get_mut(link_key).and_then(Link::channel_mut) else {
            return Ok(Vec::new());
        };
        channel.peer = opened.peer;
        channel.canonical = opened.peer_addrs.contains(&channel.addr.ip());
        let (socket, role, addr) = (channel.socket, channel.role, channel.addr);
        let party = self.party_of_peer(opened.peer, addr.ip());
        self.admission.handshake_ends(link_key);
        let mut instead = Vec::new();
        match role {
            Role::Responder => {
                let admitted = self.admission.channel_opens(now, link_key, party);
                instead.extend(admitted.map_err(|_| ChannelError::Crowded)?);
                self.dos_channel_opens(link_key, party, opened.peer);
            }
            Role::Initiator => {
                let admitted = self.admission.dial_opens(now, socket, party);
                let other = admitted.map_err(|_| ChannelError::Crowded)?;
                other.into_iter().for_each(|other| self.end_dialled(other));
            }
        }
        let link = &mut self.links[link_key];
        link.party = party;
        if let Some(channel) = link.channel_mut() {
            channel.open = true;
            channel.opened_at = now;
            channel.idle_since = now;
        }
        let Some(peer) = opened.peer else { return Ok(instead) };
        instead.extend(self.surplus_channel(&peer.rsa));
        self.channels.insert(peer.rsa, link_key);
        self.meter.transports[CHANNELS].links_opened += 1;
        self.announce(peer.rsa, true);
        self.event(Event::ChannelOpened { role, peer, addr });
        if let Some(ours) = opened.our_addr {
            self.event(Event::OurAddress { ours, by: peer });
        }
        self.retire_duplicates(&peer);
        self.extend_waiting(peer.rsa, link_key, socket);
        Ok(instead)
    }

    /// Which channel to a relay is to be ended for a new one: of those that the relay itself does not vouch for by
    /// naming their address the one with fewest circuits, since whoever stands between may have made any number of
    /// these.
    fn surplus_channel(&self, rsa: &RsaId) -> Option<LinkKey> {
        let channels = self.channels.to(rsa);
        let worth = |key: &LinkKey| {
            let channel = self.links.get(*key)?.channel()?;
            Some((channel.canonical, self.table.ids_len(*key), channel.opened_at, *key))
        };
        let least = channels.iter().filter_map(worth).min().map(|(.., key)| key);
        least.filter(|_| channels.len() >= CHANNELS_PER_RELAY)
    }

    /// In the order of preference: canonical channels first, then those of the relay with the smaller identity, then
    /// the oldest. Both sides choose alike.
    fn rank(&self, key: LinkKey) -> Option<(bool, bool, Instant, LinkKey)> {
        let channel = self.links.get(key).and_then(Link::channel)?;
        let by_smaller = (channel.role == Role::Initiator) == (self.config.ids.rsa < channel.peer?.rsa);
        Some((!channel.canonical, !by_smaller, channel.opened_at, key))
    }

    /// The channels to `peer` that take new circuits, the best first.
    fn ranked(&self, peer: &RelayIds) -> Vec<LinkKey> {
        let goes_on = |key: &LinkKey| {
            let channel = self.links.get(*key).and_then(Link::channel);
            channel.is_some_and(|channel| !channel.retired && channel.peer == Some(*peer))
        };
        let mut ranked: Vec<_> = self.channels.to(&peer.rsa).iter().copied().filter(goes_on).collect();
        ranked.sort_by_cached_key(|key| self.rank(*key));
        ranked
    }

    /// The channel to `peer` that takes new circuits.
    pub fn best_channel(&self, peer: &RelayIds) -> Option<&ChannelLink> {
        let best = *self.ranked(peer).first()?;
        self.links.get(best).and_then(Link::channel)
    }

    /// Of several channels that join us and `peer`, the best goes on. Those that were retired before, also for their
    /// age, have no say: a new one would be retired beside them at its birth. Nor has one that is not canonical, about
    /// channels to other addresses: it may be a stranger's who stands between.
    fn retire_duplicates(&mut self, peer: &RelayIds) {
        let mut kept = BTreeSet::new();
        let mut has_canonical = false;
        for key in self.ranked(peer) {
            let Some(channel) = self.links.get_mut(key).and_then(Link::channel_mut) else { continue };
            channel.retired = has_canonical || !kept.insert(channel.addr.ip());
            has_canonical |= channel.canonical;
        }
    }

    /// An open channel is gone.
    pub fn forget_channel(&mut self, link_key: LinkKey, peer: &RelayIds) {
        if self.channels.remove(&peer.rsa, link_key) {
            self.release(peer.rsa);
        }
    }

    /// Once a second: returns the sockets of channels that are to be closed since they are idle.
    pub fn idle_channels(&mut self) -> Vec<SocketId> {
        let now = self.now;
        let mut closing = Vec::new();
        // Flows count as circuits of the channel that vouched for them: it keeps the pair together.
        let occupied = self.links.iter().filter(|(key, _)| !self.table.is_idle(*key));
        let occupied = occupied.filter_map(|(_, link)| link.flows());
        let occupied: BTreeSet<_> = occupied.map(|flows| flows.peer).collect();
        for (key, link) in &mut self.links {
            let idle = self.table.is_idle(key);
            let Some(channel) = link.channel_mut().filter(|channel| channel.open) else {
                continue;
            };
            let has_flows = channel.peer.is_some_and(|peer| occupied.contains(&peer)) && !channel.retired;
            let idle = idle && !has_flows;
            if has_flows {
                // However its flows end: also when their connection takes them all along.
                channel.idle_since = now;
            }
            if now.since(channel.opened_at) >= CHANNEL_AGE_MAX
                && !core::mem::replace(&mut channel.retired, true)
            {
                self.flows.notes.retired.extend(channel.peer);
            }
            // The socket's number spreads the moment, so that channels that opened together do
            // not close together.
            let spread = Duration::from_secs(channel.socket.get() % 180);
            let unused = now.since(channel.idle_since);
            if idle && (unused >= IDLE_TIMEOUT + spread || channel.retired && unused >= RETIRED_TIMEOUT) {
                closing.push(channel.socket);
            }
        }
        closing
    }
}
