//! All flows of one session: opens, accepts, finds, packs, resets.
//!
//! 1. [`handle_datagram`](Mux::handle_datagram) for what was decrypted; [`poll_event`](Mux::poll_event) until it gives
//!    nothing.
//! 2. [`open`](Mux::open), [`write`](Mux::write), [`read`](Mux::read), [`reset`](Mux::reset) as the application likes.
//! 3. [`poll_datagram`](Mux::poll_datagram) until it gives nothing, then [`poll_timeout`](Mux::poll_timeout).
//!
//! Bounds: flows of the peer by `flows_max`, how fast it opens them by `openings`, bytes by the pool and by each flow's
//! windows, resets by their module's constants, and answers to the peer's by a constant here.

mod outgoing;

use super::codec::{
    self, Body, HEADER_BYTES, Kind, Malformed, PADDING, PAYLOAD_UNITS_MAX, PORT_MAX, SACK_BLOCK_BYTES,
};
use super::flow::{Flow, MuxEvent};
use super::flow_id::FlowId;
use super::openings::Openings;
use super::remains::AllRemains;
use super::resets::Resets;
use super::window::SharedWindow;
use crate::congestion::SessionController;
use crate::connection::{CloseReason, Connection, Stats};
use crate::options::{Algorithm, Options};
use crate::pool::BufferPool;
use crate::segment::{Ecn, SEQUENCE_BASE};
use crate::time::{Instant, S};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Answers to resets that wait to be sent at most: a peer who gets none asks again.
const ANSWERS_MAX: usize = 16_384;
/// How long an end that finished first answers the other's repeated F.
const TIME_WAIT_NS: u64 = 2 * S;

/// What a datagram carries, by which its length may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Acknowledgements, and answers to resets.
    Acknowledgements,
    /// Resets, and no payload.
    Ends,
    Payload,
}

/// What a session is set to. Unit and reason codes are part of the protocol and equal at both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct MuxOptions {
    /// What sequence numbers count, in bytes; everything is written in multiples of it. From 3; 16 bits of window hold
    /// 65,535 of them. Default: 170, a third of a cell with its command, of which eight fill a datagram.
    pub unit_bytes: u16,
    /// The longest datagram. Default: 1400.
    pub datagram_bytes_max: u16,
    /// How many flows of the peer there may be. Default: 65,536.
    pub flows_max: usize,
    /// The reason of the reset that answers what opens one too many. Default: 5 (Tor's RESOURCELIMIT).
    pub refusal_code: u8,
    /// The reason of the reset that answers a segment of no flow. Default: 0.
    pub unknown_code: u8,
    /// The options of the flows. Segment size, unit, SACK, timestamps, ECN (see [`Mux::on_marked`]), data in SYNs
    /// and TIME-WAIT (2 s) follow from the framing.
    pub flow: Options,
}

impl Default for MuxOptions {
    fn default() -> Self {
        MuxOptions {
            unit_bytes: 170,
            datagram_bytes_max: 1400,
            flows_max: 65_536,
            refusal_code: 5,
            unknown_code: 0,
            flow: Options::default(),
        }
    }
}

impl MuxOptions {
    /// What the framing makes of the flows' options.
    fn flow_options(&self) -> Options {
        let room = usize::from(self.datagram_bytes_max).saturating_sub(HEADER_BYTES + 3 * SACK_BLOCK_BYTES);
        let units = (room / usize::from(self.unit_bytes)).clamp(1, PAYLOAD_UNITS_MAX);
        let mss = units * usize::from(self.unit_bytes);
        Options {
            mss_bytes: u16::try_from(mss).unwrap_or(u16::MAX),
            unit_bytes: self.unit_bytes,
            sack: true,
            timestamps: false,
            ecn: self.flow.algorithm != Algorithm::Granted,
            syn_data: true,
            time_wait_ns: self.flow.time_wait_ns.min(TIME_WAIT_NS),
            ..self.flow.clone()
        }
    }
}

