//! Accepting connections, dealing them out among the shards, and not spinning when there is no room for them.

use super::{EventLoop, LISTENERS_MAX, TOKEN_LISTENERS};
use crate::mailbox::Handed;
use crate::socket::State;
use crate::sys;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, SocketId, StackId};
use heddle_seam::time::Instant;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Connections accepted from one listener in one turn.
const BATCH: usize = 64;
/// How long accepting pauses for want of descriptors or memory, unless one of ours is freed before.
const PAUSE: Duration = Duration::from_secs(1);

/// A listening socket, the address that it is bound to, and the stack that it is on.
struct Listener {
    socket: TcpListener,
    bound: SocketAddr,
    stack: Option<StackId>,
}

#[derive(Default)]
pub(super) struct Acceptor {
    /// By the numbers that their events bear.
    listeners: BTreeMap<usize, Listener>,
    /// The number of the next connection.
    next: u64,
    /// Connections accepted here so far, by which they are dealt out among the shards.
    dealt: usize,
    /// While accepting pauses, the listeners are not watched.
    pub paused_until: Option<Instant>,
}

impl Acceptor {
    /// Accepts nothing more of the host's network. Numbers go on, because connections may still be handed over by
    /// others. What comes to a stack is the node's to refuse, with a reason.
    pub(super) fn close(&mut self) {
        self.listeners.retain(|_, listener| listener.stack.is_some());
        if self.listeners.is_empty() {
            self.paused_until = None;
        }
    }
}

impl<L: Language, N: Node<L>> EventLoop<L, N> {
    pub(super) fn add_listener_of(
        &mut self,
        socket: TcpListener,
        bound: SocketAddr,
        stack: Option<StackId>,
    ) -> io::Result<()> {
        let n = self.acceptor.listeners.last_key_value().map_or(0, |(last, _)| last + 1);
        if n >= LISTENERS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many listeners"));
        }
        socket.set_nonblocking(true)?;
        sys::prepare(&socket, &self.options);
        self.watch_listener(&socket, n)?;
        self.acceptor.listeners.insert(n, Listener { socket, bound, stack });
        Ok(())
    }

    pub(super) fn accept_batch(&mut self, n: usize) {
        for _ in 0..BATCH {
            if self.acceptor.paused_until.is_some() {
                return;
            }
            let Some(listener) = self.acceptor.listeners.get(&n) else { return };
            let (bound, stack) = (listener.bound, listener.stack);
            self.counters.accepts += 1;
            match acceptfrom_with(&listener.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => self.accepted(fd, peer, bound, stack),
                Err(Errno::AGAIN) => return,
                Err(error) if is_of_one_connection(error) => {}
                Err(_) => self.pause_accepting(),
            }
        }
    }

    fn accepted(
        &mut self,
        fd: OwnedFd,
        peer: Option<SocketAddrAny>,
        bound: SocketAddr,
        stack: Option<StackId>,
    ) {
        let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { return };
        let local = match bound.ip().is_unspecified() {
            true => sys::local_addr(&fd),
            false => Ok(bound),
        };
        // A connection that broke since has no address; it needs no one's attention.
        let Ok(local) = local else { return };
        let handed = Handed { fd, local, peer };
        match stack {
            None => self.deal(handed),
            Some(stack) if self.stacks.has_room(stack, bound.port(), self.options.stack_sockets_max) => {
                self.stacks.on_accepted(stack);
                self.adopt(handed, Some(stack));
            }
            Some(_) => sys::reset_on_close(&handed.fd),
        }
    }

    /// Gives the connection to the shard whose turn it is: a channel stays with one shard for its whole life, so
    /// evenness comes from here alone. What a shard cannot take stays with this one.
    fn deal(&mut self, handed: Handed) {
        let shards = self.shards.len().max(1);
        let turn = self.acceptor.dealt % shards;
        self.acceptor.dealt += 1;
        let kept = match self.shards.get(turn) {
            Some(shard) if turn != usize::from(self.shard.0) => shard.hand_over(handed).err(),
            _ => Some(handed),
        };
        if let Some(handed) = kept {
            self.adopt(handed, None);
        }
    }

    /// Makes an accepted connection one of this loop's.
    pub(super) fn adopt(&mut self, Handed { fd, local, peer }: Handed, stack: Option<StackId>) {
        let socket = SocketId::accepted(self.acceptor.next);
        let socket = stack.map_or(socket, |stack| socket.on(stack));
        self.acceptor.next += 1;
        match self.add_socket(socket, fd, peer, State::Open) {
            Ok(()) => self.inputs.push_back(Input::Accepted { socket, local, peer }),
            Err(_) => {
                stack.into_iter().for_each(|stack| self.stacks.on_closed(stack));
                self.pause_accepting();
            }
        }
    }

    /// Stops watching the listeners: a connection that cannot be accepted would wake us for ever.
    fn pause_accepting(&mut self) {
        self.counters.accepts_out_of_resources += 1;
        self.acceptor.paused_until = Some(self.now + PAUSE);
        for listener in self.acceptor.listeners.values() {
            self.counters.epoll_ctls += 1;
            // It cannot fail for a descriptor that is open and watched.
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
    }

    pub(super) fn resume_accepting(&mut self) {
        self.acceptor.paused_until = None;
        let listeners = std::mem::take(&mut self.acceptor.listeners);
        let watched = listeners.iter().all(|(n, listener)| self.watch_listener(&listener.socket, *n).is_ok());
        self.acceptor.listeners = listeners;
        if !watched {
            self.pause_accepting();
        }
    }

    /// Level-triggered, because a batch may leave connections behind.
    fn watch_listener(&mut self, listener: impl AsFd, n: usize) -> io::Result<()> {
        let token = epoll::EventData::new_u64(TOKEN_LISTENERS - n as u64);
        self.counters.epoll_ctls += 1;
        epoll::add(&self.epoll, listener, token, epoll::EventFlags::IN)?;
        Ok(())
    }
}

