//! All flows of a connection: whose turn it is, what they are called, and how they begin and end.
//!
//! ```text
//!             first cell CREATE2              DESTROY from either side
//!   Unborn ────────────────────────▶ Open ────────────────────────────▶ Ended ──▶ (its name is free)
//!     │ nothing for 10 s, any other cell,      F, any cell that no          once the relay was told,
//!     ▼ an R                                   flow carries                 or at once if it asked for it
//!   (reset, the relay hears nothing)
//! ```
//!
//! A flow that the peer opened is called by its port id: that plus one, with the highest bit if the dialler opened it.

use super::flow::{FLOW_CELL_LEN, Flow, Lent, Stage};
use crate::congestion::Shares;
use foldhash::fast::FixedState;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::FlowState;
use heddle_proto::time::{Duration, Instant};
use heddle_utcp::CloseReason;
use heddle_utcp::compact::{FlowId, Mux, MuxEvent};
use slotmap::SlotMap;
use std::collections::{BTreeSet, HashMap, VecDeque};

slotmap::new_key_type! {
    /// A flow of this connection.
    pub(super) struct FlowKey;
}

/// Cells that a flow may lend before it is the next one's turn.
const TURN_CELLS: u32 = 16;

/// Bytes of a flow that are taken from its TCP before the relay reads them: what one batch of datagrams brings.
const UNREAD_BYTES_MAX: usize = 64 * 1024;

/// The same of all flows of a connection. Beyond them bytes stay in TCP, whose pool has one bound for all.
const UNREAD_TOTAL_MAX: usize = 4 * 1024 * 1024;

/// Bytes that are read of a TCP at once, where they did not come in order.
const READ_BYTES: usize = 8 * FLOW_CELL_LEN;

/// A flow whose cells wait is told to the relay when it takes so many again.
const PROMPT_CELLS: usize = 4;

pub(super) struct Flows {
    role: Role,
    flows: SlotMap<FlowKey, Flow>,
    by_circ_id: HashMap<CircId, FlowKey, FixedState>,
    by_id: HashMap<FlowId, FlowKey, FixedState>,
    readable: VecDeque<FlowKey>,
    /// Bytes that were taken from flows and that the relay has not read.
    unread_bytes: usize,
    ended: VecDeque<Farewell>,
    writable: VecDeque<CircId>,
    /// Flows with a cell that TCP did not take for want of memory.
    starved: VecDeque<FlowKey>,
    /// Flows of the peer whose first cell has not come, by when it is due.
    unborn: BTreeSet<(Instant, FlowKey)>,
    first_cell_timeout: Duration,
    /// Flows that we opened, and how many of them the peer permits.
    ours: u32,
    ours_max: u32,
    is_room_news: bool,
    shares: Shares,
}

/// A DESTROY that the relay has not seen.
#[derive(Clone, Copy, Debug)]
struct Farewell {
    circ_id: CircId,
    reason: u8,
}

impl Flows {
    pub(super) fn new(role: Role, ours_max: u32, first_cell_timeout: Duration) -> Self {
        Flows {
            role,
            flows: SlotMap::with_key(),
            by_circ_id: HashMap::with_hasher(FixedState::with_seed(0)),
            by_id: HashMap::with_hasher(FixedState::with_seed(0)),
            readable: VecDeque::new(),
            unread_bytes: 0,
            ended: VecDeque::new(),
            writable: VecDeque::new(),
            starved: VecDeque::new(),
            unborn: BTreeSet::new(),
            first_cell_timeout,
            ours: 0,
            ours_max,
            is_room_news: true,
            shares: Shares::default(),
        }
    }

    /// Flows that may be opened now, if that is news.
    pub(super) fn poll_room(&mut self) -> Option<u32> {
        core::mem::take(&mut self.is_room_news).then(|| self.ours_max.saturating_sub(self.ours))
    }

    /// Takes bytes of a flow straight from a datagram. Returns how many.
    pub(super) fn take(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let Some(&key) = self.by_id.get(&id) else {
            return 0;
        };
        let flow = &mut self.flows[key];
        let is_full = flow.unread_bytes() >= UNREAD_BYTES_MAX || self.unread_bytes >= UNREAD_TOTAL_MAX;
        if flow.is_held || flow.stage == Stage::Ended || is_full {
            return 0;
        }
        flow.append(bytes);
        self.unread_bytes += bytes.len();
        self.note_readable(key);
        bytes.len()
    }

    /// Works off what became of flows.
    pub(super) fn on_events(&mut self, now: Instant, mux: &mut Mux) {
        while let Some(event) = mux.poll_event() {
            match event {
                MuxEvent::Opened(id) => self.on_opened(now, id),
                MuxEvent::Readable(id) => self.on_readable(now, mux, id),
                MuxEvent::Writable(id) => self.on_writable(mux, id),
                MuxEvent::Closed(id, reason) => {
                    let reason = match reason {
                        CloseReason::Reset { code } => code,
                        CloseReason::Finished => DestroyReason::PROTOCOL.0,
                        _ => DestroyReason::CHANNEL_CLOSED.0,
                    };
                    if let Some(&key) = self.by_id.get(&id) {
                        self.end(key, reason);
                    }
                }
            }
        }
    }

