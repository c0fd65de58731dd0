//! All flows of a connection: how the life of their circuits ([`Circuits`]) is told in TCP.
//!
//! A flow ends with a FIN, which is a fault, or with a reset, R. One that the peer opened is called by its port id:
//! that plus one, with the highest bit if the dialler opened it.

use super::flow::Flow;
use crate::connections::circuits::{CircuitKey, Circuits, FLOW_CELL_LEN, Lent};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::FlowState;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::compact::{FlowId, Mux, MuxEvent};
use heddle_utcp::pool::Taken;
use heddle_utcp::{BufferPool, CloseReason};
use std::collections::VecDeque;

/// Bytes of a flow that are taken from its TCP before the relay reads them: what one batch of datagrams brings.
const UNREAD_BYTES_MAX: usize = 64 * 1024;

/// The same of all flows of a connection, with what they are kept in. They count in its share of the pool, and beyond
/// them bytes stay in TCP.
const UNREAD_TOTAL_MAX: usize = 4 * 1024 * 1024;

/// Bytes that are read of a TCP at once, where they did not come in order.
const READ_BYTES: usize = 8 * FLOW_CELL_LEN;

/// A flow whose cells wait is told to the relay when it takes so many again.
const PROMPT_CELLS: usize = 4;

pub(super) struct Flows {
    pub(super) circuits: Circuits<FlowId, Flow>,
    /// What the bytes take that were taken from flows and that the relay has not read.
    unread_bytes: usize,
    taken: Taken,
    /// Flows with a cell that TCP did not take for want of memory.
    starved: VecDeque<CircuitKey>,
    /// Flows that we opened, and how many of them the peer permits.
    ours: u32,
    ours_max: u32,
    is_room_news: bool,
}

impl Flows {
    pub(super) fn new(role: Role, ours_max: u32, first_cell_timeout: Duration, pool: BufferPool) -> Self {
        Flows {
            circuits: Circuits::new(role, first_cell_timeout),
            unread_bytes: 0,
            taken: Taken::new(pool),
            starved: VecDeque::new(),
            ours: 0,
            ours_max,
            is_room_news: true,
        }
    }

    /// Flows that may be opened now, if that is news.
    pub(super) fn poll_room(&mut self) -> Option<u32> {
        core::mem::take(&mut self.is_room_news).then(|| self.ours_max.saturating_sub(self.ours))
    }

    /// The circuit of a flow, if that is open.
    pub(super) fn open_circuit(&mut self, id: FlowId) -> Option<CircId> {
        let circuit = self.circuits.live_mut(self.circuits.by_id(id)?)?;
        circuit.takes(Command::DATAGRAM).then_some(circuit.circ_id)
    }

    /// The flow of a circuit that has not ended.
    pub(super) fn flow_of(&mut self, circ_id: CircId) -> Option<FlowId> {
        Some(self.circuits.live_mut(self.circuits.by_name(circ_id)?)?.id)
    }

