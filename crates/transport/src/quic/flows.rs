//! All flows of a connection: how the life of their circuits ([`Circuits`]) is told in streams.
//!
//! A flow ends with a FIN, which is a fault, or with a reset of both directions.

use super::arrivals::Arrival;
use super::backlog::Backlog;
use super::flow::{Flow, Read, Written};
use super::heaps::{Class, Heaps};
use crate::connections::circuits::{CircuitKey, Circuits, FLOW_CELL_LEN, Lent, PLACE_BYTES};
use crate::connections::state::{self, Part};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::FlowState;
use heddle_seam::time::{Duration, Instant};
use quinn_proto::{Connection, Dir, SendStream, StreamId, VarInt};
use std::collections::{BTreeMap, VecDeque};

pub(super) struct Flows {
    pub(super) circuits: Circuits<StreamId, Flow>,
    /// Streams that the peer permits and that carry no flow yet, in order.
    free: VecDeque<StreamId>,
    /// Whether there are more of them than the relay was told.
    is_room_news: bool,
    /// Whether the end of a flow may wait to be sent.
    pub(super) has_ended: bool,
    /// Flows with cells that quinn was not given, each once.
    pending: Vec<CircuitKey>,
    /// The flow whose cell is lent from where quinn put it, or none when it is lent from `straddler`.
    lender: Option<CircuitKey>,
    /// Where a cell is put together that does not lie in one packet.
    straddler: Lent,
    /// The number of the peer's last flow, from which its name comes.
    last_number: u32,
    /// Flows of the peer, and how many it may have now and at most.
    theirs: u32,
    permitted: u32,
    flows_max: u32,
    /// Until when it is permitted none in the place of those that end.
    restrained_until: Option<Instant>,
    /// What flows hold, and the flows that hold something and were not accepted yet.
    buffered: Part,
    /// What those hold that are not to be read.
    aside_bytes: usize,
    early: BTreeMap<StreamId, Backlog>,
    /// Streams of flows that have ended, of which quinn keeps the half of what comes until the peer ends them as well.
    unagreed: BTreeMap<StreamId, Unagreed>,
    /// How many of them we opened.
    unagreed_ours: usize,
    /// What quinn keeps pieces in.
    heaps: Heaps,
    /// Flows that have sent something, and streams of ours at most so far.
    senders: usize,
    ours_max: usize,
}

/// A flow that we ended, and the peer has not.
#[derive(Clone, Copy, Debug)]
struct Unagreed {
    is_ours: bool,
    /// When memory was first short and it was like this.
    seen_at: Option<Instant>,
}

/// For how long a peer is restrained.
const RESTRAINED: Duration = Duration::from_secs(10);

/// Streams that wait for a circuit. More are opened when half of them are used.
const FREE_MAX: usize = 2048;

/// A flow's list of pieces, which keeps its room, and its places in quinn's tables.
const PIECES_LIST: usize = 144;
const TABLES: usize = 64;

/// Limits of one connection's flows.
pub(super) struct Limits {
    pub(super) flows_first: u32,
    pub(super) flows_max: u32,
    pub(super) first_cell_timeout: Duration,
}

impl Flows {
    pub(super) fn new(role: Role, limits: &Limits, buffered: Part) -> Self {
        Flows {
            circuits: Circuits::new(role, limits.first_cell_timeout),
            free: VecDeque::new(),
            is_room_news: false,
            has_ended: false,
            pending: Vec::new(),
            lender: None,
            straddler: Lent::new(),
            last_number: 0,
            theirs: 0,
            permitted: limits.flows_first.min(limits.flows_max),
            flows_max: limits.flows_max,
            restrained_until: None,
            buffered,
            aside_bytes: 0,
            early: BTreeMap::new(),
            unagreed: BTreeMap::new(),
            unagreed_ours: 0,
            heaps: Heaps::default(),
            senders: 0,
            ours_max: 0,
        }
    }

