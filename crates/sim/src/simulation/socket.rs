//! A node's socket on a connection of its host's kernel: what `heddle-net` keeps of one in production.

use super::ActorId;
use heddle_seam::node::SocketId;
use heddle_utcp::{Connection, State};
use std::collections::VecDeque;

/// What a node may hand over when nothing waits, and what the kernel holds of it that was not sent yet: the defaults of
/// production's `write_quantum_bytes` and `notsent_lowat_bytes`.
const QUANTUM_BYTES: usize = 32 * 1024;

/// A socket's place in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// The node closed it; what is pending is still being sent, and no input names it any more.
    Closing,
}

/// How far the FIN of a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    None,
    Wanted,
    Sent,
}

/// What a look at a socket has its node do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Read,
    Eof,
    Grant(usize),
    /// Not the node's: the kernel has room for what is pending.
    Flush,
    Nothing,
}

pub(crate) struct Socket {
    pub actor: ActorId,
    pub id: SocketId,
    pub phase: Phase,
    pub want_read: bool,
    pub want_write: bool,
    /// Whether an event is scheduled that looks what there is to do.
    pub look_due: bool,
    /// Whether the node asked for credit anew, so it is told even if that did not change.
    pub grant_due: bool,
    eof_told: bool,
    /// What the node believes it may send.
    credit: usize,
    fin: Fin,
    /// What the node handed over and the kernel has no room for: at most one quantum.
    out: VecDeque<u8>,
}

impl Socket {
    pub fn new(actor: ActorId, id: SocketId, phase: Phase) -> Self {
        Socket {
            actor,
            id,
            phase,
            want_read: false,
            want_write: false,
            look_due: false,
            grant_due: false,
            eof_told: false,
            credit: 0,
            fin: Fin::None,
            out: VecDeque::new(),
        }
    }

    /// Takes what the node handed over.
    pub fn push(&mut self, bytes: &[u8]) {
        assert!(self.phase == Phase::Open, "a node sends on a socket that is open");
        assert!(self.fin == Fin::None, "a node sent after its FIN");
        assert!(bytes.len() <= self.credit, "a node sent {} bytes of {} allowed", bytes.len(), self.credit);
        self.credit -= bytes.len();
        self.out.extend(bytes);
    }

    /// The node wants a FIN behind everything.
    pub fn want_fin(&mut self) {
        if self.fin == Fin::None {
            self.fin = Fin::Wanted;
        }
    }

    /// Hands the kernel what it has room for, and then the FIN; says whether nothing is left.
    pub fn flush(&mut self, connection: &mut Connection) -> bool {
        if self.phase == Phase::Connecting || !is_connected(connection) {
            return self.out.is_empty() && self.fin != Fin::Wanted;
        }
        while !self.out.is_empty() && room(connection) > 0 {
            let bytes = self.out.as_slices().0;
            let written = connection.write(&bytes[..bytes.len().min(room(connection))]);
            if written == 0 {
                return false;
            }
            self.out.drain(..written);
        }
        if self.out.is_empty() && self.fin == Fin::Wanted {
            self.fin = Fin::Sent;
            connection.shutdown();
        }
        self.out.is_empty()
    }

    /// What the node gets next of what it wants.
    pub fn turn(&mut self, connection: &Connection) -> Turn {
        let turn = self.next(connection);
        match turn {
            Turn::Eof => self.eof_told = true,
            Turn::Grant(bytes) => {
                self.grant_due = false;
                self.credit = bytes;
            }
            Turn::Read | Turn::Flush | Turn::Nothing => {}
        }
        turn
    }

    /// Whether there is anything that the node is to be told, or done for it.
    pub fn has_news(&self, connection: &Connection) -> bool {
        match self.phase {
            Phase::Connecting => is_connected(connection),
            Phase::Open => self.next(connection) != Turn::Nothing,
            Phase::Closing => false,
        }
    }

    fn next(&self, connection: &Connection) -> Turn {
        if self.phase != Phase::Open {
            return Turn::Nothing;
        }
        if self.want_read && connection.readable() > 0 {
            return Turn::Read;
        }
        if self.want_read && connection.is_eof() && !self.eof_told {
            return Turn::Eof;
        }
        if !self.out.is_empty() && room(connection) > 0 {
            return Turn::Flush;
        }
        let short = self.credit < QUANTUM_BYTES || self.grant_due;
        if self.want_write && self.fin == Fin::None && self.out.is_empty() && short && room(connection) > 0 {
            return Turn::Grant(QUANTUM_BYTES);
        }
        Turn::Nothing
    }
}

/// Whether the handshake is done and the connection lives.
pub(crate) fn is_connected(connection: &Connection) -> bool {
    !matches!(connection.state(), State::SynSent | State::SynReceived | State::Closed)
}

/// How many bytes the kernel takes now.
fn room(connection: &Connection) -> usize {
    let unsent = usize::try_from(connection.unsent()).unwrap_or(usize::MAX);
    connection.capacity().min(QUANTUM_BYTES.saturating_sub(unsent))
}
