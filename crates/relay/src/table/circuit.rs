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
//! TRUNCATE leads back to 2. A *transit* circuit crosses from another shard to a channel of this one: it is `Transit`
//! instead of `Open`, begins in 3 and never goes back.
//!
//! Its lanes change by the table's verbs alone, which keep them and the links' ids together. Five things it keeps for
//! other parts, because they begin and end with it and maps of their own would cost a look-up for each cell: for
//! `admission` through whom it came and whether it is marked as unused, for `dos` how fast it begins streams, for
//! `exit` our end of it and how many questions of its the resolver has, for `forwarding` what is done with its
//! datagrams.

use super::lane::Lane;
use crate::admission::{Party, Unused};
use crate::exit::{End, Stream};
use crate::forwarding::Forwarding;
use crate::keys::{LinkKey, Side};
use crate::message::Wanted;
use heddle_forwarding::Session;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::crypto::onionskin::{Answer, CongestionOffer, HandshakeType};
use heddle_proto::crypto::tor1::{CellDigest, Recognized, RelayLayer};
use heddle_proto::flow_control::FlowChoice;
use heddle_proto::pace::{Pace, Rate};
use heddle_proto::params::NetworkParams;
use heddle_proto::pool::CellQueue;
use heddle_seam::node::{JobId, SocketId};
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;

/// RELAY_EARLY cells that a circuit may carry away from its client (tor-spec, "Handling
/// RELAY_EARLY cells").
const RELAY_EARLY_MAX: u8 = 8;

/// The hop after us.
#[derive(Debug)]
pub(crate) enum Next {
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
        /// When CREATE2 was queued.
        since: Instant,
        /// When it left: until then the next relay owes no answer.
        left_at: Option<Instant>,
    },
    Joined(Lane),
}

/// What a circuit does.
enum State {
    /// Its onionskin is with a worker. With the answer the client takes our offer or leaves it.
    Handshaking { handshake: HandshakeType, job: JobId, offer: Option<CongestionOffer> },
    /// It shares a layer with the client.
    Open {
        layer: Box<RelayLayer>,
        /// The congestion control that the client and we agreed on.
        congestion: Option<CongestionOffer>,
        /// RELAY_EARLY cells that it may still carry.
        early_left: u8,
    },
    /// It crosses from another shard, and only moves cells.
    Transit,
}

pub(crate) struct Circuit {
    /// Through whom it came.
    party: Party,
    pub(super) prev: Lane,
    pub(super) next: Next,
    state: State,
    /// Our end of the circuit, made when its first stream begins.
    end: Option<Box<End>>,
    /// What is done with its datagrams, once its client wants that.
    forwarding: Option<Forwarding>,
    /// Its questions that the resolver has not answered.
    questions: u16,
    /// How fast it begins streams and asks for names, while there is a limit.
    streams_pace: Pace,
    /// When it was last seen to carry something; see `idle`.
    used_at: Instant,
    /// Whether it is marked as one that nobody uses.
    unused: bool,
}

impl Circuit {
    /// A circuit whose onionskin goes to a worker.
    pub fn handshaking(
        now: Instant,
        party: Party,
        prev: Lane,
        (handshake, job): (HandshakeType, JobId),
        offer: Option<CongestionOffer>,
    ) -> Self {
        Circuit::new(now, party, prev, State::Handshaking { handshake, job, offer })
    }

    /// A circuit that only moves cells.
    pub fn transit(now: Instant, party: Party, prev: Lane, wanted: Box<Wanted>) -> Self {
        Circuit { next: Next::Waiting(wanted), ..Circuit::new(now, party, prev, State::Transit) }
    }

    fn new(now: Instant, party: Party, prev: Lane, state: State) -> Self {
        Circuit {
            party,
            prev,
            next: Next::None,
            state,
            end: None,
            forwarding: None,
            questions: 0,
            streams_pace: Pace::default(),
            used_at: now,
            unused: false,
        }
    }

    /// Through whom it came.
    pub fn party(&self) -> Party {
        self.party
    }

    /// Whom it came through counts as somebody else.
    pub fn move_to(&mut self, party: Party) {
        self.party = party;
    }

    /// Whether it crosses from another shard.
    pub fn is_transit(&self) -> bool {
        matches!(self.state, State::Transit)
    }

    pub fn prev(&self) -> &Lane {
        &self.prev
    }

    pub fn next(&self) -> &Next {
        &self.next
    }

    /// The relay that it waits for a link to.
    pub fn wanted(&self) -> Option<&Wanted> {
        match &self.next {
            Next::Waiting(wanted) => Some(wanted),
            _ => None,
        }
    }

