//! One of the connections that circuits share, at one end.

use super::frame::{FRAME_LEN, Frame};
use crate::connections::circuits::CircuitKey;
use heddle_seam::time::Instant;
use heddle_utcp::compact::{FlowId, Mux};

/// Bytes that are read of a connection at once, where they did not come in order.
const READ_BYTES: usize = 8 * FRAME_LEN;
/// Bytes that are taken from TCP as they come, before the relay reads them.
const UNREAD_BYTES_MAX: usize = 64 * 1024;
/// Circuits are told that they may send when so many bytes would leave promptly.
const PROMPT_BYTES: usize = 4 * FRAME_LEN;

#[derive(Default)]
pub(super) struct Lane {
    /// Its connection, once the dialler has opened it.
    pub(super) id: Option<FlowId>,
    /// Whether the frame that opens it was written, or read.
    pub(super) is_open: bool,
    unread: Bytes,
    unwritten: Bytes,
    /// Frames that reading brought about and that may be among what TCP did not take.
    owed_frames: usize,
    /// Circuits that wait to hear that they may send.
    blocked: Vec<CircuitKey>,
    /// Whether it stands among those that may have frames, and how many it gave in its turn.
    pub(super) is_queued: bool,
    pub(super) turn_frames: u32,
    /// Whether its next frame waits for another connection.
    pub(super) waits: bool,
}

/// Bytes that come behind and go in front.
#[derive(Default)]
struct Bytes {
    bytes: Vec<u8>,
    begin: usize,
}

impl Bytes {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    /// The first of them go. What has gone is dropped before it is more than what has not.
    fn advance(&mut self, len: usize) {
        self.begin += len;
        if self.begin == self.bytes.len() {
            (self.bytes, self.begin) = (Vec::new(), 0);
        } else if self.begin > self.bytes.len() / 2 {
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
    }
}

/// Coming in.
impl Lane {
    /// Whether it takes bytes as they come: there is room for them, and somebody waits for them.
    pub(super) fn has_room(&self) -> bool {
        !self.waits && self.unread.rest().len() < UNREAD_BYTES_MAX
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.unread.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if all of it is here.
    pub(super) fn frame(&mut self, now: Instant, mux: &mut Mux) -> Option<Frame> {
        if self.unread.rest().len() < FRAME_LEN
            && let Some(id) = self.id
        {
            let mut read = [0; READ_BYTES];
            let count = mux.read(now, id, &mut read);
            self.unread.bytes.extend_from_slice(&read[..count]);
        }
        self.unread.rest().first_chunk().copied()
    }

    /// It is worked off.
    pub(super) fn advance(&mut self) {
        self.unread.advance(FRAME_LEN);
    }

    /// Whether the peer has ended it, and nothing is left to be read.
    pub(super) fn is_at_end(&self, mux: &Mux) -> bool {
        self.id.and_then(|id| mux.get(id)).is_some_and(|connection| connection.is_eof())
    }

    /// What is kept of what came takes so much.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unread.bytes.capacity()
    }
}

/// Going out.
impl Lane {
    /// Writes a frame, or keeps what TCP does not take of it.
    pub(super) fn write(&mut self, mux: &mut Mux, frame: &Frame) {
        let is_first = self.unwritten.rest().is_empty();
        let taken = self.id.filter(|_| is_first).map_or(0, |id| mux.write(id, frame));
        self.unwritten.bytes.extend_from_slice(&frame[taken..]);
    }

    /// Writes a frame that reading brought about.
    pub(super) fn answer(&mut self, mux: &mut Mux, frame: &Frame) {
        self.write(mux, frame);
        self.owed_frames += 1;
        self.forget_owed();
    }

    /// Writes what was kept.
    pub(super) fn flush(&mut self, mux: &mut Mux) {
        if let Some(id) = self.id.filter(|_| !self.unwritten.rest().is_empty()) {
            let taken = mux.write(id, self.unwritten.rest());
            self.unwritten.advance(taken);
            self.forget_owed();
        }
    }

    fn forget_owed(&mut self) {
        if self.unwritten.rest().is_empty() {
            self.owed_frames = 0;
        }
    }

    pub(super) fn unwritten_bytes(&self) -> usize {
        self.unwritten.rest().len()
    }

    pub(super) fn owed_frames(&self) -> usize {
        self.owed_frames
    }

    /// Whether another frame would leave promptly. Otherwise an event of the connection follows when it would.
    pub(super) fn is_prompt(&self, mux: &mut Mux) -> bool {
        let Some(id) = self.id else { return false };
        if !self.unwritten.rest().is_empty() {
            return false;
        }
        let is_prompt = mux.promptly(id) >= FRAME_LEN;
        if !is_prompt {
            mux.await_room(id, PROMPT_BYTES);
        }
        is_prompt
    }

    /// Whether it keeps what TCP has room for, and lacked memory for.
    pub(super) fn is_starved(&self, mux: &Mux) -> bool {
        !self.unwritten.rest().is_empty() && self.id.is_some_and(|id| mux.capacity(id) > 0)
    }

    pub(super) fn block(&mut self, key: CircuitKey) {
        self.blocked.push(key);
    }

    pub(super) fn unblock(&mut self) -> Vec<CircuitKey> {
        core::mem::take(&mut self.blocked)
    }

    /// Bytes of all this on the heap, but for what counts with what came.
    pub(super) fn heap_bytes(&self) -> usize {
        self.unwritten.bytes.capacity() + self.blocked.capacity() * size_of::<CircuitKey>()
    }
}