/// The flows of one session.
#[derive(Debug)]
pub struct Mux {
    options: MuxOptions,
    flow_options: Arc<Options>,
    pool: BufferPool,
    /// Boxed, because a tree moves its entries about.
    flows: BTreeMap<FlowId, Box<Flow>>,
    /// How many of them the peer opened.
    theirs: usize,
    next_port: u32,
    openings: Openings,
    /// Flows that may have something to send, in turn.
    ready: VecDeque<FlowId>,
    /// Where the flows share one.
    window: Option<SharedWindow>,
    /// Flows that owe an acknowledgement which may wait.
    owing: Vec<FlowId>,
    /// What is still on its way of flows that were reset.
    remains: AllRemains,
    /// Those of flows.
    timers: BTreeSet<(Instant, FlowId)>,
    events: VecDeque<MuxEvent>,
    resets: Resets,
    /// Answers to resets.
    answers: VecDeque<FlowId>,
    /// A segment that did not fit into the last datagram.
    kept: Vec<u8>,
    payload: Vec<u8>,
    smoothed_ns: Option<u64>,
    /// Flows whose time-outs grew since the peer last answered anything.
    backed_off: Vec<FlowId>,
    /// Whether a flow's retransmission timer expired that nobody has asked about.
    has_expired: bool,
    /// Whether the peer told of marks that nothing was taken for yet.
    is_marked: bool,
    /// Whether an acknowledgement advanced that nobody has asked about.
    is_answered: bool,
    /// What flows had on the heap when each last came to rest.
    flows_heap_bytes: usize,
}

/// Being asked.
impl Mux {
    /// A session without flows.
    pub fn new(options: MuxOptions, pool: BufferPool) -> Self {
        Mux {
            flow_options: Arc::new(options.flow_options()),
            openings: Openings::new(options.flows_max),
            options,
            pool,
            flows: BTreeMap::new(),
            theirs: 0,
            next_port: 0,
            ready: VecDeque::new(),
            window: None,
            owing: Vec::new(),
            remains: AllRemains::default(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            resets: Resets::default(),
            answers: VecDeque::new(),
            kept: Vec::new(),
            payload: Vec::new(),
            smoothed_ns: None,
            backed_off: Vec::new(),
            has_expired: false,
            is_marked: false,
            is_answered: false,
            flows_heap_bytes: 0,
        }
    }

    /// A session without flows, whose flows share the window that `controller` sets. It may be more than one
    /// connection's, which RFC 3124 does not allow its congestion manager.
    pub fn with_controller(
        mut options: MuxOptions,
        pool: BufferPool,
        controller: impl FnOnce(u16) -> Box<dyn SessionController>,
    ) -> Self {
        (options.flow.algorithm, options.flow.pacing) = (Algorithm::Granted, false);
        let mut mux = Mux::new(options, pool);
        let mss_bytes = mux.flow_options.mss_bytes;
        mux.window = Some(SharedWindow::new(controller(mss_bytes), mss_bytes.into()));
        mux
    }

    /// The controller of the window that the flows share, if they do.
    pub fn controller_mut(&mut self) -> Option<&mut dyn SessionController> {
        self.window.as_mut().map(|window| &mut *window.controller as _)
    }

    /// Where flows share a window: its size, what is in flight, and what waits for nothing else, all in bytes.
    pub fn shared_window(&self) -> Option<[u64; 3]> {
        let window = self.window.as_ref()?;
        Some([window.controller.window_bytes(), window.in_flight(), window.ready_bytes()])
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// All flows, ours after the peer's.
    pub fn ids(&self) -> impl Iterator<Item = FlowId> {
        self.flows.keys().copied()
    }

    /// A flow's connection, to look at.
    pub fn get(&self, id: FlowId) -> Option<&Connection> {
        self.flows.get(&id).map(|flow| &flow.connection)
    }

    /// The oldest bytes that a flow has of the pool came no sooner; `None` if it has none.
    pub fn buffered_since(&self, id: FlowId) -> Option<Instant> {
        let flow = self.flows.get(&id)?;
        [flow.received.since, flow.written.since].into_iter().flatten().min()
    }

    /// What a flow is doing.
    pub fn stats(&self, id: FlowId) -> Option<Stats> {
        self.get(id).map(Connection::stats)
    }

    /// The smoothed round trip: over all flows where they share a window, else of the flow that measured last.
    pub fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.window.as_ref().and_then(SharedWindow::smoothed_ns).or(self.smoothed_ns)
    }

    /// Whether something of ours was acknowledged since this was asked last.
    pub fn take_answered(&mut self) -> bool {
        core::mem::take(&mut self.is_answered)
    }

    /// Whether a flow's retransmission timer expired since this was asked last.
    pub fn take_expired(&mut self) -> bool {
        core::mem::take(&mut self.has_expired)
    }

    /// Bytes that all this takes on the heap beside the pool's chunks, about what an allocator would say.
    pub fn heap_bytes(&self) -> usize {
        // A tree's nodes have eleven places, of which six are used where keys rise.
        const TREE_ENTRY: usize = 48;
        let lists = self.ready.capacity() * size_of::<FlowId>()
            + (self.owing.capacity() + self.backed_off.capacity()) * size_of::<FlowId>()
            + self.events.capacity() * size_of::<MuxEvent>()
            + self.answers.capacity() * size_of::<FlowId>()
            + self.kept.capacity()
            + self.payload.capacity()
            + self.openings.heap_bytes();
        lists
            + self.resets.heap_bytes(TREE_ENTRY)
            + self.remains.heap_bytes()
            + self.flows.len() * Mux::FLOW_BYTES
            + self.flows_heap_bytes
    }

    /// What becomes more with each flow, its places in trees and its box with it, beside what its connection has on the
    /// heap.
    pub const FLOW_BYTES: usize = size_of::<Flow>() + 16 + 2 * 48;

    /// What became of flows.
    pub fn poll_event(&mut self) -> Option<MuxEvent> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let paced = self.window.as_ref().and_then(SharedWindow::poll_timeout);
        let timer = self.timers.first().map(|(timer, _)| *timer);
        [timer, paced, self.remains.poll_timeout(), self.resets.poll_timeout()].into_iter().flatten().min()
    }
}

