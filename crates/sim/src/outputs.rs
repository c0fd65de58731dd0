//! Doing what a node says.

use crate::connection::{ActorId, Connection, ConnectionId, End, EndState, Fin};
use crate::simulation::{Due, HostId, Path, Simulation};
use crate::trace::Kind;
use crate::wire::SEGMENT_BYTES;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::node::{Output, Query, Resolution, ResolveError, ResolveId, SocketError, SocketId};
use heddle_proto::time::Instant;

impl Simulation {
    /// Asks a node what it wants until it names its time-out.
    pub(crate) fn poll_outputs(&mut self, actor: ActorId) {
        let now = self.now;
        loop {
            let mut buf = std::mem::take(&mut self.buf);
            buf.clear();
            let Some(node) = self.node(actor) else { return };
            let output = node.poll_output(now, &mut buf);
            self.buf = buf;
            match output {
                Output::Timeout(timeout) => return self.set_timer(actor, timeout),
                output => self.carry_out(actor, output),
            }
        }
    }

    fn set_timer(&mut self, actor: ActorId, timeout: Option<Instant>) {
        let timeout = timeout.map(|at| at.max(self.now));
        let timer = &mut self.actors[actor.0].timer;
        if *timer != timeout {
            *timer = timeout;
            if let Some(at) = timeout {
                self.queue.push(at, Due::Timer(actor, at));
            }
        }
    }

    fn carry_out(&mut self, actor: ActorId, output: Output) {
        let mut record = |kind, subject, detail: &str| {
            self.trace.record(self.now, actor.0, kind, subject, 0, detail.as_bytes());
        };
        match output {
            Output::Send { socket } => self.send(actor, socket),
            Output::Connect { socket, to } => {
                record(Kind::Connect, socket.get(), &to.to_string());
                self.connect(actor, socket, to);
            }
            Output::Interest { socket, read, write } => {
                record(Kind::Interest, socket.get(), &format!("{read} {write}"));
                self.set_interest(actor, socket, read, write);
            }
            Output::ShutdownWrite { socket } => {
                record(Kind::ShutdownWrite, socket.get(), "");
                self.shutdown_write(actor, socket);
            }
            Output::Close { socket } => {
                record(Kind::Close, socket.get(), "");
                self.shutdown_write(actor, socket);
                if let Some(&(id, side)) = self.sockets.get(&(actor, socket)) {
                    self.forget(id, side);
                }
            }
            Output::Abort { socket } => {
                record(Kind::Abort, socket.get(), "");
                self.abort(actor, socket);
            }
            Output::Resolve { id, query } => {
                record(Kind::Resolve, id.0, &format!("{query:?}"));
                self.resolve(actor, id, &query);
            }
            Output::Compute { id, job } => {
                record(Kind::Compute, id.0, &format!("{job:?}"));
                let due = Due::Computed(actor, id, job.run());
                self.queue.push(self.now + self.options.job_cost, due);
            }
            Output::ToShard { to, message } => {
                record(Kind::ToShard, to.0.into(), &format!("{message:?}"));
                let state = &self.actors[actor.0];
                let host = &self.hosts[state.host.0];
                assert!(usize::from(to.0) < host.shards, "a node names only shards of its relay");
                let receiver = ActorId(host.first.0 + usize::from(to.0));
                let due = Due::Message(receiver, state.shard, message);
                self.queue.push(self.now + self.options.shard_latency, due);
            }
            Output::Datagrams { port, transmit } => self.send_datagrams(actor, port, transmit),
            Output::Event(event) => {
                record(Kind::Event, 0, &format!("{event:?}"));
                let host = self.actors[actor.0].host;
                self.events.push((self.now, host, event));
            }
            Output::Timeout(timeout) => self.set_timer(actor, timeout),
        }
    }

    fn connect(&mut self, actor: ActorId, socket: SocketId, to: SocketAddr) {
        assert!(socket.is_dialled(), "nodes name what they dial by even numbers");
        let id = ConnectionId(self.connections_made);
        self.connections_made += 1;
        let from = self.actors[actor.0].host;
        let same_family = |addr: &&IpAddr| addr.is_ipv4() == to.is_ipv4();
        let local = self.hosts[from.0].addrs.iter().find(same_family).copied();
        let port = 32_768 + (id.0 % 28_000) as u16;
        let host = self.by_addr.get(&to.ip()).copied();
        let reachable = local.zip(host);
        // A connection that leads nowhere has both ends at the dialler.
        let local = local.unwrap_or(self.hosts[from.0].addrs[0]);
        let peer = if reachable.is_some() { to } else { SocketAddr::new(local, 0) };
        let dialler = End::new(actor, socket, SocketAddr::new(local, port));
        let listener = End::new(ActorId(usize::MAX), SocketId::accepted(0), peer);
        self.connections.insert(id, Connection { ends: [dialler, listener] });
        self.sockets.insert((actor, socket), (id, 0));
        let latency = self.latency_of(id);
        match reachable {
            Some(_) => self.queue.push(self.now + latency, Due::Syn(id)),
            None => {
                let refused = Due::Refused(id, SocketError::HostUnreachable);
                self.queue.push(self.now + 2 * latency, refused);
            }
        }
    }

