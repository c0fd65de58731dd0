//! What the kernel of a host does: TCP, by `heddle-utcp`, under the sockets of its nodes. A stack of a node's own is
//! one, too, whose packets go to the node (`stacks.rs`) instead of the wires.
//!
//! Packets that arrive change connections; a changed connection's socket is looked at, by an event of its own at the
//! same instant, and its node gets one input. After each such step whatever has to leave goes on the wires.

use super::processors::Waiting;
use super::socket::{Phase, Socket, Turn, is_connected};
use super::{ActorId, Due, EVENTS_PER_INSTANT_MAX, HostId, KernelId, Simulation};
use crate::trace::Kind;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use heddle_seam::language::Language;
use heddle_seam::node::{Input, SocketError, SocketId, StackId};
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::segment::{Ecn, Flags};
use heddle_utcp::wire::{TcpHeader, emit};
use heddle_utcp::{BufferPool, CloseReason, ConnectionId, Host, HostLimits, Options};
use std::collections::BTreeMap;

/// What connections of a host may hold together, as Linux' `tcp_mem` bounds it.
const MEMORY_BYTES: usize = 256 << 20;
/// How long a closed socket may take to send what is pending, as in production.
const CLOSE_FLUSH_MAX: Duration = Duration::from_secs(15);

/// Whose a kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Host(HostId),
    Stack(ActorId, StackId),
    /// The process that had the stack was killed.
    Nobody,
}

/// The TCP of a host, or of a stack of a node's own.
pub(crate) struct Kernel {
    pub owner: Owner,
    pub tcp: Host,
    pub sockets: BTreeMap<ConnectionId, Socket>,
    /// Whose alone what comes to a port is. At other ports shards take turns.
    pub owners: BTreeMap<u16, ActorId>,
    /// The timer that is scheduled; others in the queue are void.
    timer: Option<Instant>,
    accepted: usize,
}

impl Kernel {
    pub fn new(owner: Owner, ports: &[u16], options: Options, seed: &Seed) -> Self {
        let mut rng = seed.rng();
        let random = Box::new(move || rng.next_u64());
        let mut tcp = Host::new(options, BufferPool::new(MEMORY_BYTES), HostLimits::default(), random);
        ports.iter().for_each(|port| tcp.listen(*port));
        Kernel { owner, tcp, sockets: BTreeMap::new(), owners: BTreeMap::new(), timer: None, accepted: 0 }
    }
}

/// How a kernel's TCP behaves, as Linux' does where nothing else is said.
pub(crate) fn options(receive_buffer_max_bytes: u32) -> Options {
    Options {
        // Relays set TCP_NODELAY.
        nagle: false,
        receive_buffer_initial_bytes: receive_buffer_max_bytes.min(64 << 10),
        receive_buffer_max_bytes,
        ..Options::linux()
    }
}

/// What sockets ask for.
impl<L: Language> Simulation<L> {
    pub(crate) fn connect(&mut self, actor: ActorId, socket: SocketId, to: SocketAddr) {
        assert!(socket.is_dialled(), "nodes name what they dial by even numbers");
        let kernel = self.kernel_of(actor, socket);
        let local = self.source(actor, socket, to);
        let now = self.now;
        let tcp = &mut self.kernels[kernel.0].tcp;
        let connection = tcp.connect(now, SocketAddr::new(local, 0), to);
        let connection = connection.expect("a host has more ports than a simulation has connections");
        let state = Socket::new(actor, socket, Phase::Connecting);
        self.kernels[kernel.0].sockets.insert(connection, state);
        self.sockets.insert((actor, socket), connection);
        self.pump(kernel);
    }

    /// Where a connection to an address comes from.
    fn source(&self, actor: ActorId, socket: SocketId, to: SocketAddr) -> IpAddr {
        if let Some(stack) = socket.stack() {
            return IpAddr::V4(self.stacks[&(actor, stack)].options.addr);
        }
        let host = self.actors[actor.0].host;
        let same_family = |addr: &&IpAddr| addr.is_ipv4() == to.is_ipv4();
        let unspecified = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        // A packet from nowhere finds no way, of which the node is told.
        self.hosts[host.0].addrs.iter().find(same_family).copied().unwrap_or(unspecified)
    }

