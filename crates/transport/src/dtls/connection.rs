//! One connection: a DTLS session, and once it is open, in it what carries its circuits.

mod outgoing;
mod room;
mod served;

use super::heads::{self, Heads};
use super::room_bytes;
use super::session::{Parts as SessionParts, Session, SessionEvent, Taken};
use super::tunnelled::{Opening, Tunnelled};
use crate::congestion::{Ceiling, WayBack};
use crate::connections::state::Part;
use core::net::SocketAddr;
use core::sync::atomic::AtomicUsize;
use heddle_proto::endpoint::ConnectionOptions;
use heddle_seam::time::{Duration, Instant};
use outgoing::Content;
use std::sync::Arc;

/// How soon to look again whether there is memory.
const STARVED_WAIT: Duration = Duration::from_millis(10);

/// How a datagram came: bytes with its head, and the codepoint of its IP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    pub(super) ecn: u8,
}

pub(crate) struct Connection<T: Tunnelled> {
    session: Session,
    /// What it takes itself.
    memory: Part,
    state: State<T>,
    /// A datagram that did not fit the last batch, and what it is.
    kept: Option<(Content, Vec<u8>)>,
    notices: Notices,
    counts: Counts,
}

/// As its session stands.
enum State<T: Tunnelled> {
    Establishing(Box<Establishing<T>>),
    Open(Box<Open<T>>),
    Over,
}

/// What it is opened with.
struct Establishing<T: Tunnelled> {
    heads: Heads,
    options: T::Options,
    ceiling: Ceiling,
    memory: T::Memory,
    lot: T::Lot,
}

/// What there is while the session is open.
struct Open<T> {
    heads: Heads,
    tunnelled: T,
    /// Where packets are put together before they are sealed.
    packet: Vec<u8>,
    way_back: WayBack,
    /// Since when the circuits are counted that share the window.
    epoch_since: Instant,
    /// Whether there was no capacity, so that the relay waits to hear of more.
    is_full: bool,
}

#[derive(Default)]
struct Notices {
    /// Whether the relay has heard that circuits may be opened.
    told_ready: bool,
    capacity: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent_datagrams: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// What a new connection is made of.
pub(super) struct Parts<'a, T: Tunnelled> {
    pub(super) session: SessionParts<'a>,
    pub(super) options: &'a T::Options,
    pub(super) ceiling: &'a Ceiling,
    pub(super) memory: &'a T::Memory,
    pub(super) lot: T::Lot,
    pub(super) state: &'a Arc<AtomicUsize>,
}

impl<T: Tunnelled> Connection<T> {
    pub(super) fn new(
        now: Instant,
        parts: Parts<'_, T>,
        options: ConnectionOptions,
    ) -> Result<Self, dimpl::Error> {
        let establishing = Establishing {
            heads: Heads::new(now, parts.options.as_ref().marks_ecn),
            options: parts.options.clone(),
            ceiling: parts.ceiling.clone(),
            memory: parts.memory.clone(),
            lot: parts.lot,
        };
        let mut connection = Connection {
            session: Session::new(now, parts.session, options)?,
            memory: Part::of(parts.state),
            state: State::Establishing(Box::new(establishing)),
            kept: None,
            notices: Notices::default(),
            counts: Counts::default(),
        };
        connection.on_events(now, 0);
        Ok(connection)
    }

    fn open(&self) -> Option<&Open<T>> {
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
            (self.state, self.kept, self.notices.capacity) = (State::Over, None, false);
        }
    }

    /// The peer permits `ours_max` flows.
    fn on_open(&mut self, now: Instant, packet_bytes_max: u16, ours_max: u32) {
        // A session opens once.
        let State::Establishing(establishing) = core::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let Establishing { heads, options, ceiling, memory, lot } = *establishing;
        let opening = Opening {
            options: &options,
            memory: &memory,
            lot,
            ceiling,
            role: self.session.role(),
            packet_bytes_max,
            ours_max,
            theirs_max: self.session.flows_max(),
        };
        self.state = State::Open(Box::new(Open {
            heads,
            tunnelled: T::open(now, opening),
            packet: Vec::new(),
            way_back: WayBack::default(),
            epoch_since: now,
            is_full: false,
        }));
    }

    fn on_record(&mut self, now: Instant, end: usize, codepoint: u8) {
        let (State::Open(open), Some(read)) = (&mut self.state, heads::read(self.session.record(end))) else {
            return;
        };
        let Open { heads, tunnelled, way_back, .. } = &mut **open;
        if let Some(controller) = tunnelled.controller_mut() {
            controller.set_ack_wait(way_back.on_packet(now, read.stamp, Duration::ZERO));
        }
        if heads.on_read(&read, codepoint) {
            tunnelled.on_marked();
        }
        let result = tunnelled.handle_packet(now, read.contents);
        self.session.set_round_trip(tunnelled.smoothed_rtt_ns());
        if tunnelled.take_answered() {
            self.session.on_answer(now);
        }
        if let Err(error) = result {
            self.session.give_up(now, error);
        }
    }

    /// Something is known of the path.
    fn on_path(&mut self, now: Instant, event: SessionEvent) {
        let State::Open(open) = &mut self.state else { return };
        let tunnelled = &mut open.tunnelled;
        match event {
            SessionEvent::Length(bytes) => tunnelled.set_packet_bytes_max(room_bytes(bytes)),
            SessionEvent::PathBack => tunnelled.on_path_back(now),
            SessionEvent::Answered(round_trip) => {
                tunnelled.on_answered(now);
                if let (Some(round_trip), Some(controller)) = (round_trip, tunnelled.controller_mut()) {
                    let ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                    controller.on_probe(now, ns);
                }
            }
            SessionEvent::Open { .. } | SessionEvent::Record { .. } => {}
        }
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let session = self.session.poll_timeout(now);
        let Some(Open { tunnelled, is_full, .. }) = self.open() else { return session };
        let lacks_memory = *is_full && tunnelled.lacks_memory();
        let starved = (lacks_memory || tunnelled.is_starved()).then(|| now + STARVED_WAIT);
        let own = [session, tunnelled.poll_timeout(), starved, tunnelled.circuits().poll_timeout()];
        own.into_iter().flatten().min()
    }
}
