//! Messages that are put together of fragments, and those that wait to be read, by streams.
//!
//! Fragments of a message have numbers that rise by one: their own in I-DATA, their TSNs in DATA.

use super::{FRAGMENT_BYTES, LEAF_BYTES};
use crate::wire::Malformed;
use crate::wire::data::{Data, Fragment};
use heddle_seam::time::{Duration, Instant};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// The most fragments of one message, and of all unordered ones that are not whole on a stream without I-DATA: what is
/// done for each is no more than to look at so many.
const FRAGMENTS_MAX: usize = 4096;

/// A message that came whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub stream: u16,
    pub ppid: u32,
    pub is_unordered: bool,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Stream {
    /// The next message in turn: an SSN of 16 bits in DATA, an MID of 32 in I-DATA, with its turns above.
    next: u64,
    ordered: BTreeMap<u64, Partial>,
    /// By MID in I-DATA; in DATA nobody says which fragments are of one message, so all are under 0.
    unordered: BTreeMap<u64, Partial>,
    /// What can be read, and memory that each takes.
    ready: VecDeque<(Message, usize)>,
    ready_bytes: usize,
    bytes: usize,
    since: Option<Instant>,
    /// When something last came that made a message whole.
    moved_at: Instant,
}

/// A message that is not whole, or not in turn: its fragments by their numbers, which rise. A list, because a tree
/// takes half a kilobyte for a single one.
#[derive(Debug, Default)]
struct Partial {
    fragments: Vec<(u64, Piece)>,
    payload_bytes: usize,
    /// What its place takes beside, if it is the first of its tree.
    leaf_bytes: usize,
}

#[derive(Debug)]
struct Piece {
    ppid: u32,
    is_begin: bool,
    is_end: bool,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Streams {
    streams: BTreeMap<u16, Stream>,
    is_interleaved: bool,
    message_bytes_max: usize,
    bytes: usize,
    ready: usize,
}

impl Streams {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Streams { streams: BTreeMap::new(), is_interleaved: false, message_bytes_max, bytes: 0, ready: 0 }
    }

    pub(super) fn set_interleaved(&mut self, is_interleaved: bool) {
        self.is_interleaved = is_interleaved;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn stream_bytes(&self, stream: u16) -> (usize, Option<Instant>) {
        self.streams.get(&stream).map_or((0, None), |stream| (stream.bytes, stream.since))
    }

    /// Bytes of what there is of streams beside their fragments.
    pub(super) fn heap_bytes(&self) -> usize {
        // A tree has eleven places in a node, of which six are used where keys rise.
        self.streams.len() * (size_of::<Stream>() + 8) * 11 / 6
    }

    /// Whether some stream has had fragments for so long, and none that made a message whole.
    pub(super) fn is_stuck(&self, now: Instant, after: Duration) -> bool {
        let is_stuck =
            |stream: &Stream| stream.bytes > stream.ready_bytes && now.since(stream.moved_at) > after;
        self.streams.values().any(is_stuck)
    }

    pub(super) fn has_unread(&self) -> bool {
        self.ready > 0
    }

    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn ids(&self) -> Vec<u16> {
        self.streams.keys().copied().collect()
    }

    /// Takes a fragment that did not come before. Returns its stream if there is a message more to be read.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        tsn: u64,
        data: &Data<'_>,
    ) -> Result<Option<u16>, Malformed> {
        let Fragment { stream: id, is_unordered, .. } = data.fragment;
        let is_interleaved = self.is_interleaved;
        let stream = self.streams.entry(id).or_default();
        let message = stream.message_of(&data.fragment, is_interleaved);
        if !is_unordered && message < stream.next {
            return Err(Malformed("a fragment of a message that was whole"));
        }
        if data.payload.len() > self.message_bytes_max {
            return Err(Malformed("a message that is too long"));
        }
        if stream.is_whole_in_turn(&data.fragment, message) {
            self.take_whole(now, data);
            return Ok(Some(id));
        }
        let number = if is_interleaved { data.fragment.number.into() } else { tsn };
        let partials = if is_unordered { &mut stream.unordered } else { &mut stream.ordered };
        let leaf_bytes = if partials.is_empty() { LEAF_BYTES } else { 0 };
        let partial = partials.entry(message).or_default();
        let is_whole = partial.insert(number, data, is_interleaved)?;
        let bytes_before = stream.bytes;
        partial.leaf_bytes += leaf_bytes;
        stream.bytes += data.payload.len() + FRAGMENT_BYTES + leaf_bytes;
        if stream.since.is_none() {
            (stream.since, stream.moved_at) = (Some(now), now);
        }
        let is_of_one_message = is_interleaved || !is_unordered;
        if is_of_one_message && partial.payload_bytes > self.message_bytes_max {
            return Err(Malformed("a message that is too long"));
        }
        let before = stream.ready.len();
        if is_unordered {
            let whole =
                if is_interleaved { is_whole.then_some(None) } else { partial.run_around(number).map(Some) };
            if let Some(run) = whole {
                let message = stream.take_unordered(id, message, run);
                stream.ready_bytes += message.1;
                // Behind others of its kind, and before what is in order.
                let unordered = stream.ready.iter().take_while(|(ready, _)| ready.is_unordered).count();
                stream.ready.insert(unordered, message);
                if stream.unordered.is_empty() {
                    stream.unordered = BTreeMap::new();
                }
            }
        } else if is_whole && message == stream.next {
            stream.take_in_turn(id);
        }
        let has_more = stream.ready.len() > before;
        if has_more {
            stream.moved_at = now;
        }
        self.ready += stream.ready.len() - before;
        self.bytes = self.bytes + stream.bytes - bytes_before;
        Ok(has_more.then_some(id))
    }