/// The application.
impl Mux {
    /// From now on datagrams have so many bytes at most, because the path carries less than it did, or more. What was
    /// sent in longer segments is cut when it is sent again. Windows of the flows' own go on counting in segments of
    /// the first length.
    pub fn set_datagram_bytes_max(&mut self, bytes: u16) {
        self.options.datagram_bytes_max = bytes;
        self.flow_options = Arc::new(self.options.flow_options());
        for flow in self.flows.values_mut() {
            flow.connection.set_segment_length(&self.flow_options);
        }
        if let Some(window) = &mut self.window {
            window.set_mss_bytes(self.flow_options.mss_bytes);
        }
    }

    /// Opens a flow; `None` when the port ids are used up. Nothing is sent before the first [`write`](Self::write) when
    /// that follows at once, before the next `poll_datagram`: then the first bytes go with the opening segment.
    pub fn open(&mut self, now: Instant) -> Option<FlowId> {
        let port = Some(self.next_port).filter(|port| *port <= PORT_MAX)?;
        self.next_port += 1;
        let id = FlowId { is_ours: true, port };
        let options = Arc::clone(&self.flow_options);
        let connection = Connection::connect(now, options, &self.pool, 0);
        self.flows.insert(id, Box::new(Flow::new(connection, self.smoothed_rtt_ns())));
        self.enqueue(id);
        Some(id)
    }

    /// Queues whole units and gives how many bytes were taken, in whole units. Where that is less than all, `Writable`
    /// follows.
    pub fn write(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let unit = usize::from(self.options.unit_bytes);
        let Some(flow) = self.flows.get_mut(&id) else { return 0 };
        let taken = flow.connection.write_units(bytes, unit);
        flow.is_blocked |= taken < bytes.len();
        if let Some(window) = &mut self.window {
            window.count(flow);
        }
        self.enqueue(id);
        taken
    }

