//! One connection: a DTLS session, and once it is open, a TCP connection in it for each circuit.

mod outgoing;
mod room;
mod served;

use super::flows::Flows;
use super::options::{ACK_DELAY, CongestionControl, DtlsOptions};
use crate::congestion::{Ceiling, WayBack};
use crate::dtls::heads::{self, Heads};
use crate::dtls::room_bytes;
use crate::dtls::session::{Parts as SessionParts, Session, SessionEvent, Taken};
use crate::shared_window::SharedOfSession;
use crate::state::Part;
use core::net::SocketAddr;
use core::sync::atomic::AtomicUsize;
use heddle_proto::endpoint::{ConnectionError, ConnectionOptions};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::BufferPool;
use heddle_utcp::compact::Mux;
use outgoing::Content;
use std::sync::Arc;

/// How soon to look again whether the pool has memory.
const STARVED_WAIT: Duration = Duration::from_millis(10);

/// How a datagram came: bytes with its head, and the codepoint of its IP header. No bytes stand for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    pub(super) ecn: u8,
}

pub(crate) struct Connection {
    session: Session,
    options: DtlsOptions,
    /// What it takes itself.
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
    /// That of the endpoint.
    pool: BufferPool,
}

/// What there is while the session is open.
struct Open {
    heads: Heads,
    /// Its share of the endpoint's.
    pool: BufferPool,
    mux: Mux,
    flows: Flows,
    /// Where datagrams are put together before they are sealed.
    segments: Vec<u8>,
    way_back: WayBack,
    /// Since when the circuits are counted that share the window.
    epoch_since: Instant,
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
    pub(super) options: &'a DtlsOptions,
    pub(super) ceiling: &'a Ceiling,
    pub(super) pool: &'a BufferPool,
    pub(super) state: &'a Arc<AtomicUsize>,
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        parts: Parts<'_>,
        options: ConnectionOptions,
    ) -> Result<Self, dimpl::Error> {
        let establishing = Establishing {
            heads: Heads::new(now, parts.options.marks_ecn),
            ceiling: parts.ceiling.clone(),
            pool: parts.pool.clone(),
        };
        let mut connection = Connection {
            session: Session::new(now, parts.session, options)?,
            options: parts.options.clone(),
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

    fn on_open(&mut self, now: Instant, room_bytes: u16, flows_max: u32) {
        // A session opens once.
        let State::Establishing(establishing) = core::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let Establishing { heads, ceiling, pool } = *establishing;
        let pool = pool.session();
        let options = self.options.mux(room_bytes, self.session.flows_max());
        let mux = match self.options.congestion {
            CongestionControl::Shared => {
                let shared = |mss_bytes| SharedOfSession::new(now, mss_bytes, ACK_DELAY, ceiling);
                Mux::with_controller(options, pool.clone(), |mss_bytes| Box::new(shared(mss_bytes)))
            }
            CongestionControl::Cubic | CongestionControl::Reno => Mux::new(options, pool.clone()),
        };
        let (role, timeout) = (self.session.role(), self.options.timeouts.first_cell);
        self.state = State::Open(Box::new(Open {
            heads,
            mux,
            flows: Flows::new(role, flows_max, timeout, pool.clone()),
            pool,
            segments: Vec::new(),
            way_back: WayBack::default(),
            epoch_since: now,
            is_full: false,
        }));
        self.notices.ready = true;
    }

    fn on_record(&mut self, now: Instant, end: usize, codepoint: u8) {
        let (State::Open(open), Some(read)) = (&mut self.state, heads::read(self.session.record(end))) else {
            return;
        };
        let Open { heads, mux, flows, way_back, .. } = &mut **open;
        if let Some(controller) = mux.controller_mut() {
            let wait = way_back.on_packet(now, read.stamp, Duration::ZERO);
            controller.set_ack_wait(wait.waited, wait.is_known);
        }
        if heads.on_read(&read, codepoint) {
            mux.on_marked();
        }
        let result = mux.handle_datagram(now, read.contents, &mut |id, bytes| flows.take(id, bytes));
        flows.on_events(now, mux);
        let is_answered = mux.take_answered();
        self.session.set_round_trip(mux.smoothed_rtt_ns());
        if is_answered {
            self.session.on_answer(now);
        }
        if let Err(why) = result {
            self.session.give_up(now, ConnectionError::PeerMisbehaved(why.to_string()));
        }
    }

    /// Something is known of the path.
    fn on_path(&mut self, now: Instant, event: SessionEvent) {
        let State::Open(open) = &mut self.state else { return };
        let mux = &mut open.mux;
        match event {
            SessionEvent::Length(bytes) => mux.set_datagram_bytes_max(room_bytes(bytes)),
            SessionEvent::PathBack => mux.on_path_back(now),
            SessionEvent::Answered(round_trip) => {
                mux.on_answered(now);
                if let (Some(round_trip), Some(controller)) = (round_trip, mux.controller_mut()) {
                    let ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                    controller.on_probe(now, ns);
                }
            }
            SessionEvent::Open { .. } | SessionEvent::Record { .. } => {}
        }
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let session = self.session.poll_timeout(now);
        let Some(open) = self.open() else { return session };
        let Open { mux, flows, is_full, .. } = open;
        let is_starved = *is_full && open.lacks_memory() || flows.is_starved();
        let starved = is_starved.then(|| now + STARVED_WAIT);
        [session, mux.poll_timeout(), starved, flows.circuits.poll_timeout()].into_iter().flatten().min()
    }
}
