//! One flow: a circuit's cells in a bidirectional stream, 510 bytes each, command and body.

use bytes::{Buf, Bytes, BytesMut};
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::time::Instant;
use quinn_proto::{Connection, ReadError, StreamId, VarInt, WriteError};

/// Bytes of a cell on a flow: its command and its body, since the stream says which circuit it is of.
pub(super) const FLOW_CELL_LEN: usize = 1 + BODY_LEN;

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer opened it and its first cell has not come: the relay knows nothing of it.
    Unborn {
        due: Instant,
    },
    Open,
    /// It is over, and the relay has not been told yet. Its name stays taken so long.
    Ended,
}

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) circ_id: CircId,
    pub(super) stream: StreamId,
    pub(super) stage: Stage,
    /// Whether the peer opened it.
    pub(super) is_theirs: bool,
    /// What the stream's window did not take of the last cell.
    pub(super) unwritten: Bytes,
    /// What was read of the stream and not lent yet: the rest of one packet.
    unread: Bytes,
    pub(super) is_held: bool,
    /// Whether it stands in the queue of readable flows.
    pub(super) is_queued: bool,
    /// Cells lent in this turn.
    pub(super) turn_cells: u32,
    /// Cells written in the epoch of that number.
    pub(super) epoch: u64,
    pub(super) epoch_cells: u64,
}

/// What reading a flow gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A cell was lent.
    Cell(Command),
    /// Not before more comes.
    Empty,
    /// The peer ended the stream as no flow ends.
    Fault,
}

/// The cell that an endpoint lends. It stays where quinn put it when it lies in one packet, and is put together here when
/// it does not.
#[derive(Debug)]
pub(super) struct Lent {
    whole: Bytes,
    straddler: [u8; FLOW_CELL_LEN],
}

impl Lent {
    pub(super) fn new() -> Self {
        Lent { whole: Bytes::new(), straddler: [0; FLOW_CELL_LEN] }
    }

    pub(super) fn body(&self) -> &Body {
        self.bytes()[1..].try_into().expect("a cell of a flow is a command and a body")
    }

    /// Lends the cell that says why a circuit ended.
    pub(super) fn destroy(&mut self, reason: u8) {
        self.whole = Bytes::new();
        self.straddler = [0; FLOW_CELL_LEN];
        self.straddler[0] = Command::DESTROY.0;
        self.straddler[1] = reason;
    }

    fn bytes(&self) -> &[u8] {
        if self.whole.is_empty() { &self.straddler } else { &self.whole }
    }
}

impl Flow {
    pub(super) fn new(circ_id: CircId, stream: StreamId, stage: Stage) -> Self {
        Flow {
            circ_id,
            stream,
            stage,
            is_theirs: stage != Stage::Open,
            unwritten: Bytes::new(),
            unread: Bytes::new(),
            is_held: false,
            is_queued: false,
            turn_cells: 0,
            epoch: 0,
            epoch_cells: 0,
        }
    }

    /// Lends the next cell, if all of it is here.
    pub(super) fn read(&mut self, quinn: &mut Connection, lent: &mut Lent) -> Read {
        if self.unread.len() < FLOW_CELL_LEN {
            match self.read_more(quinn, lent) {
                More::Unread => {}
                More::Lent => return Read::Cell(Command(lent.straddler[0])),
                More::Nothing => return Read::Empty,
                More::Finished => return Read::Fault,
            }
        }
        lent.whole = self.unread.split_to(FLOW_CELL_LEN);
        Read::Cell(Command(lent.whole[0]))
    }

    /// Reads until there is a whole cell. One that lies in two chunks is put together where it is lent from.
    fn read_more(&mut self, quinn: &mut Connection, lent: &mut Lent) -> More {
        let mut stream = quinn.recv_stream(self.stream);
        let Ok(mut chunks) = stream.read(true) else {
            return More::Nothing;
        };
        let more = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let (have, missing) = (self.unread.len(), FLOW_CELL_LEN - self.unread.len());
                    if have == 0 {
                        self.unread = chunk.bytes;
                    } else if chunk.bytes.len() >= missing {
                        lent.whole = Bytes::new();
                        lent.straddler[..have].copy_from_slice(&self.unread);
                        lent.straddler[have..].copy_from_slice(&chunk.bytes[..missing]);
                        self.unread = chunk.bytes;
                        self.unread.advance(missing);
                        break More::Lent;
                    } else {
                        let mut joined = BytesMut::with_capacity(FLOW_CELL_LEN);
                        joined.extend_from_slice(&self.unread);
                        joined.extend_from_slice(&chunk.bytes);
                        self.unread = joined.freeze();
                    }
                    if self.unread.len() >= FLOW_CELL_LEN {
                        break More::Unread;
                    }
                }
                Ok(None) => break More::Finished,
                // The peer's reset is noticed when its event is handled.
                Err(ReadError::Blocked | ReadError::Reset(_)) => break More::Nothing,
            }
        };
        let _ = chunks.finalize();
        more
    }

    /// Writes as much of `cell` as the stream's window takes and keeps the rest. Returns the bytes written.
    pub(super) fn write(&mut self, quinn: &mut Connection, cell: Bytes) -> usize {
        if self.unwritten.is_empty() {
            self.unwritten = cell;
        } else {
            self.unwritten = [&self.unwritten[..], &cell[..]].concat().into();
        }
        self.write_rest(quinn)
    }

    /// Writes what an earlier write had to keep. Returns the bytes written.
    pub(super) fn write_rest(&mut self, quinn: &mut Connection) -> usize {
        let mut written = 0;
        while !self.unwritten.is_empty() {
            match quinn.send_stream(self.stream).write_chunks(core::slice::from_mut(&mut self.unwritten)) {
                Ok(done) => written += done.bytes,
                Err(WriteError::Blocked) => break,
                // The peer wants no more of it; its event ends the flow.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => self.unwritten = Bytes::new(),
            }
        }
        written
    }

    /// Resets both directions, so that the end overtakes whatever is queued on either side.
    pub(super) fn reset(&mut self, quinn: &mut Connection, reason: u8) {
        let code = VarInt::from_u32(u32::from(reason));
        // Errors say that a direction is over already.
        let _ = quinn.send_stream(self.stream).reset(code);
        let _ = quinn.recv_stream(self.stream).stop(code);
        self.unwritten = Bytes::new();
        self.unread = Bytes::new();
    }
}

enum More {
    Unread,
    Lent,
    Nothing,
    Finished,
}
