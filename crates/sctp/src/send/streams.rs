//! Messages that wait on their streams, and whose turn it is.
//!
//! Streams take turns by fragments where the peer has I-DATA, so that a message never waits for another stream's rest;
//! else by messages (RFC 8260, section 3.4: round robin).

use crate::wire::data::{self, Fragment};
use std::collections::{BTreeMap, VecDeque};

/// What a message takes beside its bytes.
const MESSAGE_BYTES: usize = size_of::<Waiting>() + 16;
/// A shorter piece of a message does not leave by itself: its head would be a quarter of it.
const PIECE_BYTES_MIN: usize = 80;

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    ppid: u32,
    is_unordered: bool,
    /// Fragments that have left, and bytes of them.
    number: u32,
    begin: usize,
}

/// Where a stream stands with its reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reset {
    #[default]
    No,
    /// What was sent before is still under way.
    Wanted,
    /// The peer was asked; nothing is sent before it has answered.
    Asked,
}

#[derive(Debug, Default)]
struct Stream {
    waiting: VecDeque<Waiting>,
    /// What was written after its reset was asked for.
    held: VecDeque<Waiting>,
    queued_bytes: usize,
    /// Payload that is under way.
    sent_bytes: usize,
    next: [u32; 2],
    is_in_line: bool,
    reset: Reset,
    /// Whether it is to be reset once more after that.
    is_reset_again: bool,
}

