//! What was sent and not yet acknowledged: one entry for each segment, in the order of sequence numbers.
//!
//! ```text
//!  in flight ──▶ SACKed ──▶ acknowledged (gone)
//!     │  ▲
//!     ▼  │ retransmitted
//!    lost ──▶ SACKed or acknowledged after all
//! ```
//!
//! Two cursors and a list in the order of time keep the cost of an acknowledgement at what it changes: segments that
//! were sent once are also in the order of time, so the search for losses goes on where it stopped.

use super::rack::{By, Rack};
use super::sent::{Place, Sent};
use crate::ranges::RangeSet;
use crate::segment::Range;
use crate::time::Instant;
use std::collections::VecDeque;

/// The most segments on the scoreboard. Sending stops there, whatever the windows are.
pub(crate) const SEGMENTS_MAX: usize = 1 << 16;

/// The longest list that an empty scoreboard keeps for the next segments.
const LIST_KEPT: usize = 4;

/// What an acknowledgement newly delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes delivered, by acknowledgement or by SACK.
    pub bytes: u64,
    /// Whether any of them were SACKed.
    pub sacked: bool,
    /// Whether any of them had been sent more than once, and was acknowledged.
    pub retransmission_acked: bool,
    /// When the first and the last delivered segment that was sent only once had left.
    pub oldest: Option<Instant>,
    pub newest: Option<Instant>,
    /// The end of the highest delivered segment that was sent only once.
    pub original_end: Option<u64>,
    /// The end of the lowest delivered segment that was sent only once.
    pub original_low: Option<u64>,
}

/// The segments that are not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    sacked: RangeSet,
    /// Retransmissions in the order of their times. Entries go stale when the segment was delivered or sent again.
    retransmissions: VecDeque<(u64, Instant)>,
    in_flight: u64,
    lost: u64,
    sacked_segments: usize,
    /// Segments below were judged as first transmissions already.
    judged: u64,
    /// No segment below is lost.
    lost_from: u64,
    /// When the newest segment left that was ever marked as lost.
    newest_lost: Instant,
}

impl Scoreboard {
    /// Bytes believed to be in the network.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes believed to be lost and not sent again yet.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// When the newest segment left that was ever marked as lost.
    pub(crate) fn newest_lost(&self) -> Instant {
        self.newest_lost
    }

    /// A segment that left then was lost, and nobody saw it here.
    pub(crate) fn note_lost(&mut self, left_at: Instant) {
        self.newest_lost = self.newest_lost.max(left_at);
    }

    /// Segments that were SACKed.
    pub(crate) fn sacked_segments(&self) -> usize {
        self.sacked_segments
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.segments.len() >= SEGMENTS_MAX
    }

