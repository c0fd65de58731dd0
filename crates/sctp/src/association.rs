//! One association, from its first packet to its last (RFC 9260, section 4).
//!
//! ```text
//!            connect: INIT           INIT ACK: COOKIE ECHO            COOKIE ACK
//!   Closed ─────────────▶ CookieWait ─────────────▶ CookieEchoed ───────────────▶ Established
//!     └── INIT: INIT ACK; then a COOKIE ECHO that is right: COOKIE ACK ──────────────▲   │
//!                                                                                        │
//!   shutdown, when all was acknowledged: SHUTDOWN ──▶ ShutdownSent ──┐                   │
//!   SHUTDOWN came, when all was acknowledged: SHUTDOWN ACK ──────────┴──▶ Ended ◀── ABORT either way
//! ```
//!
//! There is one association for each thing below it, whose peer is known. So the cookie need not keep a flood of
//! strangers from taking memory, as it does where anybody may send: it is a number that the peer has to send back, and
//! what it stands for is kept.

mod input;
mod output;
mod reset;
mod timers;

use crate::options::{Options, Random};
use crate::receive::{Message, Receiver};
use crate::reno::Reno;
use crate::send::{Sender, Waits};
use crate::wire::init::Init;
use crate::wire::{HEADER_LEN, PacketHead};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::SessionController;
pub use output::Content;
use reset::Resets;
use std::collections::VecDeque;
use timers::Timers;

/// What became of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends know of it.
    Connected,
    /// A message can be read.
    Readable(u16),
    /// The peer's messages on this stream begin anew.
    PeerReset(u16),
    /// Ours do.
    Reset(u16),
    Closed(Closed),
}

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// All was delivered either way.
    Shutdown,
    /// The peer ended it at once.
    Aborted,
    /// We ended it at once.
    Ended,
    /// It answers nothing.
    NoAnswer,
    /// It sent what no honest peer sends.
    Misbehaved(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    CookieWait,
    CookieEchoed,
    Established,
    /// Something is under way; then SHUTDOWN follows.
    ShutdownPending,
    ShutdownSent,
    /// The peer sends no more, and something of ours is under way.
    ShutdownReceived,
    ShutdownAckSent,
    Ended,
}

/// What the peer said of itself.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    tag: u32,
    window_bytes: u32,
    /// Streams that we may use.
    streams: u16,
    tsn: u32,
    interleaves: bool,
    resets: bool,
    takes_zero_checksum: bool,
}

impl Peer {
    fn of(init: &Init<'_>, ours: &Options) -> Self {
        Peer {
            tag: init.tag,
            window_bytes: init.window_bytes,
            streams: init.inbound.min(ours.streams_max),
            tsn: init.tsn,
            interleaves: init.interleaves && ours.interleaves,
            resets: init.resets,
            takes_zero_checksum: init.takes_zero_checksum && ours.zero_checksum,
        }
    }
}

/// Chunks that are to be sent beside messages.
#[derive(Debug, Default)]
struct Due {
    init: bool,
    init_ack: bool,
    cookie_echo: bool,
    cookie_ack: bool,
    shutdown: bool,
    shutdown_ack: bool,
    shutdown_complete: bool,
    abort: bool,
    heartbeat: bool,
    /// What the peer's questions had in them.
    heartbeat_acks: VecDeque<Vec<u8>>,
}

/// One association; see the module.
#[derive(Debug)]
pub struct Association {
    options: Options,
    random: Random,
    state: State,
    /// Once it said so, in a packet that may be believed or in one that a cookie was given for.
    peer: Option<Peer>,
    cookie: Vec<u8>,
    due: Due,
    sender: Sender,
    receiver: Receiver,
    resets: Resets,
    timers: Timers,
    events: VecDeque<Event>,
    is_marked: bool,
}

impl Association {
    /// One that waits for the peer, with the congestion control of RFC 9260.
    pub fn new(options: Options, random: Random) -> Self {
        let mss_bytes = mss_of(options.packet_bytes_max);
        Association::with_controller(options, random, Box::new(Reno::new(mss_bytes)))
    }

