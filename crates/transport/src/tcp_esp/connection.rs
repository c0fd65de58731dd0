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
//! While it is proving, only the control stream gets through.

mod served;
mod stream;

use super::addresses::{CONTROL_PORT, DATAGRAM_BYTES_MAX, FLOW_PORT};
use super::chain::{Chain, Root};
use super::control::{MESSAGE, Message, write_proof};
use super::flows::Flows;
use super::options::EspOptions;
use super::outbox::{Outbox, transmit};
use super::segment::{Begun, Segment};
use super::sockets::{Room, Sockets};
use crate::circuits::Lent;
use crate::links::LinkKey;
use crate::pings::Pings;
use crate::proof::{OfferKey, Proofs};
use crate::state::Part;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::AtomicUsize;
use heddle_esp::beet::Inner;
use heddle_esp::packet::{TCP, sealed_len};
use heddle_esp::{Refused, Spi, Tunnel};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnectionError, ConnectionEvent, ConnectionOptions, ConnectionStats, FlowState,
};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;
use std::sync::Arc;
use zeroize::Zeroizing;

/// How long a connection that is over tells its peer so, and how often at most.
const LINGER: Duration = Duration::from_secs(3);
const LAST_WORDS_MAX: u32 = 8;

enum State {
    /// What proofs are made with is kept no longer than this: all keys there will ever be come of it.
    Proving {
        deadline: Instant,
        proofs: Box<Proofs>,
    },
    Open,
    Over {
        until: Instant,
        last_words: u32,
    },
}

/// The control stream.
#[derive(Debug, Default)]
struct Stream {
    socket: Option<SocketId>,
    credit: usize,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    /// Bytes of memory that the stack keeps of it, as the driver said last.
    stack_bytes: usize,
    is_connected: bool,
    /// Whether the driver was told last to grant.
    is_granting: bool,
}

/// What a connection is made of beside its options.
pub(super) struct Parts<'a> {
    pub(super) options: &'a EspOptions,
    pub(super) key: &'a OfferKey,
    pub(super) inner: Inner,
    pub(super) deadline: Instant,
    /// What all connections keep for others, and what they take themselves.
    pub(super) held: &'a Arc<AtomicUsize>,
    pub(super) memory: &'a Arc<AtomicUsize>,
}

pub(crate) struct Connection {
    role: Role,
    peer_ip: IpAddr,
    /// Where its datagrams come from and ours go, once a listener knows it.
    peer: Option<SocketAddr>,
    local: Option<IpAddr>,
    inner: Inner,
    tunnel: Tunnel,
    /// The generations of keys that come next: outwards and inwards.
    chains: [Chain; 2],
    /// Associations inwards that are new, or gone.
    spi_news: Vec<(Spi, bool)>,
    /// Flows that we permit the peer, unless we are out of sockets, and whether it was told that we are.
    flows_max: u32,
    is_full: bool,
    told_full: bool,
    stream: Stream,
    state: State,
    flows: Flows,
    /// Connections that the peer begins inside.
    begun: Begun,
    pings: Pings,
    outbox: Outbox,
    batches: bool,
    events: VecDeque<ConnectionEvent>,
    stats: ConnectionStats,
    /// What it keeps for others, and what it takes itself.
    held: Part,
    memory: Part,
}

