//! A connection: the state machine of RFC 9293 around a sender and a receiver.
//!
//! ```text
//!             connect: SYN ▶                       accept: ◀ SYN
//!   Closed ───────────────▶ SynSent ──◀ SYN──▶ SynReceived ◀──── Closed
//!                              │ ◀ SYN, ACK        │ ◀ ACK
//!                              ▼                   ▼
//!            ┌──────────── Established ──────────────────┐
//!            │ shutdown: FIN ▶                           │ ◀ FIN
//!            ▼                                           ▼
//!        FinWait1 ──◀ FIN──▶ Closing                 CloseWait
//!            │ ◀ ACK            │ ◀ ACK                  │ shutdown: FIN ▶
//!            ▼                  ▼                        ▼
//!        FinWait2 ──◀ FIN──▶ TimeWait ──time──▶ Closed ◀── LastAck (◀ ACK)
//! ```
//!
//! From every state a reset, an abort or a time-out leads to Closed. The loop of a driver:
//!
//! 1. [`handle_segment`](Connection::handle_segment) for what came, [`handle_timeout`](Connection::handle_timeout) when
//!    the time is there, [`write`](Connection::write), [`read`](Connection::read) and so on for the application.
//! 2. [`poll_transmit`](Connection::poll_transmit) until it gives nothing.
//! 3. [`poll_timeout`](Connection::poll_timeout), which is valid until the next call of anything else.

mod acks;
mod granted;
mod handshake;
mod input;
mod output;
mod state;
mod timers;

pub use crate::send::Counts;
pub(crate) use handshake::reset_for;
pub use state::{CloseReason, State};

use crate::buffer::StreamBuffer;
use crate::congestion::CongestionController;
use crate::options::Options;
use crate::pool::{BufferPool, Half, Purpose};
use crate::receive::Receiver;
use crate::segment::{Header, Range, SEQUENCE_BASE};
use crate::send::Sender;
use crate::time::Instant;
use std::sync::Arc;

/// The lowest size of the send buffer, so that a small window does not make small writes.
const SEND_BUFFER_MIN_BYTES: u64 = 64 << 10;

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    options: Arc<Options>,
    state: State,
    close_reason: Option<CloseReason>,
    /// Our initial sequence number; the SYN stands there and the first byte behind it.
    iss: u64,
    sender: Sender,
    send_buffer: StreamBuffer,
    /// Where the next written byte will stand; after `shutdown`, where the FIN stands.
    write_end: u64,
    fin_queued: bool,
    receiver: Receiver,
    peer: Peer,
    clock: TimestampClock,
    ecn: EcnState,
    signals: Signals,
    timers: timers::Timers,
}

/// What the peer offers.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// The peer's initial sequence number.
    irs: u64,
    /// How far the windows of the peer's segments are shifted on the wire.
    shift: u8,
    /// How many bytes beyond `una` it takes.
    window: u64,
    window_max: u64,
    /// The segment that the window came with: its sequence number and its acknowledgement.
    window_seq: u64,
    window_ack: u64,
}

/// The timestamps of a connection.
#[derive(Clone, Copy, Debug)]
struct TimestampClock {
    enabled: bool,
    /// What is added to our clock on the wire, so that it does not tell how long we run.
    offset: u32,
    /// The peer's clock, to be echoed.
    recent: u32,
    recent_at: Instant,
}

/// Explicit congestion notification.
#[derive(Clone, Copy, Debug, Default)]
struct EcnState {
    enabled: bool,
    /// The peer has to hear of a mark until it says that it reacted.
    echo: bool,
}

/// Segments to be sent beside data.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    /// A reset with this code.
    reset: Option<(Header, u8)>,
    /// The SYN once more, with or without ACK.
    syn_again: bool,
    /// A question to the peer: a segment below what it expects.
    question: bool,
    /// Data that the peer's window holds back is sent as far as it fits.
    force: bool,
    /// The application waits until the peer's window has room for so many bytes, and has written nothing meanwhile.
    awaited_bytes: u64,
}

impl Connection {
    /// Opens a connection. The SYN waits in `poll_transmit`.
    ///
    /// `random` is the caller's: its lower half becomes the initial sequence number (see RFC 6528 for how to choose
    /// it), its upper half the offset of the timestamps. The options must be valid.
    pub fn connect(now: Instant, options: Arc<Options>, pool: &BufferPool, random: u64) -> Self {
        Self::new(now, options, pool, random, State::SynSent)
    }