    fn on_opened(&mut self, now: Instant, id: FlowId) {
        // A port id has 24 bits and is never used again, so neither is the name.
        let Some(circ_id) = self.role.other().circ_id(id.port + 1) else {
            return;
        };
        let due = now + self.first_cell_timeout;
        let key = self.insert(Flow::new(circ_id, id, Stage::Unborn { due }));
        self.unborn.insert((due, key));
    }

    fn on_readable(&mut self, now: Instant, mux: &mut Mux, id: FlowId) {
        let Some(&key) = self.by_id.get(&id) else {
            return;
        };
        if mux.get(id).is_some_and(|connection| connection.is_eof()) {
            self.reset(now, mux, key, DestroyReason::PROTOCOL.0);
        } else {
            self.note_readable(key);
        }
    }

    fn on_writable(&mut self, mux: &mut Mux, id: FlowId) {
        let Some(&key) = self.by_id.get(&id) else {
            return;
        };
        self.write_rest(mux, key);
        let flow = &mut self.flows[key];
        if flow.is_blocked && flow.unwritten.is_empty() {
            if mux.promptly(id) < FLOW_CELL_LEN {
                mux.await_room(id, PROMPT_CELLS * FLOW_CELL_LEN);
                return;
            }
            flow.is_blocked = false;
            self.writable.push_back(flow.circ_id);
        }
    }

    /// Writes what an earlier write had to keep.
    fn write_rest(&mut self, mux: &mut Mux, key: FlowKey) {
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended || flow.unwritten.is_empty() {
            return;
        }
        let taken = mux.write(flow.id, &flow.unwritten);
        flow.unwritten.drain(..taken);
        if !flow.unwritten.is_empty() && mux.capacity(flow.id) > 0 {
            self.starved.push_back(key);
        }
    }

    /// Whether some flow waits for memory of the pool.
    pub(super) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Tries once more to write what the pool had no memory for.
    pub(super) fn feed(&mut self, mux: &mut Mux) {
        for key in core::mem::take(&mut self.starved) {
            let Some(flow) = self.flows.get(key) else {
                continue;
            };
            let id = flow.id;
            self.on_writable(mux, id);
        }
    }

    fn insert(&mut self, flow: Flow) -> FlowKey {
        let (circ_id, id) = (flow.circ_id, flow.id);
        let key = self.flows.insert(flow);
        self.by_circ_id.insert(circ_id, key);
        self.by_id.insert(id, key);
        key
    }

    fn remove(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.remove(key) {
            self.unread_bytes -= flow.unread_bytes();
            self.by_circ_id.remove(&flow.circ_id);
            self.by_id.remove(&flow.id);
        }
    }

    /// Gives a flow its turn.
    fn note_readable(&mut self, key: FlowKey) {
        let flow = &mut self.flows[key];
        if flow.stage != Stage::Ended && !flow.is_held && !flow.is_queued {
            flow.is_queued = true;
            self.readable.push_back(key);
        }
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
        self.flows[key].is_held = hold;
        self.note_readable(key);
    }

    /// Whether [`Flows::next_cell`] may have something.
    pub(super) fn has_readable(&self) -> bool {
        !self.ended.is_empty() || !self.readable.is_empty()
    }

    /// Lends the next cell: ends of circuits first, then flows in turn.
    pub(super) fn next_cell(
        &mut self,
        now: Instant,
        mux: &mut Mux,
        lent: &mut Lent,
    ) -> Option<(CircId, Command)> {
        loop {
            if let Some(Farewell { circ_id, reason }) = self.ended.pop_front() {
                if let Some(&key) = self.by_circ_id.get(&circ_id) {
                    self.remove(key);
                }
                lent.destroy(reason);
                return Some((circ_id, Command::DESTROY));
            }
            let key = *self.readable.front()?;
            let Some(flow) = self.flows.get_mut(key).filter(|flow| flow.stage != Stage::Ended) else {
                self.readable.pop_front();
                continue;
            };
            if flow.unread_bytes() < FLOW_CELL_LEN && !flow.is_held {
                flow.compact();
                let have = flow.unread.len();
                flow.unread.resize(have + READ_BYTES, 0);
                let count = mux.read(super::tcp(now), flow.id, &mut flow.unread[have..]);
                flow.unread.truncate(have + count);
                self.unread_bytes += count;
            }
            let cell = if flow.is_held { None } else { flow.next_cell(lent) };
            if cell.is_some() {
                self.unread_bytes -= FLOW_CELL_LEN;
            }
            match cell {
                Some(command) if flow.takes(command) => {
                    let circ_id = flow.circ_id;
                    self.end_of_turn(key);
                    return Some((circ_id, command));
                }
                Some(_) => self.reset(now, mux, key, DestroyReason::PROTOCOL.0),
                None => {
                    flow.is_queued = false;
                    flow.turn_cells = 0;
                    if flow.unread.is_empty() {
                        flow.unread = Vec::new();
                    }
                    self.readable.pop_front();
                }
            }
        }
    }

