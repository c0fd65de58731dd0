//! All circuits of a session, on the connections that they share.
//!
//! Each end chooses for itself on which connection a circuit sends, and both know on which it begins. A frame of a
//! circuit that comes on another connection than the one before waits until that one has said so, and holds its whole
//! connection back. None waits for ever: of all frames that were not read, the one that was written first is the next
//! of its connection, and whatever it waits for was written before it.

use super::frame::{self, MOVED, Number};
use super::lane::Lane;
use super::options::SharedTcpOptions;
use super::spread::{Load, Spread};
use crate::connections::circuits::{CircuitKey, Circuits, Lent};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, FlowState};
use heddle_seam::time::Instant;
use heddle_utcp::compact::{FlowId, Mux, MuxEvent};
use heddle_utcp::pool::Taken;
use heddle_utcp::used::UsedNumbers;
use heddle_utcp::{BufferPool, CloseReason};
use std::collections::VecDeque;

/// Circuits that the peer may open beyond those that are permitted and a quarter more.
const SLACK_FLOWS: u32 = 64;
/// Frames that a connection gives before it is another one's turn.
const TURN_FRAMES: u32 = 16;
/// Where more than this waits for TCP, the relay is asked for no more cells. So there wait at most
///
/// ```text
///   UNWRITTEN_BYTES_MAX + a frame for each of CAPACITY_CELLS cells, which were asked for before
///                       + a frame for each of them that says on which connection they come
///                       + a frame for the end of each circuit
///                       + OWED_FRAMES_MAX frames, and one for each connection
/// ```
pub(super) const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;
/// Where so many frames wait that reading brought about, no more is read. They refuse circuits beyond those that are
/// permitted and end those whose rules were broken, so an honest peer does not come to it: two that wait for each other
/// to read would wait for ever.
pub(super) const OWED_FRAMES_MAX: usize = 256;

/// A circuit's flow.
pub(crate) struct Flow {
    /// When the relay last took a cell of it, or when it began.
    pub(super) moved_at: Instant,
    /// The connection on which it sends, and the one on which its next frame comes.
    out: usize,
    into: usize,
    /// Whether the peer knows it for sure: only then it may move.
    is_heard: bool,
    load: Load,
}

/// What came of a look at a connection.
enum Looked {
    Cell(CircId, Command),
    /// A frame was worked off that is no cell.
    Again,
    /// It has no frame, or none whose time has come.
    Nothing,
}

pub(super) struct Flows<S> {
    pub(super) circuits: Circuits<Number, Flow>,
    spread: S,
    role: Role,
    lanes: Vec<Lane>,
    /// Connections that may have frames, each once.
    readable: VecDeque<usize>,
    /// What is kept of what came, which counts in the connection's share of the pool.
    taken: Taken,
    /// Why the connection is over, until the session hears it.
    fault: Option<ConnectionError>,
    /// How many circuits we have opened since the session began, how many of those there are, and how many the peer
    /// permits.
    opened: u32,
    ours: u32,
    ours_max: u32,
    /// Circuits that the peer opened, and how many are borne.
    theirs: u32,
    theirs_max: u32,
    /// The numbers of all that it began since the session did.
    seen: UsedNumbers,
    is_room_news: bool,
}

/// Beginning, and being asked.
impl<S: Spread> Flows<S> {
    pub(super) fn new(
        options: &SharedTcpOptions,
        role: Role,
        [ours_max, theirs_max]: [u32; 2],
        pool: BufferPool,
    ) -> Self {
        Flows {
            circuits: Circuits::new(role, options.session.timeouts.first_cell),
            spread: S::new(options),
            role,
            lanes: (0..S::lanes(options)).map(|_| Lane::default()).collect(),
            readable: VecDeque::new(),
            taken: Taken::new(pool),
            fault: None,
            opened: 0,
            ours: 0,
            ours_max,
            theirs: 0,
            theirs_max: theirs_max.saturating_add(theirs_max / 4 + SLACK_FLOWS),
            seen: UsedNumbers::new(theirs_max as usize),
            is_room_news: true,
        }
    }

    /// The dialler opens all connections.
    pub(super) fn connect(&mut self, now: Instant, mux: &mut Mux) {
        let hello = frame::hello(self.lanes.len());
        for lane in &mut self.lanes {
            lane.id = mux.open(now);
            lane.write(mux, &hello);
            lane.is_open = true;
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_open)
    }

