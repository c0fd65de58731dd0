//! Where lanes lead: a channel to a neighbour, a connection with a flow for each lane, or the crossing to another
//! shard of this relay.
//!
//! A link says who is behind it in the words of `admission`, because shares are a neighbour's whatever its link, and
//! where it is counted in the words of `stats`, because that depends on nothing but what the link is.

use super::channel_link::ChannelLink;
use super::farewells::Farewells;
use super::flow_link::FlowLink;
use super::unanswered::Unanswered;
use crate::admission::Party;
use crate::stats::CHANNELS;
use heddle_proto::channel::{Role, Target};
use heddle_proto::ids::RelayIds;
use heddle_seam::node::ShardId;

/// What lies behind a link.
#[derive(Debug)]
pub(crate) enum LinkKind {
    Channel(ChannelLink),
    Flows(FlowLink),
    /// Another shard of this relay.
    Shard(ShardId),
}

/// What the relay knows of a link; its lanes are in the table.
#[derive(Debug)]
pub(crate) struct Link {
    kind: LinkKind,
    /// Who is behind it, as far as shares go; this relay itself behind another shard.
    party: Party,
    farewells: Farewells,
    /// CREATE2 cells that went here and are not answered.
    unanswered: Unanswered,
}

impl Link {
    pub fn new(kind: LinkKind, party: Party) -> Self {
        Link { kind, party, farewells: Farewells::default(), unanswered: Unanswered::default() }
    }

    pub fn kind(&self) -> &LinkKind {
        &self.kind
    }

    /// Who is behind it, as far as shares go.
    pub fn party(&self) -> Party {
        self.party
    }

    /// Who is behind it counts as somebody else. Whether that is news.
    pub fn move_to(&mut self, party: Party) -> bool {
        core::mem::replace(&mut self.party, party) != party
    }

    pub fn farewells(&self) -> &Farewells {
        &self.farewells
    }

    pub fn farewells_mut(&mut self) -> &mut Farewells {
        &mut self.farewells
    }

    pub fn unanswered(&self) -> &Unanswered {
        &self.unanswered
    }

    pub fn unanswered_mut(&mut self) -> &mut Unanswered {
        &mut self.unanswered
    }

    pub fn channel(&self) -> Option<&ChannelLink> {
        match &self.kind {
            LinkKind::Channel(channel) => Some(channel),
            LinkKind::Flows(_) | LinkKind::Shard(_) => None,
        }
    }

    pub fn channel_mut(&mut self) -> Option<&mut ChannelLink> {
        match &mut self.kind {
            LinkKind::Channel(channel) => Some(channel),
            LinkKind::Flows(_) | LinkKind::Shard(_) => None,
        }
    }

    pub fn flows(&self) -> Option<&FlowLink> {
        match &self.kind {
            LinkKind::Flows(flows) => Some(flows),
            LinkKind::Channel(_) | LinkKind::Shard(_) => None,
        }
    }

    pub fn flows_mut(&mut self) -> Option<&mut FlowLink> {
        match &mut self.kind {
            LinkKind::Flows(flows) => Some(flows),
            LinkKind::Channel(_) | LinkKind::Shard(_) => None,
        }
    }

    /// The shard at the other end, if one is.
    pub fn shard(&self) -> Option<ShardId> {
        match self.kind {
            LinkKind::Shard(shard) => Some(shard),
            LinkKind::Channel(_) | LinkKind::Flows(_) => None,
        }
    }

    /// Who opened it; neither did with another shard.
    pub fn role(&self) -> Option<Role> {
        match &self.kind {
            LinkKind::Channel(channel) => Some(channel.role()),
            LinkKind::Flows(flows) => Some(flows.connection().role),
            LinkKind::Shard(_) => None,
        }
    }

    /// The relay at the other end, if one proved to be there.
    pub fn peer(&self) -> Option<RelayIds> {
        match &self.kind {
            LinkKind::Channel(channel) => channel.peer(),
            LinkKind::Flows(flows) => Some(flows.peer()),
            LinkKind::Shard(_) => None,
        }
    }

    /// Whether circuits that were asked to go to `target` may go over this link: it leads to the right identities, and
    /// the peer itself names the address we are connected to, or the client asked for that address. Otherwise whoever
    /// stands at an address of a client's choice would carry the circuits of others (tor: `channel_get_for_extend`).
    pub fn leads_to(&self, target: &Target) -> bool {
        let (peer, canonical, addr) = match &self.kind {
            LinkKind::Channel(channel) => (channel.peer(), channel.is_canonical(), channel.addr()),
            LinkKind::Flows(flows) => {
                let connection = flows.connection();
                (Some(connection.peer), connection.canonical, connection.addr)
            }
            LinkKind::Shard(_) => return false,
        };
        let is_peer = |peer: RelayIds| {
            peer.rsa == target.rsa && target.ed25519.is_none_or(|wanted| wanted == peer.ed25519)
        };
        let is_asked_for = || target.addrs.iter().any(|asked| asked.ip() == addr.ip());
        peer.is_some_and(is_peer) && (canonical || is_asked_for())
    }

    /// Its place in the counts by transport.
    pub fn transport(&self) -> Option<usize> {
        match &self.kind {
            LinkKind::Channel(_) => Some(CHANNELS),
            LinkKind::Flows(flows) => Some(flows.transport()),
            LinkKind::Shard(_) => None,
        }
    }
}
