//! What came: which TSNs, what is said of them, and memory (RFC 9260, sections 6.2 and 6.5).
//!
//! No fragment takes memory beyond the limit that the owner sets:
//!
//! ```text
//!   limit = what was delivered and nobody read + fragments of messages that are not whole or not in turn
//!           each with FRAGMENT_BYTES for what it is kept in
//!   of it fragments behind a gap take three quarters, so that what fills the gap finds room
//! ```
//!
//! The window that the peer hears of is half of what is free, because it counts payload alone: whoever sends fragments
//! of twice [`FRAGMENT_BYTES`] or more does not meet the limit. Where the owner lowers that, what comes next in order
//! is taken up to the highest limit that there was: the peer was told of it, and what lies behind waits for nothing
//! else.

mod streams;

use crate::wire::Malformed;
use crate::wire::data::Data;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::ranges::RangeSet;
use heddle_utcp::segment::Range;
pub use streams::Message;
use streams::Streams;

/// What a fragment takes beside its payload: 75 for its message's place in a tree, 56 for its own in a list, 16 for
/// what an allocation takes; in a list that doubles, twice 56 and 16.
pub(crate) const FRAGMENT_BYTES: usize = 160;
/// What the first message that is not whole takes on a stream beside: a leaf of a tree has eleven places.
pub(crate) const LEAF_BYTES: usize = 640;
/// How far beyond what is missing a TSN may be: gap blocks have 16 bits.
const AHEAD_MAX: u64 = 32_768;
/// The most gaps. A peer that makes more has the rest sent again.
const GAPS_MAX: usize = 512;
/// What one SACK names at most of what came twice.
pub(crate) const DUPLICATES_TOLD_MAX: usize = 16;
/// Every second packet with fragments is acknowledged at once (RFC 9260, section 6.2).
const PACKETS_PER_ACK: u32 = 2;

/// The receiving half of an association.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// All up to this came. Numbers are TSNs with their turns above 32 bits.
    cumulative: u64,
    beyond: RangeSet,
    duplicates: Vec<u32>,
    streams: Streams,
    limit_bytes: usize,
    /// The highest limit that there was.
    told_limit_bytes: usize,
    ack_delay: Duration,
    unacknowledged: u32,
    ack_at: Option<Instant>,
    is_ack_due: bool,
    /// The window that the peer heard of last.
    told_bytes: u32,
    /// Whether the packet that is worked off brought fragments, and whether one of them asks for an answer.
    packet: (bool, bool),
}

impl Receiver {
    pub(crate) fn new(ack_delay: Duration, limit_bytes: usize, message_bytes_max: usize) -> Self {
        Receiver {
            cumulative: 0,
            beyond: RangeSet::default(),
            duplicates: Vec::new(),
            streams: Streams::new(message_bytes_max),
            limit_bytes,
            told_limit_bytes: limit_bytes,
            ack_delay,
            unacknowledged: 0,
            ack_at: None,
            is_ack_due: false,
            told_bytes: 0,
            packet: (false, false),
        }
    }

    /// The peer's first TSN, and whether its fragments are I-DATA.
    pub(crate) fn begin(&mut self, first: u32, is_interleaved: bool) {
        self.cumulative = (1 << 32) + u64::from(first) - 1;
        self.streams.set_interleaved(is_interleaved);
    }

