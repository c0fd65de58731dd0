//! What is still on its way of flows that were reset.
//!
//! 1. What this end sent stays in the session's window until it is acknowledged, found lost, or a time-out has passed
//!    since the reset; whoever opens and ends flows quickly would otherwise have more under way than the window
//!    permits.
//! 2. What the peer sent before it heard of the reset is acknowledged and dropped, so that it can do the same.

use super::codec::FIRST;
use super::flow_id::FlowId;
use crate::segment::{Header, Range, SEQUENCE_BASE, SackBlocks};
use crate::send::{AckInput, Report, Sender};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Flows that were reset within the last time-out. Beyond, the eldest are given up. Without anything in flight each
/// takes some 200 bytes with its places in the lists, which makes 3 MiB; those with something in flight are limited by
/// the session's window.
const REMAINS_MAX: usize = 16_384;
/// Ranges beyond a hole that are remembered for acknowledgements.
const BLOCKS_MAX: usize = 3;

/// One flow's.
#[derive(Debug)]
pub(super) struct Remains {
    /// Where something is in flight in a window of the session's.
    sender: Option<Box<Sender>>,
    /// The first number that was never sent.
    sent_end: u64,
    heard: Heard,
    owes_ack: bool,
    /// When it is forgotten.
    until: Instant,
    timer: Instant,
    /// Bytes that the session's window counts.
    pub(super) counted: u64,
}

/// What came of a flow.
#[derive(Clone, Copy, Debug)]
struct Heard {
    next: u64,
    /// What lies beyond, the latest first. Empty ones are free.
    blocks: [Range; BLOCKS_MAX],
}

impl Heard {
    /// Something came, in whatever order.
    fn add(&mut self, range: Range) {
        let mut range = Range::new(range.start.max(self.next), range.end.max(self.next));
        let mut others = [Range::default(); BLOCKS_MAX];
        let mut free = others.iter_mut().skip(1);
        for block in self.blocks.into_iter().filter(|block| !block.is_empty()) {
            if block.start <= range.end && range.start <= block.end {
                range = Range::new(range.start.min(block.start), range.end.max(block.end));
            } else if let Some(slot) = free.next() {
                *slot = block;
            }
        }
        if range.start <= self.next {
            self.next = range.end;
        } else {
            others[0] = range;
        }
        self.blocks = others;
    }
}

impl Remains {
    /// `received` are the next number of the peer's and what came beyond; `sender` may have nothing in flight any more.
    pub(super) fn new(
        now: Instant,
        mut sender: Sender,
        received: Option<(u64, SackBlocks)>,
        owes_ack: bool,
    ) -> Self {
        sender.rest();
        let (next, sacks) = received.unwrap_or((FIRST, SackBlocks::NONE));
        let mut heard = Heard { next, blocks: [Range::default(); BLOCKS_MAX] };
        // The blocks tell of the latest first, and so do these.
        sacks.as_slice().iter().rev().filter(|block| block.start > next).for_each(|block| heard.add(*block));
        let until = now.plus_ns(sender.first_timeout_ns());
        let sent_end = sender.next;
        // An answer to an opening segment that carries nothing is not worth a sender: whoever never acknowledges one
        // would have us keep as many as it opens flows.
        let counts = sender.is_granted() && sender.in_flight() > 0 && sent_end > FIRST;
        let sender = counts.then(|| Box::new(sender));
        Remains { sender, sent_end, heard, owes_ack, until, timer: until, counted: 0 }
    }

    /// Near which the peer's numbers lie, and its acknowledgements.
    pub(super) fn expected(&self) -> (u64, u64) {
        (self.heard.next, self.sender.as_ref().map_or(self.sent_end, |sender| sender.una))
    }

