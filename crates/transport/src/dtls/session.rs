//! One session, from its first datagram to its last.
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
//! 2. Nothing else is believed before the peer's proof is right: what comes is dropped, and the transport sends it
//!    again.
//! 3. While open, PINGs ask for an answer that does not come. What becomes of a path without any is in `silence.rs`.
//!
//! After whatever happens to it, [`Session::poll`] tells what that is to the transport, until it tells nothing.

mod records;

use super::control::{self, Control};
use super::engine::{Engine, News};
use super::ids::{Records, SessionId, may_come};
use super::key::OurKey;
use super::options::SessionOptions;
use super::reach::{Reach, Step};
use super::{DATAGRAM_BYTES_MIN, heads};
use crate::connections::Token;
use crate::connections::path::Remedy;
use crate::connections::pings::Pings;
use crate::connections::proof::{KEY_LEN, Proofs};
use crate::connections::timers::Timed;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionEvent, ConnectionOptions};
use heddle_seam::time::{Duration, Instant};
use records::Queued;
use std::collections::VecDeque;

/// How long a session that is over tells its peer so, and how often at most.
const LINGER: Duration = Duration::from_secs(3);
const LAST_WORDS_MAX: u32 = 8;

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// It is open: its datagrams may have so many bytes, and the peer permits so many flows.
    Open { datagram_bytes: u16, flows_max: u32 },
    /// A record of the transport came: so many bytes of [`Session::record`].
    Record { end: usize },
    /// Its datagrams may have so many bytes from now on.
    Length(u16),
    /// The path carries again what it did not: nothing need wait for its time-outs.
    PathBack,
    /// The peer answered a PING, after this if it was the last one.
    Answered(Option<Duration>),
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody of ours can have sent it.
    Dropped,
    /// It changed nothing for the transport.
    Done,
    /// DTLS has it. Where it was encrypted and DTLS then tells of nothing, it was late, or came twice.
    Told { were_encrypted: bool },
}

/// One of a pair of relays.
pub(crate) struct Session {
    role: Role,
    engine: Engine,
    proofs: Proofs,
    options: SessionOptions,
    peer: SocketAddr,
    local: Option<IpAddr>,
    their_id: SessionId,
    /// Flows that we permit the peer.
    flows_max: u32,
    state: State,
    queue: Vec<Queued>,
    pings: Pings,
    events: VecDeque<SessionEvent>,
    /// Bytes of the datagram that is worked off, and whether DTLS had something to say of it.
    datagram_bytes: usize,
    is_heard: bool,
    ended: Option<ConnectionError>,
}

enum State {
    Handshaking(Handshaking),
    Proving { deadline: Instant, proofs: ProofExchange },
    Open(Open),
    Over(Over),
}

/// Until DTLS is done.
struct Handshaking {
    /// When it is given up unless it is open by then.
    deadline: Instant,
    /// What stands before our records, until the listener has answered it.
    token: Option<Token>,
    certificate: Option<[u8; KEY_LEN]>,
}

/// How far the exchange of proofs has come.
#[derive(Clone, Copy, Debug)]
struct ProofExchange {
    /// What the peer showed in the handshake.
    certificate: [u8; KEY_LEN],
    /// When ours is sent next.
    due: Option<Instant>,
    sent: usize,
    /// The longest datagram that the peer has seen of ours.
    seen_bytes: u16,
    /// Once the peer's proof was right, the flows that it permits.
    their_flows_max: Option<u32>,
}

/// Once it is open. The peer may not have told yet that it has our proof.
struct Open {
    proofs: ProofExchange,
    reach: Reach,
}

/// Once it is over.
struct Over {
    /// When it is forgotten.
    until: Instant,
    last_words: u32,
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// DTLS repeats what was lost.
    Engine,
    /// It is not open.
    Deadline,
    /// Our proof is sent again.
    Proof,
    /// The path is to be probed, or its silence means something else.
    Path,
    /// The path's length is to be found out.
    Length,
    /// It has been over for long enough.
    Forgotten,
}

impl Timed for Session {
    type Timer = Timer;

    const TIMERS: &'static [Timer] =
        &[Timer::Engine, Timer::Deadline, Timer::Proof, Timer::Path, Timer::Length, Timer::Forgotten];