    pub(crate) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
        self.told_limit_bytes = self.told_limit_bytes.max(limit_bytes);
    }

    /// Bytes of memory that fragments and messages take.
    pub(crate) fn bytes(&self) -> usize {
        self.streams.bytes()
    }

    /// What a stream takes of these, and since when.
    pub(crate) fn stream_bytes(&self, stream: u16) -> (usize, Option<Instant>) {
        self.streams.stream_bytes(stream)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.streams.heap_bytes() + self.beyond.heap_bytes() + self.duplicates.capacity() * size_of::<u32>()
    }

    /// The TSN up to which all came.
    pub(crate) fn cumulative(&self) -> u32 {
        self.cumulative as u32
    }

    /// The window as it is now.
    pub(crate) fn window_bytes(&self) -> u32 {
        let free = self.limit_bytes.saturating_sub(self.streams.bytes());
        u32::try_from(free / 2).unwrap_or(u32::MAX)
    }

    /// What [`Receiver::window_bytes`] says is on its way to the peer.
    pub(crate) fn on_window_told(&mut self, bytes: u32) {
        self.told_bytes = bytes;
    }

    /// Takes a fragment. Returns the stream if it has a message more to be read.
    ///
    /// # Errors
    ///
    /// When no honest peer sends this.
    pub(crate) fn on_data(&mut self, now: Instant, data: &Data<'_>) -> Result<Option<u16>, Malformed> {
        self.packet.0 = true;
        self.packet.1 |= data.fragment.is_immediate;
        let tsn = unwrap(data.tsn, self.cumulative);
        if tsn <= self.cumulative || self.beyond.holding(tsn).is_some() {
            self.packet.1 = true;
            if self.duplicates.len() < DUPLICATES_TOLD_MAX {
                self.duplicates.push(data.tsn);
            }
            return Ok(None);
        }
        let is_next = tsn == self.cumulative + 1;
        let touches = |tsn: u64| self.beyond.holding(tsn).is_some();
        let begins_gap = !is_next && !touches(tsn - 1) && !touches(tsn + 1);
        let limit = if is_next { self.told_limit_bytes } else { self.limit_bytes / 4 * 3 };
        let is_full = self.streams.bytes() + data.payload.len() + FRAGMENT_BYTES > limit;
        if is_full && is_next && !self.streams.has_unread() {
            return Err(Malformed("messages that do not end use the memory up"));
        }
        if is_full || tsn > self.cumulative + AHEAD_MAX || begins_gap && self.beyond.len() >= GAPS_MAX {
            // As if the wire had lost it. The peer hears of the window.
            self.packet.1 = true;
            return Ok(None);
        }
        let readable = self.streams.insert(now, tsn, data)?;
        if is_next && self.beyond.is_empty() {
            self.cumulative = tsn;
        } else {
            self.packet.1 = true;
            self.beyond.insert(Range::new(tsn, tsn + 1));
            if let Some(held) = self.beyond.holding(self.cumulative + 1) {
                self.cumulative = held.end - 1;
                self.beyond.remove_below(held.end);
            }
        }
        Ok(readable)
    }

    /// A packet was worked off.
    pub(crate) fn end_packet(&mut self, now: Instant) {
        let (has_fragments, is_urgent) = core::mem::take(&mut self.packet);
        if !has_fragments {
            return;
        }
        self.unacknowledged += 1;
        if is_urgent || !self.beyond.is_empty() || self.unacknowledged >= PACKETS_PER_ACK {
            self.is_ack_due = true;
        } else {
            self.ack_at.get_or_insert(now + self.ack_delay);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.ack_at.filter(|_| !self.is_ack_due)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.is_ack_due |= self.ack_at.is_some_and(|at| at <= now);
    }

    /// Whether a SACK is to leave now, and whether it may beside something else.
    pub(crate) fn wants_ack(&self) -> (bool, bool) {
        (self.is_ack_due, self.is_ack_due || self.unacknowledged > 0)
    }

    /// So many blocks at most of what came beyond the cumulative TSN, and what came twice. They are told now.
    pub(crate) fn acknowledge(&mut self, gaps_max: usize) -> (Vec<(u16, u16)>, Vec<u32>) {
        let base = self.cumulative;
        let beyond = |tsn: u64| u16::try_from(tsn - base).unwrap_or(u16::MAX);
        let block = |range: Range| (beyond(range.start), beyond(range.end - 1));
        let gaps = self.beyond.iter().take(gaps_max).map(block).collect();
        (self.unacknowledged, self.ack_at, self.is_ack_due) = (0, None, false);
        (gaps, core::mem::take(&mut self.duplicates))
    }

    /// The next message of a stream. The peer hears of the room once it is much more than it heard of last.
    pub(crate) fn read(&mut self, stream: u16) -> Option<Message> {
        let message = self.streams.read(stream)?;
        self.on_read();
        Some(message)
    }

    /// The same, if that is an unordered one.
    pub(crate) fn read_unordered(&mut self, stream: u16) -> Option<Message> {
        let message = self.streams.read_unordered(stream)?;
        self.on_read();
        Some(message)
    }

    fn on_read(&mut self) {
        let (window, quarter) = (self.window_bytes(), (self.limit_bytes / 4).min(u32::MAX as usize) as u32);
        if self.told_bytes < quarter && window >= self.told_bytes.saturating_add(quarter / 2).max(1) {
            self.is_ack_due = true;
        }
    }

    /// Drops what is unread of a stream.
    pub(crate) fn discard(&mut self, stream: u16) {
        self.streams.discard(stream);
        self.on_read();
    }

    /// The messages of a stream begin anew.
    pub(crate) fn reset(&mut self, stream: u16) {
        self.streams.reset(stream);
    }

    /// How many streams anything came on.
    pub(crate) fn streams(&self) -> usize {
        self.streams.count()
    }

    /// These streams.
    pub(crate) fn stream_ids(&self) -> Vec<u16> {
        self.streams.ids()
    }

    /// Whether fragments have waited for so long for others of their messages, or before them.
    pub(crate) fn is_stuck(&self, now: Instant, after: Duration) -> bool {
        self.streams.is_stuck(now, after)
    }

    /// Whether all up to this TSN came.
    pub(crate) fn has_all_to(&self, tsn: u32) -> bool {
        unwrap(tsn, self.cumulative) <= self.cumulative
    }
}

/// The number of 64 bits nearest to `near` that a TSN stands for.
pub(crate) fn unwrap(tsn: u32, near: u64) -> u64 {
    near.wrapping_add_signed(i64::from(tsn.wrapping_sub(near as u32) as i32))
}

#[cfg(test)]
mod tests;