    /// The kernel on which a node's socket is.
    fn kernel_of(&self, actor: ActorId, socket: SocketId) -> KernelId {
        match socket.stack() {
            Some(stack) => {
                let open = self.stacks.get(&(actor, stack));
                open.expect("a node names only stacks that were opened").kernel
            }
            None => self.hosts[self.actors[actor.0].host.0].kernel,
        }
    }

    pub(crate) fn set_interest(&mut self, actor: ActorId, socket: SocketId, read: bool, write: bool) {
        self.at_socket(actor, socket, |socket| {
            socket.grant_due |= write && !socket.want_write;
            (socket.want_read, socket.want_write) = (read, write);
        });
    }

    /// Takes what a node sends.
    pub(crate) fn send(&mut self, actor: ActorId, socket: SocketId) {
        let bytes = std::mem::take(&mut self.buf);
        let plain = self.is_plain(actor, socket);
        let detail: &[u8] = if plain { &bytes } else { &[] };
        self.trace.record(self.now, actor.0, Kind::Send, socket.get(), bytes.len() as u64, detail);
        self.at_socket(actor, socket, |socket| socket.push(&bytes));
        self.buf = bytes;
    }

    pub(crate) fn shutdown_write(&mut self, actor: ActorId, socket: SocketId) {
        self.at_socket(actor, socket, Socket::want_fin);
    }

    /// Sends what is pending and then closes; no input names the socket any more.
    pub(crate) fn close(&mut self, actor: ActorId, socket: SocketId) {
        let Some(id) = self.sockets.get(&(actor, socket)).copied() else { return };
        let kernel = self.kernel_of(actor, socket);
        let phase = self.kernels[kernel.0].sockets.get(&id).map(|socket| socket.phase);
        if phase == Some(Phase::Connecting) {
            return self.abort(actor, socket);
        }
        self.at_socket(actor, socket, |socket| {
            socket.phase = Phase::Closing;
            socket.want_fin();
        });
        self.sockets.remove(&(actor, socket));
        self.queue.push(self.now + CLOSE_FLUSH_MAX, Due::CloseFlush(kernel, id));
    }

    pub(crate) fn abort(&mut self, actor: ActorId, socket: SocketId) {
        if let Some(id) = self.sockets.remove(&(actor, socket)) {
            self.drop_connection(self.kernel_of(actor, socket), id);
        }
    }

    /// Ends a connection at once. Its socket is named no more.
    pub(crate) fn drop_connection(&mut self, kernel: KernelId, id: ConnectionId) {
        let Kernel { tcp, sockets, .. } = &mut self.kernels[kernel.0];
        sockets.remove(&id);
        if let Some(connection) = tcp.get_mut(id) {
            connection.abort(0);
        }
        tcp.release(id);
        self.pump(kernel);
    }

    /// Changes a socket, and has it looked at.
    fn at_socket(&mut self, actor: ActorId, socket: SocketId, change: impl FnOnce(&mut Socket)) {
        let Some(id) = self.sockets.get(&(actor, socket)).copied() else { return };
        let kernel = self.kernel_of(actor, socket);
        let Kernel { tcp, sockets, .. } = &mut self.kernels[kernel.0];
        if let Some(socket) = sockets.get_mut(&id) {
            change(socket);
            // A node that is charged has paid for this, and need not be told first what else there is.
            if self.actors[actor.0].charged.is_some()
                && let Some(connection) = tcp.get_mut(id)
                && connection.close_reason().is_none()
            {
                socket.flush(connection);
                self.pump(kernel);
            }
            self.look(kernel, id);
        }
    }

