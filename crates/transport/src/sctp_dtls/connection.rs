//! One connection: a DTLS session, and once it is open, an SCTP association in it with a stream for each circuit.

mod outgoing;
mod room;
mod served;

use super::flows::{Flows, SLACK_FLOWS};
use super::options::{ACK_DELAY, CongestionControl, SctpOptions};
use crate::congestion::{Ceiling, WayBack};
use crate::dtls::heads::{self, Heads};
use crate::dtls::room_bytes;
use crate::dtls::session::{Parts as SessionParts, Session, SessionEvent, Taken};
use crate::shared_window::SharedOfSession;
use crate::state::Part;
use core::net::SocketAddr;
use core::sync::atomic::AtomicUsize;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionOptions};
use heddle_sctp::reno::Reno;
use heddle_sctp::{Association, Closed, Event, Random};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::SessionController;
use outgoing::Content;
use std::sync::Arc;

/// How soon to look again whether there is memory.
const STARVED_WAIT: Duration = Duration::from_millis(10);
/// Streams that an association may have, of which half are each side's to open: there are as many as the flows that
/// either side permits, a quarter more that have not begun anew yet, and some.
const STREAMS_MAX: u32 = 65_534;

/// How a datagram came: bytes with its head, and the codepoint of its IP header. No bytes stand for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    pub(super) ecn: u8,
}

pub(crate) struct Connection {
    session: Session,
    options: SctpOptions,
    /// What its messages take, those to be sent and those that came, and what it takes itself.
    buffered: [Part; 2],
    memory: Part,
    state: State,
    /// A datagram that did not fit the last batch, and what it is.
    kept: Option<(Content, Vec<u8>)>,
    notices: Notices,
    counts: Counts,
}

/// As its session stands.
enum State {
    Establishing(Box<Establishing>),
    Open(Box<Open>),
    Over,
}

/// What it is opened with.
struct Establishing {
    heads: Heads,
    ceiling: Ceiling,
    random: Random,
}

/// What there is while the session is open.
struct Open {
    heads: Heads,
    association: Association,
    flows: Flows,
    /// Where packets are put together before they are sealed.
    packet: Vec<u8>,
    way_back: WayBack,
    /// Since when the circuits are counted that share the window.
    epoch_since: Instant,
    /// When there must be an association.
    deadline: Option<Instant>,
    /// Whether there was no capacity, so that the relay waits to hear of more.
    is_full: bool,
}

