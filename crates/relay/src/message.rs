//! What a shard hears from the control plane and from other shards, and what it reports.

use crate::admission::Party;
use crate::observe::{Observed, Observees, Place};
use crate::relays::Relays;
use crate::stats::RelayStats;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::{ChannelError, Role, StreamTransport, Target};
use heddle_proto::credit::CreditMessage;
use heddle_proto::crypto::onionskin::OnionKeys;
use heddle_proto::ids::{RelayIds, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_proto::policy::ExitPolicy;
use heddle_seam::node::ShardId;
use std::sync::Arc;

/// What the operator or the control plane wants of a shard.
pub enum Control {
    /// A new consensus is in force.
    Params(Arc<NetworkParams>),
    /// The relays of the consensus: pairs are formed with no one else. None, until this has come.
    Peers(Arc<Relays>),
    /// The circuit keys, at the start and after each rotation.
    OnionKeys(Arc<OnionKeys>),
    /// New link certificates: channels from now on are made by this transport.
    Transport(Box<dyn StreamTransport>),
    /// Find out whether our ORPort is reachable, by a circuit through `via` to ourselves. At least
    /// two different relays: none extends a circuit back to where it came from.
    ProbeReachability { via: Vec<ProbeHop>, ourselves: Target },
    /// Open a channel to a directory authority, though there may be one: it tells how it sees our address
    /// ([`Event::OurAddress`]).
    AskAddress { authority: RelayIds, at: SocketAddr },
    /// What exit streams may reach from now on.
    ExitPolicy(ExitPolicy),
    /// Say what was done and what waits: [`Event::Stats`] follows.
    Stats,
    /// Look at all of a family, or at the one of that index: [`Event::Observed`] follows, with the request's number.
    Observe { request: u64, observees: Observees, index: Option<u64> },
    /// Begin, or end, to look each time that the shard comes by a place: [`Event::Observed`] follows, of several at
    /// once.
    Force { place: Place, on: bool },
    /// Accept nothing new; circuits that exist live on.
    Drain,
    /// Destroy every circuit and close every channel.
    Shutdown,
}

/// A hop of a reachability probe: a relay of the consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeHop {
    pub target: Target,
    pub ntor_key: [u8; 32],
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Control::Params(_) => "Params",
            Control::Peers(_) => "Peers",
            Control::OnionKeys(_) => "OnionKeys",
            Control::Transport(_) => "Transport",
            Control::ProbeReachability { .. } => "ProbeReachability",
            Control::AskAddress { .. } => "AskAddress",
            Control::ExitPolicy(_) => "ExitPolicy",
            Control::Stats => "Stats",
            Control::Observe { .. } => "Observe",
            Control::Force { .. } => "Force",
            Control::Drain => "Drain",
            Control::Shutdown => "Shutdown",
        })
    }
}

/// What a shard reports. Nothing in it concerns a single circuit or client, but for what somebody who analyses the
/// relay asked to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A channel to a relay opened (a client's channel is not reported).
    ChannelOpened { role: Role, peer: RelayIds, addr: SocketAddr },
    /// A channel to a relay, or an attempt to open one, ended.
    ChannelClosed { peer: Option<RelayIds>, addr: SocketAddr, error: ChannelError },
    /// Circuits to a relay may go on flows of a transport.
    ConnectionReady { transport: &'static str, peer: RelayIds, addr: SocketAddr },
    /// They may not any more, for one word's reason. Cells are those of the connection's whole life.
    ConnectionEnded {
        transport: &'static str,
        peer: RelayIds,
        reason: &'static str,
        cells_in: u64,
        cells_out: u64,
    },
    /// A relay that was dialled for [`Control::AskAddress`] told us how it sees our address (NETINFO).
    OurAddress { ours: IpAddr, by: RelayIds, at: SocketAddr },
    /// The clock of a relay of the consensus differs much from ours, which is so far ahead of it, or behind (NETINFO).
    ClockDiffers { peer: RelayIds, ahead_s: i64 },
    /// Somebody else's channel to our ORPort carried our own probe.
    Reachable,
    /// A reachability probe failed; the control plane may try another relay.
    ProbeFailed,
    /// The cell pool was full; the circuit that held the most cells was closed.
    MemoryPressure { freed_cells: u32 },
    /// The answer to [`Control::Stats`].
    Stats(Box<RelayStats>),
    /// What was seen by [`Control::Observe`] or [`Control::Force`]: the one event that tells single circuits apart, and
    /// only where somebody asked.
    Observed(Box<Observed>),
}

/// A message from one shard of a relay to another. Shards trust each other.
#[derive(Debug)]
pub enum ShardMessage {
    /// To the owner of the directory: which shard is to carry circuits to this relay?
    Ask { request: u64, rsa: RsaId },
    /// The owner's answer.
    Answer { request: u64, shard: ShardId },
    /// To the owner: the sender has a channel to this relay from now on, or none any more.
    Announce { rsa: RsaId, open: bool },
    /// A circuit crosses.
    Crossed(Crossed),
}

/// What crosses between shards; circuit ids are those of the link between the two.
#[derive(Debug)]
pub enum Crossed {
    /// A circuit goes on at the receiver, which sends CREATE2. It came to the relay through `party`.
    Create { circ_id: CircId, party: Party, wanted: Box<Wanted> },
    /// Cells, in order.
    Cells(Vec<CrossedCell>),
    /// What the receiver may send on a lane, or is asked.
    Credit { circ_id: CircId, message: CreditMessage },
    /// The circuit ends at the sender.
    Destroy { circ_id: CircId, reason: DestroyReason },
}

/// The hop that a circuit is to get.
#[derive(Clone)]
pub struct Wanted {
    pub target: Target,
    /// What it is asked with: the body of a CREATE2 cell.
    pub create2: Body,
    /// How many of the target's addresses failed.
    pub addrs_tried: usize,
    /// Whether a flow has failed this circuit already: then it goes over a channel.
    pub over_channel: bool,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.target)
    }
}

/// One cell that crosses.
pub struct CrossedCell {
    pub circ_id: CircId,
    pub command: Command,
    pub body: Body,
}

impl fmt::Debug for CrossedCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.circ_id, self.command)
    }
}
