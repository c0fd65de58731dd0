//! Reassembly, SACK blocks and the window.
//!
//! ```text
//!   read            next                       edge
//!    │ to be read    │ holes and out of order    │
//!  ──┴───────────────┴───────────────────────────┴──▶ sequence numbers
//! ```
//!
//! Nothing beyond the edge is kept, the edge never moves back (what is offered may, for want of memory), and there are
//! at most [`RANGES_FREE`] ranges out of order and one more for each [`RANGE_BYTES`] kept in them: that and the pool
//! bound what a peer can make us hold.

use super::acks::Acks;
use super::autotune::Autotune;
use crate::buffer::StreamBuffer;
use crate::options::Options;
use crate::pool::{BufferPool, Half, Purpose};
use crate::ranges::RangeSet;
use crate::segment::{Range, SackBlocks};
use crate::time::Instant;

/// How many ranges out of order there may be, however short.
const RANGES_FREE: u64 = 1024;
/// So many bytes out of order allow one more: a slow start that overruns the queue of a long wire leaves thousands of
/// holes, and what is not kept then has to come again. A range takes a thirty-second of this in memory.
const RANGE_BYTES: u64 = 512;
/// How many arrivals are remembered for the order of SACK blocks.
const RECENT: usize = 4;

/// What a segment's payload was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Whether `next` moved.
    pub advanced: bool,
    /// Whether an acknowledgement has to say more than usual, at once.
    pub is_unusual: bool,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The next sequence number expected.
    pub(crate) next: u64,
    /// The next to be read.
    read: u64,
    /// The first of all.
    first: u64,
    /// The first that was never offered.
    edge: u64,
    /// The first that the last acknowledgement did not offer. It lies before the edge where the pool has become short.
    offered: u64,
    /// The receive buffer at the start.
    initial_bytes: u64,
    buffer: StreamBuffer,
    /// Ranges above `next`.
    pending: RangeSet,
    /// Where the peer's FIN stands.
    fin: Option<u64>,
    is_finished: bool,
    recent: [u64; RECENT],
    duplicate: Option<Range>,
    pub(crate) acks: Acks,
    pub(crate) tune: Autotune,
    /// What comes in whole units of so many bytes is kept and acknowledged in such.
    unit: u64,
    /// How far windows are shifted on the wire.
    pub(crate) shift: u8,
    /// The last data in order found no memory, and nothing was read or taken since.
    is_refused: bool,
    /// Nobody will read: what comes is counted and dropped.
    pub(crate) is_discarding: bool,
}

impl Receiver {
    /// A receiver before the peer's SYN.
    pub(crate) fn new(pool: BufferPool, options: &Options, now: Instant) -> Self {
        Receiver {
            next: 0,
            read: 0,
            first: 0,
            edge: 0,
            offered: 0,
            initial_bytes: u64::from(options.receive_buffer_initial_bytes),
            buffer: StreamBuffer::new(pool, Half::Received, 0),
            pending: RangeSet::default(),
            fin: None,
            is_finished: false,
            recent: [0; RECENT],
            duplicate: None,
            acks: Acks::new(0),
            tune: Autotune::new(options, now, 0),
            unit: u64::from(options.unit_bytes),
            shift: 0,
            is_refused: false,
            is_discarding: false,
        }
    }

    /// The peer's first byte will stand at `first`.
    pub(crate) fn begin(&mut self, first: u64, options: &Options, now: Instant) {
        self.next = first;
        self.read = first;
        self.first = first;
        self.edge = first + u64::from(options.receive_buffer_initial_bytes.min(u32::from(u16::MAX)));
        self.offered = self.edge;
        self.buffer.restart(first);
        self.acks = Acks::new(first);
        self.tune = Autotune::new(options, now, first);
    }