    /// Circuits that may be opened now, if that is news.
    pub(super) fn poll_room(&mut self) -> Option<u32> {
        core::mem::take(&mut self.is_room_news).then(|| self.ours_max.saturating_sub(self.ours))
    }

    /// Why the connection is over, once.
    pub(super) fn take_fault(&mut self) -> Option<ConnectionError> {
        self.fault.take()
    }

    fn misbehaves(&mut self, what: &str) {
        self.fault.get_or_insert_with(|| ConnectionError::PeerMisbehaved(what.to_owned()));
    }

    /// Whether what came is read. Before all connections are open the relay knows of none.
    fn reads(&self) -> bool {
        let owed: usize = self.lanes.iter().map(Lane::owed_frames).sum();
        self.is_connected() && self.fault.is_none() && owed <= OWED_FRAMES_MAX
    }

    pub(super) fn has_readable(&self) -> bool {
        self.circuits.has_readable() || !self.readable.is_empty() && self.reads()
    }

    /// What waits for TCP.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.lanes.iter().map(Lane::unwritten_bytes).sum()
    }

    pub(super) fn is_starved(&self, mux: &Mux) -> bool {
        self.fault.is_some() || self.lanes.iter().any(|lane| lane.is_starved(mux))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(Lane::heap_bytes).sum();
        self.circuits.heap_bytes() + self.seen.heap_bytes() + lanes
    }
}

/// What TCP tells.
impl<S: Spread> Flows<S> {
    /// Takes bytes of a connection straight from a datagram. Returns how many.
    pub(super) fn take(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let at = id.port as usize;
        let kept = self.kept_bytes();
        let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.id == Some(id)) else { return 0 };
        if !lane.has_room() || !self.taken.grow(kept + bytes.len()) {
            return 0;
        }
        lane.take(bytes);
        self.note_kept();
        self.note_readable(at);
        bytes.len()
    }

    fn kept_bytes(&self) -> usize {
        self.lanes.iter().map(Lane::kept_bytes).sum()
    }

    fn note_kept(&mut self) {
        self.taken.set(self.kept_bytes());
    }

    /// Works off what became of connections.
    pub(super) fn on_events(&mut self, now: Instant, mux: &mut Mux) {
        while let Some(event) = mux.poll_event() {
            match event {
                MuxEvent::Opened(id) => {
                    let lane = self.lanes.get_mut(id.port as usize).filter(|lane| lane.id.is_none());
                    match lane {
                        Some(lane) => lane.id = Some(id),
                        None => self.misbehaves("it opened a connection too many"),
                    }
                }
                MuxEvent::Readable(id) => self.note_readable(id.port as usize),
                MuxEvent::Writable(id) => self.on_writable(mux, id.port as usize),
                MuxEvent::Closed(_, CloseReason::TimedOut) => self.fault = Some(ConnectionError::NoAnswer),
                MuxEvent::Closed(..) => self.misbehaves("it ended a connection that circuits share"),
            }
        }
        self.look_for_hellos(now, mux);
    }

    /// Every connection begins with the frame that opens it.
    fn look_for_hellos(&mut self, now: Instant, mux: &mut Mux) {
        if self.is_connected() {
            return;
        }
        let hello = frame::hello(self.lanes.len());
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            match lane.frame(now, mux).filter(|_| !lane.is_open) {
                Some(frame) if frame == hello => {
                    lane.advance();
                    lane.is_open = true;
                }
                Some(_) => self.misbehaves("it opened another number of connections than we have"),
                None => {}
            }
        }
        self.note_kept();
    }

    /// Writes what waits, and tells circuits when they may send more.
    fn on_writable(&mut self, mux: &mut Mux, at: usize) {
        let Some(lane) = self.lanes.get_mut(at) else { return };
        lane.flush(mux);
        if lane.is_prompt(mux) {
            for key in lane.unblock() {
                if self.circuits.live_mut(key).is_some() {
                    self.circuits.note_writable(key);
                }
            }
        }
    }

    /// Tries once more to write what the pool had no memory for.
    pub(super) fn feed(&mut self, mux: &mut Mux) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].is_starved(mux) {
                self.on_writable(mux, at);
            }
        }
    }

    /// Resets the circuits whose first cell did not come in time.
    pub(super) fn handle_timeout(&mut self, now: Instant, mux: &mut Mux) {
        while let Some(key) = self.circuits.overdue(now) {
            self.reset(mux, key);
        }
    }
}

