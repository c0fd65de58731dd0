//! A circuit as this relay sees it: two lanes, a layer of encryption between them, and perhaps an
//! end of its own.
//!
//! ```text
//!            prev lane                      next lane
//!   client ─────────────▶ [ our layer ] ─────────────▶ further hops
//!          ◀── queue ───                 ─── queue ──▶
//! ```
//!
//! States, in order:
//!
//! 1. `Handshaking`: CREATE2 is with a worker. Only DESTROY may come.
//! 2. `Open` without a next lane: we are the last hop.
//! 3. `Open` with [`Next::Waiting`]: EXTEND2 came, a channel is being found or dialled.
//! 4. `Open` with [`Next::Queued`]: there is one, on which too many have not been answered.
//! 5. `Open` with [`Next::Creating`]: CREATE2 is queued or sent, CREATED2 has not come. A flow that breaks now leads
//!    back to 3, once, for a channel.
//! 6. `Open` with [`Next::Joined`]: cells pass.
//!
//! TRUNCATE leads back to 2. A *transit* circuit crosses from another shard
//! to a channel of this one: it has no layer, begins in 3 and never goes back.

use super::admission::Party;
use super::dos::Pace;
use super::end::End;
use super::link::LinkKey;
use super::message::Wanted;
use super::scheduler::Activity;
use heddle_proto::cell::CircId;
use heddle_proto::crypto::onionskin::{CongestionOffer, HandshakeType};
use heddle_proto::crypto::tor1::RelayLayer;
use heddle_proto::pool::CellQueue;
use heddle_seam::node::JobId;
use heddle_seam::time::Instant;

slotmap::new_key_type! {
    /// A circuit of this shard.
    pub(super) struct CircuitKey;
}

/// RELAY_EARLY cells that a circuit may carry away from its client (tor-spec, "Handling
/// RELAY_EARLY cells").
pub(super) const RELAY_EARLY_MAX: u8 = 8;

/// One of the two directions in which a circuit leaves us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// Towards the client.
    Prev,
    /// Away from the client.
    Next,
}

impl Side {
    pub fn opposite(self) -> Side {
        match self {
            Side::Prev => Side::Next,
            Side::Next => Side::Prev,
        }
    }
}

/// A circuit's place on one link, with the cells that wait to leave there.
#[derive(Debug)]
pub(super) struct Lane {
    pub link: LinkKey,
    pub circ_id: CircId,
    pub queue: CellQueue,
    /// Whether the link's ready queue holds this lane.
    pub ready: bool,
    /// Whether a cell left since the circuit was last looked at; see `idle`.
    pub moved: bool,
    /// What the lane itself may send; channels take all that their capacity allows.
    pub credit: Credit,
    /// What the link's scheduler remembers of this lane.
    pub activity: Activity,
    /// Whether it has a place among the link's unanswered CREATE2 cells.
    pub unanswered: bool,
}

/// How many cells a lane may send before it is told more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    Unlimited,
    /// `begun`: the flow exists, so that it is ended by a word. `blocked`: it takes no cell now. `held`: it is not read,
    /// because too many of its cells wait in the circuit's other lane.
    Flow {
        begun: bool,
        blocked: bool,
        held: bool,
    },
    /// `to_send`: cells that the other shard still takes. `arrived`: cells of the other shard that
    /// have not left yet. `to_grant`: cells that left and were not reported yet.
    Cells {
        to_send: u32,
        arrived: u32,
        to_grant: u32,
    },
}

impl Credit {
    pub fn allows(self) -> bool {
        !matches!(self, Credit::Cells { to_send: 0, .. } | Credit::Flow { blocked: true, .. })
    }
}

impl Lane {
    pub fn new(link: LinkKey, circ_id: CircId, credit: Credit) -> Self {
        Lane {
            link,
            circ_id,
            queue: CellQueue::default(),
            ready: false,
            moved: false,
            credit,
            activity: Activity::default(),
            unanswered: false,
        }
    }
}

/// The hop after us.
#[derive(Debug)]
pub(super) enum Next {
    None,
    /// A channel to this relay is being found.
    Waiting(Box<Wanted>),
    /// It is to go on over this link, when its turn comes (`unanswered`).
    Queued {
        wanted: Box<Wanted>,
        link: LinkKey,
    },
    Creating {
        lane: Lane,
        /// What goes over TLS if this flow breaks before it answers.
        again: Option<Box<Wanted>>,
        since: Instant,
    },
    Joined(Lane),
}

/// What a circuit does.
pub(super) enum State {
    Handshaking { handshake: HandshakeType, job: JobId },
    Open,
}

pub(super) struct Circuit {
    /// Through whom it came.
    pub party: Party,
    pub prev: Lane,
    pub next: Next,
    pub state: State,
    /// Our layer; `None` while handshaking, and for transit circuits.
    pub layer: Option<Box<RelayLayer>>,
    /// Whether this circuit crosses from another shard.
    pub transit: bool,
    pub early_left: u8,
    /// The congestion control that the client and we agreed on; while handshaking, what we offer.
    pub congestion: Option<CongestionOffer>,
    /// Our end of the circuit, made when its first stream begins.
    pub end: Option<Box<End>>,
    /// Its questions that the resolver has not answered.
    pub questions: u16,
    /// How fast it begins streams and asks for names, while there is a limit.
    pub streams_pace: Pace,
    /// When it was last seen to carry something; see `idle`.
    pub used_at: Instant,
    /// Whether it is marked as one that nobody uses.
    pub unused: bool,
}

impl Circuit {
    /// A circuit that only moves cells.
    pub fn transit(now: Instant, party: Party, prev: Lane, wanted: Box<Wanted>) -> Self {
        Circuit {
            party,
            prev,
            next: Next::Waiting(wanted),
            state: State::Open,
            layer: None,
            transit: true,
            early_left: 0,
            congestion: None,
            end: None,
            questions: 0,
            streams_pace: Pace::default(),
            used_at: now,
            unused: false,
        }
    }

    pub fn lane(&self, side: Side) -> Option<&Lane> {
        match (side, &self.next) {
            (Side::Prev, _) => Some(&self.prev),
            (Side::Next, Next::Creating { lane, .. } | Next::Joined(lane)) => Some(lane),
            (Side::Next, Next::None | Next::Waiting(_) | Next::Queued { .. }) => None,
        }
    }

    pub fn lane_mut(&mut self, side: Side) -> Option<&mut Lane> {
        match (side, &mut self.next) {
            (Side::Prev, _) => Some(&mut self.prev),
            (Side::Next, Next::Creating { lane, .. } | Next::Joined(lane)) => Some(lane),
            (Side::Next, Next::None | Next::Waiting(_) | Next::Queued { .. }) => None,
        }
    }

    /// Whether CREATE2 is queued or sent and not answered.
    pub fn is_creating(&self) -> bool {
        matches!(self.next, Next::Creating { .. })
    }

    /// Where cells of this circuit wait: on its lanes and in its streams.
    pub fn queues(&self) -> impl Iterator<Item = &CellQueue> {
        let lanes = [Some(&self.prev), self.lane(Side::Next)].into_iter().flatten();
        let streams = self.end.iter().flat_map(|end| end.streams.values());
        lanes.map(|lane| &lane.queue).chain(streams.map(|stream| &stream.queue))
    }

    /// Cells of this circuit that wait.
    pub fn queued_cells(&self) -> u32 {
        self.queues().map(CellQueue::len).sum()
    }
}