    fn due_at(&self, timer: Timer) -> Option<Instant> {
        match (timer, &self.state) {
            (Timer::Forgotten, State::Over(over)) => Some(over.until),
            (_, State::Over(_)) => None,
            (Timer::Engine, _) => self.engine.poll_timeout(),
            (Timer::Deadline, State::Handshaking(Handshaking { deadline, .. }))
            | (Timer::Deadline, State::Proving { deadline, .. }) => Some(*deadline),
            (Timer::Proof, State::Proving { proofs, .. } | State::Open(Open { proofs, .. })) => proofs.due,
            (Timer::Path, State::Open(_)) => Some(self.pings.poll_timeout()),
            (Timer::Length, State::Open(open)) => open.reach.poll_timeout(),
            _ => None,
        }
    }
}

/// What a new session is made of.
pub(crate) struct Parts<'a> {
    pub(crate) key: &'a OurKey,
    pub(crate) options: &'a SessionOptions,
    /// Where the peer's datagrams come from and ours go.
    pub(crate) peer: SocketAddr,
    pub(crate) their_id: SessionId,
    /// When it is given up unless it is open by then.
    pub(crate) deadline: Instant,
    pub(crate) seed: u64,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        parts: Parts<'_>,
        options: ConnectionOptions,
    ) -> Result<Self, dimpl::Error> {
        let (role, secrets) = (options.role, options.secrets);
        let token = (role == Role::Initiator).then_some(secrets.token);
        let engine = Engine::new(now, role, parts.key, parts.options, parts.seed)?;
        Ok(Session {
            role,
            engine,
            proofs: parts.key.proofs(role, options.peer_key, [secrets.dialler_proof, secrets.listener_proof]),
            pings: Pings::new(now, &parts.options.timeouts),
            options: parts.options.clone(),
            peer: parts.peer,
            local: options.local,
            their_id: parts.their_id,
            flows_max: options.flows_max,
            state: State::Handshaking(Handshaking { deadline: parts.deadline, token, certificate: None }),
            queue: Vec::new(),
            events: VecDeque::new(),
            datagram_bytes: 0,
            is_heard: false,
            ended: None,
        })
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Flows that we permit the peer.
    pub(crate) fn flows_max(&self) -> u32 {
        self.flows_max
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self, now: Instant) -> bool {
        matches!(&self.state, State::Over(over) if over.until <= now) && self.ended.is_none()
    }

    /// Why it ended, once.
    pub(crate) fn take_ended(&mut self) -> Option<ConnectionError> {
        self.ended.take()
    }

    /// What the relay is to hear of the path.
    pub(crate) fn poll_silence(&mut self) -> Option<ConnectionEvent> {
        self.pings.poll_event()
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.pings.round_trip()
    }

    /// What the transport measured, if it did.
    pub(crate) fn set_round_trip(&mut self, smoothed_ns: Option<u64>) {
        self.pings.set_round_trip(smoothed_ns);
    }
}

/// Coming in.
impl Session {
    /// Takes the records of a datagram, `bytes` long with its head.
    pub(crate) fn handle_records(&mut self, now: Instant, records: &[u8], bytes: usize) -> Taken {
        let permitted = match self.state {
            State::Handshaking(_) | State::Proving { .. } => Records::Handshake,
            State::Open(_) | State::Over(_) => Records::Encrypted,
        };
        if !may_come(permitted, records) {
            return Taken::Dropped;
        }
        match &mut self.state {
            State::Over(_) => {
                self.repeat_last_word();
                return Taken::Done;
            }
            // The listener is there, and knows us by our records from now on.
            State::Handshaking(handshaking) => handshaking.token = None,
            State::Proving { .. } | State::Open(_) => {}
        }
        if let Err(error) = self.engine.handle_records(now, records) {
            self.give_up(now, ConnectionError::PeerMisbehaved(error.to_string()));
            return Taken::Done;
        }
        (self.datagram_bytes, self.is_heard) = (bytes, false);
        Taken::Told { were_encrypted: permitted == Records::Encrypted }
    }

    /// Whether DTLS said anything of the last datagram.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// The record that [`SessionEvent::Record`] told of last.
    pub(crate) fn record(&self, end: usize) -> &[u8] {
        self.engine.contents(end)
    }

