//! One connection: a pair's associations, and the flows in them.
//!
//! ```text
//!               the peer's proof is right
//!   Proving ──────────────────────────────▶ Open
//!      │                                      │
//!      └── no answer, a wrong proof, ─────────┴─▶ Over ──▶ answers with CLOSE for a while, then forgotten
//!          a fault, a dead path, CLOSE
//! ```
//!
//! While it is proving, only the control stream gets through. A listener is open half a round trip before its dialler,
//! and what it opens by then may come before its proof: the dialler keeps a few such segments until it is open, too.

mod served;
mod stack;
mod stream;

use super::addresses::{CONTROL_PORT, DATAGRAM_BYTES_MAX, FLOW_PORT};
use super::associations::Associations;
use super::chain::Root;
use super::control::{MESSAGE, Message, write_proof};
use super::flows::Flows;
use super::options::EspOptions;
use super::outbox::{Outbox, transmit};
use super::segment::{CONNECTIONS_BEGUN, Segment};
use super::sockets::{Room, Sockets};
use super::spares::Spares;
use crate::connections::circuits::Lent;
use crate::connections::pings::Pings;
use crate::connections::proof::{OfferKey, Proofs};
use crate::connections::setup::Timeouts;
use crate::connections::state::Part;
use crate::connections::{ConnKey, Served};
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::AtomicUsize;
use heddle_esp::beet::Inner;
use heddle_esp::packet::{TCP, sealed_len};
use heddle_esp::{Refused, Spi};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnectionError, ConnectionEvent, ConnectionOptions, ConnectionStats, FlowState,
};
use heddle_proto::pace::Pace;
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;
use std::sync::Arc;
use stream::ControlStream;
use zeroize::Zeroizing;

/// Segments that open flows and come before the listener's proof was read: so many flows begin within one round trip,
/// or as long as a lost proof takes to be sent again. What comes beyond, its kernel sends again after a second. Each is
/// as long as a datagram takes, so of a connection they are at most 64 times 1,350 bytes, which is 86 kB.
const OPENINGS_MAX: usize = 64;

/// How long a connection that is over tells its peer so, and how often at most.
const LINGER: Duration = Duration::from_secs(3);
const LAST_WORDS_MAX: u32 = 8;

enum State {
    Proving(Box<Proving>),
    Open(Box<Open>),
    Over(Over),
}

/// Until the peer's proof was right.
struct Proving {
    /// When it is given up unless it is open by then.
    deadline: Instant,
    timeouts: Timeouts,
    /// What proofs are made with is kept no longer than this: all keys there will ever be come of it.
    proofs: Proofs,
    /// The dialler has one from the beginning, the listener when the dialler's is there.
    stream: Option<ControlStream>,
    /// Segments that open flows, each with its marks of routers, and the bytes of all.
    openings: Vec<(u8, Box<[u8]>)>,
    openings_bytes: usize,
}

impl Proving {
    /// Keeps a segment until the peer's proof was right.
    fn keep(&mut self, ecn: u8, segment: &[u8]) {
        if self.openings.len() < OPENINGS_MAX {
            self.openings.push((ecn, segment.into()));
            self.openings_bytes += segment.len();
        }
    }

    fn kept_bytes(&self) -> usize {
        self.stream.as_ref().map_or(0, ControlStream::kept_bytes) + self.openings_bytes
    }
}

/// Once it is open.
struct Open {
    stream: ControlStream,
    flows: Flows,
    pings: Pings,
    /// Whether the peer was told last that we are out of sockets.
    told_full: bool,
}

/// Once it is over.
struct Over {
    /// When it is forgotten.
    until: Instant,
    last_words: u32,
}

/// What a connection is made of beside its options.
pub(super) struct Parts<'a> {
    pub(super) options: &'a EspOptions,
    pub(super) key: &'a OfferKey,
    pub(super) inner: Inner,
    pub(super) deadline: Instant,
    pub(super) room: Room,
    /// What all connections keep for others, and what they take themselves.
    pub(super) buffered: &'a Arc<AtomicUsize>,
    pub(super) memory: &'a Arc<AtomicUsize>,
}