    /// Whether what is sent here is plain: one of the ends lies outside the network.
    fn is_plain(&self, actor: ActorId, socket: SocketId) -> bool {
        if socket.stack().is_some() {
            return false;
        }
        let host = self.actors[actor.0].host;
        let kernel = self.hosts[host.0].kernel;
        let id = self.sockets.get(&(actor, socket));
        let remote =
            id.and_then(|id| self.kernels[kernel.0].tcp.addresses(*id)).map(|(_, remote)| remote.ip());
        let peer = remote.and_then(|ip| self.by_addr.get(&ip));
        self.hosts[host.0].plain || peer.is_some_and(|peer| self.hosts[peer.0].plain)
    }
}

/// What happens to connections.
impl<L: Language> Simulation<L> {
    /// A packet has arrived at a kernel.
    pub(crate) fn on_segment(&mut self, kernel: KernelId, packet: &[u8]) {
        self.kernels[kernel.0].tcp.handle_packet(self.now, packet);
        self.pump(kernel);
    }

    pub(crate) fn on_kernel_timer(&mut self, kernel: KernelId, at: Instant) {
        if self.kernels[kernel.0].timer == Some(at) {
            self.kernels[kernel.0].timer = None;
            self.kernels[kernel.0].tcp.handle_timeout(self.now);
            self.pump(kernel);
        }
    }

    /// Puts what has to leave on the wires, or gives it to the stack's node, and has a look at what changed.
    pub(crate) fn pump(&mut self, kernel: KernelId) {
        let now = self.now;
        let mut packet = Vec::new();
        let mut packets = 0;
        while self.kernels[kernel.0].tcp.poll_packet(now, &mut packet) {
            packets += 1;
            assert!(packets < EVENTS_PER_INSTANT_MAX, "a kernel does not stop sending at {:?}", self.now);
            let packet = std::mem::take(&mut packet);
            match self.kernels[kernel.0].owner {
                Owner::Host(host) => self.send_segment(host, packet),
                Owner::Stack(actor, stack) => self.send_packet(actor, stack, packet),
                Owner::Nobody => {}
            }
        }
        if let Owner::Stack(actor, stack) = self.kernels[kernel.0].owner {
            self.flush_packets(actor, stack);
        }
        while let Some(id) = self.kernels[kernel.0].tcp.poll_accept() {
            self.accept(kernel, id);
        }
        while let Some(id) = self.kernels[kernel.0].tcp.poll_changed() {
            self.look(kernel, id);
        }
        let state = &mut self.kernels[kernel.0];
        let timer = state.tcp.poll_timeout().map(|at| at.max(self.now));
        if state.timer != timer {
            state.timer = timer;
            if let Some(at) = timer {
                self.queue.push(at, Due::KernelTimer(kernel, at));
            }
        }
    }

    /// A connection that somebody opened goes to the stack's node, or on a host to the node whose port it came to, or
    /// to the shard whose turn it is.
    fn accept(&mut self, kernel: KernelId, id: ConnectionId) {
        let of = &mut self.kernels[kernel.0];
        let (actor, stack) = match of.owner {
            Owner::Host(host) => {
                let port = of.tcp.addresses(id).map(|(local, _)| local.port());
                let owner = port.and_then(|port| of.owners.get(&port)).copied();
                let state = &self.hosts[host.0];
                let actor = owner.unwrap_or_else(|| {
                    of.accepted += 1;
                    ActorId(state.first.0 + (of.accepted - 1) % state.shards)
                });
                (actor, None)
            }
            Owner::Stack(actor, stack) => (actor, Some(stack)),
            Owner::Nobody => return,
        };
        let socket = SocketId::accepted(self.actors[actor.0].accepted);
        let socket = stack.map_or(socket, |stack| socket.on(stack));
        self.actors[actor.0].accepted += 1;
        let state = Socket::new(actor, socket, Phase::Open);
        self.kernels[kernel.0].sockets.insert(id, state);
        self.sockets.insert((actor, socket), id);
        self.queue.push(self.now, Due::Accepted(kernel, id));
    }

