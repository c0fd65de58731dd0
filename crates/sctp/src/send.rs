//! What leaves: messages that wait on their streams, fragments under way, and what becomes of them.
//!
//! 1. [`Streams`] cuts messages into fragments, one of each stream in turn.
//! 2. Each gets a TSN and stands on the [`Board`] until all up to it is acknowledged.
//! 3. [`Rack`] finds by time what was lost; what the peer is silent of is asked for by a probe, and after a time-out
//!    all is sent again (RFC 8985 and RFC 9260, section 6.3).
//! 4. [`Window`] says how much may be under way.

mod board;
mod rack;
mod streams;
mod window;

use crate::receive::unwrap;
use crate::wire::data::{self, Data};
use crate::wire::sack::Sack;
use crate::wire::{Malformed, Writer};
use board::Board;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::SessionController;
use heddle_utcp::segment::Range;
use rack::Rack;
use streams::Streams;
use window::Window;

/// How time-outs are set (RFC 9260, section 15).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) initial: Duration,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
    /// What the peer puts acknowledgements off by.
    pub(crate) ack_delay: Duration,
}

/// A fragment that a probe sent again.
#[derive(Clone, Copy, Debug)]
struct Probed {
    tsn: u64,
    /// When it left before, and when the probe did.
    left_at: Instant,
    probed_at: Instant,
    bytes: u64,
}

/// The sending half of an association.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) streams: Streams,
    board: Board,
    rack: Rack,
    pub(crate) window: Window,
    waits: Waits,
    is_interleaved: bool,
    /// The window that the peer told last.
    peer_window: u64,
    timeout_at: Option<Instant>,
    /// Time-outs in a row, and those in a row of which the peer answered nothing at all: a shut window has one wait
    /// without end.
    timeouts: u32,
    silent: u32,
    probe_at: Option<Instant>,
    is_probe_due: bool,
    /// Whether a probe was sent since anything was acknowledged. Another one would put the time-out off again.
    has_probed: bool,
    /// What the last probe sent again, until something tells whether that was lost.
    probed: Option<Probed>,
    has_expired: bool,
    is_answered: bool,
    retransmissions: u64,
}

impl Sender {
    pub(crate) fn new(first: u32, waits: Waits, controller: Box<dyn SessionController>, mss: u64) -> Self {
        Sender {
            streams: Streams::new(),
            board: Board::new(first),
            rack: Rack::default(),
            window: Window::new(controller, mss),
            waits,
            is_interleaved: false,
            peer_window: 0,
            timeout_at: None,
            timeouts: 0,
            silent: 0,
            probe_at: None,
            is_probe_due: false,
            has_probed: false,
            probed: None,
            has_expired: false,
            is_answered: false,
            retransmissions: 0,
        }
    }

    pub(crate) fn begin(&mut self, is_interleaved: bool, peer_window: u32) {
        (self.is_interleaved, self.peer_window) = (is_interleaved, peer_window.into());
        self.streams.set_interleaved(is_interleaved);
    }

    /// Bytes of memory that messages take that wait or are under way.
    pub(crate) fn bytes(&self) -> usize {
        self.streams.queued_bytes() + self.board.bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.streams.heap_bytes() + self.board.heap_bytes()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    pub(crate) fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Time-outs in a row of which the peer answered nothing.
    pub(crate) fn silent(&self) -> u32 {
        self.silent
    }

    /// Whether nothing waits and nothing is under way.
    pub(crate) fn is_done(&self) -> bool {
        self.streams.queued_bytes() == 0 && self.board.is_empty()
    }

    /// The last TSN of which all up to it are acknowledged.
    pub(crate) fn acknowledged(&self) -> u32 {
        self.board.first().wrapping_sub(1) as u32
    }

    pub(crate) fn take_expired(&mut self) -> bool {
        core::mem::take(&mut self.has_expired)
    }

    pub(crate) fn take_answered(&mut self) -> bool {
        core::mem::take(&mut self.is_answered)
    }

    /// How long to wait for an answer now (RFC 6298, section 2).
    pub(crate) fn timeout(&self) -> Duration {
        let Waits { initial, min, max, ack_delay } = self.waits;
        let base = match self.window.round_trip() {
            None => initial,
            // As in Linux, the least time bounds what is added, because sums are hardly more than a long round trip.
            Some((smoothed, deviation)) => smoothed + (4 * deviation + ack_delay).max(min),
        };
        base.saturating_mul(1 << self.timeouts.min(16)).min(max)
    }

    /// The peer answered a question that is no fragment.
    pub(crate) fn on_answered(&mut self) {
        self.is_answered = true;
    }

    /// The peer answered something else.
    pub(crate) fn on_heard(&mut self) {
        self.silent = 0;
    }
}

/// Going out.
impl Sender {
    /// Whether the peer has room for so many bytes more. One fragment may always be under way, because only its answer
    /// tells of room again (RFC 9260, section 6.1, A).
    fn peer_takes(&self, bytes: usize) -> bool {
        let in_flight = self.board.in_flight();
        in_flight == 0 || in_flight + bytes as u64 <= self.peer_window
    }

