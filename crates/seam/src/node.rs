//! The seam: the one language that every node and every driver speak.
//!
//! A driver is just a caller. It owns sockets, a clock, worker threads and the resolver; a node
//! owns everything that is decided. The loop is always the same:
//!
//! 1. hand one [`Input`] to [`Node::handle_input`];
//! 2. call [`Node::poll_output`] and do what it says until it says [`Output::Timeout`], which is
//!    always the last;
//! 3. wait for the next input, or until that time, and then hand in [`Input::Timeout`].
//!
//! Byte streams are credit-based in both directions, so that no queue grows in a driver: a node
//! sends at most what the last [`Input::Writable`] allowed, and a driver reads only while the last
//! [`Output::Interest`] says so.
//!
//! A socket that fails is gone for the driver before the node hears of it, and several inputs may go
//! in before outputs are polled. So an output may name a socket that has already failed: drivers do
//! nothing then.

use crate::datagrams::{Datagrams, Packets, Transmit};
use crate::language::{Job, Language, Plain};
use crate::time::{Instant, UnixTime};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A byte stream between a node and its driver.
///
/// Who opened the socket names it: the node takes even numbers for those it dials, the driver odd
/// ones for those it accepts. A number is never used again. The highest bits say on which network it is: the host's, or
/// a stack of the node's own, whose sockets are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u64);

/// Where a socket's stack stands in its number, as one more than the stack's; zero is the host's network.
const STACK_SHIFT: u32 = 55;

impl SocketId {
    /// The `n`-th socket that the node dialled.
    pub const fn dialled(n: u64) -> Self {
        SocketId(n << 1)
    }

    /// The `n`-th socket that the driver accepted.
    pub const fn accepted(n: u64) -> Self {
        SocketId(n << 1 | 1)
    }

    /// The same on a stack of the node's own.
    #[must_use]
    pub const fn on(self, stack: StackId) -> Self {
        SocketId(self.0 | (stack.0 as u64 + 1) << STACK_SHIFT)
    }

    /// The stack that it is on, unless that is the host's.
    pub const fn stack(self) -> Option<StackId> {
        match self.0 >> STACK_SHIFT {
            0 => None,
            stack => Some(StackId((stack - 1) as u8)),
        }
    }

    /// Whether the node dialled it.
    pub const fn is_dialled(self) -> bool {
        self.0 & 1 == 0
    }

    /// The number, for logs and for tables of drivers.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// One question to the resolver; numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolveId(pub u64);

/// One piece of work for a worker thread; numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A UDP port of a node, counted from zero. The driver opens a node's ports before its first input, and they stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u8);

/// A network stack of a node's own: a kernel's TCP with one address, joined to nothing but the node, which is handed
/// each packet that it sends and says what it receives. The driver opens a node's stacks before its first input, and
/// they stay. One that belongs to a UDP port bears its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u8);

/// What a stack is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOptions {
    /// The address that its connections come from.
    pub addr: Ipv4Addr,
    /// Ports that are listened at. The first is what the others depend on: a driver that accepts up to a bound accepts
    /// some there when it accepts none at the others any more.
    pub ports: &'static [u16],
    /// The longest IP packet that it sends, in bytes.
    pub packet_bytes_max: u16,
}

/// A shard of a node, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// What a driver tells a node.
#[derive(Debug)]
pub enum Input<L: Language> {
    /// The time of the last [`Output::Timeout`] has come.
    Timeout,
    /// The wall clock; at the start and then about once a minute.
    WallClock(UnixTime),
    /// A peer connected to our ORPort, or to a port of a stack, as the socket's number says.
    Accepted { socket: SocketId, local: SocketAddr, peer: SocketAddr },
    /// A socket of [`Output::Connect`] is connected.
    Connected { socket: SocketId, local: SocketAddr },
    /// The socket could not be connected, or broke. It is gone: no further input names it.
    Failed { socket: SocketId, error: SocketError },
    /// `len` bytes lie at the start of [`Node::recv_buf`].
    Read { socket: SocketId, len: usize },
    /// From now on the node may send this many bytes (not: this many more). `window_bytes` is what the system lets be
    /// on its way unacknowledged at the moment; what is sent beyond that leaves later, as acknowledgements come. A
    /// driver that cannot tell says `usize::MAX`.
    Writable { socket: SocketId, bytes: usize, window_bytes: usize },
    /// Of what the node sent on this socket the driver keeps memory of so many bytes, because the system takes no more
    /// at the moment. It is said anew when that changes, and zero ends it; alone of all inputs it may name a socket
    /// that the node closed and that still sends. A driver that keeps nothing never says it. Of a socket on a stack of
    /// the node's own it includes what that stack keeps, in both directions, as it was a second ago at most.
    Unsent { socket: SocketId, bytes: usize },
    /// The peer will send nothing more.
    Eof { socket: SocketId },
    /// Datagrams came to a port. They are always drained from the socket, whatever the node does with them.
    Datagrams { port: PortId, datagrams: Datagrams },
    /// A stack sends packets. They are always taken from it, whatever the node does with them.
    Packets { stack: StackId, packets: Packets },
    /// From now on the node may open this many connections on a stack (not: this many more). One beyond that fails. And
    /// whether others had better open some there: those that come nevertheless are accepted up to a bound, and reset
    /// beyond it. A driver that never says it opens and accepts all.
    StackRoom { stack: StackId, sockets: usize, accepts: bool },
    /// The answer to [`Output::Resolve`].
    Resolved { id: ResolveId, answer: Result<Resolution, ResolveError> },
    /// The result of [`Output::Compute`].
    Computed { id: JobId, result: <L::Job as Job>::Result },
    /// A message of another shard of this node.
    FromShard { from: ShardId, message: L::Message },
    /// The operator or the control plane wants something.
    Control(L::Control),
}

