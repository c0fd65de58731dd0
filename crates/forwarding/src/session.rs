//! What the client and the last hop say to each other: messages in a TCP connection, whose packets are DATAGRAM cells.
//!
//! 1. [`handle_cell`](Session::handle_cell) for what came, with all layers off, then
//!    [`next_message`](Session::next_message) until there is none.
//! 2. [`send`](Session::send) as the owner likes, as long as [`queued_cells`](Session::queued_cells) are not too many.
//! 3. [`poll_cell`](Session::poll_cell) until there is none, then [`poll_timeout`](Session::poll_timeout).

use crate::cell::{COUNTER_LEN, Opening, PACKET_LEN, Sealing};
use crate::fault::Fault;
use crate::keys::HopKeys;
use crate::message::{self, MESSAGE_LEN_MAX, UNIT_BYTES};
use core::fmt;
use heddle_proto::cell::Body;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::compact::{FlowId, Mux, MuxEvent, MuxOptions, PADDING};
use heddle_utcp::{BufferPool, Options};
use std::collections::VecDeque;

/// Bytes of messages that wait for TCP at most: twice the 128 cells at which owners stop, for what is owed in answers.
const UNWRITTEN_MAX: usize = 128 << 10;
/// TCP is asked for so much room before more is written: a segment, because a window is no longer than that where much
/// was lost.
const AWAITED_BYTES: usize = 448;
/// How soon to look again whether there is memory.
const STARVED_WAIT: Duration = Duration::from_millis(20);
/// Bytes that are read of TCP at once.
const READ_BYTES: usize = 4096;
/// What TCP may keep of either direction: all that its window can say.
const BUFFER_BYTES_MAX: u32 = 65_535 * UNIT_BYTES as u32;

/// What a session has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Cells that were sealed.
    pub sent_cells: u64,
    /// Cells that came and were the other end's.
    pub received_cells: u64,
    /// Cells that came and were not, or came before.
    pub refused_cells: u64,
    /// Segments that TCP sent more than once.
    pub retransmissions: u64,
    /// A round trip from end to end.
    pub smoothed_rtt_ns: Option<u64>,
}

/// One end of a session; see the module.
pub struct Session {
    mux: Mux,
    /// Its share of what TCP may hold.
    pool: BufferPool,
    /// `None` at the last hop before the client's first packet came.
    flow: Option<FlowId>,
    sealing: Sealing,
    opening: Opening,
    /// Whole messages that TCP has not taken, at most [`UNWRITTEN_MAX`].
    unwritten: VecDeque<u8>,
    /// What TCP gave, less than a message after [`next_message`](Self::next_message).
    unread: VecDeque<u8>,
    packet: Vec<u8>,
    /// When to write again what there was no memory for.
    starved_until: Option<Instant>,
    /// When it was first seen that something waits outside of TCP.
    waiting_since: Option<Instant>,
    is_over: bool,
    stats: SessionStats,
}

/// Beginning.
impl Session {
    /// What one takes itself.
    pub const BYTES: usize = size_of::<Self>();

    /// The client's end. TCP has its bytes of `pool`.
    pub fn connect(now: Instant, keys: &HopKeys, pool: BufferPool) -> Self {
        let mut session = Session::new([keys.forward(), keys.backward()], 0, pool);
        session.flow = session.mux.open(now);
        session
    }

    /// The last hop's end.
    pub fn accept(keys: &HopKeys, pool: BufferPool) -> Self {
        Session::new([keys.backward(), keys.forward()], 1, pool)
    }

    fn new([sealing, opening]: [&[u8; 16]; 2], flows_max: usize, pool: BufferPool) -> Self {
        let options = MuxOptions {
            unit_bytes: UNIT_BYTES,
            datagram_bytes_max: PACKET_LEN as u16,
            flows_max,
            flow: Options {
                send_buffer_max_bytes: BUFFER_BYTES_MAX,
                receive_buffer_max_bytes: BUFFER_BYTES_MAX,
                slow_start_after_idle: false,
                ..Options::default()
            },
            ..MuxOptions::default()
        };
        Session {
            mux: Mux::new(options, pool.clone()),
            pool,
            flow: None,
            sealing: Sealing::new(sealing),
            opening: Opening::new(opening),
            unwritten: VecDeque::new(),
            unread: VecDeque::new(),
            packet: Vec::with_capacity(PACKET_LEN),
            starved_until: None,
            waiting_since: None,
            is_over: false,
            stats: SessionStats::default(),
        }
    }
}

/// Coming in.
impl Session {
    /// Takes a cell whose layers are off. One that the other end did not seal is dropped.
    ///
    /// # Errors
    ///
    /// When the other end broke the rules of its TCP.
    pub fn handle_cell(&mut self, now: Instant, body: &mut Body) -> Result<(), Fault> {
        let Some(packet) = self.opening.open(body) else {
            self.stats.refused_cells += 1;
            return Ok(());
        };
        self.stats.received_cells += 1;
        self.handle_packet(now, packet)
    }

