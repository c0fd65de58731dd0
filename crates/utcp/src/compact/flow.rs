//! One flow of a session, as the mux keeps it.

use super::account::Account;
use super::age::Age;
use super::flow_id::FlowId;
use crate::connection::{CloseReason, Connection};
use crate::time::Instant;

/// What became of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MuxEvent {
    /// The peer opened it.
    Opened(FlowId),
    /// There is something to read, or the end of it. Once, until everything was read.
    Readable(FlowId),
    /// It takes bytes again after a write that it did not take whole.
    Writable(FlowId),
    /// It is over, and its name is forgotten. Not after a reset of our own.
    Closed(FlowId, CloseReason),
}

/// A flow's connection and what its application was told.
#[derive(Debug)]
pub(super) struct Flow {
    pub connection: Connection,
    /// Where it stands among the timers.
    pub timer: Option<Instant>,
    /// Whether it stands in the queue of those that may have something to send.
    pub is_queued: bool,
    pub is_told_readable: bool,
    pub is_blocked: bool,
    /// How many bytes must be prompt before the application is told.
    pub awaited_bytes: Option<usize>,
    /// Whether it stands among those that owe an acknowledgement.
    pub owes_ack: bool,
    /// What the session's window knows of it.
    pub account: Account,
    /// How old what was received and not read is, and what was written and not acknowledged.
    pub received: Age,
    pub written: Age,
    /// What it had on the heap when it last came to rest.
    pub heap_bytes: usize,
}

impl Flow {
    /// `smoothed_ns` is what a round trip takes on other flows of the session.
    pub(super) fn new(mut connection: Connection, smoothed_ns: Option<u64>) -> Self {
        if let Some(smoothed_ns) = smoothed_ns {
            connection.expect_round_trip(smoothed_ns);
        }
        Flow {
            connection,
            timer: None,
            is_queued: false,
            is_told_readable: false,
            is_blocked: false,
            awaited_bytes: None,
            owes_ack: false,
            account: Account::default(),
            received: Age::default(),
            written: Age::default(),
            heap_bytes: 0,
        }
    }

    /// Notes how old its bytes are, after some may have come or gone.
    pub(super) fn note_age(&mut self, now: Instant) {
        let (read, came) = self.connection.received();
        self.received.update(now, read, came);
        let (acknowledged, written) = self.connection.written();
        self.written.update(now, acknowledged, written);
    }

    /// What the application has to be told now, if not the end.
    pub(super) fn news(&mut self, id: FlowId) -> [Option<MuxEvent>; 2] {
        let has_something = self.connection.readable() > 0 || self.connection.is_eof();
        let readable = has_something && !self.is_told_readable;
        self.is_told_readable |= readable;
        let writable = self.is_blocked && self.connection.capacity() > 0 || self.has_awaited_room();
        self.is_blocked &= !writable;
        [readable.then_some(MuxEvent::Readable(id)), writable.then_some(MuxEvent::Writable(id))]
    }
}

impl Flow {
    /// Whether there is the room that the application waits for; it is forgotten when there is.
    pub(super) fn has_awaited_room(&mut self) -> bool {
        let has_room = self.awaited_bytes.is_some_and(|bytes| self.connection.promptly() >= bytes);
        if has_room {
            self.awaited_bytes = None;
            self.connection.await_window(0);
        }
        has_room
    }
}
