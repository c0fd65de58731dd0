//! The simulation: its hosts, its clock, and the handling of one event after the other.

use crate::connection::{ActorId, Connection, ConnectionId, EndState, Fin, Side};
use crate::datagram::DatagramWires;
use crate::queue::EventQueue;
use crate::trace::{Kind, Trace, TraceHash};
use crate::wire::Wire;
use core::any::Any;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::node::{
    Input, JobId, Node, Resolution, ResolveError, ResolveId, ShardId, SocketError, SocketId,
};
use heddle_proto::relay::{Control, Event, ShardMessage};
use heddle_proto::rng::{Rng, Seed};
use heddle_proto::time::{Duration, Instant, UnixTime};
use heddle_proto::work::JobResult;
use std::collections::BTreeMap;

/// How often nodes hear the wall clock.
const WALL_CLOCK_PERIOD: Duration = Duration::from_secs(60);
/// More events than this at one instant mean that somebody goes in circles.
const EVENTS_PER_INSTANT_MAX: u64 = 2_000_000;

/// A node that the test can get back as what it is.
pub trait AnyNode: Node + Any {}

impl<T: Node + Any> AnyNode for T {}

/// What a simulation is like, beside its hosts and wires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the wall clock says at the start.
    pub wall: UnixTime,
    /// The wire between hosts that were given none of their own.
    pub default_wire: Wire,
    /// From a question to the resolver to its answer.
    pub resolve_delay: Duration,
    /// What a job costs its worker. There are always enough workers.
    pub job_cost: Duration,
    /// From one shard of a host to another.
    pub shard_latency: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // The end of 2026, so that certificates of tests can be made in advance.
            wall: UnixTime { ns: 1_798_000_000 * 1_000_000_000 },
            default_wire: Wire::default(),
            resolve_delay: Duration::from_millis(20),
            job_cost: Duration::from_micros(150),
            shard_latency: Duration::from_micros(1),
        }
    }
}

/// A host to be added.
pub struct Host {
    pub addrs: Vec<IpAddr>,
    /// Ports that are listened at, on every address. Shards take connections in turn.
    pub ports: Vec<u16>,
    /// At least one node; more are shards of one relay.
    pub nodes: Vec<Box<dyn AnyNode>>,
    /// Whether this host's bytes are plain and count for the trace. Those of the Internet are.
    pub plain: bool,
}

/// A host of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

pub(crate) struct HostState {
    pub addrs: Vec<IpAddr>,
    ports: Vec<u16>,
    /// Its shards are consecutive.
    pub first: ActorId,
    pub shards: usize,
    pub plain: bool,
    accepted: usize,
}

pub(crate) struct Actor {
    pub host: HostId,
    pub shard: ShardId,
    /// `None` once it was killed.
    node: Option<Box<dyn AnyNode>>,
    /// The time-out that is scheduled; others in the queue are void.
    pub timer: Option<Instant>,
    accepted: u64,
}

pub(crate) enum Due {
    WallClock(ActorId),
    Timer(ActorId, Instant),
    Syn(ConnectionId),
    SynAck(ConnectionId),
    Refused(ConnectionId, SocketError),
    /// Bytes that this end sent have arrived at the other one.
    Segment(ConnectionId, Side, usize),
    /// Nothing more will come from this end.
    Fin(ConnectionId, Side),
    /// This end hears that so many of its bytes were read.
    Acknowledged(ConnectionId, Side, usize),
    /// This end hears that the connection is broken.
    Reset(ConnectionId, Side),
    /// See whether this end has something to read, or credit to get.
    Look(ConnectionId, Side),
    Resolved(ActorId, ResolveId, Result<Resolution, ResolveError>),
    Computed(ActorId, JobId, JobResult),
    Message(ActorId, ShardId, ShardMessage),
    /// Something happens on the datagrams' wire of two hosts.
    Datagrams((HostId, HostId), Instant),
}

/// One direction between two hosts.
pub(crate) struct Path {
    pub busy_until: Instant,
    pub rng: Rng,
}

