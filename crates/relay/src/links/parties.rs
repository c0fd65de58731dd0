//! Who is behind a link, or would be: a relay of the consensus, a client, or another shard of this relay.

use super::{ChannelLink, DialKey, LinkKind, Links};
use crate::admission::{Class, Listener, Party};
use crate::keys::LinkKey;
use crate::relays::Relays;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_seam::node::SocketId;
use std::sync::Arc;

impl Links {
    /// The relays of the consensus are others now, and with them who counts as one. Returns the links of those who
    /// count as somebody else, with the sockets of those that are open channels.
    pub fn set_listed(&mut self, listed: Arc<Relays>) -> Vec<(LinkKey, Party, Option<SocketId>)> {
        self.listed = listed;
        let parties: Vec<_> = self.all.iter().map(|(key, link)| (key, self.party_of(link.kind()))).collect();
        let mut moved = Vec::new();
        for (key, party) in parties {
            let link = &mut self.all[key];
            if link.move_to(party) {
                let channel = link.channel().filter(|channel| channel.is_open());
                moved.push((key, party, channel.map(ChannelLink::socket)));
            }
        }
        moved
    }

    /// Whether the consensus lists a relay.
    pub fn is_listed(&self, peer: &RelayIds) -> bool {
        self.listed.contains(peer)
    }

    /// Whether it lists one with this RSA identity.
    pub fn is_rsa_listed(&self, rsa: &RsaId) -> bool {
        self.listed.contains_rsa(rsa)
    }

    /// The Ed25519 identity that it lists beside an RSA identity.
    pub fn listed_ed25519(&self, rsa: &RsaId) -> Option<Ed25519Id> {
        self.listed.ed25519_of(rsa)
    }

    /// Whether a relay of the consensus has this address.
    pub fn is_addr_listed(&self, addr: IpAddr) -> bool {
        self.listed.has_addr(addr)
    }

    /// Whether a port is one of a relay of the consensus.
    pub fn is_port_listed(&self, addr: SocketAddr) -> bool {
        self.listed.has_port(addr)
    }

    /// Who listens where a dial goes, as far as the consensus says.
    pub fn listener(&self, dial: &DialKey) -> Listener {
        dial.listener(&self.listed)
    }

    /// Who somebody is who connects from an address.
    pub fn party_at(&self, addr: IpAddr) -> Party {
        Party::at(addr, self.listed.has_addr(addr))
    }

    /// Who somebody is who proved to be `peer`, or nobody.
    pub fn party_of_peer(&self, peer: Option<RelayIds>, addr: IpAddr) -> Party {
        match peer.filter(|peer| self.listed.contains(peer)) {
            Some(peer) => Party::Relay(peer.rsa),
            None => Party::at(addr, false),
        }
    }

    pub(super) fn party_of(&self, kind: &LinkKind) -> Party {
        let (peer, addr) = match kind {
            LinkKind::Channel(channel) if !channel.is_open() => return self.party_at(channel.addr().ip()),
            LinkKind::Channel(channel) => (channel.peer(), channel.addr().ip()),
            LinkKind::Flows(flows) => (Some(flows.peer()), flows.connection().addr.ip()),
            LinkKind::Shard(_) => return Party::Relay(self.ours.rsa),
        };
        self.party_of_peer(peer, addr)
    }

    /// Whether a neighbour counts as a client. While we know no consensus, whoever proves an identity may be a relay.
    pub fn is_client(&self, party: Party, peer: Option<RelayIds>) -> bool {
        party.class() == Class::Stranger && (!self.listed.is_empty() || peer.is_none())
    }

    /// A channel that somebody opened is there. If it is a client's it counts as one of the address that is returned.
    pub fn count_channel(&mut self, link: LinkKey, party: Party, peer: Option<RelayIds>) -> Option<IpAddr> {
        let is_client = self.is_client(party, peer);
        let addr = self.channel(link)?.addr().ip();
        if !is_client || self.listed.has_addr(addr) {
            return None;
        }
        self.channel_mut(link)?.count();
        Some(addr)
    }

    /// The address of a client whose channel counts.
    pub fn counted_addr(&self, link: LinkKey) -> Option<IpAddr> {
        let link = self.get(link)?;
        let channel = link.channel().filter(|channel| channel.is_counted())?;
        self.is_client(link.party(), channel.peer()).then_some(channel.addr().ip())
    }
}