    /// What became of it, until `None`.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<SessionEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let news = self.engine.poll()?;
            self.is_heard = true;
            match news {
                News::Certificate(fingerprint) => {
                    if let State::Handshaking(handshaking) = &mut self.state {
                        handshaking.certificate = Some(fingerprint);
                    }
                }
                News::Connected => self.on_connected(now),
                News::Contents { end } => self.on_contents(now, end),
                News::Closed => self.end(now, ConnectionError::PeerClosed),
            }
        }
    }

    fn on_connected(&mut self, now: Instant) {
        let State::Handshaking(Handshaking { deadline, certificate, .. }) = self.state else { return };
        let Some(certificate) = certificate else {
            return self.fault(now, "it showed no certificate");
        };
        let proofs =
            ProofExchange { certificate, due: Some(now), sent: 0, seen_bytes: 0, their_flows_max: None };
        self.state = State::Proving { deadline, proofs };
    }

    fn on_contents(&mut self, now: Instant, end: usize) {
        self.pings.on_heard(now);
        if heads::read(self.engine.contents(end)).is_none() {
            return self.on_control(now, end);
        }
        if matches!(self.state, State::Proving { proofs: ProofExchange { their_flows_max: Some(_), .. }, .. })
        {
            // It opens flows, so it has seen our proof, though it did not reach us how long that was.
            self.open(now);
        }
        if self.is_open() {
            self.events.push_back(SessionEvent::Record { end });
        }
    }

    /// Something that we sent was answered, which ends a suspicion.
    pub(crate) fn on_answer(&mut self, now: Instant) {
        if self.pings.on_answer(now) {
            self.events.push_back(SessionEvent::PathBack);
        }
    }

    fn exchange(&mut self) -> Option<&mut ProofExchange> {
        match &mut self.state {
            State::Proving { proofs, .. } | State::Open(Open { proofs, .. }) => Some(proofs),
            State::Handshaking(_) | State::Over(_) => None,
        }
    }

    fn on_control(&mut self, now: Instant, end: usize) {
        let datagram_bytes = u16::try_from(self.datagram_bytes).unwrap_or(u16::MAX);
        let exchange = self.exchange().copied();
        let is_believed = exchange.is_some_and(|exchange| exchange.their_flows_max.is_some());
        let Some(control) = control::parse(self.engine.contents(end)) else {
            return self.fault(now, "it sent a record that there is not");
        };
        match control {
            // It is repeated until it hears that we have it, and costs much to look at.
            Control::Proof(_) if is_believed => self.say(control::seen(datagram_bytes)),
            Control::Proof(proof) => {
                if !exchange.is_some_and(|exchange| self.proofs.is_right(&exchange.certificate, &proof)) {
                    return self.give_up(now, ConnectionError::WrongProof);
                }
                let flows_max = proof.flows_max;
                if let Some(exchange) = self.exchange() {
                    exchange.their_flows_max = Some(flows_max);
                }
                self.say(control::seen(datagram_bytes));
            }
            Control::Close { .. } => return self.end(now, ConnectionError::PeerClosed),
            // It may overtake the peer's proof, and counts for nothing without that.
            Control::Seen { datagram_bytes } => self.on_seen(datagram_bytes),
            _ if !is_believed => {}
            Control::Probe => self.say(control::seen(datagram_bytes)),
            Control::Ping { number } => self.say(control::pong(number)),
            Control::Pong { number } => self.on_pong(now, number),
        }
        let is_proved = |proofs: &ProofExchange| proofs.their_flows_max.is_some() && proofs.seen_bytes > 0;
        if matches!(&self.state, State::Proving { proofs, .. } if is_proved(proofs)) {
            self.open(now);
        }
    }

    fn on_pong(&mut self, now: Instant, number: u32) {
        let Some(answer) = self.pings.on_pong(now, number) else { return };
        self.events.extend(answer.was_suspect.then_some(SessionEvent::PathBack));
        self.events.push_back(SessionEvent::Answered(answer.round_trip));
    }

    fn on_seen(&mut self, datagram_bytes: u16) {
        let bytes = datagram_bytes.min(self.options.datagram_bytes_max);
        let Some(exchange) = self.exchange() else { return };
        exchange.seen_bytes = exchange.seen_bytes.max(bytes);
        exchange.due = None;
        if let State::Open(open) = &mut self.state {
            self.events.extend(open.reach.on_seen(bytes).map(SessionEvent::Length));
        }
    }

    fn open(&mut self, now: Instant) {
        let State::Proving { proofs, .. } = self.state else { return };
        let datagram_bytes = proofs.seen_bytes.max(DATAGRAM_BYTES_MIN);
        let reach = Reach::new(now, datagram_bytes, self.options.datagram_bytes_max);
        self.state = State::Open(Open { proofs, reach });
        let flows_max = proofs.their_flows_max.unwrap_or(0);
        self.events.push_back(SessionEvent::Open { datagram_bytes, flows_max });
        // The round trip before there is traffic tells later how long the wire's queue is.
        self.ask(now);
    }
}