    /// Bytes that are in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.sender.as_ref().map_or(0, |sender| sender.in_flight() + sender.probe_bytes())
    }

    /// What the session has to hear, and when the newest of lost segments left.
    pub(super) fn take_report(&mut self) -> (Report, Instant) {
        let report = self.sender.as_mut().map(|sender| sender.take_report());
        if self.in_flight() == 0 {
            self.sender = None;
        }
        report.unwrap_or_default()
    }

    fn on_segment(&mut self, now: Instant, header: &Header, payload_bytes: usize) {
        let range = header.range(payload_bytes);
        if !range.is_empty() {
            self.heard.add(Range::new(header.payload_seq(), range.end));
            self.owes_ack = true;
        }
        if let Some(ack) = header.ack {
            self.on_ack(now, ack, &header.sack);
        }
    }

    fn on_ack(&mut self, now: Instant, ack: u64, sacks: &SackBlocks) {
        let Some(sender) = self.sender.as_mut().filter(|sender| ack <= sender.next) else { return };
        let blocks = sacks.as_slice().iter().copied();
        let blocks: SackBlocks =
            blocks.filter(|block| !block.is_empty() && block.end <= sender.next).collect();
        sender.on_ack(&AckInput {
            now,
            ack,
            sack: blocks.as_slice(),
            echoed_ms: None,
            is_bare: true,
            ece: false,
            has_unsent: false,
        });
    }

    /// The peer reset the flow as well: it has the opening segment.
    fn on_reset(&mut self, now: Instant) {
        if self.sender.as_ref().is_some_and(|sender| sender.una == SEQUENCE_BASE) {
            self.on_ack(now, self.sent_end, &SackBlocks::NONE);
        }
    }

    fn on_time(&mut self, now: Instant) {
        if let Some(sender) = &mut self.sender {
            sender.handle_timeout(now);
            if self.until <= now {
                sender.give_up(now);
            }
        }
    }

    fn poll_timeout(&self) -> Instant {
        self.sender.as_ref().and_then(|sender| sender.timer()).map_or(self.until, |at| at.min(self.until))
    }

    fn acknowledgement(&self, unit: u64) -> Header {
        let blocks = self.heard.blocks.into_iter().filter(|block| !block.is_empty());
        // A peer that has not heard of the reset needs no room, and is not to believe that there is no memory.
        let window_bytes = u32::try_from(unit).unwrap_or(u32::MAX);
        Header {
            seq: self.sent_end,
            ack: Some(self.heard.next),
            window_bytes,
            sack: blocks.collect(),
            ..Header::default()
        }
    }
}

/// All of a session.
#[derive(Debug, Default)]
pub(super) struct AllRemains {
    all: BTreeMap<FlowId, Remains>,
    timers: BTreeSet<(Instant, FlowId)>,
    /// Those that owe an acknowledgement, and perhaps some that are forgotten.
    owing: VecDeque<FlowId>,
    /// How many have something in flight.
    senders: usize,
}

impl AllRemains {
    /// Adds those of a flow that was just reset. Gives those that are given up for it.
    pub(super) fn insert(&mut self, now: Instant, id: FlowId, remains: Remains) -> Option<Remains> {
        let given_up = self.give_up_beyond(now, REMAINS_MAX - 1);
        self.senders += usize::from(remains.sender.is_some());
        if remains.owes_ack {
            self.owing.push_back(id);
        }
        self.timers.insert((remains.timer, id));
        self.all.insert(id, remains);
        self.arm(id);
        given_up
    }

    /// Gives up the eldest if there are more than so many, for the session to count it anew: what it had in flight is
    /// lost.
    pub(super) fn give_up_beyond(&mut self, now: Instant, kept: usize) -> Option<Remains> {
        let (at, id) = self.timers.first().copied().filter(|_| self.all.len() > kept)?;
        self.timers.remove(&(at, id));
        let mut remains = self.all.remove(&id)?;
        self.senders -= usize::from(remains.sender.is_some());
        remains.until = now;
        remains.on_time(now);
        Some(remains)
    }

    /// Gives the room of lists back to the heap.
    pub(super) fn shrink(&mut self) {
        self.owing.retain(|id| self.all.contains_key(id));
        self.owing.shrink_to_fit();
    }