/// What a node is told in its own language.
#[derive(Debug)]
pub enum Heard<L: Language> {
    Computed { id: JobId, result: <L::Job as Job>::Result },
    FromShard { from: ShardId, message: L::Message },
    Control(L::Control),
}

impl<L: Language> Input<L> {
    /// The same in another language.
    ///
    /// # Errors
    /// What is said in this one's own words, for whoever knows both to translate.
    pub fn translate<M: Language>(self) -> Result<Input<M>, Heard<L>> {
        Ok(match self {
            Input::Timeout => Input::Timeout,
            Input::WallClock(time) => Input::WallClock(time),
            Input::Accepted { socket, local, peer } => Input::Accepted { socket, local, peer },
            Input::Connected { socket, local } => Input::Connected { socket, local },
            Input::Failed { socket, error } => Input::Failed { socket, error },
            Input::Read { socket, len } => Input::Read { socket, len },
            Input::Writable { socket, bytes, window_bytes } => {
                Input::Writable { socket, bytes, window_bytes }
            }
            Input::Unsent { socket, bytes } => Input::Unsent { socket, bytes },
            Input::Eof { socket } => Input::Eof { socket },
            Input::Datagrams { port, datagrams } => Input::Datagrams { port, datagrams },
            Input::Packets { stack, packets } => Input::Packets { stack, packets },
            Input::StackRoom { stack, sockets, accepts } => Input::StackRoom { stack, sockets, accepts },
            Input::Resolved { id, answer } => Input::Resolved { id, answer },
            Input::Computed { id, result } => return Err(Heard::Computed { id, result }),
            Input::FromShard { from, message } => return Err(Heard::FromShard { from, message }),
            Input::Control(control) => return Err(Heard::Control(control)),
        })
    }
}

/// What a node wants of its driver.
#[derive(Debug)]
pub enum Output<L: Language> {
    /// Send the bytes that were appended to the buffer. The driver takes them all: the node kept
    /// within the last [`Input::Writable`].
    Send { socket: SocketId },
    /// Send the bytes that were appended to the buffer as datagrams. What the system has no room for waits in the
    /// driver, up to a bound, and is lost beyond it, as it may be anywhere on the way.
    Datagrams { port: PortId, transmit: Transmit },
    /// Hand the bytes that were appended to the buffer to a stack as IP packets that came to it, cut every `stride`
    /// bytes; the last may be shorter.
    Packets { stack: StackId, stride: usize },
    /// Open a TCP connection, on the network that the socket's number says. [`Output::Interest`] and
    /// [`Output::ShutdownWrite`] may follow at once: the driver keeps them until the socket is connected.
    Connect { socket: SocketId, to: SocketAddr },
    /// Whether the node wants [`Input::Read`] and [`Input::Writable`] of this socket. A new socket
    /// has neither until told.
    Interest { socket: SocketId, read: bool, write: bool },
    /// Send a FIN after what was sent.
    ShutdownWrite { socket: SocketId },
    /// Send what is pending, then close; no further input names the socket.
    Close { socket: SocketId },
    /// Close with a reset, dropping what is pending; no further input names the socket. It may be one that was closed
    /// and that still sends.
    Abort { socket: SocketId },
    /// Ask the resolver.
    Resolve { id: ResolveId, query: Query },
    /// Give up a question, whose place at the resolver is free at once. One answer still comes, and says nothing.
    StopResolving { id: ResolveId },
    /// Run a job on a worker thread. The node bounds how many are under way.
    Compute { id: JobId, job: L::Job },
    /// Hand a message to another shard, in order.
    ToShard { to: ShardId, message: L::Message },
    /// Something that logs, metrics or tests want to know.
    Event(L::Event),
    /// Nothing more to do until this time or the next input. Always the last output.
    Timeout(Option<Instant>),
}