/// Time, and the end.
impl Session {
    /// When [`Session::handle_timeout`] is due, and while it is open [`Session::check_length`] after it. One that is
    /// open also waits for whatever its transport waits for.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        // One that is over and is to be forgotten waits for nothing but that the relay hears of it.
        self.next_due().filter(|at| !self.is_over() || *at > now)
    }

    /// It is time; it has been for a while if we are `late`. What came meanwhile may not have been read.
    pub(crate) fn handle_timeout(&mut self, now: Instant, late: Option<Duration>) {
        if let Some(late) = late {
            self.pings.forgive(now, late);
        }
        self.for_each_due(now, |session, timer| session.on_due(now, timer, late.is_some()));
    }

    fn on_due(&mut self, now: Instant, timer: Timer, is_late: bool) {
        match timer {
            Timer::Engine => {
                let Err(error) = self.engine.handle_timeout(now) else { return };
                let error = match self.state {
                    State::Open(_) => ConnectionError::PeerMisbehaved(error.to_string()),
                    _ => ConnectionError::NoAnswer,
                };
                self.give_up(now, error);
            }
            Timer::Deadline => self.give_up(now, ConnectionError::NoAnswer),
            Timer::Path => match self.pings.handle_timeout(now, is_late) {
                Some(Remedy::GiveUp) => self.give_up(now, ConnectionError::PathDead),
                Some(Remedy::Probe) => self.ask(now),
                None => {}
            },
            // The proof leaves with the next datagram, lengths are checked when the transport has looked at its own
            // timers, and the endpoint forgets what is over.
            Timer::Proof | Timer::Length | Timer::Forgotten => {}
        }
    }

    /// Whether the path still carries what it did, where the transport `has_expired`: something of it was not answered
    /// in time.
    pub(crate) fn check_length(&mut self, now: Instant, has_expired: bool) {
        let round_trip = self.pings.round_trip().unwrap_or_default();
        let State::Open(Open { reach, .. }) = &mut self.state else { return };
        if has_expired {
            reach.on_expired(now);
        }
        match reach.handle_timeout(now, round_trip) {
            Some(Step::Probe(lengths)) => self.probe_lengths(&lengths),
            Some(Step::Shorten(bytes)) => {
                self.events.extend([SessionEvent::Length(bytes), SessionEvent::PathBack]);
            }
            None => {}
        }
    }

    fn fault(&mut self, now: Instant, what: &str) {
        self.give_up(now, ConnectionError::PeerMisbehaved(what.to_owned()));
    }

    /// Ends it for a fault of the peer or of the path. CLOSE tells the peer, if it is there.
    pub(crate) fn give_up(&mut self, now: Instant, error: ConnectionError) {
        let is_told = matches!(self.state, State::Proving { .. } | State::Open(_));
        self.end(now, error);
        if is_told {
            self.say(control::close(true));
        }
    }

    fn end(&mut self, now: Instant, error: ConnectionError) {
        if !self.is_over() {
            self.state = State::Over(Over { until: now + LINGER, last_words: 0 });
            self.queue.clear();
            self.events.clear();
            self.ended = Some(error);
        }
    }

    /// Ends it without telling why.
    pub(crate) fn close(&mut self, now: Instant) {
        let is_told = matches!(self.state, State::Proving { .. } | State::Open(_));
        self.end(now, ConnectionError::Closed);
        self.ended = None;
        if is_told {
            self.say(control::close(false));
        }
    }

    /// The peer still speaks: the last word was lost, or is on its way.
    fn repeat_last_word(&mut self) {
        let State::Over(over) = &mut self.state else { return };
        if over.last_words < LAST_WORDS_MAX && self.queue.is_empty() {
            over.last_words += 1;
            self.say(control::close(true));
        }
    }
}