    /// A message of one fragment, which nothing has to be put together for.
    fn take_whole(&mut self, now: Instant, data: &Data<'_>) {
        let Fragment { stream: id, ppid, .. } = data.fragment;
        let stream = self.streams.entry(id).or_default();
        let (before, ready_before) = (stream.bytes, stream.ready.len());
        let charge = data.payload.len() + FRAGMENT_BYTES;
        let message = Message { stream: id, ppid, is_unordered: false, bytes: data.payload.to_vec() };
        stream.ready.push_back((message, charge));
        stream.ready_bytes += charge;
        stream.bytes += charge;
        stream.next += 1;
        stream.take_in_turn(id);
        stream.since.get_or_insert(now);
        stream.moved_at = now;
        self.ready += stream.ready.len() - ready_before;
        self.bytes = self.bytes + stream.bytes - before;
    }

    pub(super) fn read(&mut self, id: u16) -> Option<Message> {
        let stream = self.streams.get_mut(&id)?;
        let (message, charge) = stream.ready.pop_front()?;
        self.ready -= 1;
        stream.ready_bytes -= charge;
        stream.bytes -= charge;
        self.bytes -= charge;
        if stream.ready.is_empty() {
            stream.ready = VecDeque::new();
        }
        if stream.bytes == 0 {
            stream.since = None;
        }
        Some(message)
    }

    /// The next message of a stream, if it is an unordered one.
    pub(super) fn read_unordered(&mut self, id: u16) -> Option<Message> {
        let is_unordered = self.streams.get(&id)?.ready.front().is_some_and(|(ready, _)| ready.is_unordered);
        if is_unordered { self.read(id) } else { None }
    }

    pub(super) fn discard(&mut self, id: u16) {
        while self.read(id).is_some() {}
    }

    pub(super) fn reset(&mut self, id: u16) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let kept = stream.ready_bytes;
        self.bytes -= stream.bytes - kept;
        if stream.ready.is_empty() {
            self.streams.remove(&id);
            return;
        }
        *stream = Stream {
            ready: core::mem::take(&mut stream.ready),
            ready_bytes: kept,
            bytes: kept,
            since: stream.since,
            moved_at: stream.moved_at,
            ..Stream::default()
        };
    }
}

impl Stream {
    /// The message that a fragment is of, with its turns.
    fn message_of(&self, fragment: &Fragment, is_interleaved: bool) -> u64 {
        match (fragment.is_unordered, is_interleaved) {
            (true, true) => fragment.message.into(),
            (true, false) => 0,
            // As far behind the next one as ahead of it, but none is before the first.
            (false, true) => {
                nearest(self.next, (fragment.message.wrapping_sub(self.next as u32) as i32).into())
            }
            (false, false) => {
                nearest(self.next, ((fragment.message as u16).wrapping_sub(self.next as u16) as i16).into())
            }
        }
    }

    /// Whether a fragment is all of the message that is next.
    fn is_whole_in_turn(&self, fragment: &Fragment, message: u64) -> bool {
        let is_whole = fragment.is_begin && fragment.is_end && !fragment.is_unordered;
        is_whole && message == self.next && !self.ordered.contains_key(&message)
    }

    /// Moves messages that are whole and in turn to those that can be read. A tree that is empty keeps a leaf, so it
    /// goes.
    fn take_in_turn(&mut self, id: u16) {
        while let Entry::Occupied(first) = self.ordered.entry(self.next) {
            if !first.get().is_whole() {
                break;
            }
            let partial = first.remove();
            self.bytes -= partial.leaf_bytes;
            let message = partial.join(id, false);
            self.ready_bytes += message.1;
            self.ready.push_back(message);
            self.next += 1;
        }
        if self.ordered.is_empty() {
            self.ordered = BTreeMap::new();
        }
    }

