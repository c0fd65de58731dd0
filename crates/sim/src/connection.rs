//! A TCP connection in the making, at work and in decline.
//!
//! A direction keeps its bytes in one buffer: those that arrived stand in front, those that are
//! still on the wire behind. The buffer and the acknowledgements on their way back never hold more
//! than the wire's window.

use core::net::SocketAddr;
use heddle_proto::node::SocketId;
use heddle_proto::time::Instant;
use std::collections::VecDeque;

/// A connection of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub usize);

/// A shard of a host, counted over all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ActorId(pub usize);

/// One of a connection's two ends: 0 dialled, 1 accepted.
pub(crate) type Side = usize;

/// How far an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndState {
    Connecting,
    Open,
    /// Its node let go of it, or heard that it failed: no input names it any more.
    Gone,
}

/// How far a direction's FIN is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    None,
    /// On the wire, behind all bytes.
    Sent,
    Arrived,
    /// The reader was told.
    Read,
}

pub(crate) struct End {
    pub actor: ActorId,
    pub socket: SocketId,
    pub addr: SocketAddr,
    pub state: EndState,
    pub want_read: bool,
    pub want_write: bool,
    /// Whether an event is scheduled that looks whether there is something to be read or granted.
    pub look_due: bool,
    /// Whether the node asked for credit anew, so it is told even if that did not change.
    pub grant_due: bool,
    /// What the node believes it may send.
    pub credit: usize,
    /// Bytes towards the other end.
    pub outgoing: Direction,
}

pub(crate) struct Direction {
    /// At most the wire's window.
    pub bytes: VecDeque<u8>,
    /// How many of `bytes` the reader's host has.
    pub arrived: usize,
    /// Bytes that the sender does not know to be read.
    pub unacknowledged: usize,
    pub fin: Fin,
    /// Nothing sent later arrives before this.
    pub last_arrival: Instant,
}

impl Direction {
    fn new() -> Self {
        Direction {
            bytes: VecDeque::new(),
            arrived: 0,
            unacknowledged: 0,
            fin: Fin::None,
            last_arrival: Instant::ZERO,
        }
    }
}

impl End {
    pub fn new(actor: ActorId, socket: SocketId, addr: SocketAddr) -> Self {
        End {
            actor,
            socket,
            addr,
            state: EndState::Connecting,
            want_read: false,
            want_write: false,
            look_due: false,
            grant_due: false,
            credit: 0,
            outgoing: Direction::new(),
        }
    }

    /// The credit to tell the node, if there is any to tell: it wants to write, used up most of
    /// what it had (or asks anew), and the window has room.
    pub fn grant(&mut self, window_bytes: usize) -> Option<usize> {
        /// Below this much credit a node is told of more.
        const LOW_BYTES: usize = 16 * 1024;
        let room = window_bytes.saturating_sub(self.outgoing.unacknowledged);
        let due = self.want_write && (self.credit < LOW_BYTES || self.grant_due);
        if self.state != EndState::Open || self.outgoing.fin != Fin::None || !due || room == 0 {
            return None;
        }
        if room == self.credit && !self.grant_due {
            return None;
        }
        self.grant_due = false;
        self.credit = room;
        Some(room)
    }
}

pub(crate) struct Connection {
    pub ends: [End; 2],
}