#[derive(Default)]
struct Notices {
    ready: bool,
    capacity: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent_datagrams: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// What a new connection is made of.
pub(super) struct Parts<'a> {
    pub(super) session: SessionParts<'a>,
    pub(super) options: &'a SctpOptions,
    pub(super) ceiling: &'a Ceiling,
    pub(super) rng: Rng,
    pub(super) buffered: &'a [Arc<AtomicUsize>; 2],
    pub(super) state: &'a Arc<AtomicUsize>,
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        mut parts: Parts<'_>,
        options: ConnectionOptions,
    ) -> Result<Self, dimpl::Error> {
        let rng = &mut parts.rng;
        let random = Random { tag: rng.next_u32(), tsn: rng.next_u32(), cookie: rng.array() };
        let establishing = Establishing {
            heads: Heads::new(now, parts.options.marks_ecn),
            ceiling: parts.ceiling.clone(),
            random,
        };
        let mut connection = Connection {
            session: Session::new(now, parts.session, options)?,
            options: parts.options.clone(),
            buffered: parts.buffered.each_ref().map(Part::of),
            memory: Part::of(parts.state),
            state: State::Establishing(Box::new(establishing)),
            kept: None,
            notices: Notices::default(),
            counts: Counts::default(),
        };
        connection.on_events(now, 0);
        Ok(connection)
    }

    fn open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Establishing(_) | State::Over => None,
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.session.peer()
    }

    /// Takes the records of a datagram. Returns whether DTLS dropped them: they came late or twice, or are not the
    /// peer's.
    pub(super) fn handle_records(&mut self, now: Instant, records: &[u8], arrival: Arrival) -> bool {
        let taken = self.session.handle_records(now, records, arrival.bytes);
        if taken == Taken::Dropped {
            return true;
        }
        self.counts.received_bytes += arrival.bytes as u64;
        self.on_events(now, arrival.ecn);
        taken == Taken::Told { were_encrypted: true } && !self.session.is_heard()
    }

    /// Works off what became of the session. `codepoint` is that of the datagram that brought it about.
    fn on_events(&mut self, now: Instant, codepoint: u8) {
        while let Some(event) = self.session.poll(now) {
            match event {
                SessionEvent::Open { datagram_bytes, flows_max } => {
                    self.on_open(now, room_bytes(datagram_bytes), flows_max);
                }
                SessionEvent::Record { end } => self.on_record(now, end, codepoint),
                _ => self.on_path(now, event),
            }
        }
        if self.session.is_over() {
            (self.state, self.kept, self.notices) = (State::Over, None, Notices::default());
        }
    }

    /// The peer permits `ours_max` flows.
    fn on_open(&mut self, now: Instant, room_bytes: u16, ours_max: u32) {
        // A session opens once.
        let State::Establishing(establishing) = core::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let Establishing { heads, ceiling, random } = *establishing;
        let role = self.session.role();
        let flows_max = [ours_max, self.session.flows_max()].map(|flows| flows.min(STREAMS_MAX));
        let most = flows_max[0].max(flows_max[1]);
        let streams_max = (2 * (most + most / 4 + SLACK_FLOWS)).min(STREAMS_MAX) as u16;
        let options = self.options.association(room_bytes, streams_max);
        let mss_bytes = Association::mss_bytes(room_bytes);
        let controller: Box<dyn SessionController> = match self.options.congestion {
            CongestionControl::Shared => Box::new(SharedOfSession::new(now, mss_bytes, ACK_DELAY, ceiling)),
            CongestionControl::Reno => Box::new(Reno::new(mss_bytes)),
        };
        let mut association = Association::with_controller(options, random, controller);
        association.set_receive_bytes_max(self.receive_bytes_max());
        if role == Role::Initiator {
            association.connect();
        }
        self.state = State::Open(Box::new(Open {
            heads,
            association,
            flows: Flows::new(role, flows_max, streams_max, self.options.timeouts.first_cell),
            packet: Vec::new(),
            way_back: WayBack::default(),
            epoch_since: now,
            deadline: Some(now + self.options.timeouts.dial),
            is_full: false,
        }));
    }

    fn on_record(&mut self, now: Instant, end: usize, codepoint: u8) {
        let receive_bytes_max = self.receive_bytes_max();
        let (State::Open(open), Some(read)) = (&mut self.state, heads::read(self.session.record(end))) else {
            return;
        };
        let Open { heads, association, way_back, .. } = &mut **open;
        let wait = way_back.on_packet(now, read.stamp, Duration::ZERO);
        association.controller_mut().set_ack_wait(wait.waited, wait.is_known);
        if heads.on_read(&read, codepoint) {
            association.on_marked();
        }
        association.set_receive_bytes_max(receive_bytes_max);
        association.handle_packet(now, read.contents);
        let (is_answered, round_trip) = (association.take_answered(), association.round_trip());
        let smoothed_ns = round_trip.map(|rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX));
        self.session.set_round_trip(smoothed_ns);
        if is_answered {
            self.session.on_answer(now);
        }
        self.on_association(now);
    }

    /// Works off what became of the association.
    fn on_association(&mut self, now: Instant) {
        let State::Open(open) = &mut self.state else { return };
        let Open { association, flows, deadline, .. } = &mut **open;
        while let Some(event) = association.poll_event() {
            let fault = match event {
                Event::Connected => {
                    (*deadline, self.notices.ready) = (None, true);
                    continue;
                }
                Event::Closed(Closed::Misbehaved(what)) => what,
                Event::Closed(Closed::NoAnswer) => {
                    return self.session.give_up(now, ConnectionError::NoAnswer);
                }
                Event::Closed(_) => return self.session.give_up(now, ConnectionError::PeerClosed),
                _ => match flows.on_event(now, association, event) {
                    Ok(()) => continue,
                    Err(fault) => fault.0,
                },
            };
            return self.session.give_up(now, ConnectionError::PeerMisbehaved(fault.to_owned()));
        }
    }

    /// Something is known of the path.
    fn on_path(&mut self, now: Instant, event: SessionEvent) {
        let State::Open(open) = &mut self.state else { return };
        let association = &mut open.association;
        match event {
            SessionEvent::Length(bytes) => association.set_packet_bytes_max(room_bytes(bytes)),
            SessionEvent::PathBack => association.on_path_back(now),
            SessionEvent::Answered(Some(round_trip)) => {
                let ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                association.controller_mut().on_probe(now, ns);
            }
            SessionEvent::Answered(None) | SessionEvent::Open { .. } | SessionEvent::Record { .. } => {}
        }
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let session = self.session.poll_timeout(now);
        let Some(open) = self.open() else { return session };
        let starved = (open.is_full && self.lacks_memory()).then(|| now + STARVED_WAIT);
        let own = [session, open.association.poll_timeout(), starved, open.deadline];
        own.into_iter().chain([open.flows.circuits.poll_timeout()]).flatten().min()
    }
}