    /// Takes an unordered message out: all fragments under `message`, or those of a run.
    fn take_unordered(&mut self, id: u16, message: u64, run: Option<(u64, u64)>) -> (Message, usize) {
        let Some(partial) = self.unordered.get_mut(&message) else {
            return Partial::default().join(id, true);
        };
        let Some((from, to)) = run else {
            let whole = self.unordered.remove(&message).unwrap_or_default();
            self.bytes -= whole.leaf_bytes;
            return whole.join(id, true);
        };
        let whole: Vec<_> = partial.fragments.drain(partial.places(from, to)).collect();
        let payload_bytes = whole.iter().map(|(_, piece)| piece.bytes.len()).sum();
        partial.payload_bytes -= payload_bytes;
        if partial.fragments.is_empty() {
            self.bytes -= self.unordered.remove(&message).map_or(0, |empty| empty.leaf_bytes);
        }
        Partial { fragments: whole, payload_bytes, leaf_bytes: 0 }.join(id, true)
    }
}

fn nearest(next: u64, ahead: i64) -> u64 {
    next.checked_add_signed(ahead).unwrap_or(u64::MAX)
}

impl Partial {
    /// Takes a fragment; whether it is whole with that. Where no number says of which message a fragment is, it never
    /// is.
    fn insert(&mut self, number: u64, data: &Data<'_>, is_interleaved: bool) -> Result<bool, Malformed> {
        let Fragment { is_begin, is_end, is_unordered, ppid, .. } = data.fragment;
        let is_loose = is_unordered && !is_interleaved;
        let place = self.fragments.partition_point(|(held, _)| *held < number);
        if !is_loose {
            let first = self.fragments.first();
            let last = self.fragments.last();
            let is_before_begin = first.is_some_and(|(first, piece)| piece.is_begin && number <= *first);
            let is_behind_end = last.is_some_and(|(last, piece)| piece.is_end && number >= *last);
            let begins_late = is_begin && place > 0;
            let ends_early = is_end && place < self.fragments.len();
            if is_before_begin || is_behind_end || begins_late || ends_early {
                return Err(Malformed("a fragment beyond the ends of its message"));
            }
        }
        if self.fragments.get(place).is_some_and(|(held, _)| *held == number) {
            return Err(Malformed("a fragment twice with another TSN"));
        }
        if self.fragments.len() >= FRAGMENTS_MAX {
            return Err(Malformed("a message of too many fragments"));
        }
        if self.fragments.is_empty() {
            self.fragments.reserve_exact(1);
        }
        self.payload_bytes += data.payload.len();
        self.fragments
            .insert(place, (number, Piece { ppid, is_begin, is_end, bytes: data.payload.to_vec() }));
        Ok(!is_loose && self.is_whole())
    }

    fn is_whole(&self) -> bool {
        let ends = self.fragments.first().zip(self.fragments.last());
        ends.is_some_and(|((first, begin), (last, end))| {
            begin.is_begin && end.is_end && last - first + 1 == self.fragments.len() as u64
        })
    }

    /// Where fragments with these numbers and those between stand.
    fn places(&self, from: u64, to: u64) -> core::ops::Range<usize> {
        let place = |bound: u64| self.fragments.partition_point(|(held, _)| *held < bound);
        place(from)..place(to + 1)
    }

    /// From begin to end of the message that the fragment of this number is of, if all of it is here.
    fn run_around(&self, number: u64) -> Option<(u64, u64)> {
        let at = self.places(number, number).start;
        let piece = |at: usize, number: u64| self.fragments.get(at).filter(|(held, _)| *held == number);
        let (mut from, mut from_at) = (number, at);
        while !piece(from_at, from)?.1.is_begin {
            (from, from_at) = (from.checked_sub(1)?, from_at.checked_sub(1)?);
        }
        let (mut to, mut to_at) = (number, at);
        while !piece(to_at, to)?.1.is_end {
            (to, to_at) = (to + 1, to_at + 1);
        }
        Some((from, to))
    }

    /// The message of all fragments, and what it is charged with.
    fn join(self, stream: u16, is_unordered: bool) -> (Message, usize) {
        let ppid = self.fragments.first().map_or(0, |(_, piece)| piece.ppid);
        let charge = self.payload_bytes + self.fragments.len() * FRAGMENT_BYTES;
        let mut pieces = self.fragments.into_iter();
        let mut bytes = pieces.next().map(|(_, piece)| piece.bytes).unwrap_or_default();
        pieces.for_each(|(_, piece)| bytes.extend_from_slice(&piece.bytes));
        (Message { stream, ppid, is_unordered, bytes }, charge)
    }
}
