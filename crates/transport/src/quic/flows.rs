//! All flows of a connection: whose turn it is, what they are called, and how they begin and end.
//!
//! ```text
//!             first cell CREATE2              DESTROY from either side
//!   Unborn ────────────────────────▶ Open ────────────────────────────▶ Ended ──▶ (its name is free)
//!     │ nothing for 10 s, any other cell,      FIN, any cell that no        once the relay was told,
//!     ▼ a reset                                flow carries                 or at once if it asked for it
//!   (reset, the relay hears nothing)
//! ```

use super::flow::{FLOW_CELL_LEN, Flow, Read, Stage, Straddler, Written};
use crate::congestion::Shares;
use foldhash::fast::FixedState;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::FlowState;
use heddle_proto::time::{Duration, Instant};
use quinn_proto::{Connection, Dir, StreamId, VarInt};
use slotmap::SlotMap;
use std::collections::{BTreeSet, HashMap, VecDeque};

slotmap::new_key_type! {
    /// A flow of this connection.
    struct FlowKey;
}

/// Cells that a flow may lend before it is the next one's turn.
const TURN_CELLS: u32 = 16;

pub(super) struct Flows {
    role: Role,
    flows: SlotMap<FlowKey, Flow>,
    by_circ_id: HashMap<CircId, FlowKey, FixedState>,
    by_stream: HashMap<StreamId, FlowKey, FixedState>,
    /// Streams that the peer permits and that carry no flow yet, in order.
    free: VecDeque<StreamId>,
    /// Whether there are more of them than the relay was told.
    is_room_news: bool,
    readable: VecDeque<FlowKey>,
    ended: VecDeque<Farewell>,
    writable: VecDeque<CircId>,
    /// Flows with cells that quinn was not given, each once.
    pending: Vec<FlowKey>,
    /// The flow whose cell is lent from where quinn put it, or none when it is lent from `straddler`.
    lender: Option<FlowKey>,
    straddler: Straddler,
    /// Flows of the peer whose first cell has not come, by when it is due.
    unborn: BTreeSet<(Instant, StreamId)>,
    first_cell_timeout: Duration,
    /// The number of the peer's last flow, from which its name comes.
    last_number: u32,
    /// Flows of the peer, and how many it may have now and at most.
    theirs: u32,
    permitted: u32,
    flows_max: u32,
    shares: Shares,
}

/// Streams that wait for a circuit. More are opened when half of them are used.
const FREE_MAX: usize = 2048;

/// A DESTROY that the relay has not seen.
#[derive(Clone, Copy, Debug)]
struct Farewell {
    circ_id: CircId,
    reason: u8,
}

/// Limits of one connection's flows.
pub(super) struct Limits {
    pub(super) flows_first: u32,
    pub(super) flows_max: u32,
    pub(super) first_cell_timeout: Duration,
}

impl Flows {
    pub(super) fn new(role: Role, limits: &Limits) -> Self {
        Flows {
            role,
            flows: SlotMap::with_key(),
            by_circ_id: HashMap::with_hasher(FixedState::with_seed(0)),
            by_stream: HashMap::with_hasher(FixedState::with_seed(0)),
            free: VecDeque::new(),
            is_room_news: false,
            readable: VecDeque::new(),
            ended: VecDeque::new(),
            writable: VecDeque::new(),
            pending: Vec::new(),
            lender: None,
            straddler: [0; FLOW_CELL_LEN],
            unborn: BTreeSet::new(),
            first_cell_timeout: limits.first_cell_timeout,
            last_number: 0,
            theirs: 0,
            permitted: limits.flows_first.min(limits.flows_max),
            flows_max: limits.flows_max,
            shares: Shares::default(),
        }
    }

