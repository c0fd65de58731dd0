//! All flows of a connection: how the life of their circuits ([`Circuits`]) is told on sockets.
//!
//! A flow ends with a reset of its socket and END on the control stream, which says why. Whichever comes first: a
//! socket that broke waits a while for the reason, and END has the socket reset, too. A FIN is a fault.

use super::control::{END_LEN, write_end};
use super::flow::Flow;
use super::sockets::Sockets;
use crate::connections::circuits::{CircuitKey, Circuits, FLOW_CELL_LEN, Lent};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{Backlog, ConnId, FlowState};
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// Flows of a peer whose first cell has not come: their sockets are others', too, and an honest peer's cells come with
/// their flows or a round trip later.
const UNBORN_MAX: usize = 1000;
/// How long a socket that broke waits for the reason.
const REASON_WAIT: Duration = Duration::from_secs(2);

pub(super) struct Flows {
    circuits: Circuits<SocketId, Flow>,
    /// Flows by whether we opened them and their numbers.
    by_number: BTreeMap<(bool, u32), CircuitKey>,
    /// Flows whose sockets broke, by when they end at the latest.
    broken: BTreeSet<(Instant, CircuitKey)>,
    /// Flows that we opened, how many of them the peer permits, and the next one's number.
    ours: u32,
    ours_max: u32,
    next_number: u32,
    is_room_news: bool,
    /// Sockets that the driver opens, for all connections of the endpoint.
    sockets_room: usize,
    /// Flows that the peer opened, how many of them we bear, and how many there were.
    theirs: u32,
    theirs_max: u32,
    theirs_begun: u32,
    /// Those of them whose first cell came since this was last asked.
    theirs_born: u32,
    /// What all hold.
    buffered_bytes: usize,
    /// ENDs that are to be written.
    ends: Vec<u8>,
}

impl Flows {
    pub(super) fn new(role: Role, flows_max: u32, first_cell_timeout: Duration) -> Self {
        // The peer may have opened a flow before it heard that another of its own had ended here.
        let slack = flows_max / 4 + 64;
        Flows {
            circuits: Circuits::new(role, first_cell_timeout),
            by_number: BTreeMap::new(),
            broken: BTreeSet::new(),
            ours: 0,
            ours_max: 0,
            next_number: 0,
            is_room_news: false,
            sockets_room: usize::MAX,
            theirs: 0,
            theirs_max: flows_max.saturating_add(slack),
            theirs_begun: 0,
            theirs_born: 0,
            buffered_bytes: 0,
            ends: Vec::new(),
        }
    }

    /// The peer permits us so many.
    pub(super) fn permit(&mut self, ours_max: u32) {
        (self.ours_max, self.is_room_news) = (ours_max, true);
    }

    /// The driver opens so many sockets, for whichever connection wants them.
    pub(super) fn set_sockets_room(&mut self, room: usize) {
        (self.sockets_room, self.is_room_news) = (room, true);
    }

    /// Flows that may be opened now, if that is news.
    pub(super) fn poll_room(&mut self) -> Option<u32> {
        let permitted = self.ours_max.saturating_sub(self.ours);
        let opened = u32::try_from(self.sockets_room).unwrap_or(u32::MAX);
        core::mem::take(&mut self.is_room_news).then(|| permitted.min(opened))
    }

    pub(super) fn poll_writable(&mut self) -> Option<CircId> {
        self.circuits.poll_writable()
    }

    /// What may wait to be said of how flows end: of each that the peer may have open and each of ours, twice, with
    /// what comes before. More waits only for a peer that takes nothing of it while it begins flows and breaks them.
    pub(super) fn ends_bytes_max(&self) -> usize {
        const BEFORE: usize = 4096;
        let flows = 2 * (self.theirs_max as usize + self.circuits.len());
        BEFORE + END_LEN * flows
    }

