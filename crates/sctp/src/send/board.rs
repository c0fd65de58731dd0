//! Fragments that were sent and are not acknowledged with all before them.

use super::rack::{Delivered, Rack};
use crate::wire::data::Fragment;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::ranges::RangeSet;
use heddle_utcp::segment::Range;
use std::collections::{BTreeSet, VecDeque};

/// What a fragment takes here beside its payload.
const ENTRY_BYTES: usize = size_of::<Sent>() + 16 + size_of::<Left>();

/// What was lost so often may be too long for the path: where one in a hundred is lost, that is one in ten thousand.
const STUBBORN: u32 = 2;
/// Room for entries that is kept when there are none.
const KEPT_ENTRIES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// The peer has it, and may still say that it has not.
    Acknowledged,
    Lost,
}

#[derive(Debug)]
struct Sent {
    fragment: Fragment,
    payload: Vec<u8>,
    /// Bytes of its chunk.
    bytes: u32,
    sent_at: Instant,
    times: u32,
    state: State,
}

/// One sending of a fragment.
#[derive(Clone, Copy, Debug)]
struct Left {
    at: Instant,
    tsn: u64,
    times: u32,
}

/// What an acknowledgement says that was not known.
#[derive(Debug, Default)]
pub(super) struct Acked {
    pub(super) bytes: u64,
    /// When the newest left of those that were sent once.
    pub(super) newest_once: Option<Instant>,
    pub(super) has_advanced: bool,
    /// Of each packet the last fragment.
    pub(super) delivered: Vec<Delivered>,
    /// The streams of what is no longer under way, with payload bytes.
    pub(super) settled: Vec<(u16, usize)>,
}

/// All fragments under way, by TSN.
#[derive(Debug)]
pub(super) struct Board {
    first: u64,
    sent: VecDeque<Sent>,
    /// Sendings in the order of their times. Some mean nothing any more.
    left: VecDeque<Left>,
    lost: BTreeSet<u64>,
    acknowledged: RangeSet,
    sacked_bytes: u64,
    in_flight: u64,
    payload_bytes: usize,
    /// The highest TSN that was acknowledged.
    highest: u64,
    /// Whether something was lost again and again.
    is_stubborn: bool,
}

impl Board {
    pub(super) fn new(first: u32) -> Self {
        let first = (1 << 32) + u64::from(first);
        Board {
            first,
            sent: VecDeque::new(),
            left: VecDeque::new(),
            lost: BTreeSet::new(),
            acknowledged: RangeSet::default(),
            sacked_bytes: 0,
            in_flight: 0,
            payload_bytes: 0,
            highest: first - 1,
            is_stubborn: false,
        }
    }