/// Coming in.
impl<S: Spread> Flows<S> {
    /// Lends the next cell: ends of circuits first, then what comes on connections in turn.
    pub(super) fn next_cell(
        &mut self,
        now: Instant,
        mux: &mut Mux,
        lent: &mut Lent,
    ) -> Option<(CircId, Command)> {
        loop {
            if let Some((circ_id, reason)) = self.circuits.next_farewell() {
                lent.destroy(reason);
                return Some((circ_id, Command::DESTROY));
            }
            if !self.reads() {
                return None;
            }
            let at = *self.readable.front()?;
            let looked = self.look(now, mux, at, lent);
            self.note_kept();
            let lane = &mut self.lanes[at];
            if let Looked::Nothing = looked {
                (lane.is_queued, lane.turn_frames) = (false, 0);
                self.readable.pop_front();
                continue;
            }
            lane.turn_frames += 1;
            if lane.turn_frames >= TURN_FRAMES {
                lane.turn_frames = 0;
                self.readable.rotate_left(1);
            }
            if let Looked::Cell(circ_id, command) = looked {
                return Some((circ_id, command));
            }
        }
    }

    fn look(&mut self, now: Instant, mux: &mut Mux, at: usize, lent: &mut Lent) -> Looked {
        let Some(frame) = self.lanes[at].frame(now, mux) else {
            if self.lanes[at].is_at_end(mux) {
                self.misbehaves("it ended a connection that circuits share");
            }
            return Looked::Nothing;
        };
        let (command, first, cell) = frame::contents(&frame);
        let Some(number) = frame::number(&frame) else {
            self.misbehaves("it opened a connection twice");
            return Looked::Nothing;
        };
        let Some(key) = self.circuits.by_id(number) else {
            return self.on_unknown(now, mux, at, number, command);
        };
        let Some(circuit) = self.circuits.live_mut(key) else {
            // It has ended, and the relay has not heard so.
            self.lanes[at].advance();
            return Looked::Again;
        };
        if circuit.flow.into != at || circuit.is_held {
            self.lanes[at].waits = true;
            return Looked::Nothing;
        }
        self.lanes[at].advance();
        match command {
            MOVED => {
                let to = usize::from(first);
                if to < self.lanes.len() {
                    circuit.flow.into = to;
                    self.note_readable(to);
                } else {
                    self.reset(mux, key);
                }
            }
            Command::DESTROY => self.end(key, first),
            _ if circuit.takes(command) => {
                lent.0.copy_from_slice(cell);
                (circuit.flow.moved_at, circuit.flow.is_heard) = (now, true);
                let circ_id = circuit.circ_id;
                self.circuits.bear(key);
                return Looked::Cell(circ_id, command);
            }
            _ => self.reset(mux, key),
        }
        Looked::Again
    }

    /// A frame of a circuit that is not known: the peer begins it, or it has ended here. Only one whose CREATE2 we have
    /// read moves, so whatever else comes of one that the peer has not begun breaks the rules. Connections are read in
    /// turn, so a circuit may begin after one with a higher number.
    fn on_unknown(
        &mut self,
        now: Instant,
        mux: &mut Mux,
        at: usize,
        number: Number,
        command: Command,
    ) -> Looked {
        let count = u64::from(number.count());
        if number.opener() == self.role || self.seen.holds(count) {
            self.lanes[at].advance();
            return Looked::Again;
        }
        if !self.seen.insert(count) {
            self.misbehaves("it left out too many numbers of circuits");
            return Looked::Nothing;
        }
        let name = self.circuits.their_name(number.count());
        let name = name.filter(|_| command == Command::CREATE2 && self.spread.first(number) == at);
        let refusal = match name {
            Some(circ_id) if self.theirs < self.theirs_max => {
                self.theirs += 1;
                let flow = self.flow(now, number, true);
                self.circuits.begin_theirs(now, circ_id, number, flow);
                return Looked::Again;
            }
            Some(_) => DestroyReason::RESOURCELIMIT,
            None => DestroyReason::PROTOCOL,
        };
        self.lanes[at].advance();
        self.lanes[at].answer(mux, &frame::short_frame(number, Command::DESTROY, refusal.0));
        Looked::Again
    }