/// All streams that were written on since their last reset.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: BTreeMap<u16, Stream>,
    line: VecDeque<u16>,
    is_interleaved: bool,
    queued_bytes: usize,
    messages: usize,
    /// Streams that can be reset now.
    settled: VecDeque<u16>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Streams {
            streams: BTreeMap::new(),
            line: VecDeque::new(),
            is_interleaved: false,
            queued_bytes: 0,
            messages: 0,
            settled: VecDeque::new(),
        }
    }

    pub(super) fn set_interleaved(&mut self, is_interleaved: bool) {
        self.is_interleaved = is_interleaved;
    }

    /// Bytes of what waits, with what it is kept in.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes + self.messages * MESSAGE_BYTES
    }

    /// Messages that wait, whole or in part.
    pub(crate) fn queued_messages(&self) -> usize {
        self.messages
    }

    /// Bytes that a stream has here: what waits and what is under way.
    pub(crate) fn stream_bytes(&self, id: u16) -> usize {
        self.streams.get(&id).map_or(0, |stream| {
            let messages = stream.waiting.len() + stream.held.len();
            stream.queued_bytes + stream.sent_bytes + messages * MESSAGE_BYTES
        })
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.streams.len() * (size_of::<Stream>() + 8) * 11 / 6
            + (self.line.capacity() + self.settled.capacity()) * size_of::<u16>()
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.line.is_empty()
    }

    /// Bytes of the next fragment, if it is not cut.
    pub(super) fn next_bytes(&self) -> usize {
        let stream = self.line.front().and_then(|id| self.streams.get(id));
        let waiting = stream.and_then(|stream| stream.waiting.front());
        waiting.map_or(0, |waiting| data::chunk_len(self.is_interleaved, waiting.bytes.len() - waiting.begin))
    }

    /// Takes a message.
    pub(crate) fn write(&mut self, id: u16, bytes: Vec<u8>, ppid: u32, is_unordered: bool) {
        let stream = self.streams.entry(id).or_default();
        self.queued_bytes += bytes.len();
        stream.queued_bytes += bytes.len();
        self.messages += 1;
        let message = Waiting { bytes, ppid, is_unordered, number: 0, begin: 0 };
        if stream.reset != Reset::No {
            return stream.held.push_back(message);
        }
        stream.waiting.push_back(message);
        if !core::mem::replace(&mut stream.is_in_line, true) {
            self.line.push_back(id);
        }
    }

    /// The next fragment in turn, whose chunk takes `room` at most. `is_forced` is whether it may be as short as it
    /// likes, because nothing else is in its packet.
    pub(super) fn next_fragment(&mut self, room: usize, is_forced: bool) -> Option<(Fragment, Vec<u8>)> {
        let id = *self.line.front()?;
        let stream = self.streams.get_mut(&id)?;
        let waiting = stream.waiting.front_mut()?;
        // A chunk is filled up to a multiple of four.
        let payload_max = (room & !3).saturating_sub(data::head_len(self.is_interleaved));
        let rest = waiting.bytes.len() - waiting.begin;
        let count = rest.min(payload_max);
        if count == 0 || count < rest && count < PIECE_BYTES_MIN && !is_forced {
            return None;
        }
        let is_end = count == rest;
        let message = &mut stream.next[usize::from(waiting.is_unordered)];
        let number = if self.is_interleaved { *message } else { u32::from(*message as u16) };
        let fragment = Fragment {
            stream: id,
            message: if waiting.is_unordered && !self.is_interleaved { 0 } else { number },
            number: waiting.number,
            ppid: waiting.ppid,
            is_begin: waiting.begin == 0,
            is_end,
            is_unordered: waiting.is_unordered,
            is_immediate: false,
        };
        let payload = if waiting.begin == 0 && is_end {
            core::mem::take(&mut waiting.bytes)
        } else {
            waiting.bytes[waiting.begin..waiting.begin + count].to_vec()
        };
        (waiting.begin, waiting.number) = (waiting.begin + count, waiting.number + 1);
        self.queued_bytes -= count;
        stream.queued_bytes -= count;
        stream.sent_bytes += count;
        if is_end {
            *message = message.wrapping_add(1);
            stream.waiting.pop_front();
            self.messages -= 1;
        }
        self.after_turn(id, is_end);
        Some((fragment, payload))
    }

    fn after_turn(&mut self, id: u16, is_end: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.waiting.is_empty() {
            stream.is_in_line = false;
            stream.waiting = VecDeque::new();
            self.line.pop_front();
        } else if is_end || self.is_interleaved {
            self.line.rotate_left(1);
        }
    }

    /// So many payload bytes of a stream are no longer under way.
    pub(super) fn on_acknowledged(&mut self, (id, bytes): (u16, usize)) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.sent_bytes -= bytes.min(stream.sent_bytes);
        self.note_settled(id);
    }

    fn note_settled(&mut self, id: u16) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.reset == Reset::Wanted && stream.sent_bytes == 0 && !stream.is_in_line {
            stream.reset = Reset::Asked;
            self.settled.push_back(id);
        }
    }

    /// Drops what waits of a stream, but for the rest of a message of which a part has left.
    pub(crate) fn discard(&mut self, id: u16) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let is_cut = stream.waiting.front().is_some_and(|waiting| waiting.begin > 0);
        let mut dropped: Vec<Waiting> = stream.waiting.drain(usize::from(is_cut)..).collect();
        dropped.extend(stream.held.drain(..));
        let bytes: usize = dropped.iter().map(|waiting| waiting.bytes.len()).sum();
        stream.queued_bytes -= bytes;
        self.queued_bytes -= bytes;
        self.messages -= dropped.len();
        if stream.waiting.is_empty() && core::mem::take(&mut stream.is_in_line) {
            self.line.retain(|waiting| *waiting != id);
        }
        self.note_settled(id);
    }

    /// Has a stream begin anew after what was written on it. What is written later waits for that.
    pub(crate) fn reset(&mut self, id: u16) {
        let stream = self.streams.entry(id).or_default();
        if stream.reset == Reset::No {
            stream.reset = Reset::Wanted;
            self.note_settled(id);
        } else {
            stream.is_reset_again = true;
        }
    }

    /// Streams that the peer can be asked to reset, some at a time.
    pub(crate) fn take_settled(&mut self, count_max: usize) -> Vec<u16> {
        let count = self.settled.len().min(count_max);
        self.settled.drain(..count).collect()
    }

    pub(crate) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// The peer has reset a stream.
    pub(crate) fn on_reset(&mut self, id: u16) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let is_reset_again = core::mem::take(&mut stream.is_reset_again);
        if stream.held.is_empty() && !is_reset_again {
            self.streams.remove(&id);
            return;
        }
        stream.waiting = core::mem::take(&mut stream.held);
        stream.reset = if is_reset_again { Reset::Wanted } else { Reset::No };
        (stream.next, stream.is_in_line) = ([0; 2], !stream.waiting.is_empty());
        if stream.is_in_line {
            self.line.push_back(id);
        }
        self.note_settled(id);
    }
}
