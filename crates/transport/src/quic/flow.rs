//! One flow: a circuit's cells in a bidirectional stream, 510 bytes each, command and body.

use super::backlog::Backlog;
use super::heaps::Class;
use crate::connections::circuits::{FLOW_CELL_LEN, Lent, body_of};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use heddle_proto::cell::{Body, Command};
use quinn_proto::{Connection, ReadError, RecvStream, SendStream, StreamId, VarInt, WriteError};
use std::collections::VecDeque;

/// Cells of one flow that are put together before quinn is given them. It looks through what it was given and nobody
/// acknowledged for every frame that it writes, so a few long pieces cost less than many short ones.
pub(super) const OUTBOX_CELLS: usize = 16;

/// Pieces, of one packet each, that are taken from quinn at a time: each time it looks the stream up and puts it back.
/// What was taken counts as read, so this is what a flow that is held may keep beyond its window.
const PIECES_MAX: usize = 8;

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    /// Cells that quinn is given when they are [`OUTBOX_CELLS`], or before it makes packets.
    outbox: BytesMut,
    /// Cells that the last outbox had, which is a guess at the next.
    outbox_cells: usize,
    /// What the stream's window did not take of the last outbox.
    unwritten: Bytes,
    /// Whether it stands in the list of flows with an outbox.
    pub(super) is_pending: bool,
    /// Whether the relay knows that it takes no cells, and is to hear when it does.
    pub(super) is_waited_for: bool,
    /// What was read of the stream and not worked off yet: the rest of one packet, and the pieces of those that come
    /// after it. It begins with the cell that is lent, if `is_lent`.
    unread: Bytes,
    pieces: VecDeque<Bytes>,
    /// Whether the peer ended the stream after these.
    is_finished: bool,
    is_lent: bool,
    pub(super) backlog: Backlog,
    /// How large the heap is that its pieces made quinn grow.
    pub(super) heap: Class,
    /// Whether it has sent something.
    pub(super) is_sender: bool,
}

/// What reading a flow gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A cell was lent from where quinn put it.
    Cell(Command),
    /// A cell was put together, and is lent from there.
    Straddler(Command),
    /// Not before more comes.
    Empty,
    /// The peer ended the stream as no flow ends.
    Fault,
}

impl Flow {
    pub(super) fn new(backlog: Backlog) -> Self {
        Flow {
            outbox: BytesMut::new(),
            outbox_cells: 1,
            unwritten: Bytes::new(),
            is_pending: false,
            is_waited_for: false,
            unread: Bytes::new(),
            pieces: VecDeque::new(),
            is_finished: false,
            is_lent: false,
            backlog,
            heap: Class::default(),
            is_sender: false,
        }
    }

    /// Lends the next cell, if all of it is here: where quinn put it, or from `straddler`.
    pub(super) fn read(&mut self, stream: &mut RecvStream<'_>, straddler: &mut Lent) -> Read {
        if core::mem::take(&mut self.is_lent) {
            self.unread.advance(FLOW_CELL_LEN);
            if self.unread.is_empty() {
                // It would keep its packet.
                self.unread = Bytes::new();
            }
        }
        if self.unread.len() < FLOW_CELL_LEN {
            match self.read_more(stream, straddler) {
                More::Unread => {}
                More::Straddler => return Read::Straddler(Command(straddler.0[0])),
                More::Nothing => return Read::Empty,
                More::Finished => return Read::Fault,
            }
        }
        self.is_lent = true;
        Read::Cell(Command(self.unread[0]))
    }

    /// The body of the cell that [`Flow::read`] lent from where quinn put it.
    pub(super) fn lent(&self) -> &Body {
        body_of(&self.unread[..FLOW_CELL_LEN])
    }