pub(crate) struct Connection {
    role: Role,
    peer_ip: IpAddr,
    /// Where its datagrams come from and ours go, once a listener knows it.
    peer: Option<SocketAddr>,
    local: Option<IpAddr>,
    inner: Inner,
    associations: Associations,
    /// Flows that we permit the peer, unless we are out of sockets.
    flows_max: u32,
    /// What the driver opens and accepts, as it said last.
    room: Room,
    state: State,
    /// Connections that the peer begins inside, but for those that became circuits.
    begun: Pace,
    outbox: Outbox,
    batches: bool,
    events: VecDeque<ConnectionEvent>,
    stats: ConnectionStats,
    /// What it keeps for others, and what it takes itself.
    buffered: Part,
    memory: Part,
}

/// What it is, and how it begins and ends.
impl Connection {
    pub(super) fn new(now: Instant, parts: Parts<'_>, options: ConnectionOptions) -> Self {
        let Parts { options: chosen, key, inner, deadline, room, buffered, memory } = parts;
        let root = Root::new(&options.secrets);
        let is_dialler = options.role == Role::Initiator;
        let proofs = Proofs {
            role: options.role,
            our_key: key.clone(),
            shown: key.public(),
            peer_key: options.peer_key,
            connection: Zeroizing::new(root.binding().to_vec()),
            secrets: [options.secrets.dialler_proof, options.secrets.listener_proof],
        };
        let (timeouts, openings) = (chosen.timeouts, Vec::new());
        let proving = Proving { deadline, timeouts, proofs, stream: None, openings, openings_bytes: 0 };
        Connection {
            role: options.role,
            peer_ip: options.peer.ip().to_canonical(),
            peer: is_dialler.then_some(options.peer),
            local: options.local,
            inner,
            associations: Associations::new(now, &root, options.role, chosen.lifetime),
            flows_max: options.flows_max,
            room,
            state: State::Proving(Box::new(proving)),
            begun: Pace::default(),
            outbox: Outbox::default(),
            batches: chosen.batches,
            events: VecDeque::new(),
            stats: ConnectionStats::default(),
            buffered: Part::of(buffered),
            memory: Part::of(memory),
        }
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.peer_ip
    }

    pub(super) fn inner(&self) -> Inner {
        self.inner
    }