impl Connection {
    pub(super) fn new(now: Instant, parts: Parts<'_>, options: ConnectionOptions) -> Self {
        let Parts { options: chosen, key, inner, deadline, .. } = parts;
        let root = Root::new(&options.secrets);
        let mut chains = [root.chain_to(options.role.other()), root.chain_to(options.role)];
        let [outwards, inwards] = &mut chains;
        let ((to, their_keys), (from, our_keys)) = (outwards.next(), inwards.next());
        let mut tunnel = Tunnel::new(now, (to, &their_keys), (from, &our_keys), chosen.lifetime);
        let (next, next_keys) = inwards.next();
        tunnel.expect(next, &next_keys);
        let is_dialler = options.role == Role::Initiator;
        let proofs = Box::new(Proofs {
            role: options.role,
            our_key: key.clone(),
            shown: key.public(),
            peer_key: options.peer_key,
            connection: Zeroizing::new(root.binding().to_vec()),
            secrets: [options.secrets.dialler_proof, options.secrets.listener_proof],
        });
        Connection {
            role: options.role,
            peer_ip: options.peer.ip().to_canonical(),
            peer: is_dialler.then_some(options.peer),
            local: options.local,
            inner,
            spi_news: vec![(from, true), (next, true)],
            tunnel,
            chains,
            flows_max: options.flows_max,
            is_full: false,
            told_full: false,
            stream: Stream::default(),
            state: State::Proving { deadline, proofs },
            flows: Flows::new(options.role, options.flows_max, chosen.timeouts.first_cell),
            begun: Begun::new(now),
            pings: Pings::new(now, &chosen.timeouts),
            outbox: Outbox::default(),
            batches: chosen.batches,
            events: VecDeque::new(),
            stats: ConnectionStats::default(),
            held: Part::of(parts.held),
            memory: Part::of(parts.memory),
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
        self.tunnel.inbound_spis()
    }

    /// Those that are new, with true, or gone since this was last asked.
    pub(super) fn take_spi_news(&mut self) -> Vec<(Spi, bool)> {
        core::mem::take(&mut self.spi_news)
    }

    /// What the driver opens for all connections, and whether the peer may open flows.
    pub(super) fn set_sockets_room(&mut self, room: Room) {
        self.flows.set_sockets_room(room.sockets);
        self.is_full = !room.accepts;
    }

    /// The dialler opens the control stream.
    pub(super) fn begin(&mut self, key: LinkKey, sockets: &mut Sockets) {
        self.set_sockets_room(sockets.room());
        if self.role == Role::Initiator
            && let State::Proving { proofs, .. } = &self.state
        {
            write_proof(proofs, self.flows_max, &mut self.stream.unsent);
            let to = SocketAddr::new(IpAddr::V4(self.inner.remote), CONTROL_PORT);
            self.stream.socket = Some(sockets.connect(key, to));
        }
    }

    /// A packet that our stack sends.
    pub(super) fn send_packet(&mut self, now: Instant, packet: &[u8]) {
        if matches!(self.state, State::Over { .. }) {
            return;
        }
        let Some(stripped) = self.inner.strip(packet).filter(|stripped| stripped.protocol == TCP) else {
            return;
        };
        if Segment::parse(stripped.payload).is_some_and(|segment| segment.is_question()) {
            self.pings.on_question(now);
        }
        self.seal(now, TCP, stripped.ecn, stripped.payload);
    }

    fn say(&mut self, now: Instant, message: Message) {
        self.seal(now, MESSAGE, 0, &message.to_bytes());
    }

    /// Puts a packet among those that are to be sent. One that cannot be is lost, as it may be anywhere on the way.
    pub(super) fn seal(&mut self, now: Instant, next_header: u8, ecn: u8, payload: &[u8]) {
        let len = sealed_len(payload.len());
        if len > DATAGRAM_BYTES_MAX || self.peer.is_none() {
            return;
        }
        if self.tunnel.is_short(now) {
            let (spi, keys) = self.chains[0].next();
            self.tunnel.renew(now, spi, &keys);
        }
        let tunnel = &mut self.tunnel;
        let write = |out: &mut Vec<u8>| tunnel.seal(now, next_header, payload, out).is_ok();
        if self.outbox.push(ecn, len, self.batches, write) {
            self.stats.sent_packets += 1;
            self.stats.sent_bytes += len as u64;
        }
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
        let opened = self.tunnel.open(now, datagram)?;
        self.peer = Some(from.from);
        self.stats.received_bytes += len as u64;
        self.pings.on_heard(now);
        if let State::Over { last_words, .. } = &mut self.state {
            *last_words += 1;
            if *last_words <= LAST_WORDS_MAX {
                self.say(now, Message::Close);
            }
            return Ok(());
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
        self.turn_keys(now);
        Ok(())
    }

    /// Gets ready for the peer's next keys, and forgets old ones.
    fn turn_keys(&mut self, now: Instant) {
        if self.tunnel.is_newest_used() {
            let (spi, keys) = self.chains[1].next();
            let gone = self.tunnel.expect(spi, &keys);
            self.spi_news.push((spi, true));
            self.spi_news.extend(gone.map(|spi| (spi, false)));
        }
        while let Some(spi) = self.tunnel.retired(now) {
            self.spi_news.push((spi, false));
        }
    }

    /// Hands a segment to the stack, if it is of the control stream or of flows that may be.
    fn receive(&mut self, now: Instant, ecn: u8, segment: &[u8], sockets: &mut Sockets) {
        let Some(looked) = Segment::parse(segment).filter(|segment| segment.is_ours(self.is_open())) else {
            return;
        };
        if looked.opens() && !self.begun.permits(now) {
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
                let answer = self.pings.on_pong(now, number);
                if let Some(round_trip) = answer.and_then(|answer| answer.round_trip) {
                    self.stats.rtt_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                }
            }
            Message::Close => self.fail(now, ConnectionError::PeerClosed, sockets),
        }
    }

    /// Takes a socket that the peer opened; false if it may not.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        socket: SocketId,
        is_control: bool,
        sockets: &mut Sockets,
    ) -> bool {
        match self.state {
            State::Proving { .. } if is_control => {
                let is_first = self.stream.socket.is_none() && self.role == Role::Responder;
                if is_first {
                    self.stream.socket = Some(socket);
                    self.on_connected(socket, sockets);
                }
                is_first
            }
            State::Open if !is_control => self.flows.accept(now, socket, sockets),
            _ => false,
        }
    }