    fn end_of_turn(&mut self, key: FlowKey) {
        let flow = &mut self.flows[key];
        if let Stage::Unborn { due } = flow.stage {
            self.unborn.remove(&(due, key));
            flow.stage = Stage::Open;
        }
        flow.turn_cells += 1;
        if flow.turn_cells == TURN_CELLS {
            flow.turn_cells = 0;
            self.readable.rotate_left(1);
        }
    }

    /// Takes a cell, and opens a flow for it if it is the first of a name of our half.
    pub(super) fn send(
        &mut self,
        now: Instant,
        mux: &mut Mux,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let key = match self.by_circ_id.get(&circ_id) {
            Some(&key) if command == Command::DESTROY => {
                self.destroy(now, mux, key, body[0]);
                return FlowState::Open;
            }
            Some(&key) => key,
            // The flow has ended and the relay has been told.
            None if command == Command::DESTROY || !self.role.picks(circ_id) => return FlowState::Open,
            None => {
                let id = if self.ours < self.ours_max { mux.open(super::tcp(now)) } else { None };
                let Some(id) = id else {
                    let reason = DestroyReason::RESOURCELIMIT.0;
                    self.ended.push_back(Farewell { circ_id, reason });
                    return FlowState::Open;
                };
                self.ours += 1;
                self.insert(Flow::new(circ_id, id, Stage::Open))
            }
        };
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            return FlowState::Open;
        }
        self.shares.count(&mut flow.share);
        let id = flow.id;
        let mut cell = [0; FLOW_CELL_LEN];
        cell[0] = command.0;
        cell[1..].copy_from_slice(body);
        let taken = if flow.unwritten.is_empty() { mux.write(id, &cell) } else { 0 };
        if taken < FLOW_CELL_LEN {
            flow.unwritten.extend_from_slice(&cell[taken..]);
            if mux.capacity(id) > 0 {
                self.starved.push_back(key);
            }
        }
        let flow = &mut self.flows[key];
        if flow.unwritten.is_empty() && mux.promptly(id) >= FLOW_CELL_LEN {
            return FlowState::Open;
        }
        flow.is_blocked = true;
        mux.await_room(id, PROMPT_CELLS * FLOW_CELL_LEN);
        FlowState::Blocked
    }

    /// The relay ends a flow, and needs not be told.
    fn destroy(&mut self, now: Instant, mux: &mut Mux, key: FlowKey, reason: u8) {
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            let circ_id = flow.circ_id;
            self.ended.retain(|farewell| farewell.circ_id != circ_id);
        } else {
            mux.reset(super::tcp(now), flow.id, reason);
            self.count_end(key);
        }
        self.remove(key);
    }

    /// The peer broke a flow's rules.
    fn reset(&mut self, now: Instant, mux: &mut Mux, key: FlowKey, reason: u8) {
        mux.reset(super::tcp(now), self.flows[key].id, reason);
        self.end(key, reason);
    }

    /// A flow is over. The relay is told if it knows the flow.
    fn end(&mut self, key: FlowKey, reason: u8) {
        let flow = &mut self.flows[key];
        if flow.stage == Stage::Ended {
            return;
        }
        self.unread_bytes -= flow.unread_bytes();
        (flow.unread, flow.unwritten, flow.begin) = (Vec::new(), Vec::new(), 0);
        let (stage, circ_id) = (flow.stage, flow.circ_id);
        flow.stage = Stage::Ended;
        self.count_end(key);
        if let Stage::Unborn { due } = stage {
            self.unborn.remove(&(due, key));
            self.remove(key);
        } else {
            self.ended.push_back(Farewell { circ_id, reason });
        }
    }

    fn count_end(&mut self, key: FlowKey) {
        if self.flows[key].id.is_ours {
            self.ours -= 1;
            self.is_room_news = true;
        }
    }

    /// Circuits that had a real part in what was sent since the last call; see [`Shares`].
    pub(super) fn next_epoch(&mut self) -> Option<f64> {
        self.shares.next_epoch()
    }

    /// When a flow's first cell is overdue.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.unborn.first().map(|(due, _)| *due)
    }

    /// Resets the flows whose first cell did not come in time.
    pub(super) fn handle_timeout(&mut self, now: Instant, mux: &mut Mux) {
        while let Some(&(due, key)) = self.unborn.first().filter(|(due, _)| *due <= now) {
            self.unborn.remove(&(due, key));
            if self.flows.contains_key(key) {
                self.reset(now, mux, key, DestroyReason::PROTOCOL.0);
            }
        }
    }

    /// Forgets everything; the connection is over.
    pub(super) fn clear(&mut self) {
        *self = Flows::new(self.role, 0, self.first_cell_timeout);
    }
}