    /// What is to be written on the control stream.
    pub(super) fn take_ends(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.ends)
    }

    pub(super) fn has_readable(&self) -> bool {
        self.circuits.has_readable()
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.circuits.heap_bytes()
            + crate::connections::state::tree(self.by_number.len(), size_of::<((bool, u32), CircuitKey)>())
            + crate::connections::state::tree(self.broken.len(), size_of::<(Instant, CircuitKey)>())
    }

    pub(super) fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        for circuit in self.circuits.iter() {
            each(Backlog {
                conn,
                circ_id: circuit.circ_id,
                bytes: circuit.flow.kept_bytes(),
                state_bytes: size_of::<Flow>() + crate::connections::circuits::PLACE_BYTES,
                since: circuit.flow.moved_at,
            });
        }
    }

    /// The peer opened a flow; false if it has too many, or too many whose first cell has not come.
    pub(super) fn accept(&mut self, now: Instant, socket: SocketId, sockets: &mut Sockets) -> bool {
        if self.theirs >= self.theirs_max || self.circuits.unborn() >= UNBORN_MAX {
            return false;
        }
        self.theirs_begun = self.theirs_begun.wrapping_add(1);
        let Some(circ_id) = self.circuits.their_name(self.theirs_begun) else { return false };
        if self.circuits.by_name(circ_id).is_some() {
            return false;
        }
        self.theirs += 1;
        let key = self.circuits.begin_theirs(now, circ_id, socket, Flow::new(now, None));
        self.note_interest(key, sockets);
        true
    }

    /// Our flow is connected: it may be written from now on.
    pub(super) fn on_connected(&mut self, socket: SocketId, sockets: &mut Sockets) {
        if let Some(key) = self.circuits.by_id(socket) {
            self.note_interest(key, sockets);
        }
    }

    /// Bytes came.
    pub(super) fn on_read(&mut self, socket: SocketId, len: usize, sockets: &mut Sockets) {
        let Some(key) = self.circuits.by_id(socket) else { return };
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let before = circuit.flow.kept_bytes();
        if let Some(number) = circuit.flow.append(sockets.read(len)) {
            // Whoever gives a number twice has its flows' ends confused.
            self.by_number.insert((false, number), key);
        }
        self.buffered_bytes = self.buffered_bytes + circuit.flow.kept_bytes() - before;
        self.circuits.note_readable(key);
        self.note_interest(key, sockets);
    }

    /// So much may be written.
    pub(super) fn on_writable(&mut self, socket: SocketId, bytes: usize, sockets: &mut Sockets) {
        let Some(key) = self.circuits.by_id(socket) else { return };
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let flow = &mut circuit.flow;
        let before = flow.kept_bytes();
        flow.credit = bytes;
        let count = flow.unwritten.len().min(flow.credit);
        if count > 0 {
            sockets.send(socket, &flow.unwritten[..count]);
            flow.unwritten.drain(..count);
            flow.credit -= count;
        }
        if flow.unwritten.is_empty() {
            flow.unwritten = Vec::new();
        }
        self.buffered_bytes = self.buffered_bytes + flow.kept_bytes() - before;
        if flow.is_blocked && flow.unwritten.is_empty() && flow.credit >= FLOW_CELL_LEN {
            flow.is_blocked = false;
            self.circuits.note_writable(key);
        }
        self.note_interest(key, sockets);
    }

    /// The stack keeps so much memory for a flow's socket.
    pub(super) fn on_kernel_memory(&mut self, socket: SocketId, bytes: usize) {
        let Some(key) = self.circuits.by_id(socket) else { return };
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let before = circuit.flow.kept_bytes();
        circuit.flow.stack_bytes = bytes;
        self.buffered_bytes = self.buffered_bytes + circuit.flow.kept_bytes() - before;
    }

    /// A flow's socket is gone: reset by the peer, or by its kernel.
    pub(super) fn on_failed(&mut self, now: Instant, socket: SocketId) {
        let Some(key) = self.circuits.by_id(socket) else { return };
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let flow = &mut circuit.flow;
        self.buffered_bytes -= flow.kept_bytes();
        flow.clear();
        flow.ends_at = Some(now + REASON_WAIT);
        self.broken.insert((now + REASON_WAIT, key));
    }

    /// A FIN, which no honest peer sends.
    pub(super) fn on_eof(&mut self, socket: SocketId, sockets: &mut Sockets) {
        if let Some(key) = self.circuits.by_id(socket) {
            self.reset(key, DestroyReason::PROTOCOL.0, sockets);
        }
    }

    /// The peer says why a flow ended.
    pub(super) fn on_end(&mut self, is_ours: bool, number: u32, reason: u8, sockets: &mut Sockets) {
        if let Some(key) = self.by_number.get(&(is_ours, number)).copied() {
            self.take_back(key, sockets);
            self.circuits.end(key, reason);
        }
    }

    /// How many of the peer's flows have become circuits since this was last asked.
    pub(super) fn take_born(&mut self) -> u32 {
        core::mem::take(&mut self.theirs_born)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let broken = self.broken.first().map(|(at, _)| *at);
        [broken, self.circuits.poll_timeout()].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, sockets: &mut Sockets) {
        while let Some(&(_, key)) = self.broken.first().filter(|(at, _)| *at <= now) {
            self.broken.pop_first();
            self.take_back(key, sockets);
            self.circuits.end(key, DestroyReason::CHANNEL_CLOSED.0);
        }
        while let Some(key) = self.circuits.overdue(now) {
            self.reset(key, DestroyReason::PROTOCOL.0, sockets);
        }
    }

    pub(super) fn hold(&mut self, circ_id: CircId, hold: bool, sockets: &mut Sockets) {
        self.circuits.hold(circ_id, hold);
        if let Some(key) = self.circuits.by_name(circ_id) {
            self.note_interest(key, sockets);
        }
    }

    /// Lends the next cell: ends of circuits first, then flows in turn.
    pub(super) fn next_cell(
        &mut self,
        now: Instant,
        lent: &mut Lent,
        sockets: &mut Sockets,
    ) -> Option<(CircId, Command)> {
        loop {
            if let Some((circ_id, reason)) = self.circuits.next_farewell() {
                lent.destroy(reason);
                return Some((circ_id, Command::DESTROY));
            }
            let (key, circuit) = self.circuits.first_readable()?;
            let cell = if circuit.is_held { None } else { circuit.flow.next_cell(lent) };
            match cell {
                Some(command) if circuit.takes(command) => {
                    let circ_id = circuit.circ_id;
                    circuit.flow.moved_at = now;
                    let unborn = self.circuits.unborn();
                    self.circuits.lent(key);
                    self.theirs_born += u32::from(self.circuits.unborn() < unborn);
                    return Some((circ_id, command));
                }
                Some(_) => self.reset(key, DestroyReason::PROTOCOL.0, sockets),
                None => {
                    let before = circuit.flow.kept_bytes();
                    circuit.flow.shrink();
                    self.buffered_bytes = self.buffered_bytes + circuit.flow.kept_bytes() - before;
                    self.circuits.done(key);
                    self.note_interest(key, sockets);
                }
            }
        }
    }

    /// Takes a cell, and opens a flow for it, by `open`, if it is the first of a name of our half. Tells whether all
    /// that it did was to give an old flow's socket all of the cell.
    pub(super) fn send(
        &mut self,
        now: Instant,
        (circ_id, command, body): (CircId, Command, &Body),
        sockets: &mut Sockets,
        open: impl FnOnce(&mut Sockets) -> SocketId,
    ) -> (FlowState, bool) {
        const NO_FLOW: (FlowState, bool) = (FlowState::Open, false);
        let key = match self.circuits.by_name(circ_id) {
            Some(key) if command == Command::DESTROY => {
                self.say_end(key, body[0]);
                self.take_back(key, sockets);
                self.circuits.destroy(key);
                return NO_FLOW;
            }
            Some(key) => key,
            // The flow has ended and the relay has been told.
            None if command == Command::DESTROY || !self.circuits.is_ours(circ_id) => return NO_FLOW,
            None if self.ours >= self.ours_max || sockets.room().sockets == 0 => {
                self.circuits.refuse(circ_id);
                return NO_FLOW;
            }
            None => {
                let number = self.next_number;
                self.next_number = self.next_number.wrapping_add(1);
                self.ours += 1;
                let mut flow = Flow::new(now, Some(number));
                flow.unwritten.extend_from_slice(&number.to_be_bytes());
                self.buffered_bytes += flow.kept_bytes();
                let key = self.circuits.begin_ours(circ_id, open(sockets), flow);
                self.sockets_room = sockets.room().sockets;
                self.by_number.insert((true, number), key);
                key
            }
        };
        let Some(circuit) = self.circuits.sender(key) else { return NO_FLOW };
        let (socket, flow) = (circuit.id, &mut circuit.flow);
        if flow.ends_at.is_some() {
            return NO_FLOW;
        }
        let mut cell = [0; FLOW_CELL_LEN];
        cell[0] = command.0;
        cell[1..].copy_from_slice(body);
        let count = if flow.unwritten.is_empty() { flow.credit.min(FLOW_CELL_LEN) } else { 0 };
        if count > 0 {
            sockets.send(socket, &cell[..count]);
            flow.credit -= count;
        }
        let before = flow.kept_bytes();
        flow.unwritten.extend_from_slice(&cell[count..]);
        self.buffered_bytes = self.buffered_bytes + flow.kept_bytes() - before;
        flow.is_blocked = !flow.unwritten.is_empty() || flow.credit < FLOW_CELL_LEN;
        let state = if flow.is_blocked { FlowState::Blocked } else { FlowState::Open };
        self.note_interest(key, sockets);
        (state, count == FLOW_CELL_LEN)
    }

    /// Forgets everything; the connection is over.
    pub(super) fn clear(&mut self, sockets: &mut Sockets) {
        for circuit in self.circuits.iter().filter(|circuit| circuit.flow.ends_at.is_none()) {
            sockets.abort(circuit.id);
        }
        self.circuits.clear();
        self.by_number.clear();
        self.broken.clear();
        (self.ours, self.theirs, self.buffered_bytes) = (0, 0, 0);
    }

    /// The peer broke a flow's rules.
    fn reset(&mut self, key: CircuitKey, reason: u8, sockets: &mut Sockets) {
        self.say_end(key, reason);
        self.take_back(key, sockets);
        self.circuits.end(key, reason);
    }

    /// Tells the peer why a flow ends, unless it has ended or has no name yet.
    fn say_end(&mut self, key: CircuitKey, reason: u8) {
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        if let Some(number) = circuit.flow.number {
            write_end(circuit.id.is_dialled(), number, reason, &mut self.ends);
        }
    }

    /// Takes back what a flow holds, which is about to end and has not ended before.
    fn take_back(&mut self, key: CircuitKey, sockets: &mut Sockets) {
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let (socket, flow) = (circuit.id, &mut circuit.flow);
        self.buffered_bytes -= flow.kept_bytes();
        flow.clear();
        let is_ours = socket.is_dialled();
        if let Some(number) = flow.number
            && self.by_number.get(&(is_ours, number)) == Some(&key)
        {
            self.by_number.remove(&(is_ours, number));
        }
        match flow.ends_at {
            Some(at) => drop(self.broken.remove(&(at, key))),
            None => {
                sockets.abort(socket);
                flow.ends_at = Some(Instant::ZERO);
            }
        }
        if is_ours {
            self.ours -= 1;
            self.is_room_news = true;
        } else {
            self.theirs -= 1;
        }
    }

    /// Tells the driver what a flow's socket is to be read and granted, if that is news.
    fn note_interest(&mut self, key: CircuitKey, sockets: &mut Sockets) {
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let (is_held, socket, flow) = (circuit.is_held, circuit.id, &mut circuit.flow);
        if flow.ends_at.is_some() {
            return;
        }
        let wanted = (!is_held && flow.has_room(), flow.is_blocked);
        if flow.interest != wanted {
            flow.interest = wanted;
            sockets.interest(socket, wanted.0, wanted.1);
        }
    }
}
