//! Streams that are not read since their circuit can take no more, and when it is their turn again.
//!
//! A circuit may have a thousand streams, and be full and not full with every SENDME. So nobody looks at all of them:
//!
//! 1. The circuit is full. A stream learns that when there is something to be done for it, such as a read, and waits.
//! 2. There is room: the streams that wait longest may be read, as many as fill it if each has much.
//! 3. There is still room when the driver has read them: it is the next streams' turn, at a time-out that is due at
//!    once.
//!
//! A stream is looked at once for each time that it began to wait.

use heddle_proto::cell::relay::StreamId;
use std::collections::BTreeMap;

/// Streams of a circuit that wait, each once.
#[derive(Default)]
pub(crate) struct Unread {
    by_turn: BTreeMap<u64, StreamId>,
    next_turn: u64,
    /// Whether the circuit stands among those with room for more streams.
    listed: bool,
}

impl Unread {
    /// A stream waits, behind the others; `turn` is its own, if it waits already.
    pub fn join(&mut self, id: StreamId, turn: &mut Option<u64>) {
        if turn.is_none() {
            *turn = Some(self.next_turn);
            self.by_turn.insert(self.next_turn, id);
            self.next_turn += 1;
        }
    }

    /// A stream with this turn is over.
    pub fn forget(&mut self, turn: Option<u64>) {
        if let Some(turn) = turn {
            self.by_turn.remove(&turn);
        }
    }

    /// The stream whose turn it is; it waits no more.
    pub fn pop(&mut self) -> Option<StreamId> {
        self.by_turn.pop_first().map(|(_, id)| id)
    }

    /// Whether the circuit is to be listed among those with room for more streams, which it then is.
    pub fn list(&mut self) -> bool {
        !self.by_turn.is_empty() && !core::mem::replace(&mut self.listed, true)
    }

    pub fn unlist(&mut self) {
        self.listed = false;
    }
}