    /// Takes streams that the peer permits, as many as are kept ready: it may permit 2^60. Returns whether there are
    /// more than before.
    pub(super) fn take_free(&mut self, quinn: &mut Connection) -> bool {
        let before = self.free.len();
        while self.free.len() < FREE_MAX
            && let Some(stream) = quinn.streams().open(Dir::Bi)
        {
            self.free.push_back(stream);
        }
        self.ours_max = self.ours_max.max(self.free.len() + self.ours());
        self.free.len() > before
    }

    /// Whether there was room for more flows since this was asked.
    pub(super) fn take_room_news(&mut self) -> bool {
        core::mem::take(&mut self.is_room_news)
    }

    /// Flows that may be opened now.
    pub(super) fn room(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// Takes the flows that the peer opened.
    pub(super) fn accept(&mut self, now: Instant, quinn: &mut Connection) {
        while let Some(stream) = quinn.streams().accept(Dir::Bi) {
            let circ_id = self.their_next_name();
            let mut flow = Flow::new(self.early.remove(&stream).unwrap_or_else(|| Backlog::new(now)));
            note_pieces(&mut self.heaps, &mut flow, self.permitted as usize + self.ours_max);
            let key = self.circuits.begin_theirs(now, circ_id, stream, flow);
            self.theirs += 1;
            self.note_readable(quinn, key);
        }
    }

    /// Permits the peer more flows, where half of those that it may have have had a cell. Others are none that the
    /// relay has let in, and the more it may have the more one frame can open.
    fn permit(&mut self, quinn: &mut Connection) {
        let born = (self.theirs as usize).saturating_sub(self.circuits.unborn());
        if self.permitted < self.flows_max && born > self.permitted as usize / 2 {
            self.permitted = self.permitted.saturating_mul(2).min(self.flows_max);
            if self.restrained_until.is_none() {
                quinn.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(self.permitted));
            }
        }
    }