    /// Takes bytes of a flow straight from a datagram. Returns how many.
    pub(super) fn take(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let Some(key) = self.circuits.by_id(id) else {
            return 0;
        };
        let Some(circuit) = self.circuits.live_mut(key).filter(|circuit| !circuit.is_held) else {
            return 0;
        };
        let flow = &mut circuit.flow;
        let is_full = flow.unread_bytes() >= UNREAD_BYTES_MAX || self.unread_bytes >= UNREAD_TOTAL_MAX;
        if is_full || !self.taken.grow(self.unread_bytes + bytes.len()) {
            return 0;
        }
        let before = flow.kept_bytes();
        flow.append(bytes);
        self.unread_bytes = self.unread_bytes + flow.kept_bytes() - before;
        self.taken.set(self.unread_bytes);
        self.circuits.note_readable(key);
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
                    if let Some(key) = self.circuits.by_id(id) {
                        self.end(key, reason);
                    }
                }
            }
        }
    }

    fn on_opened(&mut self, now: Instant, id: FlowId) {
        // A port id has 24 bits and is never used again, so neither is the name.
        if let Some(circ_id) = self.circuits.their_name(id.port + 1) {
            self.circuits.begin_theirs(now, circ_id, id, Flow::new(now));
        }
    }

    fn on_readable(&mut self, now: Instant, mux: &mut Mux, id: FlowId) {
        let Some(key) = self.circuits.by_id(id) else {
            return;
        };
        if mux.get(id).is_some_and(|connection| connection.is_eof()) {
            self.reset(now, mux, key, DestroyReason::PROTOCOL.0);
        } else {
            self.circuits.note_readable(key);
        }
    }

    /// Writes what an earlier write had to keep, and tells the relay when it may write more.
    fn on_writable(&mut self, mux: &mut Mux, id: FlowId) {
        let Some(key) = self.circuits.by_id(id) else {
            return;
        };
        let Some(flow) = self.circuits.live_mut(key).map(|circuit| &mut circuit.flow) else {
            return;
        };
        if !flow.unwritten.is_empty() {
            let taken = mux.write(id, &flow.unwritten);
            flow.unwritten.drain(..taken);
            if !flow.unwritten.is_empty() && mux.capacity(id) > 0 {
                self.starved.push_back(key);
            }
        }
        if flow.is_blocked && flow.unwritten.is_empty() {
            if mux.promptly(id) < FLOW_CELL_LEN {
                mux.await_room(id, PROMPT_CELLS * FLOW_CELL_LEN);
                return;
            }
            flow.is_blocked = false;
            self.circuits.note_writable(key);
        }
    }

    /// Whether some flow waits for memory of the pool.
    pub(super) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Tries once more to write what the pool had no memory for.
    pub(super) fn feed(&mut self, mux: &mut Mux) {
        for key in core::mem::take(&mut self.starved) {
            if let Some(id) = self.circuits.get(key).map(|circuit| circuit.id) {
                self.on_writable(mux, id);
            }
        }
    }

    /// Lends the next cell: ends of circuits first, then flows in turn.
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
            let (key, circuit) = self.circuits.first_readable()?;
            let flow = &mut circuit.flow;
            let before = flow.kept_bytes();
            if flow.unread_bytes() < FLOW_CELL_LEN && !circuit.is_held {
                flow.compact();
                let have = flow.unread.len();
                flow.unread.resize(have + READ_BYTES, 0);
                let count = mux.read(now, circuit.id, &mut flow.unread[have..]);
                flow.unread.truncate(have + count);
            }
            let cell = if circuit.is_held { None } else { flow.next_cell(lent) };
            if cell.is_none() {
                flow.shrink();
            }
            self.unread_bytes = self.unread_bytes + flow.kept_bytes() - before;
            self.taken.set(self.unread_bytes);
            match cell {
                Some(command) if circuit.takes(command) => {
                    let circ_id = circuit.circ_id;
                    circuit.flow.moved_at = now;
                    self.circuits.lent(key);
                    return Some((circ_id, command));
                }
                Some(_) => self.reset(now, mux, key, DestroyReason::PROTOCOL.0),
                None => self.circuits.done(key),
            }
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
        let key = match self.circuits.by_name(circ_id) {
            Some(key) if command == Command::DESTROY => {
                self.destroy(now, mux, key, body[0]);
                return FlowState::Open;
            }
            Some(key) => key,
            // The flow has ended and the relay has been told.
            None if command == Command::DESTROY || !self.circuits.is_ours(circ_id) => return FlowState::Open,
            None => {
                let id = if self.ours < self.ours_max { mux.open(now) } else { None };
                let Some(id) = id else {
                    self.circuits.refuse(circ_id);
                    return FlowState::Open;
                };
                self.ours += 1;
                self.circuits.begin_ours(circ_id, id, Flow::new(now))
            }
        };
        let Some(circuit) = self.circuits.sender(key) else {
            return FlowState::Open;
        };
        let (id, flow) = (circuit.id, &mut circuit.flow);
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
        if flow.unwritten.is_empty() && mux.promptly(id) >= FLOW_CELL_LEN {
            return FlowState::Open;
        }
        flow.is_blocked = true;
        mux.await_room(id, PROMPT_CELLS * FLOW_CELL_LEN);
        FlowState::Blocked
    }

    /// The relay ends a flow, and needs not be told.
    fn destroy(&mut self, now: Instant, mux: &mut Mux, key: CircuitKey, reason: u8) {
        if let Some(id) = self.take_back(key) {
            mux.reset(now, id, reason);
        }
        self.circuits.destroy(key);
    }

    /// The peer broke a flow's rules.
    fn reset(&mut self, now: Instant, mux: &mut Mux, key: CircuitKey, reason: u8) {
        if let Some(id) = self.take_back(key) {
            mux.reset(now, id, reason);
        }
        self.circuits.end(key, reason);
    }

    /// TCP says that a flow is over.
    fn end(&mut self, key: CircuitKey, reason: u8) {
        self.take_back(key);
        self.circuits.end(key, reason);
    }

    /// Takes back what a flow holds, which is about to end and has not ended before. Returns what it is called.
    fn take_back(&mut self, key: CircuitKey) -> Option<FlowId> {
        let circuit = self.circuits.live_mut(key)?;
        self.unread_bytes -= core::mem::take(&mut circuit.flow).kept_bytes();
        self.taken.set(self.unread_bytes);
        if circuit.id.is_ours {
            self.ours -= 1;
            self.is_room_news = true;
        }
        Some(circuit.id)
    }

    /// Resets the flows whose first cell did not come in time.
    pub(super) fn handle_timeout(&mut self, now: Instant, mux: &mut Mux) {
        while let Some(key) = self.circuits.overdue(now) {
            self.reset(now, mux, key, DestroyReason::PROTOCOL.0);
        }
    }
}