/// Errors that `accept(2)` passes on from the connection, not from the listener.
fn is_of_one_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PERM
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use heddle_seam::language::Plain;
    use heddle_seam::node::Output;
    use std::net::TcpStream;

    struct Idle;

    impl Node<Plain> for Idle {
        fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
            &mut []
        }

        fn handle_input(&mut self, _: Instant, _: Input<Plain>) {}

        fn poll_output(&mut self, _: Instant, _: &mut Vec<u8>) -> Output<Plain> {
            Output::Timeout(None)
        }
    }

    #[test]
    fn a_connection_handed_over_after_the_listeners_closed_takes_no_others_place() {
        let mut event_loop = EventLoop::new(Idle, Options::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..2 {
            clients.push(TcpStream::connect(local).unwrap());
            let (socket, peer) = listener.accept().unwrap();
            let handed = Handed { fd: socket.into(), local, peer };
            assert!(event_loop.handle().hand_over(handed).is_ok());
            event_loop.take_mail().unwrap();
            event_loop.handle().close_listeners();
            event_loop.take_mail().unwrap();
        }
        let accepted = |input: &Input<Plain>| matches!(input, Input::Accepted { .. });
        assert_eq!(event_loop.inputs.iter().filter(|input| accepted(input)).count(), 2);
        assert_eq!(event_loop.sockets.len(), 2);
    }

    #[test]
    fn no_more_connections_wait_for_a_loop_than_it_bears() {
        let options = Options { handed_max: 3, ..Options::default() };
        let mut event_loop = EventLoop::new(Idle, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let hand_over = || {
            let client = TcpStream::connect(local).unwrap();
            let (socket, peer) = listener.accept().unwrap();
            let taken = event_loop.handle().hand_over(Handed { fd: socket.into(), local, peer });
            (client, taken.is_ok())
        };
        let (_clients, taken): (Vec<_>, Vec<_>) = (0..5).map(|_| hand_over()).unzip();
        assert_eq!(taken, [true, true, true, false, false]);
        event_loop.take_mail().unwrap();
        assert_eq!(event_loop.sockets.len(), 3);
    }
}
