//! Streams that are not read since their circuit can take no more, and when it is their turn again.
//!
//! A circuit may have a thousand streams, and be full and not full with every SENDME. So nobody looks at all of them:
//!
//! 1. The circuit is full. A stream learns that when there is something to be done for it, such as a read, and waits.
//! 2. There is room: the streams that wait longest may be read, as many as fill it if each has much.
//! 3. There is still room when the driver has read them: it is the next streams' turn, at a time-out that is due at once.
//!
//! A stream is looked at once for each time that it began to wait.

use super::end::{End, READ_CELLS_MAX, Stream};
use crate::core::Core;
use crate::keys::CircuitKey;
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
    /// A stream waits, behind the others.
    pub fn join(&mut self, id: StreamId, stream: &mut Stream) {
        if stream.turn.is_none() {
            stream.turn = Some(self.next_turn);
            self.by_turn.insert(self.next_turn, id);
            self.next_turn += 1;
        }
    }

    /// A stream is over.
    pub fn forget(&mut self, stream: &Stream) {
        if let Some(turn) = stream.turn {
            self.by_turn.remove(&turn);
        }
    }
}

impl End {
    fn next_unread(&mut self) -> Option<StreamId> {
        let (_, id) = self.unread.by_turn.pop_first()?;
        self.streams.get_mut(&id)?.turn = None;
        Some(id)
    }
}

impl Core {
    /// A circuit may have room: it is the next streams' turn.
    pub fn read_more(&mut self, key: CircuitKey) {
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else { return };
        let streams = end.room().div_ceil(READ_CELLS_MAX);
        let turns: Vec<_> = (0..streams).map_while(|_| end.next_unread()).collect();
        if streams > 0 && !end.unread.by_turn.is_empty() && !end.unread.listed {
            end.unread.listed = true;
            self.streams.unread.push_back(key);
        }
        turns.into_iter().for_each(|id| self.update_interest(key, id));
    }

    /// The driver has read what it could: circuits that still have room let more streams be read.
    pub fn go_on_reading(&mut self) {
        for key in core::mem::take(&mut self.streams.unread) {
            if let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) {
                end.unread.listed = false;
                self.read_more(key);
            }
        }
    }
}