    /// The associations inwards.
    pub(super) fn spis(&self) -> impl Iterator<Item = Spi> + '_ {
        self.associations.inbound_spis()
    }

    /// Those that are new, with true, or gone since this was last asked.
    pub(super) fn take_spi_news(&mut self) -> Vec<(Spi, bool)> {
        self.associations.take_news()
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    #[cfg(test)]
    pub(super) fn has_proofs(&self) -> bool {
        matches!(self.state, State::Proving(_))
    }

    /// The dialler opens the control stream.
    pub(super) fn begin(&mut self, key: ConnKey, sockets: &mut Sockets) {
        if self.role == Role::Initiator
            && let State::Proving(proving) = &mut self.state
        {
            let to = SocketAddr::new(IpAddr::V4(self.inner.remote), CONTROL_PORT);
            let stream = proving.stream.insert(ControlStream::new(sockets.connect(key, to)));
            write_proof(&proving.proofs, self.flows_max, &mut stream.unsent);
        }
    }

    /// The peer's proof was right, and it permits us so many flows.
    fn open(&mut self, now: Instant, ours_max: u32, sockets: &mut Sockets) {
        let State::Proving(proving) = &mut self.state else { return };
        let Some(mut stream) = proving.stream.take() else { return };
        if self.role == Role::Responder {
            write_proof(&proving.proofs, self.flows_max, &mut stream.unsent);
        }
        let mut flows = Flows::new(self.role, self.flows_max, proving.timeouts.first_cell);
        flows.set_sockets_room(self.room.sockets);
        flows.permit(ours_max);
        let pings = Pings::new(now, &proving.timeouts);
        let openings = core::mem::take(&mut proving.openings);
        self.state = State::Open(Box::new(Open { stream, flows, pings, told_full: false }));
        self.events.push_back(ConnectionEvent::Ready);
        // How long an answer takes is known before one is missed.
        self.probe(now);
        for (ecn, segment) in openings {
            self.receive(now, ecn, &segment, sockets);
        }
    }

    fn misbehaved(&mut self, now: Instant, what: &str, sockets: &mut Sockets) {
        self.fail(now, ConnectionError::PeerMisbehaved(what.to_owned()), sockets);
    }

    /// It is over, and its circuits are lost.
    fn fail(&mut self, now: Instant, error: ConnectionError, sockets: &mut Sockets) {
        if self.is_over() {
            return;
        }
        match error {
            ConnectionError::PeerClosed => self.outbox.clear(),
            _ => self.say(now, Message::Close),
        }
        self.end(now, sockets);
        self.events.push_back(ConnectionEvent::Ended(error));
    }

    fn end(&mut self, now: Instant, sockets: &mut Sockets) {
        self.let_go(sockets);
        self.state = State::Over(Over { until: now + LINGER, last_words: 1 });
    }

    /// Lets go of all sockets; nothing follows.
    pub(super) fn let_go(&mut self, sockets: &mut Sockets) {
        let stream = match &mut self.state {
            State::Proving(proving) => proving.stream.as_ref(),
            State::Open(open) => {
                open.flows.clear(sockets);
                Some(&open.stream)
            }
            State::Over(_) => None,
        };
        if let Some(stream) = stream {
            sockets.abort(stream.socket);
        }
    }

    /// Counts what it takes and keeps now.
    pub(super) fn count_memory(&mut self) {
        let (kept, taken) = match &self.state {
            State::Proving(proving) => (proving.kept_bytes(), size_of::<Proving>()),
            State::Open(open) => {
                let Open { stream, flows, .. } = &**open;
                (stream.kept_bytes() + flows.buffered_bytes(), size_of::<Open>() + flows.heap_bytes())
            }
            State::Over(_) => (0, 0),
        };
        self.buffered.set(self.outbox.bytes() + kept);
        self.memory.set(size_of::<Self>() + taken);
    }
}

/// Packets.
impl Connection {
    /// A packet that our stack sends.
    pub(super) fn send_packet(&mut self, now: Instant, packet: &[u8], spares: &mut Spares) {
        if self.is_over() {
            return;
        }
        let Some(stripped) = self.inner.strip(packet).filter(|stripped| stripped.protocol == TCP) else {
            return;
        };
        if let State::Open(open) = &mut self.state
            && Segment::parse(stripped.payload).is_some_and(|segment| segment.is_question())
        {
            open.pings.on_question(now);
        }
        self.seal(now, TCP, stripped.ecn, stripped.payload, spares);
    }

    fn say(&mut self, now: Instant, message: Message) {
        self.seal(now, MESSAGE, 0, &message.to_bytes(), &mut Spares::default());
    }

    /// Puts a packet among those that are to be sent. One that cannot be is lost, as it may be anywhere on the way.
    pub(super) fn seal(
        &mut self,
        now: Instant,
        next_header: u8,
        ecn: u8,
        payload: &[u8],
        spares: &mut Spares,
    ) {
        let len = sealed_len(payload.len());
        if len > DATAGRAM_BYTES_MAX || self.peer.is_none() {
            return;
        }
        self.associations.renew(now);
        let write = |out: &mut Vec<u8>| self.associations.seal(now, next_header, payload, out);
        if self.outbox.push((ecn, len), self.batches, spares, write) {
            self.stats.sent_packets += 1;
            self.stats.sent_bytes += len as u64;
        }
    }