    pub(crate) fn on_accepted(&mut self, kernel: KernelId, id: ConnectionId) {
        let Kernel { tcp, sockets, .. } = &self.kernels[kernel.0];
        let Some((socket, (local, peer))) = sockets.get(&id).zip(tcp.addresses(id)) else {
            return;
        };
        let (actor, socket) = (socket.actor, socket.id);
        if self.actors[actor.0].is_put_off() {
            return self.put_off(actor, Waiting::Accepted(kernel, id));
        }
        self.input(actor, Kind::Accepted, socket.get(), 0, Input::Accepted { socket, local, peer });
        // What came meanwhile found a node that knew nothing of it.
        self.look(kernel, id);
    }

    /// Nothing leads to where a connection's packet went.
    pub(crate) fn on_unreachable(&mut self, host: HostId, local: SocketAddr, remote: SocketAddr) {
        let kernel = self.hosts[host.0].kernel;
        let found = self.kernels[kernel.0].tcp.find(local, remote);
        if let Some(id) = found {
            self.fail_unreachable(kernel, id);
        }
    }

    pub(crate) fn fail_unreachable(&mut self, kernel: KernelId, id: ConnectionId) {
        let of = self.kernels[kernel.0].sockets.get(&id).map(|socket| socket.actor);
        if let Some(actor) = of.filter(|actor| self.actors[actor.0].is_put_off()) {
            return self.put_off(actor, Waiting::Unreachable(kernel, id));
        }
        let named =
            self.kernels[kernel.0].sockets.get(&id).map(|socket| (socket.actor, socket.id, socket.phase));
        self.drop_connection(kernel, id);
        if let Some((actor, socket, Phase::Connecting | Phase::Open)) = named {
            self.sockets.remove(&(actor, socket));
            self.failed(actor, socket, SocketError::HostUnreachable);
        }
    }

    /// Somebody on the path forges a reset of every connection between two hosts, for both ends.
    pub fn reset_streams(&mut self, a: HostId, b: HostId) {
        for (host, peer) in [(a, b), (b, a)] {
            let tcp = &self.kernels[self.hosts[host.0].kernel.0].tcp;
            let peers = |(_, remote, _): &(SocketAddr, SocketAddr, ConnectionId)| {
                self.by_addr.get(&remote.ip()) == Some(&peer)
            };
            let forge = |(local, remote, id)| {
                let expected = tcp.get(id)?.expected().0;
                let flags = Flags { rst: true, ..Flags::default() };
                let header = TcpHeader { seq: expected as u32, flags, ..TcpHeader::default() };
                let mut packet = Vec::new();
                emit(remote, local, Ecn::NotEct, &header, &[], &mut packet);
                Some(packet)
            };
            let forged: Vec<_> = tcp.open_connections().filter(peers).filter_map(forge).collect();
            for packet in forged {
                self.watched.tell_forged(self.now, peer, host, &packet);
                self.queue.push(self.now, Due::Segment(host, packet));
            }
        }
    }

    /// Schedules a look at a socket, unless there is one already.
    fn look(&mut self, kernel: KernelId, id: ConnectionId) {
        let Some(socket) = self.kernels[kernel.0].sockets.get_mut(&id) else { return };
        if !socket.look_due {
            socket.look_due = true;
            self.queue.push(self.now, Due::Look(kernel, id));
        }
    }