    /// A peer that keeps ending flows before their first cell is permitted none in their place for a while, beyond
    /// those that it may open already. It goes on with what it has, and its new circuits over TLS.
    pub(super) fn restrain(&mut self, now: Instant, quinn: &mut Connection) {
        if self.circuits.is_churned(now) && self.restrained_until.is_none() {
            self.restrained_until = Some(now + RESTRAINED);
            quinn.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(0));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.circuits.poll_timeout(), self.restrained_until].into_iter().flatten().min()
    }

    fn their_next_name(&mut self) -> CircId {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            let name = self.circuits.their_name(self.last_number);
            if let Some(name) = name.filter(|name| self.circuits.by_name(*name).is_none()) {
                return name;
            }
        }
    }

    pub(super) fn on_readable(&mut self, quinn: &mut Connection, stream: StreamId) {
        if let Some(key) = self.circuits.by_id(stream) {
            self.note_readable(quinn, key);
        }
    }

    /// Gives a flow its turn, unless the peer reset it: that overtakes what nobody reads.
    fn note_readable(&mut self, quinn: &mut Connection, key: CircuitKey) {
        let Some(circuit) = self.circuits.live_mut(key) else {
            return;
        };
        match quinn.recv_stream(circuit.id).received_reset() {
            Ok(Some(code)) => self.end_by_peer(quinn, key, code),
            _ => self.circuits.note_readable(key),
        }
    }

    /// The peer wants no more cells of a flow, which is half of a reset; the other half is on its way.
    pub(super) fn on_stopped(&mut self, quinn: &mut Connection, stream: StreamId, code: VarInt) {
        if let Some(key) = self.circuits.by_id(stream) {
            self.end_by_peer(quinn, key, code);
        }
    }

    /// The peer ends a flow. It may be that its first cell came and was not read yet, which nobody tells apart for sure
    /// from a byte with a hole before it.
    fn end_by_peer(&mut self, quinn: &mut Connection, key: CircuitKey, code: VarInt) {
        self.circuits.note_stillborn(key);
        self.end(quinn, key, reason_of(code));
    }

    /// Counts what came of a flow. Returns false if it came on a stream of ours that carries none: nobody can know of
    /// it.
    pub(super) fn on_arrival(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let Some(key) = self.circuits.by_id(arrival.stream) else {
            let is_unused = |first: &StreamId| {
                first.initiator() == arrival.stream.initiator() && *first <= arrival.stream
            };
            return !self.free.front().is_some_and(is_unused);
        };
        // Of one that has ended nothing is kept.
        if let Some(circuit) = self.circuits.live_mut(key) {
            let backlog = &mut circuit.flow.backlog;
            let before = backlog.kept_bytes();
            backlog.arrive(now, arrival);
            self.buffered.change(before, backlog.kept_bytes());
            if circuit.is_held {
                self.aside_bytes = self.aside_bytes + backlog.kept_bytes() - before;
            }
            note_pieces(&mut self.heaps, &mut circuit.flow, self.permitted as usize + self.ours_max);
        }
        true
    }

    /// The peer ended a stream.
    pub(super) fn on_reset(&mut self, stream: StreamId) {
        if let Some(Unagreed { is_ours, .. }) = self.unagreed.remove(&stream) {
            self.unagreed_ours -= usize::from(is_ours);
        }
    }

    /// Memory is short. Returns how many flows have ended to which the peer did not agree though it was so before, by
    /// so much time.
    pub(super) fn count_unagreed(&mut self, now: Instant, patience: Duration) -> usize {
        let seen = self.unagreed.values_mut().map(|flow| *flow.seen_at.get_or_insert(now));
        seen.filter(|at| now.since(*at) >= patience).count()
    }

    /// Streams of ours that quinn keeps something of, those that carry no flow yet aside.
    pub(super) fn ours_kept(&self) -> usize {
        self.ours() + self.unagreed_ours
    }

    /// Counts what came before flows are accepted.
    pub(super) fn on_early_arrival(&mut self, now: Instant, arrival: &Arrival) {
        let backlog = self.early.entry(arrival.stream).or_default();
        let before = backlog.buffered_bytes();
        backlog.arrive(now, arrival);
        self.buffered.change(before, backlog.buffered_bytes());
    }

    /// Whether a flow is to be read.
    pub(super) fn hold(&mut self, circ_id: CircId, hold: bool) {
        let key = self.circuits.by_name(circ_id);
        if let Some(circuit) = key.and_then(|key| self.circuits.live_mut(key))
            && circuit.is_held != hold
        {
            let bytes = circuit.flow.backlog.kept_bytes();
            self.aside_bytes = if hold { self.aside_bytes + bytes } else { self.aside_bytes - bytes };
        }
        self.circuits.hold(circ_id, hold);
    }

    /// What flows keep that are not to be read.
    pub(super) fn aside_bytes(&self) -> usize {
        self.aside_bytes
    }

    /// All flows, by their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CircId, &Flow)> {
        self.circuits.iter().map(|circuit| (circuit.circ_id, &circuit.flow))
    }

    /// Flows that we opened.
    pub(super) fn ours(&self) -> usize {
        self.circuits.len().saturating_sub(self.theirs as usize)
    }

    /// Streams that there were at once, at most, of which quinn has a place for each.
    pub(super) fn streams_max(&self) -> usize {
        self.permitted as usize + self.ours_max
    }

    /// Flows that have sent something.
    pub(super) fn senders(&self) -> usize {
        self.senders
    }

    /// Bytes that flows take on the heap, here and where quinn keeps pieces.
    pub(super) fn heap_bytes(&self) -> usize {
        self.heaps.bytes()
            + self.circuits.heap_bytes()
            + self.circuits.len() * PIECES_LIST
            + state::list::<StreamId>(self.free.capacity())
            + state::list::<CircuitKey>(self.pending.capacity())
            + state::tree(self.early.len(), size_of::<(StreamId, Backlog)>())
            + state::tree(self.unagreed.len(), size_of::<(StreamId, Unagreed)>())
    }

    /// What a flow takes itself, with the half of its stream, about.
    pub(super) fn state_bytes_of(flow: &Flow) -> usize {
        size_of::<Flow>() + PLACE_BYTES + TABLES + PIECES_LIST + flow.heap.bytes()
    }

    /// Writes what waited for the stream's window, and then what came after it.
    pub(super) fn on_writable(&mut self, now: Instant, quinn: &mut Connection, stream: StreamId) -> Written {
        let Some(key) = self.circuits.by_id(stream) else {
            return Written::default();
        };
        let Some(flow) = self.circuits.live_mut(key).map(|circuit| &mut circuit.flow) else {
            return Written::default();
        };
        let written = write(now, flow, &mut quinn.send_stream(stream), &mut self.buffered);
        if !flow.is_blocked() && core::mem::take(&mut flow.is_waited_for) {
            self.circuits.note_writable(key);
        }
        written
    }

    /// Gives quinn all cells that have gathered. Returns the bytes that streams' windows refused.
    pub(super) fn write_pending(&mut self, now: Instant, quinn: &mut Connection) -> usize {
        let mut refused = 0;
        for key in self.pending.drain(..) {
            if let Some(circuit) = self.circuits.live_mut(key) {
                circuit.flow.is_pending = false;
                if !circuit.flow.is_blocked() {
                    let stream = &mut quinn.send_stream(circuit.id);
                    refused += write(now, &mut circuit.flow, stream, &mut self.buffered).refused;
                }
            }
        }
        refused
    }

    /// Lends the next cell: ends of circuits first, then flows in turn. [`Flows::lent`] has its body.
    pub(super) fn next_cell(&mut self, now: Instant, quinn: &mut Connection) -> Option<(CircId, Command)> {
        self.lender = None;
        loop {
            if let Some((circ_id, reason)) = self.circuits.next_farewell() {
                self.straddler.destroy(reason);
                return Some((circ_id, Command::DESTROY));
            }
            let (key, circuit) = self.circuits.first_readable()?;
            let read = if circuit.is_held {
                Read::Empty
            } else {
                circuit.flow.read(&mut quinn.recv_stream(circuit.id), &mut self.straddler)
            };
            match read {
                Read::Cell(command) | Read::Straddler(command) if circuit.takes(command) => {
                    let circ_id = circuit.circ_id;
                    let backlog = &mut circuit.flow.backlog;
                    let before = backlog.buffered_bytes();
                    backlog.take(now, FLOW_CELL_LEN as u64);
                    self.buffered.change(before, backlog.buffered_bytes());
                    self.lender = matches!(read, Read::Cell(_)).then_some(key);
                    self.circuits.lent(key);
                    if command == Command::CREATE2 {
                        self.permit(quinn);
                    }
                    return Some((circ_id, command));
                }
                Read::Cell(_) | Read::Straddler(_) | Read::Fault => {
                    self.circuits.note_stillborn(key);
                    self.end(quinn, key, DestroyReason::PROTOCOL.0)
                }
                Read::Empty => self.circuits.done(key),
            }
        }
    }

    /// The body of the cell that [`Flows::next_cell`] has just lent.
    pub(super) fn lent(&self) -> &Body {
        let circuit = self.lender.and_then(|key| self.circuits.get(key));
        circuit.map_or_else(|| self.straddler.body(), |circuit| circuit.flow.lent())
    }

    /// Takes a cell, and opens a flow for it if it is the first of a name of our half. Returns the bytes
    /// that have yet to leave for it, and those that streams' windows refused.
    pub(super) fn send(
        &mut self,
        now: Instant,
        quinn: &mut Connection,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> (FlowState, Queued) {
        let key = match self.circuits.by_name(circ_id) {
            Some(key) if command == Command::DESTROY => {
                self.destroy(quinn, key, body[0]);
                return (FlowState::Open, Queued::default());
            }
            Some(key) => key,
            // The flow has ended and the relay has been told.
            None if command == Command::DESTROY || !self.circuits.is_ours(circ_id) => {
                return (FlowState::Open, Queued::default());
            }
            None => {
                let Some(stream) = self.free.pop_front() else {
                    self.circuits.refuse(circ_id);
                    return (FlowState::Open, Queued::default());
                };
                if self.free.len() == FREE_MAX / 2 {
                    self.is_room_news |= self.take_free(quinn);
                }
                self.circuits.begin_ours(circ_id, stream, Flow::new(Backlog::new(now)))
            }
        };
        let Some(circuit) = self.circuits.sender(key) else {
            return (FlowState::Open, Queued::default());
        };
        let flow = &mut circuit.flow;
        self.senders += usize::from(!core::mem::replace(&mut flow.is_sender, true));
        let mut queued = Queued { bytes: FLOW_CELL_LEN, refused: 0 };
        if flow.put(command, body) && !flow.is_blocked() {
            queued.refused = write(now, flow, &mut quinn.send_stream(circuit.id), &mut self.buffered).refused;
        } else if !core::mem::replace(&mut flow.is_pending, true) {
            self.pending.push(key);
        }
        flow.is_waited_for = flow.is_blocked();
        let state = if flow.is_waited_for { FlowState::Blocked } else { FlowState::Open };
        (state, queued)
    }

    /// The relay ends a flow, and needs not be told.
    fn destroy(&mut self, quinn: &mut Connection, key: CircuitKey, reason: u8) {
        self.reset(quinn, key, reason);
        self.circuits.destroy(key);
    }

    /// A flow ends for the peer, or because it breaks its rules.
    fn end(&mut self, quinn: &mut Connection, key: CircuitKey, reason: u8) {
        self.reset(quinn, key, reason);
        self.circuits.end(key, reason);
    }

    /// Resets a flow that is about to end, and has not ended before.
    fn reset(&mut self, quinn: &mut Connection, key: CircuitKey, reason: u8) {
        if let Some(circuit) = self.circuits.live_mut(key) {
            let backlog = &circuit.flow.backlog;
            self.buffered.change(backlog.buffered_bytes(), 0);
            self.senders -= usize::from(circuit.flow.is_sender);
            self.aside_bytes -= if circuit.is_held { backlog.kept_bytes() } else { 0 };
            let stream = circuit.id;
            let is_kept = circuit.flow.reset(quinn, stream, reason);
            self.has_ended = true;
            let circ_id = circuit.circ_id;
            let is_ours = self.circuits.is_ours(circ_id);
            self.theirs -= u32::from(!is_ours);
            if is_kept {
                self.unagreed.insert(stream, Unagreed { is_ours, seen_at: None });
                self.unagreed_ours += usize::from(is_ours);
                self.ours_max = self.ours_max.max(self.free.len() + self.ours() + self.unagreed_ours);
            }
        }
    }

    /// Resets the flows whose first cell did not come in time.
    pub(super) fn handle_timeout(&mut self, now: Instant, quinn: &mut Connection) {
        if self.restrained_until.take_if(|until| *until <= now).is_some() {
            quinn.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(self.permitted));
        }
        while let Some(key) = self.circuits.overdue(now) {
            self.end(quinn, key, DestroyReason::PROTOCOL.0);
        }
    }

    /// Forgets everything; the connection is over. What quinn-proto keeps until the connection is forgotten counts so
    /// long.
    pub(super) fn clear(&mut self) {
        self.circuits.clear();
        self.free.clear();
        self.pending.clear();
        self.unagreed.clear();
        self.unagreed_ours = 0;
    }
}

/// The heap of a flow's pieces may have grown.
fn note_pieces(heaps: &mut Heaps, flow: &mut Flow, halves: usize) {
    let class = Class::of(flow.backlog.pieces());
    if class > flow.heap {
        heaps.grow(flow.heap, class, halves);
        flow.heap = class;
    }
}

/// Gives quinn what it takes of a flow's cells, and counts the rest.
fn write(now: Instant, flow: &mut Flow, stream: &mut SendStream<'_>, buffered: &mut Part) -> Written {
    let before = flow.backlog.buffered_bytes();
    let written = flow.write(stream);
    flow.backlog.set_unwritten(now, flow.unwritten_bytes());
    buffered.change(before, flow.backlog.buffered_bytes());
    written
}

/// Bytes of a cell that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queued {
    /// Bytes that came to those that have yet to leave.
    pub(super) bytes: usize,
    /// Bytes of these, and of the flow's cells before, that wait for the stream's window instead.
    pub(super) refused: usize,
}

/// A reset's code as a reason of DESTROY; codes that are none say nothing.
fn reason_of(code: VarInt) -> u8 {
    u8::try_from(code.into_inner()).unwrap_or(DestroyReason::NONE.0)
}