/// What a node says in its own language.
#[derive(Debug)]
pub enum Said<L: Language> {
    Compute { id: JobId, job: L::Job },
    ToShard { to: ShardId, message: L::Message },
    Event(L::Event),
}

impl<L: Language> Output<L> {
    /// The same in another language.
    ///
    /// # Errors
    /// What is said in this one's own words, for whoever knows both to translate.
    pub fn translate<M: Language>(self) -> Result<Output<M>, Said<L>> {
        Ok(match self {
            Output::Send { socket } => Output::Send { socket },
            Output::Datagrams { port, transmit } => Output::Datagrams { port, transmit },
            Output::Packets { stack, stride } => Output::Packets { stack, stride },
            Output::Connect { socket, to } => Output::Connect { socket, to },
            Output::Interest { socket, read, write } => Output::Interest { socket, read, write },
            Output::ShutdownWrite { socket } => Output::ShutdownWrite { socket },
            Output::Close { socket } => Output::Close { socket },
            Output::Abort { socket } => Output::Abort { socket },
            Output::Resolve { id, query } => Output::Resolve { id, query },
            Output::StopResolving { id } => Output::StopResolving { id },
            Output::Compute { id, job } => return Err(Said::Compute { id, job }),
            Output::ToShard { to, message } => return Err(Said::ToShard { to, message }),
            Output::Event(event) => return Err(Said::Event(event)),
            Output::Timeout(due) => Output::Timeout(due),
        })
    }
}

impl Output<Plain> {
    /// The same in a language that has more words.
    pub fn widen<L: Language>(self) -> Output<L> {
        self.translate().unwrap_or_else(|said| match said {
            Said::Compute { job: never, .. } | Said::ToShard { message: never, .. } | Said::Event(never) => {
                match never {}
            }
        })
    }
}

/// Why a socket could not be connected, or broke, as far as END reasons tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketError {
    Refused,
    HostUnreachable,
    NetworkUnreachable,
    TimedOut,
    Reset,
    /// The driver is out of descriptors, ports or memory.
    ResourceLimit,
    Other,
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SocketError::Refused => "connection refused",
            SocketError::HostUnreachable => "no route to host",
            SocketError::NetworkUnreachable => "network unreachable",
            SocketError::TimedOut => "connection timed out",
            SocketError::Reset => "connection reset by peer",
            SocketError::ResourceLimit => "out of sockets or memory",
            SocketError::Other => "socket error",
        })
    }
}

/// Questions that the resolver works on at once, of all shards.
pub const RESOLVER_PLACES: usize = 8_192;

/// A question to the resolver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// The addresses of a name.
    Forward(String),
    /// The name of an address.
    Reverse(IpAddr),
}

/// What the resolver found; at most [`Resolution::MAX_ANSWERS`] answers, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Addresses, each with the time to live that a client is told of it, in seconds. It must not tell when somebody
    /// asked before, nor be the server's own.
    Addresses(Vec<(IpAddr, u32)>),
    /// A name with the time to live that a client is told, likewise.
    Name(String, u32),
}

impl Resolution {
    /// More answers than this are cut off: they would not fit a RESOLVED cell.
    pub const MAX_ANSWERS: usize = 16;
}

/// Why the resolver found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// It may work later: time-out, server failure, too many questions.
    Transient,
    /// There is no such name.
    NotFound,
}

/// A relay's shard, an onion proxy, a traffic source: whatever a driver can run. A node that has nothing to say beside
/// bytes fits among nodes of any language.
pub trait Node<L: Language> {
    /// Where the driver puts the bytes of this socket before it says [`Input::Read`]. Its length is what may be read at
    /// once. It is empty only between losing interest in reading, which the node may notice by this very call, and
    /// saying so: then the driver reads nothing, and asks for outputs next.
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8];

    /// Takes one input. Outputs wait until they are polled.
    fn handle_input(&mut self, now: Instant, input: Input<L>);

    /// The next output; bytes to send are appended to `buf`, which the driver empties between calls.
    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<L>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_says_where_it_is() {
        for stack in [0, 7, u8::MAX].map(StackId) {
            for socket in [SocketId::dialled(5), SocketId::accepted((1 << 54) - 1)] {
                let on = socket.on(stack);
                assert_eq!((on.stack(), socket.stack()), (Some(stack), None));
                assert_eq!(on.is_dialled(), socket.is_dialled());
                assert_ne!(on, socket);
            }
        }
    }
}