    /// The first sequence number that was not offered.
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        (self.next - self.read) as usize - usize::from(self.is_finished)
    }

    /// Whether the peer's FIN was reached.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Up to where bytes were read, and up to where some came.
    pub(crate) fn kept(&self) -> (u64, u64) {
        (self.read, self.pending.end().unwrap_or(self.next - u64::from(self.is_finished)))
    }

    /// Bytes of the pool, of what came in order and of what did not.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.buffer.pool_bytes()
    }

    /// Bytes beside the pool's.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.buffer.heap_bytes() + self.pending.heap_bytes()
    }

    /// Takes the payload at `seq`. What is next in order and finds nothing unread before it goes to `sink` first, which
    /// says how much of it it took.
    pub(crate) fn on_payload(
        &mut self,
        seq: u64,
        payload: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Arrival {
        let whole = Range::new(seq, seq + payload.len() as u64);
        let wanted = Range::new(whole.start.max(self.next), whole.end.min(self.edge));
        if whole.is_empty() {
            return Arrival::default();
        }
        if wanted.is_empty() {
            self.note_duplicate(whole, self.next);
            return Arrival { advanced: false, is_unusual: true };
        }
        if self.fin.is_some_and(|fin| wanted.end > fin) || self.is_finished {
            return Arrival { advanced: false, is_unusual: true };
        }
        let bytes = &payload[(wanted.start - seq) as usize..(wanted.end - seq) as usize];
        if whole.start < self.next {
            self.note_duplicate(whole, self.next);
        }
        if wanted.start > self.next {
            self.keep(wanted, bytes);
            return Arrival { advanced: false, is_unusual: true };
        }
        let filled_hole = !self.pending.is_empty();
        let advanced = self.take_in_order(bytes, sink);
        Arrival { advanced, is_unusual: filled_hole || whole.start < wanted.start || self.is_refused }
    }

    fn take_in_order(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8]) -> usize) -> bool {
        let before = self.next;
        let mut taken = 0;
        if self.is_discarding {
            taken = bytes.len();
        } else if self.read == self.next && self.pending.is_empty() {
            taken = sink(bytes).min(bytes.len());
        }
        if taken > 0 {
            self.read += taken as u64;
            self.next = self.read;
            self.buffer.advance(self.read);
        }
        let rest = &bytes[taken..];
        // Without what fills a hole, what lies behind it stays; and nobody can read a connection that could not begin.
        let is_urgent = !self.pending.is_empty() || self.next == self.first;
        let purpose = if is_urgent { Purpose::AtOnce } else { Purpose::InOrder };
        let written = self.buffer.write(self.next, rest, purpose);
        self.is_refused = written < rest.len();
        self.next += self.whole(written, rest.len());
        if let Some(held) = self.pending.holding(self.next) {
            self.next = held.end;
        }
        self.pending.remove_below(self.next);
        if self.is_discarding {
            self.read = self.next;
            self.buffer.advance(self.read);
        }
        self.next > before
    }

    /// How much of `len` bytes counts as received if the pool had room for `written`.
    fn whole(&self, written: usize, len: usize) -> u64 {
        let written_bytes = written as u64;
        if written == len { written_bytes } else { written_bytes - written_bytes % self.unit }
    }

    /// Keeps a range out of order.
    fn keep(&mut self, range: Range, bytes: &[u8]) {
        if let Some(gap) = self.pending.first_gap(range) {
            let touches = self.pending.holding(range.start).is_some()
                || self.pending.holding(range.end).is_some()
                || range.start > 0 && self.pending.holding(range.start - 1).is_some();
            let most = RANGES_FREE + self.pending.total() / RANGE_BYTES;
            if self.pending.len() as u64 >= most && !touches {
                return;
            }
            // What is there already is written again with the same bytes, unless the peer contradicts itself.
            debug_assert!(gap.start >= self.next);
            let written = self.buffer.write(range.start, bytes, Purpose::OutOfOrder);
            let written = self.whole(written, bytes.len());
            self.pending.insert(Range::new(range.start, range.start + written));
        } else {
            self.duplicate = Some(range);
        }
        self.remember(range.start);
    }

    /// Moves the range that holds `at` to the front of those to report, so that each is named once.
    fn remember(&mut self, at: u64) {
        let range = self.pending.holding(at).unwrap_or(Range::new(at, at + 1));
        let known = self.recent.iter().position(|recent| range.start <= *recent && *recent < range.end);
        self.recent[..=known.unwrap_or(RECENT - 1)].rotate_right(1);
        self.recent[0] = at;
    }

    /// Whether there is anything for SACK blocks to say.
    pub(crate) fn has_sack_blocks(&self) -> bool {
        self.duplicate.is_some() || !self.pending.is_empty()
    }

    /// Payload came that lies wholly below what was acknowledged.
    pub(crate) fn note_old(&mut self, seq: u64, len: usize) {
        self.note_duplicate(Range::new(seq, seq + len as u64), self.next);
    }

    fn note_duplicate(&mut self, whole: Range, below: u64) {
        let duplicate = Range::new(whole.start, whole.end.min(below));
        if !duplicate.is_empty() {
            self.duplicate = Some(duplicate);
        }
    }

    /// The peer's FIN stands at `at`. Gives whether it is reached now.
    pub(crate) fn on_fin(&mut self, at: u64) -> bool {
        if self.is_finished
            || at < self.next
            || at > self.edge
            || self.pending.end().is_some_and(|end| end > at)
        {
            return false;
        }
        let fin = *self.fin.get_or_insert(at);
        self.reach_fin(fin)
    }

    /// Whether the FIN that is known is reached now, for the first time.
    pub(crate) fn reach_known_fin(&mut self) -> bool {
        self.fin.is_some_and(|fin| self.reach_fin(fin))
    }

    fn reach_fin(&mut self, fin: u64) -> bool {
        let reached = !self.is_finished && self.next == fin;
        if reached {
            self.is_finished = true;
            self.next += 1;
        }
        reached
    }

    /// Copies bytes in order to `into` and gives how many.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut count = 0;
        while count < into.len() && self.readable() > 0 {
            let left = self.readable().min(into.len() - count);
            let piece = self.buffer.peek(self.read, left);
            let len = piece.len();
            into[count..count + len].copy_from_slice(piece);
            count += len;
            self.consume(len);
        }
        count
    }

    /// Whether data in order found no memory. The application is there to read now, so it is worth another try.
    pub(crate) fn take_refusal(&mut self) -> bool {
        core::mem::take(&mut self.is_refused)
    }

    /// The first bytes that can be read, as far as they lie together in memory.
    pub(crate) fn peek(&self) -> &[u8] {
        self.buffer.peek(self.read, self.readable())
    }

    /// Takes bytes off that [`peek`](Self::peek) gave.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.read += bytes.min(self.readable()) as u64;
        self.buffer.advance(self.read);
        if self.readable() == 0 && self.pending.is_empty() {
            self.buffer.clear();
        }
    }

    /// Gives up everything that was received.
    pub(crate) fn discard(&mut self) {
        self.is_discarding = true;
        self.consume(self.readable());
    }

    /// The application has read. Grows the buffer to what that asks for, unless the pool is short: then no window grows
    /// any more, which is all that other connections' memory ever does to this one's.
    pub(crate) fn resize(&mut self, now: Instant, mss: u64, max_bytes: u64) {
        if let Some(wanted) = self.tune.on_read(now, self.read, mss, max_bytes)
            && !self.buffer.pool().is_short()
        {
            self.tune.limit_bytes = wanted;
        }
    }

    /// The window that is offered now, without committing to it: a multiple of the scale.
    pub(crate) fn window(&self, full_segment: u64) -> u64 {
        let unit = 1 << self.shift;
        let free = self.free_bytes();
        let offered = self.offered.saturating_sub(self.next);
        let most = u64::from(u16::MAX) * unit;
        // An offer is taken back for want of memory alone, and grows in steps that are worth a segment (RFC 9293,
        // section 3.8.6.2.2).
        let step = full_segment.min(self.tune.limit_bytes / 2);
        let grown = free / unit * unit;
        let kept = offered.div_ceil(unit) * unit;
        let window = if grown >= offered + step {
            grown
        } else if kept <= free {
            kept
        } else {
            // Rounded up with every acknowledgement, the edge would go along with short segments that nobody reads.
            offered.min(free) / unit * unit
        };
        window.min(most)
    }

    /// What may come beyond what has. Where the session holds much that is not read, it is less than the buffer has
    /// room for: a peer that was offered more stops sending before what it sends has to be dropped, which it would take
    /// for congestion. What has come by then is taken. Who reads everything needs next to no memory, and keeps what
    /// there was at the start, until something finds no memory nevertheless.
    fn free_bytes(&self) -> u64 {
        let unread = self.next - self.read;
        let least = if unread == 0 && !self.is_refused { self.initial_bytes } else { 0 };
        self.tune.limit_bytes.saturating_sub(unread).min(self.buffer.pool().window_bytes().max(least))
    }

    /// The window that a segment carries now.
    pub(crate) fn offer(&mut self, full_segment: u64) -> u64 {
        let window = self.window(full_segment);
        self.offered = self.next + window;
        self.edge = self.edge.max(self.offered);
        self.acks.on_sent(self.next);
        window
    }

    /// Whether reading made so much room that the peer should hear of it.
    pub(crate) fn is_update_due(&self, full_segment: u64) -> bool {
        let offered = self.offered.saturating_sub(self.next);
        let window = self.window(full_segment);
        window > offered && window >= 2 * offered
    }

    /// The blocks of the next acknowledgement: a duplicate first (RFC 2883), then the latest arrivals (RFC 2018).
    pub(crate) fn sack_blocks(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::NONE;
        if let Some(duplicate) = self.duplicate.take() {
            blocks.push(duplicate);
            // A duplicate inside a range out of order is followed by that range.
            if let Some(around) = self.pending.holding(duplicate.start) {
                blocks.push(around);
            }
        }
        let first_new = usize::from(!blocks.as_slice().is_empty());
        for at in self.recent {
            if let Some(range) = self.pending.holding(at)
                && !blocks.as_slice()[first_new.min(blocks.as_slice().len())..].contains(&range)
            {
                blocks.push(range);
            }
        }
        if blocks.as_slice().len() == first_new
            && let Some(range) = self.pending.first()
        {
            blocks.push(range);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_segment_of_a_large_window_is_kept() {
        const SEGMENT: u64 = 1000;
        const HOLES: u64 = 6000;
        let options = Options { receive_buffer_initial_bytes: 16 << 20, ..Options::default() };
        let mut receiver = Receiver::new(BufferPool::new(64 << 20), &options, Instant::ZERO);
        receiver.begin(1, &options, Instant::ZERO);
        receiver.shift = 9;
        receiver.offer(SEGMENT);
        let mut take = |number: u64| {
            receiver.on_payload(1 + SEGMENT * number, &[0; SEGMENT as usize], &mut |_| 0);
            receiver.next
        };
        (0..HOLES).for_each(|number| assert_eq!(take(2 * number + 1), 1));
        for number in 0..HOLES {
            assert_eq!(take(2 * number), 1 + 2 * SEGMENT * (number + 1));
        }
    }
}