    /// Its link has led nowhere: the next address is to be tried. Returns whether it waits for one.
    pub fn try_next_addr(&mut self) -> bool {
        let Next::Waiting(wanted) = &mut self.next else { return false };
        wanted.addrs_tried += 1;
        true
    }

    pub fn lane(&self, side: Side) -> Option<&Lane> {
        match (side, &self.next) {
            (Side::Prev, _) => Some(&self.prev),
            (Side::Next, Next::Creating { lane, .. } | Next::Joined(lane)) => Some(lane),
            (Side::Next, Next::None | Next::Waiting(_) | Next::Queued { .. }) => None,
        }
    }

    pub(super) fn lane_mut(&mut self, side: Side) -> Option<&mut Lane> {
        match (side, &mut self.next) {
            (Side::Prev, _) => Some(&mut self.prev),
            (Side::Next, Next::Creating { lane, .. } | Next::Joined(lane)) => Some(lane),
            (Side::Next, Next::None | Next::Waiting(_) | Next::Queued { .. }) => None,
        }
    }

    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        [Some(&self.prev), self.lane(Side::Next)].into_iter().flatten()
    }

    /// The link on which its CREATE2 was sent and not answered.
    pub fn unanswered_on(&self) -> Option<LinkKey> {
        match &self.next {
            Next::Creating { lane, left_at: Some(_), .. } => Some(lane.link),
            _ => None,
        }
    }

    /// When its CREATE2 left, if that is not answered.
    pub fn create_left_at(&self) -> Option<Instant> {
        match self.next {
            Next::Creating { left_at, .. } => left_at,
            _ => None,
        }
    }

    /// The flows that it has open, by their links and names.
    pub fn open_flows(&self) -> impl Iterator<Item = (LinkKey, CircId)> {
        self.lanes().filter(|lane| lane.is_open_flow()).map(|lane| (lane.link, lane.circ_id))
    }

    /// Whether cells left on either lane since this was last asked.
    fn take_moved(&mut self) -> bool {
        let mut take = |side| self.lane_mut(side).is_some_and(|lane| core::mem::take(&mut lane.moved));
        // Each is asked, so that neither tells of this time the next.
        let [prev, next] = [Side::Prev, Side::Next].map(&mut take);
        prev || next
    }

    /// Where cells of this circuit wait: on its lanes and in its streams.
    pub fn queues(&self) -> impl Iterator<Item = &CellQueue> {
        let streams = self.end.iter().flat_map(|end| end.streams());
        self.lanes().map(|lane| &lane.queue).chain(streams.map(|stream| stream.owed().queue()))
    }

    /// Cells of this circuit that wait.
    pub fn queued_cells(&self) -> u32 {
        self.queues().map(CellQueue::len).sum()
    }

    /// What connections of its streams are owed.
    pub fn owed(&self) -> impl Iterator<Item = (SocketId, &CellQueue)> {
        let streams = self.end.iter().flat_map(|end| end.streams());
        streams.filter_map(|stream| Some((stream.socket()?, stream.owed().queue())))
    }

    /// Takes a circuit that is over apart.
    pub fn into_lanes(self) -> (Lane, Next) {
        (self.prev, self.next)
    }
}

/// The handshake.
impl Circuit {
    /// What its onionskin asks for, while that is with a worker.
    pub fn handshake(&self) -> Option<HandshakeType> {
        match self.state {
            State::Handshaking { handshake, .. } => Some(handshake),
            State::Open { .. } | State::Transit => None,
        }
    }

    /// The job that answers its onionskin, while that is not done.
    pub fn job(&self) -> Option<JobId> {
        match self.state {
            State::Handshaking { job, .. } => Some(job),
            State::Open { .. } | State::Transit => None,
        }
    }

    /// Its onionskin was answered.
    pub fn open(&mut self, now: Instant, answer: &Answer) {
        let State::Handshaking { offer, .. } = self.state else { return };
        let congestion = offer.filter(|_| answer.congestion_control);
        let layer = Box::new(RelayLayer::new(&answer.keys));
        self.state = State::Open { layer, congestion, early_left: RELAY_EARLY_MAX };
        self.used_at = now;
    }
}

/// Cells.
impl Circuit {
    /// Moves a cell from the client to `out`, and takes our layer off. `None` when no such cell may come.
    pub fn forward(&mut self, command: Command, body: &Body, out: &mut Body) -> Option<Recognized> {
        match &mut self.state {
            State::Handshaking { .. } => None,
            State::Open { layer, early_left, .. } => {
                if command == Command::RELAY_EARLY {
                    *early_left = early_left.checked_sub(1)?;
                }
                Some(layer.forward(body, out))
            }
            State::Transit => {
                out.copy_from_slice(body);
                Some(Recognized::No)
            }
        }
    }

