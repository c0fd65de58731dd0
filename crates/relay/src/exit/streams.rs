//! Streams begin and end at the exit (tor-spec, "Application connections and stream management").
//!
//! 1. BEGIN comes: a name goes to the resolver; an address is held against the exit policy at once.
//! 2. The answer comes: the first address that the policy allows is connected to, unless a relay listens there. The
//!    policy is only ever asked about addresses, so a name cannot lead around it.
//! 3. The connection is there: CONNECTED goes out. It failed: END says why.
//! 4. END comes, or the connection ends: the stream is over. What waits for the connection is still
//!    written, as a *leftover*, while the stream's id is free again.
//!
//! A question, a connection and a leftover have each a place among the shard's streams, of which circuits and
//! neighbours have shares ([`crate::admission`]).

mod work;

use crate::keys::CircuitKey;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::BeginFlags;
use heddle_proto::pool::CellQueue;
use heddle_seam::node::{ResolveId, SocketId};
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A question to the resolver, and for whom. One whose stream or circuit is gone counts until it is
/// answered, since the resolver is still at work for it.
#[derive(Debug)]
pub(crate) enum Asked {
    Nobody { circuit: CircuitKey },
    Begin { circuit: CircuitKey, stream: StreamId, port: u16, flags: BeginFlags },
    Resolve { circuit: CircuitKey, stream: StreamId },
}

impl Asked {
    /// The circuit that the question counts for, which may be gone.
    fn circuit(&self) -> CircuitKey {
        match *self {
            Asked::Nobody { circuit } | Asked::Begin { circuit, .. } | Asked::Resolve { circuit, .. } => {
                circuit
            }
        }
    }
}

/// A connection whose stream is over, with what it is still owed.
pub(crate) struct Leftover {
    pub(super) queue: CellQueue,
    pub(super) writable: usize,
    /// Whether the operator's rates hold for this connection.
    pub(super) limited: bool,
    deadline: Instant,
}

/// The shard's tables of streams; each stream and each leftover has at most one entry in each.
#[derive(Default)]
pub(crate) struct Streams {
    pub(super) by_socket: BTreeMap<SocketId, (CircuitKey, StreamId)>,
    asked: BTreeMap<ResolveId, Asked>,
    pub(super) leftovers: BTreeMap<SocketId, Leftover>,
    /// Until when connections may open, at most one of each stream. Sockets are numbered as they are made, so the first
    /// is the oldest.
    connecting: BTreeMap<SocketId, Instant>,
    /// Streams with data to write since the shard last flushed.
    pub(super) to_flush: VecDeque<SocketId>,
    /// When streams that wait for their client's rate may be read again.
    pub(super) wakes: BTreeSet<(Instant, SocketId)>,
    /// Circuits with room for more of the streams that wait for it, each once.
    pub(super) unread: VecDeque<CircuitKey>,
    questions: u64,
}

impl Streams {
    /// Connections whose streams are over, and the cells that they are owed.
    pub fn owed(&self) -> impl Iterator<Item = (SocketId, &CellQueue)> {
        self.leftovers.iter().map(|(socket, leftover)| (*socket, &leftover.queue))
    }

    /// Connections, those of streams that are over included.
    pub fn connections(&self) -> usize {
        self.by_socket.len() + self.leftovers.len()
    }

    /// Questions that the resolver has not answered.
    pub fn questions(&self) -> usize {
        self.asked.len()
    }

    /// Streams that wake up by a timer.
    pub fn wakes(&self) -> usize {
        self.wakes.len()
    }

    /// When `Core::wake_streams` is to be called.
    pub fn next_wake(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Whether `Core::go_on_reading` is to be called, once the driver has read what it could.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// A connection that may have to be written to.
    pub fn next_to_flush(&mut self) -> Option<SocketId> {
        self.to_flush.pop_front()
    }
}