    /// How many bytes a flow takes now.
    pub fn capacity(&self, id: FlowId) -> usize {
        self.get(id).map_or(0, Connection::capacity)
    }

    /// How many bytes more of a flow would leave [promptly](Connection::promptly).
    pub fn promptly(&self, id: FlowId) -> usize {
        self.get(id).map_or(0, Connection::promptly)
    }

    /// Asks for `Writable` once so many bytes of a flow would leave promptly.
    pub fn await_room(&mut self, id: FlowId, bytes: usize) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.awaited_bytes = Some(bytes);
            flow.connection.await_window(bytes);
            // Otherwise an acknowledgement is to come, and the window with it.
            if flow.connection.unacknowledged() == 0 {
                self.enqueue(id);
            }
        }
    }

    /// Copies received bytes and gives how many.
    pub fn read(&mut self, now: Instant, id: FlowId, into: &mut [u8]) -> usize {
        let Some(flow) = self.flows.get_mut(&id) else { return 0 };
        let count = flow.connection.read(now, into);
        flow.note_age(now);
        if flow.connection.readable() == 0 && !flow.connection.is_eof() {
            flow.is_told_readable = false;
        }
        self.enqueue(id);
        count
    }

    /// Sends no more on a flow after what was written.
    pub fn shutdown(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.shutdown();
            self.enqueue(id);
        }
    }

    /// Ends a flow at once in both directions. The peer hears the reason, however often that takes.
    pub fn reset(&mut self, now: Instant, id: FlowId, code: u8) {
        let Some(flow) = self.forget(id) else { return };
        self.bury(now, id, *flow);
        self.resets.insert(id, code);
    }
}

/// Coming in.
impl Mux {
    /// Routers marked datagrams of ours (RFC 3168), as the peer told beside the datagram that is taken next. The
    /// session tells them, because one datagram is of several flows. What is acknowledged next is taken for them: by
    /// the window that flows share, or by each flow that it is of.
    pub fn on_marked(&mut self) {
        self.is_marked = true;
    }