    /// Bytes on the heap, but for what senders remember of segments, which the session's window limits.
    pub(super) fn heap_bytes(&self) -> usize {
        const TREE_ENTRY: usize = 48;
        self.all.len() * (2 * size_of::<Remains>() + 2 * TREE_ENTRY)
            + self.senders * (size_of::<Sender>() + 16)
            + self.owing.capacity() * size_of::<FlowId>()
    }

    /// Where the peer's numbers lie of a flow that was reset lately.
    pub(super) fn expected(&self, id: FlowId) -> Option<(u64, u64)> {
        self.all.get(&id).map(Remains::expected)
    }

    /// A segment of such a flow came; the session is to `count` it anew.
    pub(super) fn on_segment(
        &mut self,
        now: Instant,
        id: FlowId,
        (header, payload_bytes): (&Header, usize),
        count: impl FnOnce(&mut Remains),
    ) {
        let Some(remains) = self.all.get_mut(&id) else { return };
        let owed = remains.owes_ack;
        remains.on_segment(now, header, payload_bytes);
        if remains.owes_ack && !owed {
            self.owing.push_back(id);
        }
        self.arm(id);
        self.count(id, count);
    }

    /// The peer reset a flow, too; the session is to `count` it anew.
    pub(super) fn on_reset(&mut self, now: Instant, id: FlowId, count: impl FnOnce(&mut Remains)) {
        if let Some(remains) = self.all.get_mut(&id).filter(|_| id.is_ours) {
            remains.on_reset(now);
            self.arm(id);
            self.count(id, count);
        }
    }

    /// What was in flight may be so no longer.
    fn count(&mut self, id: FlowId, count: impl FnOnce(&mut Remains)) {
        if let Some(remains) = self.all.get_mut(&id) {
            let before = remains.sender.is_some();
            count(remains);
            self.senders -= usize::from(before && remains.sender.is_none());
        }
    }

    /// The next acknowledgement that is owed.
    pub(super) fn next_owed(&mut self, unit: u64) -> Option<(FlowId, Header)> {
        while let Some(id) = self.owing.pop_front() {
            if let Some(remains) = self.all.get_mut(&id) {
                remains.owes_ack = false;
                return Some((id, remains.acknowledgement(unit)));
            }
        }
        None
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Gives the next whose timer was due, for the session to count anew. What is forgotten has nothing in flight.
    pub(super) fn next_due(&mut self, now: Instant, count: impl FnOnce(&mut Remains)) -> bool {
        let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.timers.remove(&(at, id));
        let Some(remains) = self.all.get_mut(&id) else { return true };
        remains.on_time(now);
        let is_forgotten = remains.until <= now;
        self.count(id, count);
        if is_forgotten {
            let forgotten = self.all.remove(&id);
            self.senders -= forgotten.map_or(0, |remains| usize::from(remains.sender.is_some()));
        } else {
            self.arm(id);
        }
        true
    }

    fn arm(&mut self, id: FlowId) {
        let Some(remains) = self.all.get_mut(&id) else { return };
        let timer = remains.poll_timeout();
        self.timers.remove(&(remains.timer, id));
        self.timers.insert((timer, id));
        remains.timer = timer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_remembered_in_whatever_order() {
        let mut heard = Heard { next: 10, blocks: [Range::default(); BLOCKS_MAX] };
        for (start, end) in [(20, 30), (40, 50), (60, 70), (0, 5), (80, 90)] {
            heard.add(Range::new(start, end));
        }
        assert_eq!(heard.next, 10);
        assert_eq!(heard.blocks, [(80, 90), (60, 70), (40, 50)].map(|(start, end)| Range::new(start, end)));
        heard.add(Range::new(50, 60));
        assert_eq!(heard.blocks[0], Range::new(40, 70));
        heard.add(Range::new(10, 40));
        assert_eq!((heard.next, heard.blocks[0]), (70, Range::default()));
        heard.add(Range::new(70, 80));
        assert_eq!((heard.next, heard.blocks), (90, [Range::default(); BLOCKS_MAX]));
    }
}