    pub(super) fn on_connected(&mut self, socket: SocketId, sockets: &mut Sockets) {
        if self.stream.socket == Some(socket) {
            let is_granting = !self.stream.unsent.is_empty();
            (self.stream.is_connected, self.stream.is_granting) = (true, is_granting);
            sockets.interest(socket, true, is_granting);
        } else {
            self.flows.on_connected(socket, sockets);
        }
    }

    pub(super) fn on_writable(&mut self, socket: SocketId, bytes: usize, sockets: &mut Sockets) {
        if self.stream.socket == Some(socket) {
            self.stream.credit = bytes;
        } else {
            self.flows.on_writable(socket, bytes, sockets);
        }
    }

    /// The stack keeps so much memory of a socket.
    pub(super) fn on_kernel_memory(&mut self, socket: SocketId, bytes: usize) {
        if self.stream.socket == Some(socket) {
            self.stream.stack_bytes = bytes;
        } else {
            self.flows.on_kernel_memory(socket, bytes);
        }
    }

    pub(super) fn on_eof(&mut self, now: Instant, socket: SocketId, sockets: &mut Sockets) {
        if self.stream.socket == Some(socket) {
            self.misbehaved(now, "the control stream ended", sockets);
        } else {
            self.flows.on_eof(socket, sockets);
        }
    }

    pub(super) fn on_failed(&mut self, now: Instant, socket: SocketId, sockets: &mut Sockets) {
        if self.stream.socket != Some(socket) {
            return self.flows.on_failed(now, socket);
        }
        self.stream.socket = None;
        match self.state {
            State::Proving { .. } => self.fail(now, ConnectionError::NoAnswer, sockets),
            State::Open => self.misbehaved(now, "the control stream broke", sockets),
            State::Over { .. } => {}
        }
    }

    /// Lets go of all sockets.
    pub(super) fn end(&mut self, sockets: &mut Sockets) {
        self.flows.clear(sockets);
        if let Some(socket) = self.stream.socket.take() {
            sockets.abort(socket);
        }
        self.stream = Stream::default();
    }

    fn misbehaved(&mut self, now: Instant, what: &str, sockets: &mut Sockets) {
        self.fail(now, ConnectionError::PeerMisbehaved(what.to_owned()), sockets);
    }

    /// It is over, and its circuits are lost.
    fn fail(&mut self, now: Instant, error: ConnectionError, sockets: &mut Sockets) {
        if matches!(self.state, State::Over { .. }) {
            return;
        }
        match error {
            ConnectionError::PeerClosed => self.outbox.clear(),
            _ => self.say(now, Message::Close),
        }
        self.state = State::Over { until: now + LINGER, last_words: 1 };
        self.events.push_back(ConnectionEvent::Ended(error));
        self.end(sockets);
    }

    #[cfg(test)]
    pub(super) fn has_proofs(&self) -> bool {
        matches!(self.state, State::Proving { .. })
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let retires = self.tunnel.poll_timeout();
        let due = match self.state {
            State::Proving { deadline, .. } => [Some(deadline), retires, None],
            // The relay may not have heard yet that it is over.
            State::Over { until, .. } => [Some(until).filter(|until| *until > now), None, None],
            State::Open => [Some(self.pings.poll_timeout()), self.flows.poll_timeout(), retires],
        };
        due.into_iter().flatten().min()
    }

    pub(super) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let peer = self.peer?;
        Some(transmit(peer, self.local, self.outbox.pop(out)?))
    }

    pub(super) fn next_cell(
        &mut self,
        now: Instant,
        lent: &mut Lent,
        sockets: &mut Sockets,
    ) -> Option<(CircId, Command)> {
        self.flows.next_cell(now, lent, sockets)
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        cell: (CircId, Command, &Body),
        key: LinkKey,
        sockets: &mut Sockets,
    ) -> FlowState {
        if !self.is_open() {
            return FlowState::Open;
        }
        let to = SocketAddr::new(IpAddr::V4(self.inner.remote), FLOW_PORT);
        self.flows.send(now, cell, sockets, |sockets| sockets.connect(key, to))
    }

    /// Counts what it takes and keeps now.
    pub(super) fn count_memory(&mut self) {
        let stream = &self.stream;
        let of_stream = stream.unsent.len() + stream.unread.len() + stream.stack_bytes;
        self.held.set(self.flows.held_bytes() + self.outbox.bytes() + of_stream);
        self.memory.set(size_of::<Self>() + self.flows.heap_bytes());
    }
}