    /// Takes a datagram. Payload that is next in order on a flow with nothing unread is offered to `sink`, which gives
    /// how many bytes it took: those need no `read`.
    ///
    /// # Errors
    ///
    /// When no honest peer sends this. The session should end.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        mut datagram: &[u8],
        sink: &mut dyn FnMut(FlowId, &[u8]) -> usize,
    ) -> Result<(), Malformed> {
        if let Some(window) = &mut self.window {
            window.begin();
        }
        let was_answered = core::mem::take(&mut self.is_answered);
        while datagram.first().is_some_and(|first| first & PADDING == 0) {
            let (frame, rest) = codec::parse(datagram, self.options.unit_bytes.into())?;
            datagram = rest;
            let id = FlowId::of_incoming(frame.is_connector, frame.port);
            match frame.kind {
                Kind::Reset { is_answer: true, .. } => self.resets.remove(id),
                Kind::Reset { is_answer: false, code } => self.handle_reset(now, id, code)?,
                Kind::Segment(body) => self.handle_segment(now, id, &body, sink)?,
            }
        }
        if self.is_marked {
            let is_heeded = self.window.as_mut().map_or(self.is_answered, |window| window.on_marked(now));
            self.is_marked = !is_heeded;
        }
        self.is_answered |= was_answered;
        self.calm(now);
        Ok(())
    }

    fn handle_reset(&mut self, now: Instant, id: FlowId, code: u8) -> Result<(), Malformed> {
        if !self.admits(now, id)? {
            return Ok(());
        }
        if let Some(flow) = self.forget(id) {
            self.events.push_back(MuxEvent::Closed(id, CloseReason::Reset { code }));
            self.bury(now, id, *flow);
        }
        let window = &mut self.window;
        self.remains.on_reset(now, id, |remains| {
            window.iter_mut().for_each(|window| window.settle_remains(now, remains));
        });
        self.resets.remove(id);
        self.answer(id);
        Ok(())
    }

    fn handle_segment(
        &mut self,
        now: Instant,
        id: FlowId,
        body: &Body<'_>,
        sink: &mut dyn FnMut(FlowId, &[u8]) -> usize,
    ) -> Result<(), Malformed> {
        let unit = u64::from(self.options.unit_bytes);
        let mss_bytes = self.flow_options.mss_bytes;
        if let Some(flow) = self.flows.get_mut(&id) {
            let mut header = body.expand(flow.connection.expected(), unit, mss_bytes);
            header.flags.ece |= self.is_marked;
            if header.ack.is_some_and(|ack| flow.connection.cuts_unit(ack)) {
                // It covers an F that was never sent, which no honest peer says.
                return Ok(());
            }
            let mut sink = |bytes: &[u8]| sink(id, bytes);
            let connection = &mut flow.connection;
            let (before, (_, una)) = (connection.smoothed_rtt_ns(), connection.expected());
            connection.handle_segment_with(now, &header, body.payload, Ecn::NotEct, 0, &mut sink);
            if let after @ Some(_) = connection.smoothed_rtt_ns().filter(|after| before != Some(*after)) {
                self.smoothed_ns = after;
            }
            self.is_answered |= flow.connection.expected().1 > una;
            self.account(now, id);
            self.owe_ack(id);
            self.tell(id);
            return Ok(());
        }
        if let Some(expected) = self.remains.expected(id) {
            let header = body.expand(expected, unit, mss_bytes);
            let window = &mut self.window;
            self.remains.on_segment(now, id, (&header, body.payload.len()), |remains| {
                window.iter_mut().for_each(|window| window.settle_remains(now, remains));
            });
            return Ok(());
        }
        if self.resets.holds(id) {
            // The peer will hear of it.
            return Ok(());
        }
        if !body.is_opening() || id.is_ours || self.openings.was_used(id.port) {
            self.resets.refuse(id, self.options.unknown_code);
            return Ok(());
        }
        if !self.admits(now, id)? {
            return Ok(());
        }
        if self.theirs >= self.options.flows_max {
            self.resets.refuse(id, self.options.refusal_code);
            return Ok(());
        }
        let header = body.expand((SEQUENCE_BASE, SEQUENCE_BASE), unit, mss_bytes);
        let options = Arc::clone(&self.flow_options);
        let accepted = Connection::accept(now, options, &self.pool, 0, &header, body.payload);
        let connection = accepted.ok_or(Malformed("an opening segment with an end"))?;
        self.flows.insert(id, Box::new(Flow::new(connection, self.smoothed_rtt_ns())));
        self.theirs += 1;
        self.events.push_back(MuxEvent::Opened(id));
        self.tell(id);
        Ok(())
    }

    /// Queues an answer to a reset. A peer who gets none asks again.
    fn answer(&mut self, id: FlowId) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(id);
        }
    }

    /// Notes that the peer uses a port id, if it is one of its own. False when it is to be dropped.
    fn admits(&mut self, now: Instant, id: FlowId) -> Result<bool, Malformed> {
        if id.is_ours { Ok(true) } else { self.openings.admit(now, id.port) }
    }

    /// Every second segment is acknowledged at once, whichever flows they are of: the acknowledgements go together.
    fn owe_ack(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.connection.is_ack_delayed()) else {
            return;
        };
        if !core::mem::replace(&mut flow.owes_ack, true) {
            self.owing.push(id);
        }
        if self.owing.len() < usize::from(self.flow_options.ack_every_segments) {
            return;
        }
        for id in core::mem::take(&mut self.owing) {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.owes_ack = false;
                flow.connection.ack_now();
                self.enqueue(id);
            }
        }
    }

    /// Tells the application what is new about a flow, and lets the flow answer.
    fn tell(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            self.events.extend(flow.news(id).into_iter().flatten());
        }
        self.enqueue(id);
    }
}
