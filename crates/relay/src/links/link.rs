//! Where lanes lead: a channel to a neighbour, a connection with a flow for each lane, or the crossing to another
//! shard of this relay.

use super::unanswered::Unanswered;
use crate::admission::Party;
use crate::stats::CHANNELS;
use crate::table::Credit;
use core::net::SocketAddr;
use heddle_proto::channel::{Role, Target};
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::RelayIds;
use heddle_seam::node::{ShardId, SocketId};
use heddle_seam::time::Instant;

/// What lies behind a link.
#[derive(Debug)]
pub(crate) enum LinkKind {
    Channel(ChannelLink),
    Flows(FlowLink),
    /// Another shard of this relay.
    Shard(ShardId),
}

/// What the relay knows of a channel, beside the channel itself.
#[derive(Debug)]
pub(crate) struct ChannelLink {
    pub socket: SocketId,
    pub role: Role,
    pub addr: SocketAddr,
    /// Whom the peer proved to be: `None` before the handshake is over, and for clients.
    pub peer: Option<RelayIds>,
    pub open: bool,
    /// Bytes that came before it was.
    pub handshake_bytes: u64,
    /// Whether it is one of its address' connections, as far as stock's defences go.
    pub counted: bool,
    /// Whether the peer itself names the address that we are connected to.
    pub canonical: bool,
    /// When the handshake was over.
    pub opened_at: Instant,
    /// When the last circuit left.
    pub idle_since: Instant,
    /// Takes no new circuits: a better channel to the same relay exists, or it is too old.
    pub retired: bool,
}

/// What the relay knows of a connection whose lanes are flows; it is ready as long as the link exists.
#[derive(Debug)]
pub(crate) struct FlowLink {
    /// The endpoint's place among the shard's ports, and its name for the connection.
    pub port: usize,
    pub conn: ConnId,
    pub role: Role,
    pub peer: RelayIds,
    /// Where the channel that vouched for it is connected to, and whether the peer itself names that address.
    pub addr: SocketAddr,
    pub canonical: bool,
    pub opened_at: Instant,
    /// Flows that we may open, as the endpoint said, less those opened since.
    pub room: u32,
    /// Of these, as many are for circuits whose CREATE2 has not left.
    pub opening: u32,
    /// Takes no new circuits of ours.
    pub draining: bool,
    /// Whether the pair knows that there are flows.
    pub occupied: bool,
    /// Whether the operator's rates hold for this peer.
    pub limited: bool,
    /// Whether a flow that is not read holds back its own circuit alone, so that it may be held while its cells wait.
    pub may_hold: bool,
    pub cells_in: u64,
    pub cells_out: u64,
}

/// What the relay knows of a link; its lanes are in the table.
#[derive(Debug)]
pub(crate) struct Link {
    pub kind: LinkKind,
    /// Who is behind it, as far as shares go; this relay itself behind another shard.
    pub party: Party,
    /// How many of its DESTROY cells count as circuits, and since when some do.
    pub farewells_counted: usize,
    pub farewells_since: Instant,
    /// CREATE2 cells that went here and are not answered.
    pub unanswered: Unanswered,
}

impl Link {
    pub fn new(kind: LinkKind, party: Party) -> Self {
        Link {
            kind,
            party,
            farewells_counted: 0,
            farewells_since: Instant::ZERO,
            unanswered: Unanswered::default(),
        }
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

    /// Who opened it; neither did with another shard.
    pub fn role(&self) -> Option<Role> {
        match &self.kind {
            LinkKind::Channel(channel) => Some(channel.role),
            LinkKind::Flows(flows) => Some(flows.role),
            LinkKind::Shard(_) => None,
        }
    }

    /// The relay at the other end, if one proved to be there.
    pub fn peer(&self) -> Option<RelayIds> {
        match &self.kind {
            LinkKind::Channel(channel) => channel.peer,
            LinkKind::Flows(flows) => Some(flows.peer),
            LinkKind::Shard(_) => None,
        }
    }

    /// Whether circuits that were asked to go to `target` may go over this link: it leads to the right identities, and
    /// the peer itself names the address we are connected to, or the client asked for that address. Otherwise whoever
    /// stands at an address of a client's choice would carry the circuits of others (tor: `channel_get_for_extend`).
    pub fn leads_to(&self, target: &Target) -> bool {
        let (peer, canonical, addr) = match &self.kind {
            LinkKind::Channel(channel) => (channel.peer, channel.canonical, channel.addr),
            LinkKind::Flows(flows) => (Some(flows.peer), flows.canonical, flows.addr),
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
            LinkKind::Flows(flows) => Some(flows.port + 1),
            LinkKind::Shard(_) => None,
        }
    }

    /// The credit of a lane that the peer began.
    pub fn credit_of_begun(&self) -> Credit {
        match &self.kind {
            LinkKind::Flows(_) => Credit::flow_begun(),
            LinkKind::Channel(_) | LinkKind::Shard(_) => Credit::Unlimited,
        }
    }
}