    /// How many segments are not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn first(&self) -> Option<Sent> {
        self.segments.front().copied()
    }

    pub(crate) fn last(&self) -> Option<Sent> {
        self.segments.back().copied()
    }

    /// Adds a segment that is sent for the first time.
    pub(crate) fn on_sent(&mut self, now: Instant, range: Range) {
        debug_assert!(self.segments.back().is_none_or(|last| last.end() == range.start));
        let len = range.len() as u32;
        self.in_flight += range.len();
        let sent = Sent {
            start: range.start,
            at: now,
            len,
            place: Place::InFlight,
            retransmitted: false,
            lag_ms: 0,
        };
        self.segments.push_back(sent);
    }

    /// The first segment that is lost.
    pub(crate) fn next_lost(&mut self) -> Option<Sent> {
        if self.lost == 0 {
            return None;
        }
        let from = self.index(self.lost_from);
        let found = self.segments.range(from..).find(|sent| sent.place == Place::Lost).copied();
        self.lost_from = found.map_or(self.lost_from, |sent| sent.start);
        found
    }

    /// Cuts the segment at `start` after `len` bytes, because only so many may be sent again.
    pub(crate) fn split(&mut self, start: u64, len: u32) {
        let index = self.index(start);
        if let Some(first) = self.segments.get_mut(index).filter(|sent| sent.len > len) {
            let rest = Sent { start: start + u64::from(len), len: first.len - len, ..*first };
            first.len = len;
            self.sacked_segments += usize::from(rest.place == Place::Sacked);
            self.segments.insert(index + 1, rest);
        }
    }

    /// The segment at `start` is sent again, with a timestamp so far behind.
    pub(crate) fn on_retransmitted(&mut self, now: Instant, start: u64, lag_ms: u16) {
        let index = self.index(start);
        let Some(sent) = self.segments.get_mut(index).filter(|sent| sent.place != Place::Sacked) else {
            return;
        };
        if sent.place == Place::Lost {
            self.lost -= u64::from(sent.len);
            self.in_flight += u64::from(sent.len);
        }
        sent.place = Place::InFlight;
        sent.retransmitted = true;
        sent.at = now;
        sent.lag_ms = lag_ms;
        self.retransmissions.push_back((start, now));
    }

    /// Takes a SACK block, cut to what was sent. A segment that is only partly covered counts as missing.
    pub(crate) fn on_sack(&mut self, block: Range, rack: &mut Rack, delivery: &mut Delivery) {
        let mut rest = block;
        while let Some(gap) = self.sacked.first_gap(rest) {
            let first = self.segments.partition_point(|sent| sent.start < gap.start);
            for index in first..self.segments.len() {
                let sent = self.segments[index];
                if sent.end() > gap.end {
                    break;
                }
                if sent.place != Place::Sacked {
                    self.deliver(index, By::Sack, rack, delivery);
                    delivery.sacked = true;
                    self.segments[index].place = Place::Sacked;
                    self.sacked_segments += 1;
                    self.sacked.insert(sent.range());
                }
            }
            rest = Range::new(gap.end, block.end);
        }
    }

    /// Takes an acknowledgement of everything below `una`.
    pub(crate) fn on_ack(&mut self, una: u64, rack: &mut Rack, delivery: &mut Delivery) {
        while let Some(first) = self.segments.front().copied().filter(|first| first.start < una) {
            if first.end() > una {
                self.split(first.start, (una - first.start) as u32);
                continue;
            }
            if first.place == Place::Sacked {
                self.sacked_segments -= 1;
            } else {
                self.deliver(0, By::Acknowledgement, rack, delivery);
                delivery.retransmission_acked |= first.retransmitted;
            }
            self.segments.pop_front();
        }
        self.sacked.remove_below(una);
        // Without SACK nobody looks for losses among these, so here is where they end.
        while self.retransmissions.front().is_some_and(|(start, _)| *start < una) {
            self.retransmissions.pop_front();
        }
        if self.segments.is_empty() {
            self.release();
        }
    }

    /// Takes a segment out of what is in flight or lost.
    fn deliver(&mut self, index: usize, by: By, rack: &mut Rack, delivery: &mut Delivery) {
        let sent = self.segments[index];
        let len = u64::from(sent.len);
        match sent.place {
            Place::InFlight => self.in_flight -= len,
            Place::Lost => self.lost -= len,
            Place::Sacked => return,
        }
        delivery.bytes += len;
        if !sent.retransmitted {
            delivery.oldest = Some(delivery.oldest.map_or(sent.at, |oldest| oldest.min(sent.at)));
            delivery.newest = Some(delivery.newest.map_or(sent.at, |newest| newest.max(sent.at)));
            let (low, high) = (delivery.original_low, delivery.original_end);
            delivery.original_low = Some(low.map_or(sent.end(), |low| low.min(sent.end())));
            delivery.original_end = Some(high.map_or(sent.end(), |high| high.max(sent.end())));
        }
        rack.on_delivered(&sent, by);
    }

    /// Marks what RACK takes for lost. Gives the bytes marked, and when the next segment would be due.
    ///
    /// First transmissions are in the order of time, so the first that is not due ends the search.
    pub(crate) fn detect_losses(
        &mut self,
        now: Instant,
        rack: &Rack,
        window_ns: u64,
    ) -> (u64, Option<Instant>) {
        let before = self.lost;
        let mut due: Option<Instant> = None;
        let mut index = self.index(self.judged);
        while let Some(sent) = self.segments.get(index).copied() {
            if sent.place == Place::InFlight && !sent.retransmitted {
                match rack.deadline(&sent, window_ns) {
                    Some(deadline) if deadline <= now => self.mark_lost(index),
                    Some(deadline) => {
                        due = Some(deadline);
                        break;
                    }
                    None => break,
                }
            }
            index += 1;
        }
        let end = self.segments.back().map_or(self.judged, Sent::end);
        self.judged = self.segments.get(index).map_or(end, |sent| sent.start);
        (self.lost - before, self.judge_retransmissions(now, rack, window_ns, due))
    }

    /// Does the same for segments that were sent again, which are in the order of time in their list.
    fn judge_retransmissions(
        &mut self,
        now: Instant,
        rack: &Rack,
        window_ns: u64,
        mut due: Option<Instant>,
    ) -> Option<Instant> {
        while let Some((start, at)) = self.retransmissions.front().copied() {
            let index = self.index(start);
            let current = self.segments.get(index).copied();
            let current =
                current.filter(|sent| sent.start == start && sent.at == at && sent.place == Place::InFlight);
            if let Some(sent) = current {
                match rack.deadline(&sent, window_ns) {
                    Some(deadline) if deadline <= now => self.mark_lost(index),
                    Some(deadline) => {
                        due = Some(due.map_or(deadline, |due| due.min(deadline)));
                        break;
                    }
                    None => break,
                }
            }
            self.retransmissions.pop_front();
        }
        due
    }

    /// Marks the first segment as lost, if it is in flight. Gives the bytes marked.
    pub(crate) fn mark_first_lost(&mut self) -> u64 {
        match self.segments.front() {
            Some(first) if first.place == Place::InFlight => {
                let len = u64::from(first.len);
                self.mark_lost(0);
                len
            }
            _ => 0,
        }
    }

    /// After a time-out: marks the first segment as lost, and all others that were sent up to `sent_by`.
    pub(crate) fn mark_timed_out(&mut self, sent_by: Instant) {
        for index in 0..self.segments.len() {
            let sent = self.segments[index];
            if sent.place == Place::InFlight && (index == 0 || sent.at <= sent_by) {
                self.mark_lost(index);
            }
        }
    }

    /// The receiver went back on its SACKs (RFC 2018, section 8): forgets them.
    pub(crate) fn forget_sacks(&mut self) {
        for sent in self.segments.iter_mut().filter(|sent| sent.place == Place::Sacked) {
            sent.place = Place::InFlight;
            self.in_flight += u64::from(sent.len);
        }
        self.sacked_segments = 0;
        self.sacked.clear();
        self.judged = 0;
    }

    /// What was marked lost is in flight after all.
    pub(crate) fn forget_losses(&mut self) {
        for sent in self.segments.iter_mut().filter(|sent| sent.place == Place::Lost) {
            sent.place = Place::InFlight;
            self.in_flight += u64::from(sent.len);
            if sent.retransmitted {
                self.retransmissions.push_back((sent.start, sent.at));
            }
        }
        self.lost = 0;
        self.judged = 0;
        self.retransmissions.make_contiguous().sort_by_key(|(_, at)| *at);
    }

    fn mark_lost(&mut self, index: usize) {
        let sent = &mut self.segments[index];
        sent.place = Place::Lost;
        self.newest_lost = self.newest_lost.max(sent.at);
        self.in_flight -= u64::from(sent.len);
        self.lost += u64::from(sent.len);
        self.lost_from = self.lost_from.min(sent.start);
        if self.lost == u64::from(sent.len) {
            self.lost_from = sent.start;
        }
    }

    /// The place of the first segment that ends after `position`.
    fn index(&self, position: u64) -> usize {
        self.segments.partition_point(|sent| sent.end() <= position)
    }

    /// Keeps no room for more.
    pub(crate) fn shrink(&mut self) {
        self.segments.shrink_to_fit();
        self.retransmissions.shrink_to_fit();
    }

    fn release(&mut self) {
        self.retransmissions = VecDeque::new();
        if self.segments.capacity() > LIST_KEPT {
            self.segments = VecDeque::with_capacity(LIST_KEPT);
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Sent>()
            + self.retransmissions.capacity() * size_of::<(u64, Instant)>()
            + self.sacked.heap_bytes()
    }
}