    /// Moves a cell towards the client to `out`, and puts our layer on.
    pub fn backward(&mut self, body: &Body, out: &mut Body) {
        match &mut self.state {
            State::Open { layer, .. } => layer.backward(body, out),
            // While handshaking nothing is ahead from which a cell could come.
            State::Handshaking { .. } | State::Transit => out.copy_from_slice(body),
        }
    }

    /// Seals a cell of our own to the client. `None` when we share no layer with it.
    pub fn originate(&mut self, body: &mut Body) -> Option<CellDigest> {
        match &mut self.state {
            State::Open { layer, .. } => Some(layer.originate(body)),
            State::Handshaking { .. } | State::Transit => None,
        }
    }
}

/// Datagrams.
impl Circuit {
    /// Whether datagrams may go from now on: not twice, and not beside streams.
    pub fn may_forward(&self) -> bool {
        matches!(self.state, State::Open { .. }) && self.end.is_none() && self.forwarding.is_none()
    }

    pub fn begin_forwarding(&mut self, forwarding: Forwarding) {
        self.forwarding = Some(forwarding);
    }

    /// Puts our layer on a datagram that came on this side, or takes it off. False when it goes no further.
    pub fn pass_datagram(&self, side: Side, body: &mut Body) -> bool {
        match &self.forwarding {
            Some(forwarding) => forwarding.pass(side, body),
            None => self.is_transit(),
        }
    }

    /// What its layer or our end of its session takes itself.
    pub fn forwarding_bytes(&self) -> usize {
        self.forwarding.as_ref().map_or(0, Forwarding::bytes)
    }

    /// Our end of its session, if it has one.
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        self.forwarding.as_mut()?.session_mut()
    }

    /// The same, to look at.
    pub fn session(&self) -> Option<&Session> {
        self.forwarding.as_ref()?.session()
    }

    /// Cells and messages that wait towards the client.
    pub fn cells_towards_client(&self) -> u32 {
        self.prev.queue.len() + self.session().map_or(0, Session::queued_cells)
    }
}

/// Our end, and who uses it.
impl Circuit {
    pub fn end_mut(&mut self) -> Option<&mut End> {
        self.end.as_deref_mut()
    }

    /// Our end of it, made when it is first needed.
    pub fn end_or_new(&mut self, choice: FlowChoice, params: &NetworkParams, rng: &mut Rng) -> &mut End {
        let congestion = match self.state {
            State::Open { congestion, .. } => congestion,
            State::Handshaking { .. } | State::Transit => None,
        };
        self.end.get_or_insert_with(|| Box::new(End::new(congestion, choice, params, rng)))
    }

    /// Its end goes, with all streams.
    pub fn take_end(&mut self) -> Option<Box<End>> {
        self.end.take()
    }

    pub fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.end_mut()?.stream_mut(id)
    }

    pub fn streams_len(&self) -> usize {
        self.end.as_ref().map_or(0, |end| end.streams_len())
    }

    /// Its questions that the resolver has not answered.
    pub fn questions(&self) -> u16 {
        self.questions
    }

    /// The resolver is asked something for it.
    pub fn begin_question(&mut self) {
        self.questions += 1;
    }

    /// The resolver answered, or is asked no more. Until now the circuit was used.
    pub fn end_question(&mut self, now: Instant) {
        self.questions -= 1;
        self.used_at = now;
    }

    /// Whether it may begin one more stream or question at this rate, which it then does.
    pub fn may_begin_stream(&mut self, now: Instant, rate: Rate) -> bool {
        self.streams_pace.take(now, rate)
    }

    /// When it was last seen to carry something; see `idle`.
    pub fn used_at(&self) -> Instant {
        self.used_at
    }

    /// It is used, or was until now. Returns whether it was marked as one that nobody uses, which it is no more.
    pub fn note_used(&mut self, now: Instant) -> bool {
        self.used_at = now;
        core::mem::take(&mut self.unused)
    }

    /// Marks it as one that nobody uses. Returns whether it was not.
    pub fn mark_unused(&mut self) -> bool {
        !core::mem::replace(&mut self.unused, true)
    }

    /// Whether it is marked so.
    pub fn is_marked(&self) -> bool {
        self.unused
    }

    /// In what way nobody used it since it was last looked at.
    pub fn look(&mut self) -> Option<Unused> {
        let has_moved = self.take_moved();
        let goes_on = matches!(self.next, Next::Joined(_));
        match self.streams_len() == 0 && self.questions == 0 && !(goes_on && has_moved) {
            true if goes_on => Some(Unused::Quiet),
            true => Some(Unused::GoodForNothing),
            false => None,
        }
    }
}
