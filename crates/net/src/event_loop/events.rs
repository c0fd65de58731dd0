//! What the kernel says of sockets, and what is read from them.

use super::{
    EventLoop, LISTENERS_MAX, PORT_SOCKETS_MAX, READ_BATCH_BYTES, STACKS_MAX, TOKEN_LISTENERS, TOKEN_PORTS,
    TOKEN_STACKS, TOKEN_WAKE,
};
use crate::socket::{Socket, State};
use crate::sys;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, SocketId};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::SocketAddr;

/// Events after which only an empty receive proves that nothing more is there.
const READ_UNTIL_EMPTY: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

impl<L: Language, N: Node<L>> EventLoop<L, N> {
    /// Watches a new socket, once for all its life.
    pub(super) fn add_socket(
        &mut self,
        id: SocketId,
        fd: OwnedFd,
        peer: SocketAddr,
        state: State,
    ) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET;
        self.counters.epoll_ctls += 1;
        epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(id.get()), flags)?;
        self.counters.sockets_opened += 1;
        if id.stack().is_some() {
            self.stacks.note(id);
        }
        let before = self.sockets.insert(id, Socket::new(fd, peer, state));
        debug_assert!(before.is_none(), "the number of a socket was used again");
        Ok(())
    }

    pub(super) fn take_events(&mut self, events: &[epoll::Event]) {
        for &epoll::Event { flags, data, .. } in events {
            match Source::of(data.u64()) {
                Source::Wake => {}
                Source::Listener(n) => self.accept_batch(n),
                Source::Port(n) => self.on_port_event(n, flags),
                Source::Device(n) => self.on_device_event(n),
                Source::Helper(n) => self.on_helper_event(n),
                Source::Socket(id) => self.on_socket_event(id, flags),
            }
        }
    }

    fn on_socket_event(&mut self, id: SocketId, flags: EventFlags) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if socket.state == State::Connecting {
            return self.on_connect_event(id, flags);
        }
        if flags.intersects(EventFlags::IN | READ_UNTIL_EMPTY) {
            socket.readable = true;
            socket.read_until_empty |= flags.intersects(READ_UNTIL_EMPTY);
        }
        if flags.contains(EventFlags::OUT) {
            socket.writable = true;
        }
        if flags.contains(EventFlags::ERR) {
            // What the peer sent before it broke is still worth reading; but if the node does not
            // read, nothing else would ever tell it.
            socket.broken = true;
            if !socket.want_read || socket.eof || socket.state == State::Closing {
                return self.fail_broken(id);
            }
        }
        self.queue_if_due(id);
    }

    fn on_connect_event(&mut self, id: SocketId, flags: EventFlags) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if let Some(error) = sys::take_error(&socket.fd) {
            return self.fail(id, error);
        }
        if !flags.contains(EventFlags::OUT) {
            return;
        }
        match sys::local_addr(&socket.fd) {
            // A port that nobody listened on met itself: the source port happened to be the same.
            Ok(local) if local == socket.peer => self.fail(id, Errno::CONNREFUSED),
            Ok(local) => {
                socket.state = State::Open;
                socket.writable = true;
                socket.readable = flags.intersects(EventFlags::IN | READ_UNTIL_EMPTY);
                socket.read_until_empty = flags.intersects(READ_UNTIL_EMPTY);
                self.inputs.push_back(Input::Connected { socket: id, local });
                self.queue_if_due(id);
            }
            Err(error) => self.fail(id, error),
        }
    }

    /// Fails a socket with the error that the kernel holds, if it does.
    pub(super) fn fail_broken(&mut self, id: SocketId) {
        let error = self.sockets.get(&id).and_then(|socket| sys::take_error(&socket.fd));
        if let Some(error) = error {
            self.fail(id, error);
        }
    }

    /// Puts a socket into the queues of what can be done for it now.
    pub(super) fn queue_if_due(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if socket.may_read() && !socket.queued.read {
            socket.queued.read = true;
            self.reads.push_back(id);
        }
        if socket.may_grant(self.options.write_quantum_bytes) && !socket.queued.grant {
            socket.queued.grant = true;
            self.grants.push_back(id);
        }
        if socket.is_pending() && socket.writable {
            self.queue_flush(id);
        }
    }

    /// Receives once from each socket that has something and whose node wants it.
    pub(super) fn read_round(&mut self) {
        let mut unpolled_bytes = 0;
        for _ in 0..self.reads.len() {
            if self.read_left == 0 {
                return;
            }
            let Some(id) = self.reads.pop_front() else { return };
            let bytes = self.read(id);
            self.read_left = self.read_left.saturating_sub(bytes);
            unpolled_bytes += bytes;
            if unpolled_bytes >= READ_BATCH_BYTES {
                self.settle();
                unpolled_bytes = 0;
            }
        }
    }

    /// Receives once, and returns how many bytes.
    fn read(&mut self, id: SocketId) -> usize {
        let Some(socket) = self.sockets.get_mut(&id) else { return 0 };
        socket.queued.read = false;
        if !socket.may_read() {
            return 0;
        }
        let buf = self.node.recv_buf(id);
        // The node lost interest and will say so when it is asked.
        let received = if buf.is_empty() { Ok(None) } else { socket.recv(buf, &mut self.counters) };
        match received {
            Ok(received) => {
                if id.stack().is_some() {
                    self.counters.stack_recv_bytes += received.unwrap_or(0) as u64;
                }
                self.queue_if_due(id);
                match received {
                    Some(0) => self.hand_in(Input::Eof { socket: id }),
                    Some(len) => self.hand_in(Input::Read { socket: id, len }),
                    None => {}
                }
                received.unwrap_or(0)
            }
            Err(error) => {
                self.fail(id, error);
                0
            }
        }
    }

    /// Gives credit to sockets whose bytes are all with the kernel, once each.
    pub(super) fn grant_round(&mut self) {
        let bytes = self.options.write_quantum_bytes;
        for _ in 0..self.grants.len() {
            let Some(id) = self.grants.pop_front() else { return };
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            socket.queued.grant = false;
            if socket.may_grant(bytes) {
                socket.grant_due = false;
                socket.credit = bytes;
                let window_bytes = socket.window.bytes(self.now, &socket.fd, &mut self.counters);
                self.hand_in(Input::Writable { socket: id, bytes, window_bytes });
            }
        }
    }
}