    /// A circuit that begins.
    fn flow(&mut self, now: Instant, number: Number, is_heard: bool) -> Flow {
        let first = self.spread.first(number);
        Flow { moved_at: now, out: first, into: first, is_heard, load: Load::new(now) }
    }

    /// A flow is not read from now on, or again: nor is what stands behind it.
    pub(super) fn hold(&mut self, circ_id: CircId, hold: bool) {
        let circuit = self.circuits.by_name(circ_id).and_then(|key| self.circuits.live_mut(key));
        if let Some(circuit) = circuit {
            circuit.is_held = hold;
            let into = circuit.flow.into;
            self.note_readable(into);
        }
    }

    fn note_readable(&mut self, at: usize) {
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.waits = false;
            if !core::mem::replace(&mut lane.is_queued, true) {
                self.readable.push_back(at);
            }
        }
    }
}

/// Going out.
impl<S: Spread> Flows<S> {
    /// Takes a cell, and opens a circuit for it if it is the first of a name of our half.
    pub(super) fn send(
        &mut self,
        now: Instant,
        mux: &mut Mux,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let key = match self.circuits.by_name(circ_id) {
            Some(key) if command == Command::DESTROY => {
                self.farewell(mux, key, body[0]);
                self.circuits.destroy(key);
                return FlowState::Open;
            }
            Some(key) => key,
            // The circuit has ended and the relay has been told.
            None if command == Command::DESTROY || !self.circuits.is_ours(circ_id) => return FlowState::Open,
            None => match self.begin(now, circ_id) {
                Some(key) => key,
                None => {
                    self.circuits.refuse(circ_id);
                    return FlowState::Open;
                }
            },
        };
        if command == MOVED {
            // It would say something else.
            self.reset(mux, key);
            return FlowState::Open;
        }
        let Some(circuit) = self.circuits.sender(key) else { return FlowState::Open };
        let (number, flow) = (circuit.id, &mut circuit.flow);
        let from = flow.out;
        let to = self.spread.next(now, from, &mut flow.load);
        let at = if flow.is_heard { to } else { from };
        flow.out = at;
        if at != from {
            self.lanes[from].write(mux, &frame::short_frame(number, MOVED, at as u8));
        }
        self.lanes[at].write(mux, &frame::frame(number, command, body));
        if self.lanes[at].is_prompt(mux) {
            return FlowState::Open;
        }
        self.lanes[at].block(key);
        FlowState::Blocked
    }

    fn begin(&mut self, now: Instant, circ_id: CircId) -> Option<CircuitKey> {
        if self.ours >= self.ours_max {
            return None;
        }
        let number = Number::new(self.role, self.opened + 1)?;
        self.opened += 1;
        self.ours += 1;
        let flow = self.flow(now, number, false);
        Some(self.circuits.begin_ours(circ_id, number, flow))
    }
}

/// How circuits end.
impl<S: Spread> Flows<S> {
    /// A circuit's rules were broken.
    fn reset(&mut self, mux: &mut Mux, key: CircuitKey) {
        let reason = DestroyReason::PROTOCOL.0;
        if let Some((number, out)) = self.take_back(key) {
            self.lanes[out].answer(mux, &frame::short_frame(number, Command::DESTROY, reason));
        }
        self.circuits.end(key, reason);
    }

    /// The peer says that a circuit is over.
    fn end(&mut self, key: CircuitKey, reason: u8) {
        self.take_back(key);
        self.circuits.end(key, reason);
    }

    /// Tells the peer that a circuit is over, if it has not ended before.
    fn farewell(&mut self, mux: &mut Mux, key: CircuitKey, reason: u8) {
        if let Some((number, out)) = self.take_back(key) {
            self.lanes[out].write(mux, &frame::short_frame(number, Command::DESTROY, reason));
        }
    }

    /// A circuit is about to end. Returns what it is called, and on which connection it sent.
    fn take_back(&mut self, key: CircuitKey) -> Option<(Number, usize)> {
        let circuit = self.circuits.live_mut(key)?;
        let (number, out) = (circuit.id, circuit.flow.out);
        if number.opener() == self.role {
            self.ours -= 1;
            self.is_room_news = true;
        } else {
            self.theirs -= 1;
        }
        // What waited for this circuit waits no longer.
        (0..self.lanes.len()).for_each(|at| self.note_readable(at));
        Some((number, out))
    }
}