    fn has_something(&self) -> bool {
        self.board.has_lost() && self.peer_takes(1) || self.streams.has_queued() && self.peer_takes(1)
    }

    /// Whether a packet with fragments may leave now.
    pub(crate) fn may_send(&mut self, now: Instant) -> bool {
        if self.is_probe_due {
            return true;
        }
        self.has_something() && self.window.room(now, self.board.in_flight()) > 0
    }

    /// Appends fragments to a packet of so many bytes at most. Whether there were any.
    pub(crate) fn fill(&mut self, now: Instant, writer: &mut Writer<'_>, bytes_max: usize) -> bool {
        let is_probe = core::mem::take(&mut self.is_probe_due);
        let before = writer.len();
        loop {
            let room = bytes_max.saturating_sub(writer.len());
            let is_forced = writer.is_empty();
            let is_first = writer.len() == before;
            let has_filled = match self.board.first_lost() {
                Some(tsn) if self.peer_takes(1) || is_first && is_probe => {
                    self.repair(now, tsn, writer, room, false)
                }
                Some(_) => false,
                None => self.send_new(now, writer, room, is_forced, is_probe),
            };
            if !has_filled {
                break;
            }
        }
        if is_probe
            && writer.len() == before
            && let Some((tsn, left_at, bytes)) = self.board.last_in_flight()
            && self.repair(now, tsn, writer, bytes_max.saturating_sub(writer.len()), true)
        {
            self.probed = Some(Probed { tsn, left_at, probed_at: now, bytes });
        }
        let bytes = (writer.len() - before) as u64;
        if bytes > 0 {
            self.window.on_sent(now, bytes);
            let waits = self.timeout();
            self.timeout_at.get_or_insert(now + waits);
            self.has_probed |= is_probe;
            self.arm_probe(now);
        } else if is_probe && self.board.in_flight() > 0 {
            // Something else fills this packet: the next one has it.
            self.is_probe_due = true;
        }
        bytes > 0
    }

    /// Sends a fragment again. False if there is no room for it, unless the packet has nothing else: what is too long
    /// for the path by now cannot be cut again, and is left to IP.
    fn repair(
        &mut self,
        now: Instant,
        tsn: u64,
        writer: &mut Writer<'_>,
        room: usize,
        is_probe: bool,
    ) -> bool {
        let is_forced = writer.is_empty();
        let Some((fragment, payload)) = self.board.fragment(tsn) else { return false };
        if data::chunk_len(self.is_interleaved, payload.len()) > room && !is_forced {
            return false;
        }
        let fragment = data::Fragment { is_immediate: is_probe, ..fragment };
        data::write(writer, self.is_interleaved, &Data { tsn: tsn as u32, fragment, payload });
        self.board.on_sent_again(now, tsn);
        self.retransmissions += 1;
        true
    }

    fn send_new(
        &mut self,
        now: Instant,
        writer: &mut Writer<'_>,
        room: usize,
        is_forced: bool,
        is_probe: bool,
    ) -> bool {
        if !self.peer_takes(room.min(self.streams.next_bytes())) {
            return false;
        }
        let Some((fragment, payload)) = self.streams.next_fragment(room, is_forced) else { return false };
        let tsn = self.board.next();
        let fragment = data::Fragment { is_immediate: is_probe, ..fragment };
        data::write(writer, self.is_interleaved, &Data { tsn: tsn as u32, fragment, payload: &payload });
        let bytes = data::chunk_len(self.is_interleaved, payload.len());
        self.board.push(now, fragment, payload, bytes);
        true
    }

    fn arm_probe(&mut self, now: Instant) {
        self.probe_at = None;
        let Some((smoothed, _)) = self.window.round_trip() else { return };
        if !self.has_probed && self.timeouts == 0 && !self.board.has_lost() && self.board.in_flight() > 0 {
            // Not after the time-out, which costs the window what a probe does not (RFC 8985, section 7.2).
            let asks_at = now + 2 * smoothed + self.waits.ack_delay;
            self.probe_at = Some(self.timeout_at.map_or(asks_at, |timeout_at| asks_at.min(timeout_at)));
        }
    }
}

/// What the peer says, and time.
impl Sender {
    /// Takes what the peer says of what came.
    ///
    /// # Errors
    ///
    /// When it acknowledges what was never sent.
    pub(crate) fn on_sack(&mut self, now: Instant, sack: &Sack<'_>) -> Result<(), Malformed> {
        // One that was overtaken says nothing new.
        let Some(cumulative) = self.news(sack.cumulative)? else { return Ok(()) };
        self.peer_window = sack.window_bytes.into();
        self.silent = 0;
        let has_duplicates = sack.duplicates > 0;
        self.rack.begin(has_duplicates);
        let mut acked = board::Acked::default();
        self.board.acknowledge_to(cumulative + 1, &mut acked);
        for (from, to) in sack.gaps() {
            let range = Range::new(cumulative + u64::from(from), cumulative + u64::from(to) + 1);
            self.board.acknowledge(range, &mut acked);
        }
        self.judge_probe(now, has_duplicates);
        self.on_acked(now, acked);
        Ok(())
    }