    /// One whose window `controller` sets, for packets with [`Association::mss_bytes`] of chunks.
    pub fn with_controller(options: Options, random: Random, controller: Box<dyn SessionController>) -> Self {
        let random = Random { tag: random.tag.max(1), ..random };
        let waits = Waits {
            initial: options.rto_initial,
            min: options.rto_min,
            max: options.rto_max,
            ack_delay: options.ack_delay,
        };
        let mss = mss_of(options.packet_bytes_max);
        Association {
            sender: Sender::new(random.tsn, waits, controller, mss.into()),
            receiver: Receiver::new(options.ack_delay, options.receive_bytes_max, options.message_bytes_max),
            resets: Resets::new(random.tsn),
            options,
            random,
            state: State::Closed,
            peer: None,
            cookie: Vec::new(),
            due: Due::default(),
            timers: Timers::default(),
            events: VecDeque::new(),
            is_marked: false,
        }
    }

    /// Bytes that a packet of such a length has for chunks.
    pub fn mss_bytes(packet_bytes: u16) -> u16 {
        mss_of(packet_bytes)
    }

    /// Asks the peer for an association.
    pub fn connect(&mut self) {
        if self.state == State::Closed {
            self.state = State::CookieWait;
            self.due.init = true;
        }
    }

    /// Queues a message, ordered behind the others of its stream or not. What is empty is none, and nothing is taken on
    /// streams that there are not, or once it is over.
    pub fn write(&mut self, stream: u16, message: Vec<u8>, ppid: u32, is_unordered: bool) -> bool {
        let streams = self.peer.map_or(self.options.streams_max, |peer| peer.streams);
        let is_taken = self.may_write() && !message.is_empty() && stream < streams;
        if is_taken {
            self.sender.streams.write(stream, message, ppid, is_unordered);
        }
        is_taken
    }

    fn may_write(&self) -> bool {
        use State::{Closed, CookieEchoed, CookieWait, Established};
        matches!(self.state, Closed | CookieWait | CookieEchoed | Established)
    }

    /// The next message of a stream, if it is here.
    pub fn read(&mut self, stream: u16) -> Option<Message> {
        self.receiver.read(stream)
    }

    /// The next message of a stream, if it is an unordered one: those come before what is in order.
    pub fn read_unordered(&mut self, stream: u16) -> Option<Message> {
        self.receiver.read_unordered(stream)
    }

    /// Drops what waits to be sent on a stream, but for the rest of a message that left in part.
    pub fn discard_queued(&mut self, stream: u16) {
        self.sender.streams.discard(stream);
    }

    /// Drops what came on a stream and was not read.
    pub fn discard_unread(&mut self, stream: u16) {
        self.receiver.discard(stream);
    }

    /// Has our messages on a stream begin anew after what was written on it, if the peer knows how. [`Event::Reset`]
    /// follows; what is written meanwhile waits for it.
    pub fn reset_stream(&mut self, stream: u16) -> bool {
        let resets = self.peer.is_some_and(|peer| peer.resets);
        if resets {
            self.sender.streams.reset(stream);
        }
        resets
    }

    /// Ends it when all was delivered.
    pub fn shutdown(&mut self) {
        match self.state {
            State::Established => self.state = State::ShutdownPending,
            State::Closed | State::CookieWait | State::CookieEchoed => self.abort(),
            _ => {}
        }
        self.go_on_ending();
    }

    /// Ends it at once. The peer is told, if it is known.
    pub fn abort(&mut self) {
        self.end(Closed::Ended);
    }

    /// Whether the peer owes fragments for so long that what came of their messages is of no use: an honest one sends
    /// them again and again.
    pub fn is_stuck(&self, now: Instant, after: Duration) -> bool {
        self.receiver.is_stuck(now, after)
    }

    /// Whether it is there.
    pub fn is_established(&self) -> bool {
        !matches!(self.state, State::Closed | State::CookieWait | State::CookieEchoed | State::Ended)
    }

    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// What became of it, until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The controller of its window.
    pub fn controller_mut(&mut self) -> &mut dyn SessionController {
        &mut *self.sender.window.controller
    }