/// Many nodes in virtual time; see the crate.
pub struct Simulation {
    seed_number: u64,
    pub(crate) seed: Seed,
    pub(crate) options: Options,
    pub(crate) now: Instant,
    events_at_now: u64,
    pub(crate) queue: EventQueue<Due>,
    pub(crate) trace: Trace,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) actors: Vec<Actor>,
    pub(crate) by_addr: BTreeMap<IpAddr, HostId>,
    pub(crate) names: BTreeMap<String, Vec<IpAddr>>,
    wires: BTreeMap<(HostId, HostId), Wire>,
    pub(crate) paths: BTreeMap<(HostId, HostId), Path>,
    pub(crate) datagrams: DatagramWires,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) sockets: BTreeMap<(ActorId, SocketId), (ConnectionId, Side)>,
    pub(crate) connections_made: usize,
    pub(crate) events: Vec<(Instant, HostId, Event)>,
    pub(crate) buf: Vec<u8>,
}

impl Simulation {
    /// An empty world. All randomness comes from `seed`.
    pub fn new(seed: u64, options: Options) -> Self {
        Simulation {
            seed_number: seed,
            seed: Seed::from_number(seed),
            options,
            now: Instant::ZERO,
            events_at_now: 0,
            queue: EventQueue::new(),
            trace: Trace::new(seed),
            hosts: Vec::new(),
            actors: Vec::new(),
            by_addr: BTreeMap::new(),
            names: BTreeMap::new(),
            wires: BTreeMap::new(),
            paths: BTreeMap::new(),
            datagrams: DatagramWires::default(),
            connections: BTreeMap::new(),
            sockets: BTreeMap::new(),
            connections_made: 0,
            events: Vec::new(),
            buf: Vec::new(),
        }
    }

    /// The seed of which everything random in this world is a child.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The hash of all that happened so far.
    pub fn trace_hash(&self) -> TraceHash {
        self.trace.hash()
    }

    /// How many inputs, outputs and notes the trace holds.
    pub fn trace_records(&self) -> u64 {
        self.trace.records
    }

    /// What relays reported, in order.
    pub fn events(&self) -> &[(Instant, HostId, Event)] {
        &self.events
    }

    /// Adds a host. Its nodes hear the wall clock first.
    ///
    /// # Panics
    ///
    /// When it has no node, or an address that another host has.
    pub fn add_host(&mut self, host: Host) -> HostId {
        assert!(!host.nodes.is_empty(), "a host has at least one node");
        let id = HostId(self.hosts.len());
        for addr in &host.addrs {
            assert!(self.by_addr.insert(*addr, id).is_none(), "{addr} is taken");
        }
        let first = ActorId(self.actors.len());
        let shards = host.nodes.len();
        for (shard, node) in host.nodes.into_iter().enumerate() {
            let shard = ShardId(u16::try_from(shard).expect("no relay has so many shards"));
            let actor = ActorId(self.actors.len());
            self.actors.push(Actor { host: id, shard, node: Some(node), timer: None, accepted: 0 });
            self.queue.push(self.now, Due::WallClock(actor));
        }
        let Host { addrs, ports, plain, .. } = host;
        self.hosts.push(HostState { addrs, ports, first, shards, plain, accepted: 0 });
        id
    }

    /// Gives a name to addresses, for the resolver. Names are lower case.
    pub fn add_name(&mut self, name: &str, addrs: &[IpAddr]) {
        self.names.insert(name.to_owned(), addrs.to_vec());
    }

    /// Changes the wire between two hosts. What is on it already arrives as before.
    pub fn set_wire(&mut self, a: HostId, b: HostId, wire: Wire) {
        self.wires.insert((a.min(b), a.max(b)), wire);
        self.datagrams.outdate(a, b);
    }

    pub(crate) fn wire(&self, a: HostId, b: HostId) -> Wire {
        self.wires.get(&(a.min(b), a.max(b))).copied().unwrap_or(self.options.default_wire)
    }

    /// Hands a shard an order of its operator.
    pub fn control(&mut self, host: HostId, shard: usize, control: Control) {
        let actor = self.actor(host, shard);
        self.input(actor, Kind::Control, 0, 0, Input::Control(control));
    }

