//! One connection, from its first datagram to its last.
//!
//! ```text
//!                 TLS is done       the peer's proof is right
//!   Handshaking ─────────────▶ Proving ─────────────────────▶ Open
//!        │                       │                              │
//!        └── no answer, a wrong ─┴─ key or proof, a fault, ─────┴─▶ Over ──▶ drained, then forgotten
//!                                   a dead path, CONNECTION_CLOSE
//! ```
//!
//! 1. Each side opens one unidirectional stream and sends its proof on it, 32 bytes and no more.
//! 2. Nothing else is believed before the peer's proof is right: flows that came already stay with quinn-proto.
//! 3. While open, an acknowledgement that does not come is asked for by PINGs of ours besides quinn-proto's own probes.
//!    What becomes of a path without any is in `silence.rs`.

mod intake;
mod memory;
mod overdraft;
mod served;

use super::arrivals::{Arrival, Watch};
use super::flows::{Flows, Limits};
use super::gauge::{Gauge, Hindrance};
use super::lengths::Content;
use super::options::QuicOptions;
use super::window::ReceiveWindow;
use crate::connections::Served;
use crate::connections::circuits::FLOW_CELL_LEN;
use crate::connections::clock::Clock;
use crate::connections::path::Path;
use crate::connections::silence::{Due, PROBE_MIN};
use crate::connections::stamps::Stamps;
use crate::connections::state::Part;
use bytes::Bytes;
use core::net::IpAddr;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionOptions, FlowState};
use heddle_seam::datagrams::Transmit;
use heddle_seam::time::{Duration, Instant};
use quinn_proto::{ConnectionHandle, Dir, Event, StreamEvent, StreamId, TransportErrorCode, VarInt};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of a proof.
const PROOF_LEN: usize = 32;

/// What a packet spends besides cells, generously: headers, tag, and the frame's own. What is guessed too much makes
/// the batch a little smaller until quinn-proto has nothing left, which sets the count right.
const PACKET_OVERHEAD: usize = 44;

/// Cells that may wait in quinn-proto, at least and at most: what leaves in one go when packets are paced.
const BATCH_CELLS_MIN: usize = 8;
const BATCH_CELLS_MAX: usize = 240;

/// Bytes that are kept until they are acknowledged, at most: so many congestion windows, or so many bytes. In flight is
/// one window, but of each flow all is kept that was sent after what is missing, and a peer may acknowledge everything
/// else for ever.
const KEPT_WINDOWS: u64 = 8;
const KEPT_MIN: u64 = 4 * 1024 * 1024;

/// Paced packets are looked after this often at most, and at least.
const PACE_MIN: Duration = Duration::from_millis(1);
const PACE_MAX: Duration = Duration::from_millis(100);

/// A datagram longer than this carries more than an acknowledgement, so it wants one.
const ACK_BYTES_MAX: usize = 200;

/// Between two looks at how many circuits share the connection.
const EPOCH_MIN: Duration = Duration::from_millis(100);

/// Codes of CONNECTION_CLOSE. The peer reads nothing into them; captures and logs may.
const CLOSE_DONE: u32 = 0;
const CLOSE_FAULT: u32 = 1;

enum State {
    /// Until TLS is done.
    Handshaking(Box<Opening>),
    /// Until the peer's proof was right.
    Proving(Box<Opening>),
    Open,
    Over,
}

/// What is needed until it is open, and is wiped then. It is never moved, which would leave a copy behind.
struct Opening {
    /// When it is given up unless it is open by then.
    deadline: Instant,
    our_proof: Zeroizing<[u8; PROOF_LEN]>,
    their_proof: Zeroizing<[u8; PROOF_LEN]>,
    /// What the peer has shown so far.
    shown: Zeroizing<Vec<u8>>,
}

pub(crate) struct Connection {
    pub(super) handle: ConnectionHandle,
    quinn: quinn_proto::Connection,
    gauge: Arc<Gauge>,
    watch: Watch,
    /// A list of what came on streams, to be filled again.
    arrived: Vec<Arrival>,
    clock: Clock,
    state: State,
    local: Option<IpAddr>,
    path: Path,
    /// The stream of the peer's proof.
    proof_stream: Option<StreamId>,
    flows: Flows,
    /// What it takes itself.
    memory: Part,
    /// Halves of streams that quinn-proto keeps for what comes: as many as were in use at once.
    halves_max: usize,
    receive_window: ReceiveWindow,
    /// Bytes of cells that have not left, about, of those whose streams have room; and how many of them there may be.
    unsent: usize,
    /// Packets that were found lost so far.
    lost_packets: u64,
    batch_bytes: usize,
    /// Whether capacity was used up, so that the relay waits to hear of more.
    is_full: bool,
    /// When paced packets are due.
    pace_at: Option<Instant>,
    /// Since when the peer has waited for a datagram of ours, which acknowledges its own; and whether the window is
    /// why.
    owed_since: Option<Instant>,
    is_window_full: bool,
    /// Since when the circuits that share it are counted, and when it was last looked whether that is long enough.
    epoch_since: Instant,
    counted_at: Instant,
    /// Whether the latest probe has not left.
    is_probe_unsent: bool,
    /// Whether quinn-proto may be about to probe for what was not acknowledged.
    may_probe: bool,
    stamps: Stamps,
    notices: Notices,
}

