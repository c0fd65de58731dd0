//! One connection, from its first datagram to its last.
//!
//! ```text
//!                 DTLS is done      the peer's proof is right,
//!                                   and it has seen ours
//!   Handshaking ─────────────▶ Proving ─────────────────────▶ Open
//!        │                       │                              │
//!        └── no answer, a wrong ─┴─ proof, a fault, ────────────┴─▶ Over ──▶ says so for a while, then forgotten
//!                                   a dead path, CLOSE
//! ```
//!
//! 1. Each side sends its proof in its first record, again and again until the other has seen it.
//! 2. Nothing else is believed before the peer's proof is right: what comes is dropped, and TCP sends it again.
//! 3. While open, PINGs ask for an answer that does not come. What becomes of a path without any is in `silence.rs`.

mod outgoing;
mod room;

use super::control::{self, Control, Proofs};
use super::ecn::{Ecn, TOLD_LEN, split_told};
use super::flows::Flows;
use super::ids::{ID_LEN, Records, SessionId, may_come};
use super::key::{KEY_LEN, OurKey};
use super::options::{CongestionControl, DATAGRAM_BYTES_MIN, DtlsOptions};
use super::path::Path;
use super::reach::{Reach, Step};
use super::session::{News, RECORD_OVERHEAD, Session};
use super::shared::SharedOfSession;
use super::stamped::{STAMPED_LEN, split_stamp};
use crate::congestion::{Ceiling, WayBack};
use crate::links::Token;
use crate::silence::Silence;
use crate::stamps::Stamps;
use crate::state::Part;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::AtomicUsize;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionEvent, ConnectionOptions};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::BufferPool;
use heddle_utcp::compact::Mux;
use outgoing::{Content, Queued};
use std::sync::Arc;

/// How long a connection that is over tells its peer so, and how often at most.
const LINGER: Duration = Duration::from_secs(3);
const LAST_WORDS_MAX: u32 = 8;

/// How soon to look again whether the pool has memory.
const STARVED_WAIT: Duration = Duration::from_millis(10);

/// Controls that wait to be sent. Each answers a record of the peer, which is answered at once or not at all.
const CONTROLS_MAX: usize = 16;

/// How a datagram came: bytes with its head, and the codepoint of its IP header. No bytes stand for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    pub(super) ecn: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    Proving,
    Open,
    Over,
}

pub(super) struct Connection {
    role: Role,
    session: Session,
    proofs: Proofs,
    options: DtlsOptions,
    ceiling: Ceiling,
    /// Its share of it, since it is open.
    pool: BufferPool,
    /// What it takes itself.
    memory: Part,
    state: State,
    peer: SocketAddr,
    local: Option<IpAddr>,
    /// What stands before our records: the token, until the listener has answered it.
    token: Option<Token>,
    their_id: SessionId,
    /// When it is given up unless it is open by then; once it is over, when it is forgotten.
    deadline: Instant,
    their_certificate: Option<[u8; KEY_LEN]>,
    /// Flows that we permit the peer.
    flows_max: u32,
    proving: Proving,
    /// The flows, once it is open.
    tcp: Option<Mux>,
    flows: Flows,
    controls: Vec<Queued>,
    /// Where datagrams are put together before they are sealed.
    segments: Vec<u8>,
    /// A datagram that did not fit the last batch, and what it is.
    kept: Option<(Content, Vec<u8>)>,
    ecn: Ecn,
    stamps: Stamps,
    way_back: WayBack,
    /// Since it is open.
    reach: Option<Reach>,
    path: Path,
    silence: Silence,
    /// Since when the circuits are counted that share the window.
    epoch_since: Instant,
    /// Whether there was no capacity, so that the relay waits to hear of more.
    is_full: bool,
    notices: Notices,
    counts: Counts,
    last_words: u32,
}

/// How far the proofs have come.
#[derive(Clone, Copy, Debug, Default)]
struct Proving {
    /// When ours is sent next.
    due: Option<Instant>,
    sent: usize,
    /// The longest datagram that the peer has seen of ours.
    seen_bytes: u16,
    /// The flows that the peer permits, since its proof was right.
    their_flows_max: Option<u32>,
}