    /// Lets the test speak with a node, and then does what the node wants done.
    ///
    /// # Panics
    ///
    /// When the node was killed, or is not a `T`.
    pub fn with<T: Node + Any, R>(
        &mut self,
        host: HostId,
        shard: usize,
        speak: impl FnOnce(&mut T, Instant) -> R,
    ) -> R {
        let actor = self.actor(host, shard);
        let now = self.now;
        let node: &mut dyn Any = &mut **self.node(actor).expect("the node lives");
        let result = speak(node.downcast_mut().expect("the node is what the test takes it for"), now);
        self.poll_outputs(actor);
        result
    }

    /// Puts something that the test saw into the trace.
    pub fn note(&mut self, what: &dyn core::fmt::Debug) {
        let text = format!("{what:?}");
        self.trace.record(self.now, usize::MAX, Kind::Note, 0, 0, text.as_bytes());
    }

    /// Ends all nodes of a host as a kill of its process would: its connections are reset, new ones
    /// refused.
    pub fn kill(&mut self, host: HostId) {
        let (first, shards) = (self.hosts[host.0].first.0, self.hosts[host.0].shards);
        self.hosts[host.0].ports.clear();
        self.trace.record(self.now, first, Kind::Killed, 0, 0, &[]);
        for actor in (first..first + shards).map(ActorId) {
            self.actors[actor.0].node = None;
            let range = (actor, SocketId::dialled(0))..(ActorId(actor.0 + 1), SocketId::dialled(0));
            let sockets: Vec<_> = self.sockets.range(range).map(|((_, socket), _)| *socket).collect();
            sockets.into_iter().for_each(|socket| self.abort(actor, socket));
        }
    }