/// What an event is about.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Wake,
    Listener(usize),
    Port(usize),
    Device(usize),
    Helper(usize),
    Socket(SocketId),
}

impl Source {
    fn of(token: u64) -> Source {
        let below = |first: u64, count: usize| {
            let n = first.checked_sub(token).and_then(|n| usize::try_from(n).ok());
            n.filter(|n| *n < count)
        };
        if token == TOKEN_WAKE {
            Source::Wake
        } else if let Some(n) = below(TOKEN_LISTENERS, LISTENERS_MAX) {
            Source::Listener(n)
        } else if let Some(n) = below(TOKEN_PORTS, PORT_SOCKETS_MAX) {
            Source::Port(n)
        } else if let Some(n) = below(TOKEN_STACKS, 2 * STACKS_MAX) {
            if n % 2 == 0 { Source::Device(n / 2) } else { Source::Helper(n / 2) }
        } else {
            Source::Socket(match token & 1 {
                0 => SocketId::dialled(token >> 1),
                _ => SocketId::accepted(token >> 1),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::node::StackId;

    #[test]
    fn a_socket_id_survives_the_kernel() {
        let last = SocketId::accepted((1 << 54) - 1).on(StackId(u8::MAX));
        for id in [
            SocketId::dialled(0),
            SocketId::accepted(0),
            SocketId::dialled(1 << 40),
            SocketId::accepted(77),
            SocketId::dialled(3).on(StackId(0)),
            last,
        ] {
            assert_eq!(Source::of(id.get()), Source::Socket(id));
        }
    }

    #[test]
    fn tokens_are_told_apart() {
        assert_eq!(Source::of(TOKEN_WAKE), Source::Wake);
        assert_eq!(Source::of(TOKEN_LISTENERS - 63), Source::Listener(63));
        assert_eq!(Source::of(TOKEN_PORTS), Source::Port(0));
        assert_eq!(Source::of(TOKEN_PORTS - 31), Source::Port(31));
        assert_eq!(Source::of(TOKEN_STACKS), Source::Device(0));
        assert_eq!(Source::of(TOKEN_STACKS - 3), Source::Helper(1));
    }
}