    /// Takes a packet as if it had come in a cell that the other end sealed.
    ///
    /// # Errors
    ///
    /// As [`handle_cell`](Self::handle_cell).
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), Fault> {
        // What came is read as messages are asked for, so none is taken at once.
        let result = self.mux.handle_datagram(now, packet, &mut |_, _| 0);
        self.on_events(now);
        result.map_err(|malformed| Fault(malformed.0))
    }

    /// Whether there were any.
    fn on_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.mux.poll_event() {
            any = true;
            match event {
                MuxEvent::Opened(id) => {
                    self.flow = self.flow.or(Some(id));
                    self.write(now);
                }
                MuxEvent::Readable(_) => {}
                MuxEvent::Writable(_) => self.write(now),
                MuxEvent::Closed(..) => self.is_over = true,
            }
        }
        any
    }

    /// Moves the next message into `body`, as a relay cell that is decrypted and recognized. False when there is none.
    ///
    /// # Errors
    ///
    /// When what came is no message.
    pub fn next_message(&mut self, now: Instant, body: &mut Body) -> Result<bool, Fault> {
        loop {
            if message::take(&mut self.unread, body)? {
                return Ok(true);
            }
            let Some(flow) = self.flow else { return Ok(false) };
            let mut bytes = [0; READ_BYTES];
            let count = self.mux.read(now, flow, &mut bytes);
            if count == 0 {
                self.is_over |= self.mux.get(flow).is_some_and(|connection| connection.is_eof());
                return Ok(false);
            }
            self.unread.extend(&bytes[..count]);
        }
    }

    /// Whether the other end answers no more, or ended TCP: neither is how a circuit ends.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Going out.
impl Session {
    /// Sends the message of a relay cell that is not encrypted, with the next cells that are asked for.
    ///
    /// # Errors
    ///
    /// When too many wait, because the other end makes us owe them and takes none.
    pub fn send(&mut self, body: &Body) -> Result<(), Fault> {
        if self.unwritten.len() >= UNWRITTEN_MAX {
            return Err(Fault("too many answers are owed"));
        }
        message::append(body, &mut self.unwritten);
        Ok(())
    }

    fn write(&mut self, now: Instant) {
        self.write_promptly(now);
        self.waiting_since = (!self.unwritten.is_empty()).then(|| self.waiting_since.unwrap_or(now));
    }

    /// Gives TCP what leaves promptly, so that what waits is known.
    fn write_promptly(&mut self, now: Instant) {
        let Some(flow) = self.flow.filter(|_| !self.unwritten.is_empty()) else { return };
        let room = self.mux.promptly(flow).min(self.unwritten.len());
        let whole = |bytes: usize| bytes - bytes % usize::from(UNIT_BYTES);
        // TCP would ask at once to be written to again, if it took less for want of memory.
        let room_in_memory = whole(room.min(self.pool.writable_bytes()));
        let taken = self.mux.write(flow, &self.unwritten.make_contiguous()[..room_in_memory]);
        self.unwritten.drain(..taken);
        self.starved_until = (taken < whole(room)).then(|| now + STARVED_WAIT);
        if self.unwritten.is_empty() {
            self.unwritten.shrink_to(MESSAGE_LEN_MAX);
        } else if self.starved_until.is_none() {
            self.mux.await_room(flow, AWAITED_BYTES.min(self.unwritten.len()));
        }
    }

    /// Messages that wait for TCP, in cells.
    pub fn queued_cells(&self) -> u32 {
        self.unwritten.len().div_ceil(MESSAGE_LEN_MAX) as u32
    }

    /// Makes the next cell in `body`. False when none is to leave now.
    pub fn poll_cell(&mut self, now: Instant, body: &mut Body) -> bool {
        self.write(now);
        self.packet.clear();
        while self.mux.poll_datagram(now, &mut self.packet).is_none() {
            // What is told may have made room for more, unless there is no memory.
            if !self.on_events(now) || self.starved_until.is_some() {
                return false;
            }
        }
        self.on_events(now);
        if self.packet.len() < PACKET_LEN {
            self.packet.push(PADDING);
            self.packet.resize(PACKET_LEN, 0);
        }
        body[COUNTER_LEN..][..PACKET_LEN].copy_from_slice(&self.packet);
        self.sealing.seal(body);
        self.stats.sent_cells += 1;
        true
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.mux.poll_timeout(), self.starved_until].into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.mux.handle_timeout(now);
        self.on_events(now);
        if self.starved_until.is_some_and(|at| at <= now) {
            self.write(now);
        }
    }

    /// Bytes that it holds, of messages outside of TCP and inside, without [itself](Self::BYTES).
    pub fn bytes(&self) -> usize {
        let flow = self.flow.and_then(|flow| self.mux.get(flow));
        let tcp = flow.map_or(0, |connection| connection.pool_bytes());
        let outside = self.unwritten.capacity() + self.unread.capacity() + self.packet.capacity();
        tcp + outside + self.mux.heap_bytes()
    }

    /// The oldest bytes came no sooner; `None` if there are none, or those outside of TCP have not been
    /// [polled](Self::poll_cell) for.
    pub fn buffered_since(&self) -> Option<Instant> {
        let in_tcp = self.flow.and_then(|flow| self.mux.buffered_since(flow));
        in_tcp.into_iter().chain(self.waiting_since).min()
    }

    pub fn stats(&self) -> SessionStats {
        let of_flow = self.flow.and_then(|flow| self.mux.stats(flow));
        let retransmissions = of_flow.map(|of| of.counts.retransmissions);
        SessionStats {
            retransmissions: retransmissions.unwrap_or(0),
            smoothed_rtt_ns: self.mux.smoothed_rtt_ns(),
            ..self.stats
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.stats())
    }
}