    fn new(now: Instant, options: Arc<Options>, pool: &BufferPool, random: u64, state: State) -> Self {
        let iss = SEQUENCE_BASE + (random & 0xffff_ffff);
        let mut receiver = Receiver::new(pool.clone(), &options, now);
        receiver.shift = window_shift(&options);
        Connection {
            sender: Sender::new(&options, iss),
            send_buffer: StreamBuffer::new(pool.clone(), Half::Written, iss + 1),
            write_end: iss + 1,
            fin_queued: false,
            receiver,
            peer: Peer::default(),
            clock: TimestampClock {
                enabled: options.timestamps,
                offset: (random >> 32) as u32,
                recent: 0,
                recent_at: now,
            },
            ecn: EcnState::default(),
            signals: Signals::default(),
            timers: timers::Timers::default(),
            close_reason: None,
            options,
            state,
            iss,
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection is closed, once it is.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// Whether nothing will happen any more.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed && self.signals.reset.is_none()
    }
}

/// The application's side.
impl Connection {
    /// Queues bytes to be sent and gives how many were taken: see [`capacity`](Self::capacity). None after `shutdown`.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let room = self.capacity().min(bytes.len());
        let written = self.send_buffer.write(self.write_end, &bytes[..room], Purpose::Write);
        self.write_end += written as u64;
        written
    }

    /// Like [`write`](Self::write), but takes whole units of so many bytes only.
    pub(crate) fn write_units(&mut self, bytes: &[u8], unit: usize) -> usize {
        let room = self.capacity().min(bytes.len());
        let room = room - room % unit;
        let begin = self.write_end;
        let written = self.send_buffer.write(begin, &bytes[..room], Purpose::Write);
        // Where the pool ran out inside a unit, that part is written over by the next call.
        let whole = written - written % unit;
        self.write_end += whole as u64;
        whole
    }

    /// How many bytes `write` would take now, if the pool has them.
    ///
    /// The send buffer is as large as two congestion windows, at least 64 KiB and at most `send_buffer_max_bytes`.
    pub fn capacity(&self) -> usize {
        if self.fin_queued || !self.state.may_write() {
            return 0;
        }
        let limit = (2 * self.sender.controller().window_bytes())
            .max(SEND_BUFFER_MIN_BYTES)
            .min(u64::from(self.options.send_buffer_max_bytes));
        limit.saturating_sub(self.unacknowledged()) as usize
    }

    /// How many bytes more would leave promptly: what both windows have room for beyond what waits already. A sender
    /// that writes no more than this keeps its choice of what to send next.
    pub(crate) fn sendable(&self) -> usize {
        if self.fin_queued || !self.state.may_write() {
            return 0;
        }
        let congestion = match (self.sender.is_granted(), self.state) {
            // No more than goes with the SYN: the rest would wait where nobody chooses what leaves next.
            (true, State::SynSent) => self.sender.mss,
            // The session's owner looks after its window.
            (true, _) => u64::MAX,
            _ => self.sender.window().saturating_sub(self.sender.in_flight() + self.sender.lost()),
        };
        let offered = self.peer_edge().saturating_sub(self.sender.next.max(self.iss + 1));
        let room = if self.state == State::SynSent { congestion } else { congestion.min(offered) };
        (room.saturating_sub(self.unsent()) as usize).min(self.capacity())
    }

    /// How many bytes more would leave within a moment: [`sendable`](Self::sendable), less what waits for the pacer,
    /// which keeps two milliseconds' worth or 8 KiB waiting.
    pub fn promptly(&self) -> usize {
        const BURST_MIN_BYTES: u64 = 8 << 10;
        let burst = self.sender.pacing_rate().map_or(u64::MAX, |rate| (rate / 500).max(BURST_MIN_BYTES));
        self.sendable().min(usize::try_from(burst.saturating_sub(self.unsent())).unwrap_or(usize::MAX))
    }

    /// From now on the peer's window is asked for when it is shorter than this, although nothing waits here: whoever
    /// writes only what leaves [`promptly`](Self::promptly) would never learn of one whose update was lost. Zero asks
    /// no more.
    pub(crate) fn await_window(&mut self, bytes: usize) {
        self.signals.awaited_bytes = bytes as u64;
    }

    /// Copies received bytes to `into` and gives how many: zero when there are none now, or none any more.
    pub fn read(&mut self, now: Instant, into: &mut [u8]) -> usize {
        let count = self.receiver.read(into);
        if count > 0 || self.receiver.take_refusal() {
            self.on_read(now);
        }
        count
    }

    /// The next received bytes, as far as they lie together in memory.
    pub fn peek(&self) -> &[u8] {
        self.receiver.peek()
    }

    /// Takes off bytes that [`peek`](Self::peek) gave.
    pub fn consume(&mut self, now: Instant, bytes: usize) {
        self.receiver.consume(bytes);
        self.on_read(now);
    }

    /// How many bytes can be read.
    pub fn readable(&self) -> usize {
        self.receiver.readable()
    }

    /// Whether everything that the peer sent was read and it sends no more.
    pub fn is_eof(&self) -> bool {
        self.receiver.is_finished() && self.receiver.readable() == 0
    }