    /// What a probe sent again came. If the peer had it before, it says that it came twice, or said that it came before
    /// it could know of the probe. Otherwise it was lost, which the window has to hear (RFC 8985, section 7.4).
    fn judge_probe(&mut self, now: Instant, has_duplicates: bool) {
        let Some(probed) = self.probed.take_if(|probed| self.board.is_acknowledged(probed.tsn)) else {
            return;
        };
        let is_of_probe = self.window.min_ns().is_some_and(|min_ns| now.ns_since(probed.probed_at) >= min_ns);
        if is_of_probe && !has_duplicates {
            self.window.on_lost(now, probed.left_at, probed.bytes);
        }
    }

    /// All up to this TSN came, as a SHUTDOWN says.
    ///
    /// # Errors
    ///
    /// When that was never sent.
    pub(crate) fn on_cumulative(&mut self, now: Instant, cumulative: u32) -> Result<(), Malformed> {
        if let Some(cumulative) = self.news(cumulative)? {
            let mut acked = board::Acked::default();
            self.board.acknowledge_to(cumulative + 1, &mut acked);
            self.on_acked(now, acked);
        }
        Ok(())
    }

    /// A cumulative TSN in full, unless it was overtaken.
    fn news(&self, cumulative: u32) -> Result<Option<u64>, Malformed> {
        let first = self.board.first();
        let cumulative = unwrap(cumulative, first.wrapping_sub(1));
        if cumulative >= self.board.next() {
            return Err(Malformed("it acknowledges what was not sent"));
        }
        Ok(Some(cumulative).filter(|cumulative| cumulative + 1 >= first))
    }

    fn on_acked(&mut self, now: Instant, mut acked: board::Acked) {
        for settled in acked.settled.drain(..) {
            self.streams.on_acknowledged(settled);
        }
        let mut is_undone = false;
        if acked.bytes > 0 {
            self.is_answered = true;
            self.timeouts = 0;
            self.has_probed = false;
            is_undone = self.window.on_acked(now, acked.newest_once, acked.bytes);
        }
        if is_undone {
            self.board.find_again();
        }
        let min_ns = self.window.min_ns();
        // Where a time-out was too early, what it sent again was not yet answered.
        for delivered in acked.delivered.iter().filter(|delivered| !is_undone || delivered.times == 1) {
            self.rack.on_delivered(now, delivered, min_ns);
        }
        self.detect(now);
        if self.board.sacked_bytes() == 0 {
            self.rack.on_repaired();
        }
        if acked.bytes > 0 || acked.has_advanced {
            let timeout = self.timeout();
            self.timeout_at = (!self.board.is_empty()).then(|| now + timeout);
            self.arm_probe(now);
        }
        self.window.settle(self.board.in_flight());
    }

    /// Finds what was lost by now.
    fn detect(&mut self, now: Instant) {
        let window = self.rack.window(self.board.sacked_bytes(), self.window.mss(), &self.window);
        if let Some((newest, bytes)) = self.board.detect(now, &mut self.rack, window) {
            self.has_expired |= self.board.take_stubborn();
            self.window.on_lost(now, newest, bytes);
            self.rack.on_loss();
            self.probe_at = None;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let paced = self.window.poll_timeout().filter(|_| self.has_something());
        let probe = self.probe_at.filter(|_| !self.is_probe_due);
        [self.timeout_at, probe, self.rack.poll_timeout(), paced].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.rack.poll_timeout().is_some_and(|at| at <= now) {
            self.detect(now);
            self.window.settle(self.board.in_flight());
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            (self.probe_at, self.is_probe_due) = (None, true);
            // The probe has as long for its answer as anything that leaves now.
            self.timeout_at = Some(now + self.timeout());
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
    }

    /// Nothing was acknowledged for a whole time-out (RFC 9260, section 6.3.3).
    fn on_timeout(&mut self, now: Instant) {
        self.timeout_at = None;
        if self.board.is_empty() {
            return;
        }
        self.has_expired = true;
        (self.timeouts, self.silent) = (self.timeouts + 1, self.silent + 1);
        // A question to a shut window says nothing of the path.
        let is_shut = self.peer_window < self.window.mss() && self.board.in_flight() <= self.window.mss();
        let lost = self.board.lose_all();
        if !is_shut {
            self.window.on_stall(now, lost);
        }
        self.rack.forget_timer();
        (self.probe_at, self.is_probe_due, self.probed) = (None, false, None);
        let timeout = self.timeout();
        self.timeout_at = Some(now + timeout);
        self.window.settle(self.board.in_flight());
    }

    /// The path was gone and is back: nothing waits for its time-out.
    pub(crate) fn on_path_back(&mut self, now: Instant) {
        self.timeouts = 0;
        let lost = self.board.lose_all();
        self.window.on_path_back(now, lost);
        self.rack.forget_timer();
        self.window.settle(self.board.in_flight());
        let timeout = self.timeout();
        self.timeout_at = (!self.board.is_empty()).then(|| now + timeout);
    }
}