/// Events that the relay has not seen. What they say is looked up when they are polled.
#[derive(Default)]
struct Notices {
    ready: bool,
    room: bool,
    capacity: bool,
    ended: Option<ConnectionError>,
}

/// What a new connection is made of.
pub(super) struct Parts {
    pub(super) handle: ConnectionHandle,
    pub(super) quinn: quinn_proto::Connection,
    pub(super) gauge: Arc<Gauge>,
    pub(super) watch: Watch,
    pub(super) buffered: Part,
    pub(super) state: Part,
    pub(super) receive_window: ReceiveWindow,
    pub(super) deadline: Instant,
}

impl Connection {
    pub(super) fn new(now: Instant, parts: Parts, options: ConnectionOptions, quic: &QuicOptions) -> Self {
        let secrets = options.secrets;
        let (our_proof, their_proof) = match options.role {
            Role::Initiator => (secrets.dialler_proof, secrets.listener_proof),
            Role::Responder => (secrets.listener_proof, secrets.dialler_proof),
        };
        let opening = Opening {
            deadline: parts.deadline,
            our_proof,
            their_proof,
            // One byte more than a proof has is enough to know better.
            shown: Vec::with_capacity(PROOF_LEN + 1).into(),
        };
        let limits = Limits {
            flows_first: quic.flows_first,
            flows_max: options.flows_max,
            first_cell_timeout: quic.timeouts.first_cell,
        };
        Connection {
            handle: parts.handle,
            quinn: parts.quinn,
            gauge: parts.gauge,
            watch: parts.watch,
            arrived: Vec::new(),
            clock: Clock { anchor: quic.anchor },
            state: State::Handshaking(Box::new(opening)),
            local: options.local,
            path: Path::new(now, &quic.timeouts),
            proof_stream: None,
            flows: Flows::new(options.role, &limits, parts.buffered),
            memory: parts.state,
            halves_max: 0,
            receive_window: parts.receive_window,
            unsent: 0,
            lost_packets: 0,
            batch_bytes: BATCH_CELLS_MIN * FLOW_CELL_LEN,
            is_full: false,
            pace_at: None,
            owed_since: None,
            is_window_full: false,
            epoch_since: now,
            counted_at: now,
            is_probe_unsent: false,
            may_probe: false,
            stamps: Stamps::new(now),
            notices: Notices::default(),
        }
    }

    /// Takes what quinn-proto's endpoint made of a datagram of so many bytes.
    pub(super) fn handle_datagram(&mut self, now: Instant, event: quinn_proto::ConnectionEvent, len: usize) {
        self.gauge.on_datagram(now);
        self.quinn.handle_event(event);
        // A copy says nothing of the path, and owes the peer no answer.
        if !self.gauge.is_new() {
            return;
        }
        self.path.on_heard(now);
        if len > ACK_BYTES_MAX {
            self.owed_since.get_or_insert(now);
        }
    }

    /// Passes on what the endpoint must know, and what it answers.
    pub(super) fn settle(&mut self, endpoint: &mut quinn_proto::Endpoint) {
        while let Some(event) = self.quinn.poll_endpoint_events() {
            if let Some(answer) = endpoint.handle_event(self.handle, event) {
                self.quinn.handle_event(answer);
            }
        }
        self.count_memory();
    }