    /// Sends no more after what was written: FIN. Reading goes on.
    pub fn shutdown(&mut self) {
        if !self.fin_queued && self.state.may_write() {
            self.fin_queued = true;
            self.state = match self.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                // The FIN follows the handshake.
                other => other,
            };
        }
    }

    /// Leaves the connection: sends what was written and FIN, and reads no more. Where received data was not read, the
    /// peer gets a reset (RFC 2525, section 2.17), also for what it sends later.
    pub fn close(&mut self) {
        if self.receiver.readable() > 0 {
            self.abort(0);
            return;
        }
        self.receiver.discard();
        self.shutdown();
    }

    /// Ends the connection at once, with a reset that carries `code` where the framing can.
    pub fn abort(&mut self, code: u8) {
        if self.state.is_synchronized() {
            let header = Header {
                seq: self.sender.next,
                ack: Some(self.receiver.next),
                flags: crate::segment::Flags { rst: true, ..Default::default() },
                ..Header::default()
            };
            self.signals.reset = Some((header, code));
        }
        self.enter_closed(CloseReason::Aborted);
    }

    /// The sequence numbers near which those of the peer lie: for the peer's own, and for what it acknowledges of ours.
    pub fn expected(&self) -> (u64, u64) {
        (self.receiver.next, self.sender.una)
    }

    /// The shifts of windows on the wire: of those we send, and of those the peer sends. Zero until both are known.
    pub(crate) fn window_shifts(&self) -> (u8, u8) {
        if self.state.is_synchronized() { (self.receiver.shift, self.peer.shift) } else { (0, 0) }
    }

    /// A view for statistics.
    pub fn stats(&self) -> Stats {
        Stats {
            window_bytes: self.sender.window(),
            in_flight_bytes: self.sender.in_flight(),
            peer_window_bytes: self.peer.window,
            receive_buffer_bytes: self.receiver.tune.limit_bytes,
            unacknowledged_bytes: self.unacknowledged(),
            smoothed_rtt_ns: self.sender.rtt().smoothed_ns(),
            min_rtt_ns: self.sender.rtt().min_ns(),
            timeout_ns: self.sender.timeout_ns(),
            pacing_bytes_per_s: self.sender.pacing_rate(),
            counts: self.sender.counts,
        }
    }

    /// The congestion controller.
    pub fn controller(&self) -> &dyn CongestionController {
        self.sender.controller()
    }

    /// Up to where what the peer sent was read, and up to where some of it came.
    pub(crate) fn received(&self) -> (u64, u64) {
        self.receiver.kept()
    }

    /// Up to where what was written is acknowledged, and up to where it was written.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.write_end - self.unacknowledged(), self.write_end)
    }

    /// Bytes that this connection has of the pool, in whole chunks; it looks through all of them.
    pub fn pool_bytes(&self) -> usize {
        self.send_buffer.pool_bytes() + self.receiver.pool_bytes()
    }

    /// Bytes that this connection holds on the heap beside the pool's chunks.
    pub fn heap_bytes(&self) -> usize {
        self.sender.heap_bytes() + self.send_buffer.heap_bytes() + self.receiver.heap_bytes()
    }
}

/// What a connection is doing. Counts are since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// What may be in flight.
    pub window_bytes: u64,
    /// What is believed to be in flight.
    pub in_flight_bytes: u64,
    /// What the peer takes.
    pub peer_window_bytes: u64,
    /// The present size of the receive buffer.
    pub receive_buffer_bytes: u64,
    /// What was written and is not acknowledged.
    pub unacknowledged_bytes: u64,
    /// The smoothed round trip.
    pub smoothed_rtt_ns: Option<u64>,
    /// The lowest round trip of the last minutes.
    pub min_rtt_ns: Option<u64>,
    /// The retransmission time-out.
    pub timeout_ns: u64,
    /// The pacing rate, in bytes per second.
    pub pacing_bytes_per_s: Option<u64>,
    /// What happened so far.
    pub counts: Counts,
}

impl Connection {
    fn on_read(&mut self, now: Instant) {
        let most = u64::from(self.options.receive_buffer_max_bytes);
        self.receiver.resize(now, self.sender.mss, most);
        if self.state.may_receive() && self.receiver.is_update_due(self.sender.mss) {
            self.receiver.acks.now();
        }
    }

    /// Bytes that were written and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.write_end - self.sender.una.clamp(self.iss + 1, self.write_end)
    }

    /// How many bytes were written and never sent.
    pub fn unsent(&self) -> u64 {
        self.write_end - self.sender.next.clamp(self.iss + 1, self.write_end)
    }

    /// Whether the FIN waits to be sent for the first time.
    fn is_fin_unsent(&self) -> bool {
        self.fin_queued && self.sender.next <= self.write_end
    }

    /// The first sequence number that the peer does not take.
    fn peer_edge(&self) -> u64 {
        self.sender.una.max(self.peer.window_ack) + self.peer.window
    }

    /// The sequence numbers of all that was sent.
    fn sent(&self) -> Range {
        Range::new(self.sender.una, self.sender.next)
    }

    fn enter_closed(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.close_reason.get_or_insert(reason);
        self.send_buffer.clear();
        self.timers = timers::Timers::default();
        self.sender.stop();
    }
}

/// The shift that makes the largest buffer fit into 16 bits.
fn window_shift(options: &Options) -> u8 {
    let bits = u32::BITS - (options.receive_buffer_max_bytes >> 16).leading_zeros();
    bits.min(14) as u8
}
