//! All flows of a connection: how the life of their circuits ([`Circuits`]) is told in streams.
//!
//! ```text
//!                 CREATE2                  DESTROY, written or read           the peer's messages and ours
//!   (no lane) ──────────────▶ it has a circuit ─────────────────────▶ it has none ────────────────▶ (no lane)
//!                                  ▲          our stream is to begin anew        │      began anew
//!                                  └──────────────── CREATE2 ────────────────────┘
//!                                    once the peer's messages began anew, as only its opener does
//! ```
//!
//! Streams with even numbers are the dialler's to open, odd ones the listener's. The opener uses one again when it has
//! begun anew both ways; the other end may not have heard yet that its own messages have, and what it writes waits for
//! that.

mod numbers;

use crate::connections::circuits::{CircuitKey, Circuits, FLOW_CELL_LEN, Lent};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::FlowState;
use heddle_sctp::{Association, Event};
use heddle_seam::time::{Duration, Instant};
use numbers::Numbers;
use std::collections::BTreeMap;

/// Flows that either side may have open beyond those that are permitted and a quarter more.
pub(super) const SLACK_FLOWS: u32 = 64;

/// So many circuits whose ends the peer has not agreed to for so long cost the connection where memory is short.
const UNAGREED_MAX: usize = 64;
const UNAGREED_FOR: Duration = Duration::from_secs(30);
/// Where more than this waits to leave or to be acknowledged, ends of circuits are no longer as long as cells.
const LONG_ENDS_BYTES: usize = 64 * 1024;
const SHORT_END_LEN: usize = 2;

/// A circuit's flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(super) stream: u16,
    /// When the relay last took a cell of it, or when it began.
    pub(super) moved_at: Instant,
    /// Cells that were written, and two times before each of which so many had been.
    written: u64,
    marks: [(u64, Instant); 2],
}

impl Flow {
    fn new(now: Instant, stream: u16) -> Self {
        Flow { stream, moved_at: now, written: 0, marks: [(0, now); 2] }
    }

    /// A cell is about to be written, while so many bytes of those before it are not acknowledged.
    fn on_write(&mut self, now: Instant, kept_bytes: usize) {
        let gone = self.written.saturating_sub(kept_bytes.div_ceil(FLOW_CELL_LEN) as u64);
        if gone >= self.marks[1].0 {
            self.marks = [self.marks[1], (self.written, now)];
        }
        self.written += 1;
    }

    /// No cell that is not acknowledged was written sooner.
    pub(super) fn written_since(&self) -> Instant {
        self.marks[0].1
    }
}

/// A stream that is in use.
#[derive(Debug)]
struct Lane {
    circuit: Option<CircuitKey>,
    /// Whether our messages are to begin anew, and have.
    is_reset_asked: bool,
    is_reset: bool,
    /// Whether the peer's have.
    is_peer_reset: bool,
    /// Whether the reset of the circuit before has not been heard of.
    awaits_older: bool,
    /// When its circuit ended.
    left_at: Option<Instant>,
}

impl Lane {
    fn new(circuit: CircuitKey) -> Self {
        Lane {
            circuit: Some(circuit),
            is_reset_asked: false,
            is_reset: false,
            is_peer_reset: false,
            awaits_older: false,
            left_at: None,
        }
    }
}

/// A peer that breaks the connection's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) &'static str);

pub(super) struct Flows {
    pub(super) circuits: Circuits<u32, Flow>,
    role: Role,
    lanes: BTreeMap<u16, Lane>,
    /// Streams that we may open, and numbers for the peer's circuits.
    numbers: Numbers,
    ours_max: u32,
    /// Circuits that the peer opened, and how many it may.
    theirs: u32,
    theirs_max: u32,
    is_room_news: bool,
}