    fn set_interest(&mut self, actor: ActorId, socket: SocketId, read: bool, write: bool) {
        let Some(&(id, side)) = self.sockets.get(&(actor, socket)) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[side];
        end.grant_due |= write && !end.want_write;
        (end.want_read, end.want_write) = (read, write);
        self.look(id, side);
    }

    /// Puts what a node sends on the wire, a segment at a time.
    fn send(&mut self, actor: ActorId, socket: SocketId) {
        let bytes = std::mem::take(&mut self.buf);
        let found = self.sockets.get(&(actor, socket)).copied();
        let plain = self.is_plain(actor, found);
        let detail: &[u8] = if plain { &bytes } else { &[] };
        self.trace.record(self.now, actor.0, Kind::Send, socket.get(), bytes.len() as u64, detail);
        if let Some((id, side)) = found {
            let hosts = self.connections.get(&id).map(|connection| {
                let host = |end: &End| self.by_addr[&end.addr.ip()];
                (host(&connection.ends[side]), host(&connection.ends[1 - side]))
            });
            if let Some((from, to)) = hosts {
                self.transmit(id, side, from, to, &bytes);
            }
        }
        self.buf = bytes;
    }

    fn transmit(&mut self, id: ConnectionId, side: usize, from: HostId, to: HostId, bytes: &[u8]) {
        let wire = self.wire(from, to);
        let index = (from.0 as u64) << 32 | to.0 as u64;
        let (now, seed) = (self.now, &self.seed);
        let path = self
            .paths
            .entry((from, to))
            .or_insert_with(|| Path { busy_until: now, rng: seed.child("path", index).rng() });
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[side];
        assert!(end.state == EndState::Open, "a node sends on a socket that is open");
        assert!(end.outgoing.fin == Fin::None, "a node sent after its FIN");
        assert!(bytes.len() <= end.credit, "a node sent {} bytes of {} allowed", bytes.len(), end.credit);
        end.credit -= bytes.len();
        end.outgoing.unacknowledged += bytes.len();
        end.outgoing.bytes.extend(bytes);
        for segment in bytes.chunks(SEGMENT_BYTES) {
            let arrival = wire.arrival(now, segment.len(), &mut path.busy_until, &mut path.rng);
            end.outgoing.last_arrival = end.outgoing.last_arrival.max(arrival);
            self.queue.push(end.outgoing.last_arrival, Due::Segment(id, side, segment.len()));
        }
        if end.want_write {
            self.look(id, side);
        }
    }

    /// Whether what is sent here is plain: one of the ends lies outside the network.
    fn is_plain(&self, actor: ActorId, found: Option<(ConnectionId, usize)>) -> bool {
        let plain =
            |actor: ActorId| self.actors.get(actor.0).is_some_and(|actor| self.hosts[actor.host.0].plain);
        let peer = found.and_then(|(id, side)| Some(self.connections.get(&id)?.ends[1 - side].actor));
        plain(actor) || peer.is_some_and(plain)
    }

    fn shutdown_write(&mut self, actor: ActorId, socket: SocketId) {
        let Some(&(id, side)) = self.sockets.get(&(actor, socket)) else { return };
        let latency = self.latency_of(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[side];
        if end.outgoing.fin == Fin::None {
            end.outgoing.fin = Fin::Sent;
            let arrival = end.outgoing.last_arrival.max(self.now + latency);
            self.queue.push(arrival, Due::Fin(id, side));
        }
    }

    pub(crate) fn abort(&mut self, actor: ActorId, socket: SocketId) {
        let Some(&(id, side)) = self.sockets.get(&(actor, socket)) else { return };
        let latency = self.latency_of(id);
        self.queue.push(self.now + latency, Due::Reset(id, 1 - side));
        self.forget(id, side);
    }

    fn resolve(&mut self, actor: ActorId, id: ResolveId, query: &Query) {
        const TTL_S: u32 = 600;
        let answer = match query {
            Query::Forward(name) => self.names.get(name).map(|addrs| {
                let addrs = addrs.iter().take(Resolution::MAX_ANSWERS);
                Resolution::Addresses(addrs.map(|addr| (*addr, TTL_S)).collect())
            }),
            Query::Reverse(addr) => {
                let named = self.names.iter().find(|(_, addrs)| addrs.contains(addr));
                named.map(|(name, _)| Resolution::Name(name.clone(), TTL_S))
            }
        };
        let due = Due::Resolved(actor, id, answer.ok_or(ResolveError::NotFound));
        self.queue.push(self.now + self.options.resolve_delay, due);
    }
}