    /// From now on packets have so many bytes at most.
    pub fn set_packet_bytes_max(&mut self, bytes: u16) {
        self.options.packet_bytes_max = bytes;
        self.sender.window.set_mss(mss_of(bytes));
    }

    /// From now on what came and was not read may take so many bytes. What it takes already stays.
    pub fn set_receive_bytes_max(&mut self, bytes: usize) {
        self.receiver.set_limit(bytes);
    }

    /// Routers marked packets of ours (RFC 3168), as the peer told beside the packet that is taken next.
    pub fn on_marked(&mut self) {
        self.is_marked = true;
    }

    /// The path carries again what it did not: nothing waits for its time-out.
    pub fn on_path_back(&mut self, now: Instant) {
        if self.is_established() {
            self.sender.on_path_back(now);
        }
    }

    /// The window, what is in flight, and what waits, all in bytes.
    pub fn window(&self) -> [u64; 3] {
        let window = self.sender.window.controller.window_bytes();
        [window, self.sender.in_flight(), self.sender.streams.queued_bytes() as u64]
    }

    /// Messages that wait to leave, whole or in part.
    pub fn queued_messages(&self) -> usize {
        self.sender.streams.queued_messages()
    }

    /// The smoothed round trip, once it was measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.sender.window.round_trip().map(|(smoothed, _)| smoothed)
    }

    /// Whether something of ours was acknowledged since this was asked last.
    pub fn take_answered(&mut self) -> bool {
        self.sender.take_answered()
    }

    /// Whether a time-out passed since this was asked last, or something was lost again and again: packets may be too
    /// long for the path.
    pub fn take_expired(&mut self) -> bool {
        self.sender.take_expired()
    }

    /// Fragments that were sent again.
    pub fn retransmissions(&self) -> u64 {
        self.sender.retransmissions()
    }

    /// Bytes of memory that messages take: to be sent or acknowledged, and to be put together or read.
    pub fn buffered_bytes(&self) -> [usize; 2] {
        [self.sender.bytes(), self.receiver.bytes()]
    }

    /// The same of one stream, and since when something of it is there that came.
    pub fn stream_bytes(&self, stream: u16) -> ([usize; 2], Option<Instant>) {
        let (received, since) = self.receiver.stream_bytes(stream);
        ([self.sender.streams.stream_bytes(stream), received], since)
    }

    /// Bytes that streams take on the heap beside these, about what an allocator would say.
    pub fn heap_bytes(&self) -> usize {
        self.sender.heap_bytes()
            + self.receiver.heap_bytes()
            + self.resets.heap_bytes()
            + self.events.capacity() * size_of::<Event>()
            + self.due.heartbeat_acks.iter().map(Vec::len).sum::<usize>()
    }

    fn head(&self, tag: u32) -> PacketHead {
        let [source, destination] = self.options.ports;
        PacketHead { source, destination, tag }
    }

    fn end(&mut self, why: Closed) {
        if self.state == State::Ended {
            return;
        }
        self.due = Due::default();
        self.due.abort = self.peer.is_some() && !matches!(why, Closed::Aborted | Closed::Shutdown);
        self.state = State::Ended;
        self.timers = Timers::default();
        self.events.push_back(Event::Closed(why));
    }

    /// Looks whether the next step of a shutdown can be taken.
    fn go_on_ending(&mut self) {
        if !self.sender.is_done() {
            return;
        }
        match self.state {
            State::ShutdownPending => {
                (self.state, self.due.shutdown) = (State::ShutdownSent, true);
            }
            State::ShutdownReceived => {
                (self.state, self.due.shutdown_ack) = (State::ShutdownAckSent, true);
            }
            _ => {}
        }
    }
}

const fn mss_of(packet_bytes: u16) -> u16 {
    // All chunks fill up to a multiple of four.
    packet_bytes.saturating_sub(HEADER_LEN as u16) & !3
}