#[derive(Default)]
struct Notices {
    ready: bool,
    capacity: bool,
    ended: Option<ConnectionError>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent_datagrams: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// Bytes that datagrams of such a length have for segments.
fn room_bytes(datagram_bytes: u16) -> u16 {
    let taken = ID_LEN + RECORD_OVERHEAD + STAMPED_LEN + TOLD_LEN;
    u16::try_from(usize::from(datagram_bytes) - taken).unwrap_or(u16::MAX)
}

/// What a new connection is made of.
pub(super) struct Parts<'a> {
    pub(super) key: &'a OurKey,
    pub(super) options: &'a DtlsOptions,
    pub(super) ceiling: &'a Ceiling,
    pub(super) pool: &'a BufferPool,
    pub(super) state: &'a Arc<AtomicUsize>,
    /// Where the peer's datagrams come from and ours go.
    pub(super) peer: SocketAddr,
    pub(super) their_id: SessionId,
    pub(super) deadline: Instant,
    pub(super) seed: u64,
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        parts: &Parts<'_>,
        options: ConnectionOptions,
    ) -> Result<Self, dimpl::Error> {
        let (role, secrets) = (options.role, options.secrets);
        let (token, secret_pair) = match role {
            Role::Initiator => (Some(secrets.token), [secrets.dialler_proof, secrets.listener_proof]),
            Role::Responder => (None, [secrets.listener_proof, secrets.dialler_proof]),
        };
        let session = Session::new(now, role, parts.key, parts.options, parts.seed)?;
        let mut connection = Connection {
            role,
            session,
            proofs: Proofs::new(role, parts.key.clone(), options.peer_key, secret_pair),
            options: parts.options.clone(),
            ceiling: parts.ceiling.clone(),
            pool: parts.pool.clone(),
            memory: Part::of(parts.state),
            state: State::Handshaking,
            peer: parts.peer,
            local: options.local,
            token,
            their_id: parts.their_id,
            deadline: parts.deadline,
            their_certificate: None,
            flows_max: options.flows_max,
            proving: Proving::default(),
            tcp: None,
            flows: Flows::new(role, 0, parts.options.first_cell_timeout, parts.pool.clone()),
            controls: Vec::new(),
            segments: Vec::new(),
            kept: None,
            ecn: Ecn::new(parts.options.marks_ecn),
            stamps: Stamps::new(now),
            way_back: WayBack::default(),
            reach: None,
            path: Path::new(now, parts.options),
            silence: Silence::new(parts.options.path_suspect_min, parts.options.path_dead_min),
            epoch_since: now,
            is_full: false,
            notices: Notices::default(),
            counts: Counts::default(),
            last_words: 0,
        };
        connection.on_news(now, Arrival::default());
        Ok(connection)
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes the records of a datagram. Returns whether DTLS dropped them: they came late or
    /// twice, or are not the peer's.
    pub(super) fn handle_records(&mut self, now: Instant, records: &[u8], arrival: Arrival) -> bool {
        let permitted = match self.state {
            State::Handshaking | State::Proving => Records::Handshake,
            State::Open | State::Over => Records::Encrypted,
        };
        if !may_come(permitted, records) {
            return true;
        }
        self.counts.received_bytes += arrival.bytes as u64;
        if self.state == State::Over {
            self.repeat_last_word();
            return false;
        }
        // The listener is there, and knows us by our records from now on.
        self.token = None;
        if let Err(error) = self.session.handle_records(now, records) {
            self.give_up(now, ConnectionError::PeerMisbehaved(error.to_string()));
            return false;
        }
        !self.on_news(now, arrival) && permitted == Records::Encrypted
    }

    /// Works off what dimpl has to say. Returns whether it said anything.
    fn on_news(&mut self, now: Instant, arrival: Arrival) -> bool {
        let mut is_news = false;
        while let Some(news) = self.session.poll() {
            match news {
                News::Certificate(fingerprint) => self.their_certificate = Some(fingerprint),
                News::Connected if self.state == State::Handshaking => {
                    self.state = State::Proving;
                    self.proving.due = Some(now);
                }
                News::Connected => {}
                News::Contents { end } => self.on_contents(now, end, arrival),
                News::Closed => self.end(now, ConnectionError::PeerClosed),
            }
            is_news = true;
        }
        is_news
    }

    fn on_contents(&mut self, now: Instant, end: usize, arrival: Arrival) {
        self.path.on_heard(now);
        let contents = self.session.contents(end);
        let (stamp, contents) = split_stamp(contents);
        if stamp.is_none() && control::is_control(contents) && split_told(contents).is_none() {
            return self.on_control(now, end, arrival.bytes);
        }
        if self.state == State::Proving && self.proving.their_flows_max.is_some() {
            // It opens flows, so it has seen our proof, though it did not reach us how long that was.
            self.open(now);
        }
        let Some(mux) = self.tcp.as_mut().filter(|_| self.state == State::Open) else {
            return;
        };
        if let Some(controller) = mux.controller_mut() {
            let wait = self.way_back.on_packet(now, stamp, Duration::ZERO);
            controller.set_ack_wait(wait.waited, wait.is_known);
        }
        let (_, contents) = split_stamp(self.session.contents(end));
        let told = split_told(contents);
        self.ecn.on_received(arrival.ecn);
        if told.is_some_and(|(told, _)| self.ecn.on_told(told)) {
            mux.on_marked();
        }
        let segments = told.map_or(contents, |(_, segments)| segments);
        let flows = &mut self.flows;
        let result = mux.handle_datagram(now, segments, &mut |id, bytes| flows.take(id, bytes));
        self.flows.on_events(now, mux);
        let is_answered = mux.take_answered();
        self.path.set_round_trip(mux.smoothed_rtt_ns());
        if is_answered {
            self.on_answer(now);
        }
        if let Err(why) = result {
            self.give_up(now, ConnectionError::PeerMisbehaved(why.to_string()));
        }
    }

    /// Something that we sent was answered, which ends a suspicion.
    fn on_answer(&mut self, now: Instant) {
        self.path.on_answer();
        let was_suspect = self.silence.is_suspect();
        self.silence.on_heard(now, self.path.due());
        if let Some(mux) = self.tcp.as_mut().filter(|_| was_suspect) {
            mux.on_path_back(now);
        }
    }

    fn on_control(&mut self, now: Instant, end: usize, datagram_bytes: usize) {
        let Some(control) = control::parse(self.session.contents(end)) else {
            return self.fault(now, "it sent a record that there is not");
        };
        let is_believed = self.proving.their_flows_max.is_some();
        match control {
            Control::Proof(proof) => {
                let is_right = self
                    .their_certificate
                    .as_ref()
                    .is_some_and(|certificate| self.proofs.is_right(certificate, &proof));
                if !is_right {
                    return self.give_up(now, ConnectionError::WrongProof);
                }
                self.proving.their_flows_max.get_or_insert(proof.flows_max);
                let bytes = u16::try_from(datagram_bytes).unwrap_or(u16::MAX);
                self.queue_control(control::seen(bytes));
            }
            Control::Close { .. } => return self.end(now, ConnectionError::PeerClosed),
            // It may overtake the peer's proof, and counts for nothing without that.
            Control::Seen { datagram_bytes } => {
                let bytes = datagram_bytes.min(self.options.datagram_bytes_max);
                self.proving.seen_bytes = self.proving.seen_bytes.max(bytes);
                self.proving.due = None;
                let length = self.reach.as_mut().and_then(|reach| reach.on_seen(bytes));
                length.inspect(|bytes| self.set_length(*bytes));
            }
            _ if !is_believed => {}
            Control::Probe => {
                self.queue_control(control::seen(u16::try_from(datagram_bytes).unwrap_or(u16::MAX)))
            }
            Control::Ping { number } => self.queue_control(control::pong(number)),
            Control::Pong { number } if !self.path.takes_pong(number) => {}
            Control::Pong { number } => {
                self.on_answer(now);
                let round_trip = self.path.on_pong(now, number);
                if let Some(mux) = &mut self.tcp {
                    mux.on_answered(now);
                }
                let controller = self.tcp.as_mut().and_then(Mux::controller_mut);
                if let (Some(round_trip), Some(controller)) = (round_trip, controller) {
                    let ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                    controller.on_probe(now, ns);
                }
            }
        }
        let is_proved = self.proving.their_flows_max.is_some() && self.proving.seen_bytes > 0;
        if self.state == State::Proving && is_proved {
            self.open(now);
        }
    }

    fn queue_control(&mut self, record: Vec<u8>) {
        self.queue(Queued { record, is_question: false });
    }

    fn queue_ping(&mut self, now: Instant) {
        let number = self.path.next_ping(now);
        self.queue(Queued { record: control::ping(number), is_question: true });
    }

    fn queue(&mut self, queued: Queued) {
        if self.controls.len() < CONTROLS_MAX {
            self.controls.push(queued);
        }
    }

    fn open(&mut self, now: Instant) {
        let bytes = self.proving.seen_bytes.max(DATAGRAM_BYTES_MIN);
        self.reach = Some(Reach::new(now, bytes, self.options.datagram_bytes_max));
        let mux = self.options.mux(room_bytes(bytes), self.flows_max);
        self.pool = self.pool.session();
        let pool = self.pool.clone();
        self.tcp = Some(match self.options.congestion {
            CongestionControl::Shared => {
                let ceiling = self.ceiling.clone();
                let shared = |mss_bytes| SharedOfSession::new(now, mss_bytes, ceiling);
                Mux::with_controller(mux, pool, |mss_bytes| Box::new(shared(mss_bytes)))
            }
            CongestionControl::Cubic | CongestionControl::Reno => Mux::new(mux, pool),
        });
        self.epoch_since = now;
        let ours_max = self.proving.their_flows_max.unwrap_or(0);
        self.flows = Flows::new(self.role, ours_max, self.options.first_cell_timeout, self.pool.clone());
        self.state = State::Open;
        self.notices.ready = true;
        // The round trip before there is traffic tells later how long the wire's queue is.
        self.queue_ping(now);
    }

    /// From now on the longest datagrams have so many bytes.
    fn set_length(&mut self, bytes: u16) {
        if let Some(mux) = &mut self.tcp {
            mux.set_datagram_bytes_max(room_bytes(bytes));
        }
    }

    /// Whether the path still carries what it did.
    fn check_length(&mut self, now: Instant) {
        let has_expired = self.tcp.as_mut().is_some_and(Mux::take_expired);
        let Some(reach) = &mut self.reach else { return };
        if has_expired {
            reach.on_expired(now);
        }
        match reach.handle_timeout(now, self.path.round_trip().unwrap_or_default()) {
            Some(Step::Probe(lengths)) => {
                for bytes in lengths {
                    let contents = usize::from(bytes) - ID_LEN - RECORD_OVERHEAD;
                    self.queue_control(control::probe(contents));
                }
            }
            Some(Step::Shorten(bytes)) => {
                self.set_length(bytes);
                if let Some(mux) = &mut self.tcp {
                    mux.on_path_back(now);
                }
            }
            None => {}
        }
    }

    fn fault(&mut self, now: Instant, what: &str) {
        self.give_up(now, ConnectionError::PeerMisbehaved(what.to_owned()));
    }

    /// Ends it for a fault of the peer or of the path. CLOSE tells the peer, if it is there.
    fn give_up(&mut self, now: Instant, error: ConnectionError) {
        let is_told = matches!(self.state, State::Proving | State::Open);
        self.end(now, error);
        if is_told {
            self.queue_control(control::close(true));
        }
    }

    fn end(&mut self, now: Instant, error: ConnectionError) {
        if self.state == State::Over {
            return;
        }
        self.state = State::Over;
        self.deadline = now + LINGER;
        self.flows = Flows::new(self.role, 0, self.options.first_cell_timeout, self.pool.clone());
        self.controls.clear();
        (self.tcp, self.kept) = (None, None);
        self.notices = Notices { ended: Some(error), ..Notices::default() };
    }

    /// Ends it without an event.
    pub(super) fn close(&mut self, now: Instant) {
        let is_told = matches!(self.state, State::Proving | State::Open);
        self.end(now, ConnectionError::Closed);
        self.notices = Notices::default();
        if is_told {
            self.queue_control(control::close(false));
        }
    }

    /// The peer still speaks: the last word was lost, or is on its way.
    fn repeat_last_word(&mut self) {
        if self.last_words < LAST_WORDS_MAX && self.controls.is_empty() {
            self.last_words += 1;
            self.queue_control(control::close(true));
        }
    }

    /// Whether nothing is left of it.
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        self.state == State::Over && self.deadline <= now && self.notices.ended.is_none()
    }

    pub(super) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        if core::mem::take(&mut self.notices.ready) {
            return Some(ConnectionEvent::Ready);
        }
        if self.state == State::Open {
            if let Some(room) = self.flows.poll_room() {
                return Some(ConnectionEvent::FlowRoom(room));
            }
            if core::mem::take(&mut self.notices.capacity) {
                return Some(ConnectionEvent::Capacity);
            }
            if let Some(event) = self.silence.poll_event() {
                return Some(event);
            }
        }
        let writable = self.flows.circuits.poll_writable().map(ConnectionEvent::Writable);
        writable.or_else(|| self.notices.ended.take().map(ConnectionEvent::Ended))
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let dtls = self.session.poll_timeout();
        match self.state {
            State::Handshaking | State::Proving => {
                [Some(self.deadline), self.proving.due, dtls].into_iter().flatten().min()
            }
            State::Open => {
                let (probe, silence) = (self.path.probe_at(), self.silence.poll_timeout(self.path.due()));
                let mux = self.tcp.as_ref().and_then(Mux::poll_timeout);
                let is_starved = self.is_full && self.lacks_memory() || self.flows.is_starved();
                let starved = is_starved.then(|| now + STARVED_WAIT);
                let flows = self.flows.circuits.poll_timeout();
                let reach = self.reach.as_ref().and_then(Reach::poll_timeout);
                [reach, Some(probe), silence, self.proving.due, dtls, mux, starved, flows]
                    .into_iter()
                    .flatten()
                    .min()
            }
            State::Over => Some(self.deadline).filter(|deadline| *deadline > now),
        }
    }

    /// It is time; it has been for a while if we are `late`. What came meanwhile may not have been read.
    pub(super) fn handle_timeout(&mut self, now: Instant, late: Option<Duration>) {
        if self.state == State::Over {
            return;
        }
        if let Some(late) = late {
            self.path.forgive(now, late);
        }
        if let Err(error) = self.session.handle_timeout(now) {
            let error = match self.state {
                State::Open => ConnectionError::PeerMisbehaved(error.to_string()),
                _ => ConnectionError::NoAnswer,
            };
            return self.give_up(now, error);
        }
        self.on_news(now, Arrival::default());
        match self.state {
            State::Handshaking | State::Proving if self.deadline <= now => {
                self.give_up(now, ConnectionError::NoAnswer);
            }
            State::Open => self.on_time(now, late.is_some()),
            _ => {}
        }
    }

    /// Asks the peer for an answer.
    pub(super) fn probe(&mut self, now: Instant) {
        if self.state == State::Open {
            self.queue_ping(now);
        }
    }

    fn on_time(&mut self, now: Instant, is_late: bool) {
        if !is_late && self.silence.handle_timeout(now, self.path.due()) {
            return self.give_up(now, ConnectionError::PathDead);
        }
        if self.path.probe_at() <= now {
            self.probe(now);
        }
        if let Some(mux) = &mut self.tcp {
            mux.handle_timeout(now);
            self.flows.handle_timeout(now, mux);
            self.flows.feed(mux);
            self.flows.on_events(now, mux);
        }
        self.check_length(now);
        self.note_capacity();
    }

    /// Bytes of one datagram at most.
    pub(super) fn datagram_bytes(&self) -> usize {
        usize::from(self.options.datagram_bytes_max)
    }
}