    /// Gives a node one read, its FIN, or credit; and comes back while there is more.
    pub(crate) fn on_look(&mut self, kernel: KernelId, id: ConnectionId) {
        let Kernel { tcp, sockets, .. } = &mut self.kernels[kernel.0];
        let Some((socket, connection)) = sockets.get_mut(&id).zip(tcp.get_mut(id)) else { return };
        socket.look_due = false;
        let (actor, name) = (socket.actor, socket.id);
        let error = connection.close_reason().and_then(as_error);
        let flushed = error.is_some() || socket.flush(connection);
        if socket.phase != Phase::Closing && self.actors[actor.0].is_put_off() {
            let is_news = error.is_some() || socket.has_news(connection);
            socket.look_due = is_news;
            self.pump(kernel);
            if is_news {
                self.put_off(actor, Waiting::Look(kernel, id));
            }
            return;
        }
        match (socket.phase, error) {
            (Phase::Closing, _) if flushed => self.finish(kernel, id),
            (Phase::Closing, _) => self.pump(kernel),
            (_, Some(error)) => {
                self.finish(kernel, id);
                self.sockets.remove(&(actor, name));
                self.failed(actor, name, error);
            }
            (Phase::Connecting, None) if is_connected(connection) => {
                socket.phase = Phase::Open;
                let local = tcp.addresses(id).expect("the connection is there").0;
                self.look(kernel, id);
                self.input(actor, Kind::Connected, name.get(), 0, Input::Connected { socket: name, local });
            }
            (Phase::Connecting, None) => {}
            (Phase::Open, None) => {
                // What leaves now makes room.
                self.pump(kernel);
                self.take_turn(kernel, id);
            }
        }
    }

    fn take_turn(&mut self, kernel: KernelId, id: ConnectionId) {
        let Kernel { tcp, sockets, .. } = &mut self.kernels[kernel.0];
        let Some((state, connection)) = sockets.get_mut(&id).zip(tcp.get(id)) else { return };
        let (actor, socket) = (state.actor, state.id);
        match state.turn(connection) {
            Turn::Nothing => return,
            Turn::Flush => {}
            Turn::Read => self.read(kernel, id, actor, socket),
            Turn::Eof => self.input(actor, Kind::Eof, socket.get(), 0, Input::Eof { socket }),
            Turn::Grant(bytes) => {
                let window_bytes =
                    usize::try_from(connection.controller().window_bytes()).unwrap_or(usize::MAX);
                let input = Input::Writable { socket, bytes, window_bytes };
                self.input(actor, Kind::Writable, socket.get(), bytes as u64, input);
            }
        }
        self.look(kernel, id);
    }

    /// Hands a node what has arrived, as far as its buffer goes.
    fn read(&mut self, kernel: KernelId, id: ConnectionId, actor: ActorId, socket: SocketId) {
        let Some(node) = self.actors[actor.0].node.as_mut() else { return };
        let Some(connection) = self.kernels[kernel.0].tcp.get_mut(id) else { return };
        let buf = node.recv_buf(socket);
        if buf.is_empty() {
            // It has noticed only now that it lost interest, and says so.
            if !self.actors[actor.0].is_in_round() {
                self.poll_outputs(actor);
            }
            return;
        }
        let len = connection.read(self.now, buf);
        self.pump(kernel);
        self.input(actor, Kind::Read, socket.get(), len as u64, Input::Read { socket, len });
    }

    /// Leaves a connection to its kernel, which ends it by itself.
    fn finish(&mut self, kernel: KernelId, id: ConnectionId) {
        let Kernel { tcp, sockets, .. } = &mut self.kernels[kernel.0];
        sockets.remove(&id);
        if let Some(connection) = tcp.get_mut(id) {
            connection.close();
        }
        tcp.release(id);
        self.pump(kernel);
    }

    /// A closed socket had its time: what is still pending is lost.
    pub(crate) fn on_close_flush(&mut self, kernel: KernelId, id: ConnectionId) {
        if self.kernels[kernel.0].sockets.contains_key(&id) {
            self.drop_connection(kernel, id);
        }
    }

    fn failed(&mut self, actor: ActorId, socket: SocketId, error: SocketError) {
        self.input(actor, Kind::Failed, socket.get(), 0, Input::Failed { socket, error });
    }
}

/// What an operating system says of a connection that ended so.
fn as_error(reason: CloseReason) -> Option<SocketError> {
    match reason {
        CloseReason::Finished | CloseReason::Aborted => None,
        CloseReason::Reset { .. } => Some(SocketError::Reset),
        CloseReason::Refused => Some(SocketError::Refused),
        CloseReason::TimedOut => Some(SocketError::TimedOut),
    }
}