    /// Resets all byte streams between two hosts, as somebody on the path can who forges segments.
    pub fn reset_streams(&mut self, a: HostId, b: HostId) {
        let joins = |connection: &Connection| {
            let ends = connection.ends.each_ref().map(|end| self.by_addr.get(&end.addr.ip()).copied());
            ends == [Some(a), Some(b)] || ends == [Some(b), Some(a)]
        };
        let hit = self.connections.iter().filter(|(_, connection)| joins(connection));
        let hit: Vec<_> = hit.map(|(id, _)| *id).collect();
        for (id, side) in hit.into_iter().flat_map(|id| [(id, 0), (id, 1)]) {
            self.queue.push(self.now, Due::Reset(id, side));
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(time, |_| false);
        self.now = end;
    }

    /// Lets time pass until the test has seen what it wants, which is asked after every event, or
    /// for `time_max`; says whether it has.
    pub fn run_until(&mut self, time_max: Duration, mut seen: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + time_max;
        if seen(self) {
            return true;
        }
        while let Some((at, due)) = self.queue.pop(end) {
            self.events_at_now = if at == self.now { self.events_at_now + 1 } else { 0 };
            assert!(self.events_at_now < EVENTS_PER_INSTANT_MAX, "time stands still at {at:?}");
            self.now = at;
            self.handle(due);
            if seen(self) {
                return true;
            }
        }
        self.now = end;
        false
    }

    pub(crate) fn actor(&self, host: HostId, shard: usize) -> ActorId {
        assert!(shard < self.hosts[host.0].shards, "the host has no such shard");
        ActorId(self.hosts[host.0].first.0 + shard)
    }

    pub(crate) fn node(&mut self, actor: ActorId) -> Option<&mut Box<dyn AnyNode>> {
        self.actors[actor.0].node.as_mut()
    }

    /// Hands a node an input, and does what it wants done.
    pub(crate) fn input(&mut self, actor: ActorId, kind: Kind, subject: u64, amount: u64, input: Input) {
        let now = self.now;
        let detail = match &input {
            Input::Failed { error, .. } => format!("{error:?}"),
            Input::Resolved { answer, .. } => format!("{answer:?}"),
            Input::FromShard { message, .. } => format!("{message:?}"),
            Input::Control(control) => format!("{control:?}"),
            _ => String::new(),
        };
        self.trace.record(now, actor.0, kind, subject, amount, detail.as_bytes());
        if let Some(node) = self.node(actor) {
            node.handle_input(now, input);
            self.poll_outputs(actor);
        }
    }

    fn handle(&mut self, due: Due) {
        match due {
            Due::WallClock(actor) => {
                let wall = UnixTime { ns: self.options.wall.ns + self.now.as_nanos() };
                self.queue.push(self.now + WALL_CLOCK_PERIOD, Due::WallClock(actor));
                self.input(actor, Kind::Timeout, 1, 0, Input::WallClock(wall));
            }
            Due::Timer(actor, at) => {
                if self.actors[actor.0].timer == Some(at) {
                    self.actors[actor.0].timer = None;
                    self.input(actor, Kind::Timeout, 0, 0, Input::Timeout);
                }
            }
            Due::Syn(connection) => self.on_syn(connection),
            Due::SynAck(connection) => self.on_syn_ack(connection),
            Due::Refused(connection, error) => self.fail(connection, 0, error),
            Due::Segment(connection, side, len) => self.on_segment(connection, side, len),
            Due::Fin(connection, side) => self.on_fin(connection, side),
            Due::Acknowledged(connection, side, len) => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.ends[side].outgoing.unacknowledged -= len;
                }
                self.look(connection, side);
            }
            Due::Reset(connection, side) => self.fail(connection, side, SocketError::Reset),
            Due::Look(connection, side) => self.on_look(connection, side),
            Due::Resolved(actor, id, answer) => {
                self.input(actor, Kind::Resolved, id.0, 0, Input::Resolved { id, answer })
            }
            Due::Computed(actor, id, result) => {
                self.input(actor, Kind::Computed, id.0, 0, Input::Computed { id, result })
            }
            Due::Message(actor, from, message) => {
                let subject = u64::from(from.0);
                self.input(actor, Kind::FromShard, subject, 0, Input::FromShard { from, message })
            }
            Due::Datagrams(ends, at) => self.on_datagrams(ends, at),
        }
    }

    /// A connection reaches its host, which hands it to the shard whose turn it is.
    fn on_syn(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (dialler, local) = (&connection.ends[0], connection.ends[1].addr);
        let peer = dialler.addr;
        let from = self.actors[dialler.actor.0].host;
        let to = self.by_addr[&local.ip()];
        let latency = self.wire(from, to).latency;
        let host = &mut self.hosts[to.0];
        if !host.ports.contains(&local.port()) {
            let refused = Due::Refused(id, SocketError::Refused);
            return self.queue.push(self.now + latency, refused);
        }
        let actor = ActorId(host.first.0 + host.accepted % host.shards);
        host.accepted += 1;
        let socket = SocketId::accepted(self.actors[actor.0].accepted);
        self.actors[actor.0].accepted += 1;
        if let Some(connection) = self.connections.get_mut(&id) {
            let end = &mut connection.ends[1];
            (end.actor, end.socket, end.state) = (actor, socket, EndState::Open);
        }
        self.sockets.insert((actor, socket), (id, 1));
        self.queue.push(self.now + latency, Due::SynAck(id));
        self.input(actor, Kind::Accepted, socket.get(), 0, Input::Accepted { socket, local, peer });
    }

    fn on_syn_ack(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[0];
        // The node may have given up meanwhile.
        if end.state != EndState::Connecting {
            return;
        }
        end.state = EndState::Open;
        let (actor, socket, local) = (end.actor, end.socket, end.addr);
        self.look(id, 0);
        self.input(actor, Kind::Connected, socket.get(), 0, Input::Connected { socket, local });
    }

    fn on_segment(&mut self, id: ConnectionId, sender: Side, len: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.ends[sender].outgoing.arrived += len;
        self.arrived(id, sender);
    }

    fn on_fin(&mut self, id: ConnectionId, sender: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.ends[sender].outgoing.fin = Fin::Arrived;
        self.arrived(id, sender);
    }

    /// Something came from `sender`: its reader is told, or nobody is there to read.
    fn arrived(&mut self, id: ConnectionId, sender: Side) {
        let reader = 1 - sender;
        let Some(connection) = self.connections.get(&id) else { return };
        let gone = connection.ends[reader].state == EndState::Gone;
        let only_fin = connection.ends[sender].outgoing.bytes.is_empty();
        if !gone {
            self.look(id, reader);
        } else if !only_fin {
            let latency = self.latency_of(id);
            self.queue.push(self.now + latency, Due::Reset(id, sender));
        }
    }

    /// Schedules a look at an end, unless there is one already.
    pub(crate) fn look(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[side];
        if end.state == EndState::Open && !end.look_due {
            end.look_due = true;
            self.queue.push(self.now, Due::Look(id, side));
        }
    }

    /// Gives an end one read, its FIN, or credit; and comes back while there is more.
    fn on_look(&mut self, id: ConnectionId, side: Side) {
        let window_bytes = self.window_of(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.ends[side].look_due = false;
        let (actor, socket) = (connection.ends[side].actor, connection.ends[side].socket);
        let (want_read, state) = (connection.ends[side].want_read, connection.ends[side].state);
        if state != EndState::Open {
            return;
        }
        let incoming = &mut connection.ends[1 - side].outgoing;
        if want_read && incoming.arrived > 0 {
            self.look(id, side);
            self.read(id, side);
        } else if want_read && incoming.fin == Fin::Arrived {
            incoming.fin = Fin::Read;
            self.look(id, side);
            self.input(actor, Kind::Eof, socket.get(), 0, Input::Eof { socket });
        } else if let Some(bytes) = connection.ends[side].grant(window_bytes) {
            let amount = bytes as u64;
            self.input(actor, Kind::Writable, socket.get(), amount, Input::Writable { socket, bytes });
        }
    }

    /// Hands an end what has arrived, as far as its buffer goes.
    fn read(&mut self, id: ConnectionId, side: Side) {
        let latency = self.latency_of(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (actor, socket) = (connection.ends[side].actor, connection.ends[side].socket);
        let incoming = &mut connection.ends[1 - side].outgoing;
        let Some(node) = self.actors[actor.0].node.as_mut() else { return };
        let buf = node.recv_buf(socket);
        assert!(!buf.is_empty(), "a node wants to read into nothing");
        let len = buf.len().min(incoming.arrived);
        for (to, from) in buf.iter_mut().zip(incoming.bytes.drain(..len)) {
            *to = from;
        }
        incoming.arrived -= len;
        self.queue.push(self.now + latency, Due::Acknowledged(id, 1 - side, len));
        self.input(actor, Kind::Read, socket.get(), len as u64, Input::Read { socket, len });
    }

    /// An end hears that its connection is broken, or was never made.
    fn fail(&mut self, id: ConnectionId, side: Side, error: SocketError) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[side];
        if end.state == EndState::Gone {
            return;
        }
        end.state = EndState::Gone;
        let (actor, socket) = (end.actor, end.socket);
        self.forget(id, side);
        self.input(actor, Kind::Failed, socket.get(), 0, Input::Failed { socket, error });
    }

    /// An end is gone: nothing names it any more, and the connection with it if it was the last.
    pub(crate) fn forget(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = &mut connection.ends[side];
        end.state = EndState::Gone;
        self.sockets.remove(&(end.actor, end.socket));
        let never_accepted = connection.ends[1].actor == ActorId(usize::MAX);
        if connection.ends[1 - side].state == EndState::Gone || side == 0 && never_accepted {
            self.connections.remove(&id);
        }
    }

    pub(crate) fn latency_of(&self, id: ConnectionId) -> Duration {
        self.wire_of(id).latency
    }

    fn window_of(&self, id: ConnectionId) -> usize {
        self.wire_of(id).window_bytes
    }

    fn wire_of(&self, id: ConnectionId) -> Wire {
        let hosts = self.connections.get(&id).map(|connection| {
            let host = |addr: SocketAddr| self.by_addr[&addr.ip()];
            (host(connection.ends[0].addr), host(connection.ends[1].addr))
        });
        hosts.map_or(self.options.default_wire, |(a, b)| self.wire(a, b))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulation of seed {} failed at {:?}", self.seed_number, self.now);
        }
    }
}