    /// The lowest TSN that is not acknowledged with all before it.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The TSN of what is sent next.
    pub(super) fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.payload_bytes + self.sent.len() * ENTRY_BYTES
    }

    /// Beside [`Board::bytes`].
    pub(super) fn heap_bytes(&self) -> usize {
        let unused = self.sent.capacity() - self.sent.len();
        let unused_left = self.left.capacity().saturating_sub(self.sent.len());
        unused * size_of::<Sent>()
            + unused_left * size_of::<Left>()
            + self.lost.len() * 16
            + self.acknowledged.heap_bytes()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn sacked_bytes(&self) -> u64 {
        self.sacked_bytes
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    pub(super) fn first_lost(&self) -> Option<u64> {
        self.lost.first().copied()
    }

    /// The highest TSN in flight, when it left last, and its bytes.
    pub(super) fn last_in_flight(&self) -> Option<(u64, Instant, u64)> {
        let back = self.sent.iter().rev().position(|sent| sent.state == State::InFlight)?;
        let tsn = self.next() - 1 - back as u64;
        self.get(tsn).map(|sent| (tsn, sent.sent_at, u64::from(sent.bytes)))
    }

    /// Whether the peer has this one.
    pub(super) fn is_acknowledged(&self, tsn: u64) -> bool {
        self.get(tsn).map_or(tsn < self.first, |sent| sent.state == State::Acknowledged)
    }

    fn get(&self, tsn: u64) -> Option<&Sent> {
        self.sent.get(usize::try_from(tsn.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, tsn: u64) -> Option<&mut Sent> {
        self.sent.get_mut(usize::try_from(tsn.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn fragment(&self, tsn: u64) -> Option<(Fragment, &[u8])> {
        self.get(tsn).map(|sent| (sent.fragment, &sent.payload[..]))
    }

    /// A fragment leaves for the first time.
    pub(super) fn push(&mut self, now: Instant, fragment: Fragment, payload: Vec<u8>, bytes: usize) {
        let tsn = self.next();
        self.in_flight += bytes as u64;
        self.payload_bytes += payload.len();
        let (bytes, state) = (bytes as u32, State::InFlight);
        self.sent.push_back(Sent { fragment, payload, bytes, sent_at: now, times: 1, state });
        self.left.push_back(Left { at: now, tsn, times: 1 });
    }

    /// A fragment leaves once more.
    pub(super) fn on_sent_again(&mut self, now: Instant, tsn: u64) {
        let was_lost = self.lost.remove(&tsn);
        let Some(sent) = self.get_mut(tsn) else { return };
        (sent.sent_at, sent.state) = (now, State::InFlight);
        sent.times += 1;
        let (times, bytes) = (sent.times, sent.bytes);
        self.left.push_back(Left { at: now, tsn, times });
        if was_lost {
            self.in_flight += u64::from(bytes);
        }
    }

    /// All below this TSN came. Nothing takes that back.
    pub(super) fn acknowledge_to(&mut self, bound: u64, acked: &mut Acked) {
        acked.has_advanced = bound > self.first;
        while self.first < bound {
            let tsn = self.first;
            self.note(tsn, acked);
            let Some(sent) = self.sent.pop_front() else { break };
            self.sacked_bytes -= u64::from(sent.bytes);
            self.payload_bytes -= sent.payload.len();
            acked.settled.push((sent.fragment.stream, sent.payload.len()));
            self.first += 1;
        }
        self.acknowledged.remove_below(self.first);
        if self.sent.is_empty() {
            self.left.clear();
            self.sent.shrink_to(KEPT_ENTRIES);
            self.left.shrink_to(KEPT_ENTRIES);
        }
    }

    /// These came, as far as they were sent.
    pub(super) fn acknowledge(&mut self, range: Range, acked: &mut Acked) {
        let range = Range::new(range.start.max(self.first), range.end.min(self.next()));
        while let Some(gap) = self.acknowledged.first_gap(range) {
            for tsn in gap.start..gap.end {
                self.note(tsn, acked);
            }
            self.acknowledged.insert(gap);
        }
    }

    /// The peer has this one, which may be no news.
    fn note(&mut self, tsn: u64, acked: &mut Acked) {
        let highest = self.highest;
        let Some(sent) = self.get_mut(tsn).filter(|sent| sent.state != State::Acknowledged) else { return };
        let was_in_flight = sent.state == State::InFlight;
        sent.state = State::Acknowledged;
        let delivered = Delivered {
            sent_at: sent.sent_at,
            tsn,
            times: sent.times,
            is_late: tsn < highest && sent.times == 1,
        };
        let bytes = u64::from(sent.bytes);
        if sent.times == 1 {
            acked.newest_once = acked.newest_once.max(Some(sent.sent_at));
        }
        match acked.delivered.last_mut() {
            Some(last) if last.sent_at == delivered.sent_at && last.is_late == delivered.is_late => {
                *last = delivered
            }
            _ => acked.delivered.push(delivered),
        }
        acked.bytes += bytes;
        self.sacked_bytes += bytes;
        self.highest = highest.max(tsn);
        self.lost.remove(&tsn);
        if was_in_flight {
            self.in_flight -= bytes;
        }
    }

    /// Finds what left so long before something that came that it is lost. Returns when the newest left, and bytes.
    pub(super) fn detect(
        &mut self,
        now: Instant,
        rack: &mut Rack,
        window: Duration,
    ) -> Option<(Instant, u64)> {
        let mut lost: Option<(Instant, u64)> = None;
        rack.forget_timer();
        while let Some(&Left { at, tsn, times }) = self.left.front() {
            let is_current = |sent: &&mut Sent| sent.times == times && sent.state == State::InFlight;
            let Some(sent) = self.get_mut(tsn).filter(is_current) else {
                self.left.pop_front();
                continue;
            };
            match rack.judge(at, tsn, window) {
                None => break,
                Some(due) if due > now => {
                    rack.set_timer(due);
                    break;
                }
                Some(_) => {
                    sent.state = State::Lost;
                    let is_stubborn = sent.times >= STUBBORN;
                    let bytes = u64::from(sent.bytes);
                    self.is_stubborn |= is_stubborn;
                    self.in_flight -= bytes;
                    self.lost.insert(tsn);
                    self.left.pop_front();
                    lost = Some((at, lost.map_or(0, |(_, before)| before) + bytes));
                }
            }
        }
        lost
    }

    /// Whether something was lost so often since this was asked last that its length may be why.
    pub(super) fn take_stubborn(&mut self) -> bool {
        core::mem::take(&mut self.is_stubborn)
    }

    /// What was taken for lost and has not left again is only late, unless something tells otherwise once more.
    pub(super) fn find_again(&mut self) {
        for tsn in core::mem::take(&mut self.lost) {
            if let Some(sent) = self.get_mut(tsn) {
                sent.state = State::InFlight;
                let bytes = u64::from(sent.bytes);
                self.in_flight += bytes;
            }
        }
        let in_flight = (self.first..).zip(&self.sent).filter(|(_, sent)| sent.state == State::InFlight);
        let mut left: Vec<Left> =
            in_flight.map(|(tsn, sent)| Left { at: sent.sent_at, tsn, times: sent.times }).collect();
        left.sort_by_key(|left| (left.at, left.tsn));
        self.left = left.into();
    }

    /// Takes all for lost that is in flight, and what was acknowledged beyond the first missing one if that one is said
    /// to be there: the peer has thrown it away (RFC 9260, section 6.2.1, D iii). Returns the bytes in flight.
    pub(super) fn lose_all(&mut self) -> u64 {
        let has_reneged = self.sent.front().is_some_and(|sent| sent.state == State::Acknowledged);
        if has_reneged {
            self.acknowledged = RangeSet::default();
            self.sacked_bytes = 0;
        }
        for (tsn, sent) in (self.first..).zip(&mut self.sent) {
            if sent.state == State::InFlight || has_reneged && sent.state == State::Acknowledged {
                sent.state = State::Lost;
                self.lost.insert(tsn);
            }
        }
        self.left.clear();
        core::mem::take(&mut self.in_flight)
    }
}