    /// Takes streams that the peer permits, as many as are kept ready: it may permit 2^60. Returns whether there are more than
    /// before.
    pub(super) fn take_free(&mut self, quinn: &mut Connection) -> bool {
        let before = self.free.len();
        while self.free.len() < FREE_MAX
            && let Some(stream) = quinn.streams().open(Dir::Bi)
        {
            self.free.push_back(stream);
        }
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
            let due = now + self.first_cell_timeout;
            let key = self.insert(Flow::new(circ_id, stream, Stage::Unborn { due }));
            self.unborn.insert((due, stream));
            self.theirs += 1;
            self.note_readable(quinn, key);
        }
        if self.permitted < self.flows_max && self.theirs > self.permitted / 2 {
            self.permitted = self.permitted.saturating_mul(2).min(self.flows_max);
            quinn.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(self.permitted));
        }
    }

    fn their_next_name(&mut self) -> CircId {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            let name = self.role.other().circ_id(self.last_number);
            if let Some(name) = name.filter(|name| !self.by_circ_id.contains_key(name)) {
                return name;
            }
        }
    }

    fn insert(&mut self, flow: Flow) -> FlowKey {
        let (circ_id, stream) = (flow.circ_id, flow.stream);
        let key = self.flows.insert(flow);
        self.by_circ_id.insert(circ_id, key);
        self.by_stream.insert(stream, key);
        key
    }

    fn remove(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.remove(key) {
            self.by_circ_id.remove(&flow.circ_id);
            self.by_stream.remove(&flow.stream);
        }
    }

    pub(super) fn on_readable(&mut self, quinn: &mut Connection, stream: StreamId) {
        if let Some(&key) = self.by_stream.get(&stream) {
            self.note_readable(quinn, key);
        }
    }

    /// Gives a flow its turn, unless the peer reset it: that overtakes what nobody reads.
    fn note_readable(&mut self, quinn: &mut Connection, key: FlowKey) {
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            return;
        }
        if let Ok(Some(code)) = quinn.recv_stream(flow.stream).received_reset() {
            self.end(quinn, key, reason_of(code));
        } else if !flow.is_held && !flow.is_queued {
            flow.is_queued = true;
            self.readable.push_back(key);
        }
    }

    /// The peer wants no more cells of a flow, which is half of a reset; the other half is on its way.
    pub(super) fn on_stopped(&mut self, quinn: &mut Connection, stream: StreamId, code: VarInt) {
        if let Some(&key) = self.by_stream.get(&stream) {
            self.end(quinn, key, reason_of(code));
        }
    }

    /// Writes what waited for the stream's window, and then what came after it.
    pub(super) fn on_writable(&mut self, quinn: &mut Connection, stream: StreamId) -> Written {
        let Some(flow) = self.by_stream.get(&stream).and_then(|key| self.flows.get_mut(*key)) else {
            return Written::default();
        };
        let written = flow.write(quinn);
        if !flow.is_blocked() && core::mem::take(&mut flow.is_waited_for) {
            self.writable.push_back(flow.circ_id);
        }
        written
    }

    /// Gives quinn all cells that have gathered. Returns the bytes that streams' windows refused.
    pub(super) fn write_pending(&mut self, quinn: &mut Connection) -> usize {
        let mut refused = 0;
        for key in self.pending.drain(..) {
            if let Some(flow) = self.flows.get_mut(key) {
                flow.is_pending = false;
                if !flow.is_blocked() {
                    refused += flow.write(quinn).refused;
                }
            }
        }
        refused
    }

    /// The next flow that takes cells again, if it still exists.
    pub(super) fn poll_writable(&mut self) -> Option<CircId> {
        while let Some(circ_id) = self.writable.pop_front() {
            if self.by_circ_id.contains_key(&circ_id) {
                return Some(circ_id);
            }
        }
        None
    }

    pub(super) fn hold(&mut self, circ_id: CircId, hold: bool) {
        let Some(&key) = self.by_circ_id.get(&circ_id) else {
            return;
        };
        let flow = &mut self.flows[key];
        flow.is_held = hold;
        if !hold && !flow.is_queued && flow.stage != Stage::Ended {
            flow.is_queued = true;
            self.readable.push_back(key);
        }
    }

    /// Whether [`Flows::next_cell`] may have something.
    pub(super) fn has_readable(&self) -> bool {
        !self.ended.is_empty() || !self.readable.is_empty()
    }

    /// Lends the next cell: ends of circuits first, then flows in turn. [`Flows::lent`] has its body.
    pub(super) fn next_cell(&mut self, quinn: &mut Connection) -> Option<(CircId, Command)> {
        self.lender = None;
        loop {
            if let Some(Farewell { circ_id, reason }) = self.ended.pop_front() {
                if let Some(&key) = self.by_circ_id.get(&circ_id) {
                    self.remove(key);
                }
                self.straddler = [0; FLOW_CELL_LEN];
                (self.straddler[0], self.straddler[1]) = (Command::DESTROY.0, reason);
                return Some((circ_id, Command::DESTROY));
            }
            let key = *self.readable.front()?;
            let Some(flow) = self.flows.get_mut(key).filter(|flow| flow.stage != Stage::Ended) else {
                self.readable.pop_front();
                continue;
            };
            let read = if flow.is_held { Read::Empty } else { flow.read(quinn, &mut self.straddler) };
            match read {
                Read::Cell(command) | Read::Straddler(command) if flow.takes(command) => {
                    let circ_id = flow.circ_id;
                    self.lender = matches!(read, Read::Cell(_)).then_some(key);
                    if let Stage::Unborn { due } = flow.stage {
                        self.unborn.remove(&(due, flow.stream));
                        flow.stage = Stage::Open;
                    }
                    flow.turn_cells += 1;
                    if flow.turn_cells == TURN_CELLS {
                        flow.turn_cells = 0;
                        self.readable.rotate_left(1);
                    }
                    return Some((circ_id, command));
                }
                Read::Cell(_) | Read::Straddler(_) | Read::Fault => {
                    self.end(quinn, key, DestroyReason::PROTOCOL.0)
                }
                Read::Empty => {
                    flow.is_queued = false;
                    flow.turn_cells = 0;
                    self.readable.pop_front();
                }
            }
        }
    }

    /// The body of the cell that [`Flows::next_cell`] has just lent.
    pub(super) fn lent(&self) -> &Body {
        let flow = self.lender.and_then(|key| self.flows.get(key));
        let cell = flow.map_or(&self.straddler[..], Flow::lent);
        cell[1..].try_into().expect("a cell of a flow is a command and a body")
    }

    /// Takes a cell, and opens a flow for it if it is the first of a name of our half. Returns the bytes
    /// that have yet to leave for it, and those that streams' windows refused.
    pub(super) fn send(
        &mut self,
        quinn: &mut Connection,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> (FlowState, Queued) {
        let key = match self.by_circ_id.get(&circ_id) {
            Some(&key) if command == Command::DESTROY => {
                self.destroy(quinn, key, body[0]);
                return (FlowState::Open, Queued::default());
            }
            Some(&key) => key,
            // The flow has ended and the relay has been told.
            None if command == Command::DESTROY || !self.role.picks(circ_id) => {
                return (FlowState::Open, Queued::default());
            }
            None => {
                let Some(stream) = self.free.pop_front() else {
                    let reason = DestroyReason::RESOURCELIMIT.0;
                    self.ended.push_back(Farewell { circ_id, reason });
                    return (FlowState::Open, Queued::default());
                };
                if self.free.len() == FREE_MAX / 2 {
                    self.is_room_news |= self.take_free(quinn);
                }
                self.insert(Flow::new(circ_id, stream, Stage::Open))
            }
        };
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            return (FlowState::Open, Queued::default());
        }
        let mut queued = Queued { bytes: FLOW_CELL_LEN, refused: 0 };
        if flow.put(command, body) && !flow.is_blocked() {
            queued.refused = flow.write(quinn).refused;
        } else if !core::mem::replace(&mut flow.is_pending, true) {
            self.pending.push(key);
        }
        self.shares.count(&mut flow.share);
        flow.is_waited_for = flow.is_blocked();
        let state = if flow.is_waited_for { FlowState::Blocked } else { FlowState::Open };
        (state, queued)
    }

    /// The relay ends a flow, and needs not be told.
    fn destroy(&mut self, quinn: &mut Connection, key: FlowKey, reason: u8) {
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            let circ_id = flow.circ_id;
            self.ended.retain(|farewell| farewell.circ_id != circ_id);
        } else {
            flow.reset(quinn, reason);
            self.theirs -= u32::from(flow.is_theirs);
        }
        self.remove(key);
    }

    /// The peer ends a flow, or breaks its rules. The relay is told if it knows the flow.
    fn end(&mut self, quinn: &mut Connection, key: FlowKey, reason: u8) {
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            return;
        }
        flow.reset(quinn, reason);
        self.theirs -= u32::from(flow.is_theirs);
        if let Stage::Unborn { due } = flow.stage {
            self.unborn.remove(&(due, flow.stream));
            self.remove(key);
        } else {
            flow.stage = Stage::Ended;
            self.ended.push_back(Farewell { circ_id: flow.circ_id, reason });
        }
    }

    /// When a flow's first cell is overdue.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.unborn.first().map(|(due, _)| *due)
    }

    /// Resets the flows whose first cell did not come in time.
    pub(super) fn handle_timeout(&mut self, now: Instant, quinn: &mut Connection) {
        while let Some(&(_, stream)) = self.unborn.first().filter(|(due, _)| *due <= now) {
            match self.by_stream.get(&stream) {
                Some(&key) => self.end(quinn, key, DestroyReason::PROTOCOL.0),
                None => drop(self.unborn.pop_first()),
            }
        }
    }

    /// Circuits that had a real part in what was sent since the last call; see [`Shares`].
    pub(super) fn next_epoch(&mut self) -> Option<f64> {
        self.shares.next_epoch()
    }

    /// Forgets everything; the connection is over.
    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.by_circ_id.clear();
        self.by_stream.clear();
        self.readable.clear();
        self.free.clear();
        self.ended.clear();
        self.writable.clear();
        self.pending.clear();
        self.unborn.clear();
    }
}

/// Bytes of a cell that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queued {
    /// Bytes that came to those that have yet to leave.
    pub(super) bytes: usize,
    /// Bytes of these, and of the flow's cells before, that wait for the stream's window instead.
    pub(super) refused: usize,
}

impl Flow {
    /// Whether a cell of this command may come now.
    fn takes(&self, command: Command) -> bool {
        match self.stage {
            Stage::Unborn { .. } => command == Command::CREATE2,
            _ => matches!(command, Command::CREATED2 | Command::RELAY | Command::RELAY_EARLY),
        }
    }
}

/// A reset's code as a reason of DESTROY; codes that are none say nothing.
fn reason_of(code: VarInt) -> u8 {
    u8::try_from(code.into_inner()).unwrap_or(DestroyReason::NONE.0)
}
