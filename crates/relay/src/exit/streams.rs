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

use super::owed::Owed;
use crate::keys::CircuitKey;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::BeginFlags;
use heddle_proto::pool::CellQueue;
use heddle_seam::node::{ResolveId, SocketId};
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A question to the resolver, and for whom. One whose stream or circuit is gone counts until it is
/// answered, because the resolver is still at work for it.
#[derive(Debug)]
pub(crate) enum Asked {
    Nobody { circuit: CircuitKey },
    Begin { circuit: CircuitKey, stream: StreamId, port: u16, flags: BeginFlags },
    Resolve { circuit: CircuitKey, stream: StreamId },
}

impl Asked {
    /// The circuit that the question counts for, which may be gone.
    pub fn circuit(&self) -> CircuitKey {
        match *self {
            Asked::Nobody { circuit } | Asked::Begin { circuit, .. } | Asked::Resolve { circuit, .. } => {
                circuit
            }
        }
    }
}

/// A connection whose stream is over, with what it is still owed.
struct Leftover {
    owed: Owed,
    deadline: Instant,
}

/// The shard's tables of streams; each stream and each leftover has at most one entry in each.
#[derive(Default)]
pub(crate) struct Streams {
    by_socket: BTreeMap<SocketId, (CircuitKey, StreamId)>,
    asked: BTreeMap<ResolveId, Asked>,
    leftovers: BTreeMap<SocketId, Leftover>,
    /// Until when connections may open, at most one of each stream. Sockets are numbered as they are made, so the first
    /// is the oldest.
    connecting: BTreeMap<SocketId, Instant>,
    /// Streams with data to write since the shard last flushed.
    to_flush: VecDeque<SocketId>,
    /// When streams that wait for their client's rate may be read again.
    wakes: BTreeSet<(Instant, SocketId)>,
    /// Circuits with room for more of the streams that wait for it, each once.
    unread: VecDeque<CircuitKey>,
    questions: u64,
}

/// Questions to the resolver.
impl Streams {
    /// Questions that the resolver has not answered.
    pub fn questions(&self) -> usize {
        self.asked.len()
    }

    /// The resolver is asked something.
    pub fn ask(&mut self, asked: Asked) -> ResolveId {
        let id = ResolveId(self.questions);
        self.questions += 1;
        self.asked.insert(id, asked);
        id
    }

    /// A question is answered, or given up.
    pub fn end_question(&mut self, id: ResolveId) -> Option<Asked> {
        self.asked.remove(&id)
    }

    /// Questions for whose answers nobody waits, of those circuits that are there or not.
    pub fn left_questions(&self, is_there: impl Fn(CircuitKey) -> bool) -> Vec<ResolveId> {
        let is_left = |asked: &Asked| matches!(asked, Asked::Nobody { .. }) || !is_there(asked.circuit());
        self.asked.iter().filter(|(_, asked)| is_left(asked)).map(|(id, _)| *id).collect()
    }

    /// Nobody waits any more for what the resolver is still at work for.
    pub fn leave_question(&mut self, id: ResolveId) {
        if let Some(asked) = self.asked.get_mut(&id) {
            *asked = Asked::Nobody { circuit: asked.circuit() };
        }
    }
}

/// Connections.
impl Streams {
    /// The stream of a connection.
    pub fn find(&self, socket: SocketId) -> Option<(CircuitKey, StreamId)> {
        self.by_socket.get(&socket).copied()
    }

    /// Whether a connection is a stream's, or still owed something.
    pub fn has_socket(&self, socket: SocketId) -> bool {
        self.by_socket.contains_key(&socket) || self.leftovers.contains_key(&socket)
    }

    /// Connections, those of streams that are over included.
    pub fn connections(&self) -> usize {
        self.by_socket.len() + self.leftovers.len()
    }

    /// A stream's connection is to open until then.
    pub fn connect(&mut self, socket: SocketId, stream: (CircuitKey, StreamId), until: Instant) {
        self.by_socket.insert(socket, stream);
        self.connecting.insert(socket, until);
    }

    /// A connection is there. Returns its stream.
    pub fn on_connected(&mut self, socket: SocketId) -> Option<(CircuitKey, StreamId)> {
        self.connecting.remove(&socket);
        self.find(socket)
    }

    /// A connection is a stream's no more. Returns that stream.
    pub fn disconnect(&mut self, socket: SocketId) -> Option<(CircuitKey, StreamId)> {
        self.connecting.remove(&socket);
        self.by_socket.remove(&socket)
    }

    /// A connection that is not there though it is time.
    pub fn pop_late_connect(&mut self, now: Instant) -> Option<SocketId> {
        let (&socket, _) = self.connecting.first_key_value().filter(|(_, until)| **until <= now)?;
        self.connecting.remove(&socket);
        Some(socket)
    }
}

/// Connections that are owed something though their streams are over.
impl Streams {
    /// A connection's stream is over, and it has until then to take what it is owed.
    pub fn leave_over(&mut self, socket: SocketId, owed: Owed, deadline: Instant) {
        self.leftovers.insert(socket, Leftover { owed, deadline });
        self.flush_soon(socket);
    }

    /// Connections whose streams are over, and the cells that they are owed.
    pub fn owed(&self) -> impl Iterator<Item = (SocketId, &CellQueue)> {
        self.leftovers.iter().map(|(socket, leftover)| (*socket, leftover.owed.queue()))
    }

    /// What a connection is owed whose stream is over.
    pub fn leftover_mut(&mut self, socket: SocketId) -> Option<&mut Owed> {
        self.leftovers.get_mut(&socket).map(|leftover| &mut leftover.owed)
    }

    /// A connection is owed nothing more, or does not get it.
    pub fn end_leftover(&mut self, socket: SocketId) -> Option<Owed> {
        self.leftovers.remove(&socket).map(|leftover| leftover.owed)
    }

    /// Connections that have not taken in time what they are owed.
    pub fn late_leftovers(&self, now: Instant) -> Vec<SocketId> {
        let late = self.leftovers.iter().filter(|(_, leftover)| leftover.deadline <= now);
        late.map(|(socket, _)| *socket).collect()
    }
}

/// Whose turn it is.
impl Streams {
    /// A connection may have to be written to.
    pub fn flush_soon(&mut self, socket: SocketId) {
        self.to_flush.push_back(socket);
    }

    /// A connection that may have to be written to.
    pub fn next_to_flush(&mut self) -> Option<SocketId> {
        self.to_flush.pop_front()
    }

    /// Streams that wake up by a timer.
    pub fn wakes(&self) -> usize {
        self.wakes.len()
    }

    /// When a stream is to wake up next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// A stream that is to wake up now.
    pub fn pop_wake(&mut self, now: Instant) -> Option<SocketId> {
        let &(at, socket) = self.wakes.first().filter(|(at, _)| *at <= now)?;
        self.wakes.remove(&(at, socket));
        Some(socket)
    }

    /// A stream was to wake up then, and is to wake up now then.
    pub fn move_wake(&mut self, socket: SocketId, [before, now]: [Option<Instant>; 2]) {
        before.map(|at| self.wakes.remove(&(at, socket)));
        now.map(|at| self.wakes.insert((at, socket)));
    }

    /// A circuit has room for more of its streams, once the driver has read what it could.
    pub fn list_unread(&mut self, circuit: CircuitKey) {
        self.unread.push_back(circuit);
    }

    /// Whether there are such circuits.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Takes these circuits.
    pub fn take_unread(&mut self) -> VecDeque<CircuitKey> {
        core::mem::take(&mut self.unread)
    }
}
