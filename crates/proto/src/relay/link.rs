//! Where lanes lead: a channel to a neighbour, or the crossing to another shard of this relay.

use super::circuit::{CircuitKey, Side};
use crate::cell::CircId;
use crate::cell::create::DestroyReason;
use crate::channel::Role;
use crate::ids::RelayIds;
use crate::node::{ShardId, SocketId};
use crate::time::Instant;
use core::net::SocketAddr;
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};

slotmap::new_key_type! {
    /// A link of this shard.
    pub(super) struct LinkKey;
}

/// What lies behind a link.
#[derive(Debug)]
pub(super) enum LinkKind {
    Channel(ChannelLink),
    /// Another shard of this relay.
    Shard(ShardId),
}

/// What the relay knows of a channel, beside the channel itself.
#[derive(Debug)]
pub(super) struct ChannelLink {
    pub socket: SocketId,
    pub role: Role,
    pub addr: SocketAddr,
    /// Whom the peer proved to be: `None` before the handshake is over, and for clients.
    pub peer: Option<RelayIds>,
    pub open: bool,
    /// Whether the peer itself names the address that we are connected to.
    pub canonical: bool,
    /// When the handshake was over.
    pub opened_at: Instant,
    /// When the last circuit left.
    pub idle_since: Instant,
    /// Takes no new circuits: a better channel to the same relay exists, or it is too old.
    pub retired: bool,
}

/// A destroyed circuit's last word on a link. Its id stays taken until the word is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Farewell {
    pub circ_id: CircId,
    pub reason: DestroyReason,
}

/// A lane's turn to send a cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub circuit: CircuitKey,
    pub side: Side,
    /// The lane's id, since a circuit that was truncated may have another lane by now.
    pub circ_id: CircId,
}

/// The lanes of a link, and whose turn it is.
#[derive(Debug)]
pub(super) struct Link {
    pub kind: LinkKind,
    /// At most `Limits::circuits_per_channel` entries, each with at most one place in `farewells`;
    /// then its circuit is the null key. Never iterated in an order that matters.
    pub lanes: HashMap<CircId, (CircuitKey, Side), FixedState>,
    /// Lanes with queued cells and credit, in the order of round robin. Turns of lanes that are over
    /// are skipped, and swept out before they are many.
    pub ready: VecDeque<Turn>,
    /// DESTROY cells, which overtake all others.
    pub farewells: VecDeque<Farewell>,
    /// Whether the relay's list of links to flush holds this one.
    pub listed: bool,
}

impl Link {
    pub fn new(kind: LinkKind, hash_seed: u64) -> Self {
        Link {
            kind,
            lanes: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            ready: VecDeque::new(),
            farewells: VecDeque::new(),
            listed: false,
        }
    }

    pub fn channel(&self) -> Option<&ChannelLink> {
        match &self.kind {
            LinkKind::Channel(channel) => Some(channel),
            LinkKind::Shard(_) => None,
        }
    }

    pub fn channel_mut(&mut self) -> Option<&mut ChannelLink> {
        match &mut self.kind {
            LinkKind::Channel(channel) => Some(channel),
            LinkKind::Shard(_) => None,
        }
    }

    /// Whether something waits to leave here.
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.farewells.is_empty()
    }
}