    /// Goes on until there is a whole cell. One that lies in two pieces is put together where it is lent from.
    fn read_more(&mut self, stream: &mut RecvStream<'_>, straddler: &mut Lent) -> More {
        loop {
            let Some(piece) = self.pieces.pop_front() else {
                if self.take_pieces(stream) {
                    continue;
                }
                return if self.is_finished { More::Finished } else { More::Nothing };
            };
            let (have, missing) = (self.unread.len(), FLOW_CELL_LEN - self.unread.len());
            if have == 0 {
                self.unread = piece;
            } else if piece.len() >= missing {
                straddler.0[..have].copy_from_slice(&self.unread);
                straddler.0[have..].copy_from_slice(&piece[..missing]);
                self.unread = piece;
                self.unread.advance(missing);
                return More::Straddler;
            } else {
                let mut joined = BytesMut::with_capacity(FLOW_CELL_LEN);
                joined.extend_from_slice(&self.unread);
                joined.extend_from_slice(&piece);
                self.unread = joined.freeze();
            }
            if self.unread.len() >= FLOW_CELL_LEN {
                return More::Unread;
            }
        }
    }

    /// Takes what quinn has, up to [`PIECES_MAX`] of them. Returns whether there are any.
    fn take_pieces(&mut self, stream: &mut RecvStream<'_>) -> bool {
        let Ok(mut chunks) = stream.read(true) else {
            return false;
        };
        while self.pieces.len() < PIECES_MAX {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.pieces.push_back(chunk.bytes),
                Ok(None) => {
                    self.is_finished = true;
                    break;
                }
                // The peer's reset is noticed when its event is handled.
                Err(ReadError::Blocked | ReadError::Reset(_)) => break,
            }
        }
        let _ = chunks.finalize();
        !self.pieces.is_empty()
    }

    /// Takes a cell. Returns whether it is time to give quinn what has gathered.
    pub(super) fn put(&mut self, command: Command, body: &Body) -> bool {
        if self.outbox.capacity() == 0 {
            self.outbox = BytesMut::with_capacity(self.outbox_cells * FLOW_CELL_LEN);
        }
        self.outbox.put_u8(command.0);
        self.outbox.put_slice(body);
        self.outbox.len() >= OUTBOX_CELLS * FLOW_CELL_LEN
    }

    /// Whether the stream's window took less than it was given.
    pub(super) fn is_blocked(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// What it did not take.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.unwritten.len()
    }

    /// Gives quinn as much as the stream's window takes. Returns the bytes that quinn took, and those that it refused.
    pub(super) fn write(&mut self, stream: &mut SendStream<'_>) -> Written {
        let mut written = Written::default();
        if self.is_blocked() {
            written.late = self.write_rest(stream);
        }
        if !self.is_blocked() && !self.outbox.is_empty() {
            self.outbox_cells = self.outbox.len() / FLOW_CELL_LEN;
            self.unwritten = core::mem::take(&mut self.outbox).freeze();
            self.write_rest(stream);
            written.refused = self.unwritten.len();
        }
        written
    }

    /// Writes what the stream's window did not take before. Returns the bytes written.
    fn write_rest(&mut self, stream: &mut SendStream<'_>) -> usize {
        let mut written = 0;
        while !self.unwritten.is_empty() {
            match stream.write_chunks(core::slice::from_mut(&mut self.unwritten)) {
                Ok(done) => written += done.bytes,
                Err(WriteError::Blocked) => break,
                // The peer wants no more of it; its event ends the flow.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => self.unwritten = Bytes::new(),
            }
        }
        written
    }

    /// Resets both directions, so that the end overtakes whatever is queued on either side.
    /// Returns whether quinn keeps the half of what comes until the peer resets it, too.
    pub(super) fn reset(&mut self, quinn: &mut Connection, stream: StreamId, reason: u8) -> bool {
        let code = VarInt::from_u32(u32::from(reason));
        // Errors say that a direction is over already.
        let _ = quinn.send_stream(stream).reset(code);
        let is_reset = !matches!(quinn.recv_stream(stream).received_reset(), Ok(None));
        let is_kept = quinn.recv_stream(stream).stop(code).is_ok() && !is_reset;
        self.outbox = BytesMut::new();
        self.unwritten = Bytes::new();
        self.unread = Bytes::new();
        self.pieces = VecDeque::new();
        self.is_lent = false;
        self.backlog = Backlog::default();
        is_kept
    }
}

/// What became of a flow's cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Bytes that the stream's window took now, and had refused before.
    pub(super) late: usize,
    /// Bytes that it refused now.
    pub(super) refused: usize,
}

enum More {
    Unread,
    Straddler,
    Nothing,
    Finished,
}