impl Flows {
    /// The first of `flows_max` is what the peer permits, the second what we do: some more are borne, because the peer
    /// may not have heard yet that others ended.
    pub(super) fn new(
        role: Role,
        [ours_max, theirs_max]: [u32; 2],
        streams_max: u16,
        first_cell_timeout: Duration,
    ) -> Self {
        Flows {
            circuits: Circuits::new(role, first_cell_timeout),
            role,
            lanes: BTreeMap::new(),
            numbers: Numbers::new(role == Role::Initiator, streams_max),
            ours_max,
            theirs: 0,
            theirs_max: theirs_max + theirs_max / 4 + SLACK_FLOWS,
            is_room_news: true,
        }
    }

    /// Flows that may be opened now, if that is news.
    pub(super) fn poll_room(&mut self) -> Option<u32> {
        core::mem::take(&mut self.is_room_news).then(|| self.room())
    }

    fn room(&self) -> u32 {
        self.ours_max.saturating_sub(self.numbers.ours()).min(self.numbers.free())
    }

    /// Bytes of all this on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.circuits.heap_bytes()
            + crate::connections::state::tree(self.lanes.len(), size_of::<(u16, Lane)>())
            + self.numbers.heap_bytes()
    }

    fn is_stream_ours(&self, stream: u16) -> bool {
        stream.is_multiple_of(2) == (self.role == Role::Initiator)
    }

    /// A message can be read, or a stream began anew.
    pub(super) fn on_event(
        &mut self,
        now: Instant,
        association: &mut Association,
        event: Event,
    ) -> Result<(), Fault> {
        match event {
            Event::Readable(stream) => self.on_readable(now, association, stream),
            Event::PeerReset(stream) => {
                self.on_peer_reset(now, association, stream);
                Ok(())
            }
            Event::Reset(stream) => {
                self.on_reset(stream);
                Ok(())
            }
            Event::Connected | Event::Closed(_) => Ok(()),
        }
    }

    fn on_readable(&mut self, now: Instant, association: &mut Association, stream: u16) -> Result<(), Fault> {
        match self.lanes.get(&stream) {
            Some(Lane { circuit: Some(key), .. }) => {
                let key = *key;
                self.circuits.note_readable(key);
                // The end of a circuit overtakes what nobody reads.
                if let Some(message) = association.read_unordered(stream) {
                    self.on_end(now, association, key, &message.bytes);
                }
                return Ok(());
            }
            // What was under way when the circuit ended.
            Some(Lane { is_peer_reset: false, .. }) => {
                association.discard_unread(stream);
                return Ok(());
            }
            Some(_) | None => {}
        }
        if self.is_stream_ours(stream) {
            return Err(Fault("it opened a stream that is ours to open"));
        }
        // It opens a stream anew when it has reset our end of the circuit before, for which we ask once we have heard
        // so of the one before that.
        if self.lanes.get(&stream).is_some_and(|lane| lane.awaits_older) {
            return Err(Fault("it opened a stream that it has not reset"));
        }
        if self.theirs >= self.theirs_max {
            self.refuse(now, association, stream);
            return Ok(());
        }
        self.theirs += 1;
        let (number, circ_id) = loop {
            let number = self.numbers.next_theirs();
            let circ_id = self.circuits.their_name(number);
            if let Some(circ_id) = circ_id.filter(|circ_id| self.circuits.by_name(*circ_id).is_none()) {
                break (number, circ_id);
            }
        };
        let key = self.circuits.begin_theirs(now, circ_id, number, Flow::new(now, stream));
        let awaits_older = self.lanes.get(&stream).is_some_and(|lane| !lane.is_reset);
        self.lanes.insert(stream, Lane { awaits_older, ..Lane::new(key) });
        self.circuits.note_readable(key);
        if let Some(message) = association.read_unordered(stream) {
            self.on_end(now, association, key, &message.bytes);
        }
        Ok(())
    }

    /// There is no room for a circuit that the peer begins.
    fn refuse(&mut self, now: Instant, association: &mut Association, stream: u16) {
        association.discard_unread(stream);
        association.discard_queued(stream);
        association.write(stream, destroy_cell(association, DestroyReason::RESOURCELIMIT.0), 0, true);
        let awaits_older = self.lanes.get(&stream).is_some_and(|lane| !lane.is_reset);
        let lane = Lane {
            circuit: None,
            is_reset_asked: true,
            is_reset: false,
            is_peer_reset: false,
            awaits_older,
            left_at: Some(now),
        };
        self.lanes.insert(stream, lane);
        association.reset_stream(stream);
    }

    fn on_peer_reset(&mut self, now: Instant, association: &mut Association, stream: u16) {
        let Some(lane) = self.lanes.get_mut(&stream) else { return };
        lane.is_peer_reset = true;
        if let Some(key) = lane.circuit {
            // Its DESTROY was read before, or else it sent none.
            association.discard_unread(stream);
            self.end(now, association, key, DestroyReason::CHANNEL_CLOSED.0);
        }
        self.forget_if_over(stream);
    }

    fn on_reset(&mut self, stream: u16) {
        let Some(lane) = self.lanes.get_mut(&stream) else { return };
        if !core::mem::take(&mut lane.awaits_older) {
            lane.is_reset = true;
        }
        self.forget_if_over(stream);
    }

    fn forget_if_over(&mut self, stream: u16) {
        let is_over = |lane: &Lane| lane.circuit.is_none() && lane.is_reset && lane.is_peer_reset;
        if self.lanes.get(&stream).is_some_and(is_over) {
            self.lanes.remove(&stream);
            if self.is_stream_ours(stream) {
                self.numbers.give_back(stream);
                self.is_room_news = true;
            }
        }
    }

    /// Lends the next cell: ends of circuits first, then flows in turn.
    pub(super) fn next_cell(
        &mut self,
        now: Instant,
        association: &mut Association,
        lent: &mut Lent,
    ) -> Option<(CircId, Command)> {
        loop {
            if let Some((circ_id, reason)) = self.circuits.next_farewell() {
                lent.destroy(reason);
                return Some((circ_id, Command::DESTROY));
            }
            let (key, circuit) = self.circuits.first_readable()?;
            let message = if circuit.is_held { None } else { association.read(circuit.flow.stream) };
            let Some(message) = message else {
                self.circuits.done(key);
                continue;
            };
            let command = message.bytes.first().map_or(Command(0), |first| Command(*first));
            if message.bytes.len() != FLOW_CELL_LEN {
                self.reset(now, association, key, DestroyReason::PROTOCOL.0);
            } else if circuit.takes(command) {
                lent.0.copy_from_slice(&message.bytes);
                let circ_id = circuit.circ_id;
                circuit.flow.moved_at = now;
                self.circuits.lent(key);
                return Some((circ_id, command));
            } else {
                self.reset(now, association, key, DestroyReason::PROTOCOL.0);
            }
        }
    }

    /// Takes a cell, and opens a flow for it if it is the first of a name of our half. What it makes wait waits in the
    /// relay, because no more is taken than leaves promptly.
    pub(super) fn send(
        &mut self,
        now: Instant,
        association: &mut Association,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let key = match self.circuits.by_name(circ_id) {
            Some(key) if command == Command::DESTROY => {
                self.farewell(now, association, key, body[0]);
                self.circuits.destroy(key);
                return FlowState::Open;
            }
            Some(key) => key,
            // The flow has ended and the relay has been told.
            None if command == Command::DESTROY || !self.circuits.is_ours(circ_id) => return FlowState::Open,
            None => {
                let stream = if self.room() > 0 { self.numbers.take_ours() } else { None };
                let Some((stream, number)) = stream else {
                    self.circuits.refuse(circ_id);
                    return FlowState::Open;
                };
                let key = self.circuits.begin_ours(circ_id, number, Flow::new(now, stream));
                self.lanes.insert(stream, Lane::new(key));
                key
            }
        };
        if let Some(circuit) = self.circuits.sender(key) {
            let stream = circuit.flow.stream;
            let ([kept_bytes, _], _) = association.stream_bytes(stream);
            circuit.flow.on_write(now, kept_bytes);
            // The peer has fewer streams than it permits flows.
            if !association.write(stream, message(command, body), 0, false) {
                self.end(now, association, key, DestroyReason::RESOURCELIMIT.0);
            }
        }
        FlowState::Open
    }

    /// An unordered message came: a circuit's end.
    fn on_end(&mut self, now: Instant, association: &mut Association, key: CircuitKey, bytes: &[u8]) {
        match bytes {
            [kind, reason, ..] if *kind == Command::DESTROY.0 => {
                if let Some(circuit) = self.circuits.live_mut(key) {
                    association.discard_unread(circuit.flow.stream);
                }
                self.end(now, association, key, *reason);
            }
            _ => self.reset(now, association, key, DestroyReason::PROTOCOL.0),
        }
    }

    /// The peer broke a flow's rules.
    fn reset(&mut self, now: Instant, association: &mut Association, key: CircuitKey, reason: u8) {
        self.farewell(now, association, key, reason);
        self.circuits.end(key, reason);
    }

    /// The peer says that a flow is over.
    fn end(&mut self, now: Instant, association: &mut Association, key: CircuitKey, reason: u8) {
        if let Some(circuit) = self.circuits.live_mut(key) {
            let stream = circuit.flow.stream;
            association.discard_queued(stream);
            self.leave(now, association, stream);
        }
        self.circuits.end(key, reason);
    }

    /// Tells the peer that a flow is over, if it has not ended before. The end overtakes what was lost before it.
    fn farewell(&mut self, now: Instant, association: &mut Association, key: CircuitKey, reason: u8) {
        let Some(circuit) = self.circuits.live_mut(key) else { return };
        let stream = circuit.flow.stream;
        association.discard_queued(stream);
        association.discard_unread(stream);
        association.write(stream, destroy_cell(association, reason), 0, true);
        self.leave(now, association, stream);
    }

    /// A stream has no circuit any more, and begins anew.
    fn leave(&mut self, now: Instant, association: &mut Association, stream: u16) {
        let is_ours = self.is_stream_ours(stream);
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.left_at.get_or_insert(now);
            self.theirs -= u32::from(lane.circuit.take().is_some() && !is_ours);
            if !core::mem::replace(&mut lane.is_reset_asked, true) {
                association.reset_stream(stream);
            }
        }
    }

    /// Resets the flows whose first cell did not come in time.
    pub(super) fn handle_timeout(&mut self, now: Instant, association: &mut Association) {
        while let Some(key) = self.circuits.overdue(now) {
            self.reset(now, association, key, DestroyReason::PROTOCOL.0);
        }
    }

    /// Whether the peer agrees to the ends of more circuits for too long than may be borne where memory is short.
    pub(super) fn owes_ends(&self, now: Instant) -> bool {
        let is_old = |lane: &&Lane| lane.left_at.is_some_and(|at| now.since(at) > UNAGREED_FOR);
        self.lanes.values().filter(is_old).count() > UNAGREED_MAX
    }
}

/// The cell that says why a circuit ended. Where many wait it is a short one: they must not take what cells may.
fn destroy_cell(association: &Association, reason: u8) -> Vec<u8> {
    let [waiting, _] = association.buffered_bytes();
    let len = if waiting < LONG_ENDS_BYTES { FLOW_CELL_LEN } else { SHORT_END_LEN };
    let mut cell = vec![0; len];
    (cell[0], cell[1]) = (Command::DESTROY.0, reason);
    cell
}

fn message(command: Command, body: &Body) -> Vec<u8> {
    let mut cell = Vec::with_capacity(FLOW_CELL_LEN);
    cell.push(command.0);
    cell.extend_from_slice(body);
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_no_older_than_is_said_and_not_much_younger() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut flow = Flow::new(at(0), 0);
        // Ten at a time are not acknowledged, and one is written each millisecond.
        for ms in 0..1000 {
            let kept = usize::try_from(ms).map_or(10, |ms| ms.min(10));
            flow.on_write(at(ms), kept * FLOW_CELL_LEN);
            let oldest = at(ms - kept as u64);
            assert!(flow.written_since() <= oldest, "{ms}");
            assert!(oldest.since(flow.written_since()) <= Duration::from_millis(25), "{ms}");
        }
    }
}