    pub(super) fn poll_transmit(&mut self, spares: &mut Spares, out: &mut Vec<u8>) -> Option<Transmit> {
        let peer = self.peer?;
        Some(transmit(peer, self.local, self.outbox.pop(spares, out)?))
    }

    /// A datagram that names one of our associations.
    ///
    /// # Errors
    /// If it is not to be believed.
    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        from: &Datagrams,
        datagram: &mut [u8],
        sockets: &mut Sockets,
    ) -> Result<(), Refused> {
        // The whole address stays as it was when the first packet came.
        if self.peer.is_some_and(|peer| peer != from.from) {
            return Err(Refused::NotOurs);
        }
        let len = datagram.len();
        let opened = self.associations.open(now, datagram)?;
        self.peer = Some(from.from);
        self.stats.received_bytes += len as u64;
        match &mut self.state {
            State::Proving(_) => {}
            State::Open(open) => open.pings.on_heard(now),
            State::Over(over) => {
                over.last_words += 1;
                if over.last_words <= LAST_WORDS_MAX {
                    self.say(now, Message::Close);
                }
                return Ok(());
            }
        }
        match opened {
            Some(opened) if opened.next_header == TCP => {
                self.receive(now, from.ecn, opened.payload, sockets);
            }
            Some(opened) if opened.next_header == MESSAGE => {
                if let Some(message) = Message::parse(opened.payload) {
                    self.on_message(now, message, sockets);
                }
            }
            // Nothing else is spoken inside.
            Some(_) | None => {}
        }
        self.associations.turn(now);
        Ok(())
    }

    /// Hands a segment to the stack, if it is of the control stream or of flows that may be.
    fn receive(&mut self, now: Instant, ecn: u8, segment: &[u8], sockets: &mut Sockets) {
        let Some(looked) = Segment::parse(segment).filter(|segment| segment.is_ours(true)) else { return };
        if !self.is_open() && !looked.is_ours(false) {
            // A dialler opens flows after it had our proof, so to a listener no honest one sends such a thing.
            if let State::Proving(proving) = &mut self.state
                && looked.opens()
                && self.role == Role::Initiator
            {
                proving.keep(ecn, segment);
            }
            return;
        }
        if looked.opens() && !self.begun.take(now, CONNECTIONS_BEGUN) {
            return;
        }
        if let Some(header) = self.inner.header(TCP, ecn, segment.len()) {
            sockets.receive(&header, segment);
        }
    }

    fn on_message(&mut self, now: Instant, message: Message, sockets: &mut Sockets) {
        match message {
            Message::Ping(number) => self.say(now, Message::Pong(number)),
            Message::Pong(number) => {
                let State::Open(open) = &mut self.state else { return };
                let answer = open.pings.on_pong(now, number);
                if let Some(round_trip) = answer.and_then(|answer| answer.round_trip) {
                    self.stats.rtt_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                }
            }
            Message::Close => self.fail(now, ConnectionError::PeerClosed, sockets),
        }
    }
}

/// Cells.
impl Connection {
    pub(super) fn next_cell(
        &mut self,
        now: Instant,
        lent: &mut Lent,
        sockets: &mut Sockets,
    ) -> Option<(CircId, Command)> {
        let State::Open(open) = &mut self.state else { return None };
        let cell = open.flows.next_cell(now, lent, sockets);
        self.begun.give_back(open.flows.take_born(), CONNECTIONS_BEGUN);
        cell
    }

    /// As [`Flows::send`].
    pub(super) fn send(
        &mut self,
        now: Instant,
        cell: (CircId, Command, &Body),
        key: ConnKey,
        sockets: &mut Sockets,
    ) -> (FlowState, bool) {
        let State::Open(open) = &mut self.state else { return (FlowState::Open, false) };
        let to = SocketAddr::new(IpAddr::V4(self.inner.remote), FLOW_PORT);
        open.flows.send(now, cell, sockets, |sockets| sockets.connect(key, to))
    }
}