    /// Works off what quinn-proto has to say.
    pub(super) fn on_quinn_events(&mut self, now: Instant) {
        while let Some(event) = self.quinn.poll() {
            match event {
                Event::Connected => self.on_connected(now),
                Event::ConnectionLost { reason } => self.on_lost(&reason),
                Event::Stream(event) => self.on_stream_event(now, event),
                // The gauge has read what it says.
                Event::DatagramReceived => while self.quinn.datagrams().recv().is_some() {},
                Event::HandshakeDataReady | Event::DatagramsUnblocked => {}
            }
        }
        self.count_arrivals(now);
        if self.is_open() {
            self.flows.restrain(now, &mut self.quinn);
        }
        self.path.on_answer(now, self.due());
        self.unsent += self.take_lost();
        self.batch_bytes = self.batch();
        // Losses and a window that shrinks may use capacity up too, and the relay must hear when there is some again.
        self.is_full |= self.is_open() && self.capacity() == 0;
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    fn on_connected(&mut self, now: Instant) {
        let State::Handshaking(opening) = core::mem::replace(&mut self.state, State::Over) else { return };
        let stream = self.quinn.streams().open(Dir::Uni);
        let written =
            stream.and_then(|stream| self.quinn.send_stream(stream).write(&opening.our_proof[..]).ok());
        self.state = State::Proving(opening);
        if written != Some(PROOF_LEN) {
            self.fault(now, "it permits no stream for a proof");
        }
    }

    fn on_stream_event(&mut self, now: Instant, event: StreamEvent) {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                if let Some(stream) = self.quinn.streams().accept(Dir::Uni) {
                    self.proof_stream = Some(stream);
                    self.read_proof(now);
                }
            }
            StreamEvent::Readable { id } if id.dir() == Dir::Uni => self.read_proof(now),
            StreamEvent::Stopped { id, .. } if id.dir() == Dir::Uni => {
                self.fault(now, "it does not want our proof");
            }
            // What comes before the proof is looked at when the proof has come.
            _ if !self.is_open() => {}
            StreamEvent::Opened { dir: Dir::Bi } => self.flows.accept(now, &mut self.quinn),
            StreamEvent::Readable { id } => self.flows.on_readable(&mut self.quinn, id),
            StreamEvent::Writable { id } => {
                let written = self.flows.on_writable(now, &mut self.quinn, id);
                self.unsent = (self.unsent + written.late).saturating_sub(written.refused);
            }
            StreamEvent::Stopped { id, error_code } => {
                self.flows.on_stopped(&mut self.quinn, id, error_code);
            }
            StreamEvent::Available { dir: Dir::Bi } => {
                self.notices.room |= self.flows.take_free(&mut self.quinn);
            }
            StreamEvent::Available { dir: Dir::Uni } | StreamEvent::Finished { .. } => {}
        }
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open;
        self.epoch_since = now;
        self.path.on_probe(now);
        self.notices.ready = true;
        self.flows.take_free(&mut self.quinn);
        self.notices.room = true;
        self.flows.accept(now, &mut self.quinn);
    }

    fn on_lost(&mut self, reason: &quinn_proto::ConnectionError) {
        use quinn_proto::ConnectionError as Lost;
        let error = match reason {
            Lost::TransportError(error)
                if matches!(self.state, State::Handshaking(_)) && is_crypto(error.code) =>
            {
                ConnectionError::WrongProof
            }
            Lost::TransportError(error) => ConnectionError::PeerMisbehaved(error.to_string()),
            Lost::VersionMismatch | Lost::CidsExhausted => {
                ConnectionError::PeerMisbehaved(reason.to_string())
            }
            Lost::ConnectionClosed(_) | Lost::ApplicationClosed(_) | Lost::Reset => {
                ConnectionError::PeerClosed
            }
            Lost::TimedOut => ConnectionError::PathDead,
            Lost::LocallyClosed => ConnectionError::Closed,
        };
        self.end(error);
    }

    fn fault(&mut self, now: Instant, what: &str) {
        self.give_up(now, ConnectionError::PeerMisbehaved(what.to_owned()));
    }

    /// Ends it for a fault of the peer or of the path. CONNECTION_CLOSE tells the peer, if it is there.
    fn give_up(&mut self, now: Instant, error: ConnectionError) {
        self.quinn.close(self.clock.std(now), VarInt::from_u32(CLOSE_FAULT), Bytes::new());
        self.end(error);
    }

    fn end(&mut self, error: ConnectionError) {
        if !matches!(core::mem::replace(&mut self.state, State::Over), State::Over) {
            self.flows.clear();
            self.notices = Notices { ended: Some(error), ..Notices::default() };
        }
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let quinn = self.quinn.poll_timeout().map(|at| self.clock.ours(at));
        let ours = match &self.state {
            State::Handshaking(opening) | State::Proving(opening) => Some(opening.deadline),
            State::Open => {
                let path = self.path.poll_timeout(self.due());
                let flows = self.flows.poll_timeout();
                let ours = [Some(path), self.pace_at, self.owed_at(), flows];
                ours.into_iter().flatten().min()
            }
            State::Over => None,
        };
        [quinn, ours].into_iter().flatten().min()
    }

    /// The acknowledgement that the peer owes us.
    fn due(&self) -> Option<Due> {
        let since = Instant::from_nanos(self.gauge.waiting_since_ns()?);
        Some(Due { since, probe_timeout: self.gauge.probe_timeout().unwrap_or(PROBE_MIN) })
    }

    /// Writes the next batch of datagrams into `out`, which is empty.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        datagrams_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.tune_windows(now);
        let refused = self.flows.write_pending(now, &mut self.quinn);
        self.unsent = self.unsent.saturating_sub(refused);
        self.stamp(now);
        self.gauge.take_hindrance();
        let mut transmit = self.make_datagrams(now, datagrams_max, out);
        self.is_window_full = false;
        if transmit.is_none() {
            match self.gauge.take_hindrance() {
                Hindrance::Nothing => (self.unsent, self.flows.has_ended) = (0, false),
                Hindrance::Window => {
                    self.is_window_full = true;
                    transmit = self.overdraw(now, out);
                }
                Hindrance::Pace => self.pace_at = Some(now + self.pace()),
            }
        }
        let Some(transmit) = transmit else {
            self.may_probe = false;
            self.note_capacity();
            return None;
        };
        (self.owed_since, self.is_probe_unsent) = (None, false);
        let stride = transmit.segment_size.unwrap_or(transmit.size).max(1);
        let overhead = transmit.size.div_ceil(stride) * PACKET_OVERHEAD;
        self.unsent = self.unsent.saturating_sub(transmit.size.saturating_sub(overhead));
        self.note_capacity();
        Some(Transmit {
            to: transmit.destination,
            from: transmit.src_ip.or(self.local),
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            stride,
        })
    }

    /// Has quinn-proto write datagrams, of which those with one or two cells are as long as any such.
    fn make_datagrams(
        &mut self,
        now: Instant,
        datagrams_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<quinn_proto::Transmit> {
        let content = match self.is_open() {
            true => Content::Cells { bytes: self.unsent, has_ends: self.flows.has_ended },
            false => Content::Handshake,
        };
        self.watch.lengths.begin(content, self.may_probe);
        self.quinn.poll_transmit(self.clock.std(now), datagrams_max, out)
    }

    /// Reading gives the peer credit, and may change how much it may have. What we keep for sending follows the
    /// congestion window.
    fn tune_windows(&mut self, now: Instant) {
        let aside_bytes = self.flows.aside_bytes() as u64;
        if let Some(window) = self.receive_window.update(now, self.quinn.rtt(), aside_bytes) {
            self.quinn.set_receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX));
        }
        self.quinn.set_send_window(KEPT_MIN.max(KEPT_WINDOWS * self.window()));
    }

    /// How soon to look again when packets are paced. quinn-proto would wait for ten and send them at once, which on a
    /// slow wire is a queue; when it is asked before, it sends what is due.
    fn pace(&self) -> Duration {
        const PACKETS: u128 = 2;
        let window = u128::from(self.window()).max(1);
        let ns = PACKETS * self.datagram_bytes() as u128 * self.quinn.rtt().as_nanos() / window;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).clamp(PACE_MIN, PACE_MAX)
    }

    fn window(&self) -> u64 {
        self.quinn.congestion_state().metrics().congestion_window
    }

    /// Bytes of one datagram at most.
    fn datagram_bytes(&self) -> usize {
        usize::from(self.quinn.current_mtu())
    }

    /// What leaves in one go: two milliseconds' worth, as quinn-proto's pacing has it.
    fn batch(&self) -> usize {
        const BURST_NS: u64 = 2_000_000;
        let rtt_ns = u64::try_from(self.quinn.rtt().as_nanos()).unwrap_or(u64::MAX).max(1);
        let burst = self.window().saturating_mul(BURST_NS) / rtt_ns;
        let burst_cells = usize::try_from(burst).unwrap_or(usize::MAX) / FLOW_CELL_LEN;
        burst_cells.clamp(BATCH_CELLS_MIN, BATCH_CELLS_MAX) * FLOW_CELL_LEN
    }

    /// Tells the relay of room once there is some worth its while.
    fn note_capacity(&mut self) {
        if self.is_full && self.capacity() >= BATCH_CELLS_MIN / 2 {
            self.is_full = false;
            self.notices.capacity = true;
        }
    }

    pub(super) fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        if !self.is_open() {
            return FlowState::Open;
        }
        let (state, queued) = self.flows.send(now, &mut self.quinn, circ_id, command, body);
        self.notices.room |= self.flows.take_room_news();
        self.unsent = (self.unsent + queued.bytes).saturating_sub(queued.refused);
        self.is_full |= self.capacity() == 0;
        self.count_circuits(now);
        state
    }
}

/// Whether TLS is what failed (RFC 9001, section 4.8): the peer showed another key, or spoke another protocol.
fn is_crypto(code: TransportErrorCode) -> bool {
    (0x100..0x200).contains(&u64::from(code))
}
