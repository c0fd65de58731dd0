//! The simulation: its hosts, its clock, and the handling of one event after the other.

mod datagram;
mod flood;
mod kernel;
mod network;
mod outputs;
mod packet;
mod processors;
mod resolver;
mod socket;
mod stacks;
mod watching;
mod wires;

pub use datagram::Tapped;
pub use flood::Flood;
pub use processors::JobWatch;
pub use resolver::Resolver;
pub use watching::WireWatch;

use crate::queue::EventQueue;
use crate::trace::{Kind, Trace, TraceHash};
use crate::wire::Wire;
use core::any::Any;
use core::net::{IpAddr, SocketAddr};
use datagram::DatagramPorts;
use heddle_seam::language::{Job, Language};
use heddle_seam::node::{
    Input, JobId, Node, Resolution, ResolveError, ResolveId, ShardId, SocketId, StackId,
};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_utcp::{ConnectionId, Options as KernelOptions};
use kernel::{Kernel, Owner};
use packet::{Datagram, HostPair};
use processors::{Charged, Cores, Round, Waiting};
use stacks::Stack;
use std::collections::BTreeMap;
use watching::Watched;
use wires::Wires;

/// How often nodes hear the wall clock.
const WALL_CLOCK_PERIOD: Duration = Duration::from_secs(60);
/// More events at one instant, or outputs of a node at one event, mean that somebody goes in circles.
pub(crate) const EVENTS_PER_INSTANT_MAX: u64 = 2_000_000;

/// A node that the test can get back as what it is.
pub trait AnyNode<L: Language>: Node<L> + Any {}

impl<L: Language, T: Node<L> + Any> AnyNode<L> for T {}

/// What a simulation is like, beside its hosts and wires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the wall clock says at the start.
    pub wall: UnixTime,
    /// The wire between hosts that were given none of their own.
    pub default_wire: Wire,
    /// The most that a host's kernel keeps of a connection for a reader, as Linux' `tcp_rmem` bounds it. Smaller ones
    /// bound what is under way, too.
    pub receive_buffer_max_bytes: u32,
    /// From a question to the resolver to its answer.
    pub resolve_delay: Duration,
    /// At most this much is added to it, for each question anew.
    pub resolve_spread: Duration,
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
            receive_buffer_max_bytes: 6 << 20,
            resolve_delay: Duration::from_millis(20),
            resolve_spread: Duration::ZERO,
            job_cost: Duration::from_micros(150),
            shard_latency: Duration::from_micros(1),
        }
    }
}

/// A host to be added.
pub struct Host<L: Language> {
    pub addrs: Vec<IpAddr>,
    /// Ports that are listened at, on every address. Shards take connections in turn.
    pub ports: Vec<u16>,
    /// At least one node; more are shards of one relay.
    pub nodes: Vec<Box<dyn AnyNode<L>>>,
    /// Nodes of the same relay that take no connections, such as its control plane. They are numbered after the shards.
    pub beside: Vec<Box<dyn AnyNode<L>>>,
    /// Whether this host's bytes are plain and count for the trace. Those of the Internet are.
    pub plain: bool,
}

/// A host of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// A shard of a host, counted over all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ActorId(pub usize);

/// The TCP of a host, or of a stack of a node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelId(pub usize);

pub(crate) struct HostState {
    pub kernel: KernelId,
    pub addrs: Vec<IpAddr>,
    /// Ports that are listened at while its nodes live.
    pub ports: Vec<u16>,
    /// Its shards are consecutive, and after them come those beside.
    pub first: ActorId,
    pub shards: usize,
    pub beside: usize,
    pub plain: bool,
    /// How far its clock goes before all others'.
    pub ahead_s: i64,
    /// What a job costs a worker of its nodes.
    pub job_cost: Duration,
}

impl HostState {
    pub fn nodes(&self) -> usize {
        self.shards + self.beside
    }
}

pub(crate) struct Actor<L: Language> {
    pub host: HostId,
    pub shard: ShardId,
    /// `None` once it was killed.
    pub node: Option<Box<dyn AnyNode<L>>>,
    /// The time-out that is scheduled; others in the queue are void.
    pub timer: Option<Instant>,
    /// Connections that it accepted.
    pub accepted: u64,
    /// How often it was started anew. What was due for an earlier life is void.
    pub life: u32,
    /// Where what it does takes time.
    pub charged: Option<Box<Charged<L>>>,
}

pub(crate) enum Due<L: Language> {
    WallClock(ActorId, u32),
    Timer(ActorId, Instant),
    /// A segment comes to a host past all wires: somebody on the path forged it.
    Segment(HostId, Vec<u8>),
    /// No way leads to where a host's connection wants to go.
    Unreachable(HostId, SocketAddr, SocketAddr),
    KernelTimer(KernelId, Instant),
    Accepted(KernelId, ConnectionId),
    /// See whether a socket has something to read, or credit to get.
    Look(KernelId, ConnectionId),
    CloseFlush(KernelId, ConnectionId),
    /// A stack sends packets, all as long as the first, but for the last.
    Packets(ActorId, u32, StackId, Vec<Vec<u8>>),
    Resolved(ActorId, u32, ResolveId, Result<Resolution, ResolveError>),
    /// Boxed, because it is longer than all the others, which are moved more often.
    Computed(ActorId, u32, JobId, Box<<L::Job as Job>::Result>),
    Message(ActorId, u32, ShardId, L::Message),
    /// Something happens on the wire of two hosts.
    Wires(HostPair, Instant),
    /// Something happens in the one network that joins all hosts.
    Network(Instant),
    /// A datagram has waited in a port's buffer.
    Datagram(Datagram),
    /// Somebody wants a core of a host, or one has become free.
    Cores {
        host: HostId,
        freed: bool,
    },
    /// A node has worked for as long as some of its outputs take.
    Outputs(ActorId, u32),
    RoundOver(ActorId, u32),
    Rested(ActorId, u32),
}

/// Many nodes in virtual time; see the crate.
pub struct Simulation<L: Language> {
    seed_number: u64,
    pub(crate) seed: Seed,
    pub(crate) options: Options,
    pub(crate) now: Instant,
    events_at_now: u64,
    pub(crate) queue: EventQueue<Due<L>>,
    pub(crate) trace: Trace,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) actors: Vec<Actor<L>>,
    pub(crate) by_addr: BTreeMap<IpAddr, HostId>,
    pub(crate) names: BTreeMap<String, Vec<IpAddr>>,
    /// Says how long answers of the resolver take, and what rubbish is.
    pub(crate) resolver: Rng,
    pub(crate) resolver_kind: Resolver,
    pub(crate) wires: Wires,
    pub(crate) watched: Watched,
    pub(crate) datagrams: DatagramPorts,
    pub(crate) kernels: Vec<Kernel>,
    /// What nodes have beside their hosts' kernels.
    pub(crate) stacks: BTreeMap<(ActorId, StackId), Stack>,
    /// The connections of all sockets that nodes can name.
    pub(crate) sockets: BTreeMap<(ActorId, SocketId), ConnectionId>,
    pub(crate) events: Vec<(Instant, HostId, L::Event)>,
    pub(crate) buf: Vec<u8>,
    /// The hosts whose computing takes time.
    pub(crate) cores: BTreeMap<HostId, Cores<L>>,
    /// Which of their nodes is told things at the moment.
    pub(crate) round: Option<Round<L>>,
    pub(crate) job_watch: Option<Box<dyn JobWatch>>,
}

impl<L: Language> Simulation<L> {
    /// An empty world. All randomness comes from `seed`.
    pub fn new(seed: u64, options: Options) -> Self {
        let (seed_number, seed) = (seed, Seed::from_number(seed));
        Simulation {
            seed_number,
            resolver: seed.child("resolver", 0).rng(),
            resolver_kind: Resolver::default(),
            seed,
            options,
            now: Instant::ZERO,
            events_at_now: 0,
            queue: EventQueue::new(),
            trace: Trace::new(),
            hosts: Vec::new(),
            actors: Vec::new(),
            by_addr: BTreeMap::new(),
            names: BTreeMap::new(),
            wires: Wires::default(),
            watched: Watched::default(),
            datagrams: DatagramPorts::default(),
            kernels: Vec::new(),
            stacks: BTreeMap::new(),
            sockets: BTreeMap::new(),
            events: Vec::new(),
            buf: Vec::new(),
            cores: BTreeMap::new(),
            round: None,
            job_watch: None,
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

    /// A host's addresses.
    pub fn addrs(&self, host: HostId) -> &[IpAddr] {
        &self.hosts[host.0].addrs
    }

    /// The hash of all that happened so far.
    pub fn trace_hash(&self) -> TraceHash {
        self.trace.hash()
    }

    /// What relays reported, in order.
    pub fn events(&self) -> &[(Instant, HostId, L::Event)] {
        &self.events
    }

    /// What the wall clock says.
    pub fn wall(&self) -> UnixTime {
        UnixTime { ns: self.options.wall.ns + self.now.as_nanos() }
    }

    /// What a host's wall clock says.
    pub fn wall_of(&self, host: HostId) -> UnixTime {
        let ahead_ns = self.hosts[host.0].ahead_s.saturating_mul(1_000_000_000);
        UnixTime { ns: self.wall().ns.saturating_add_signed(ahead_ns) }
    }

    /// Sets a host's clock, so that it is so far before all others', or behind. Its nodes hear of it at once.
    pub fn set_clock(&mut self, host: HostId, ahead_s: i64) {
        self.hosts[host.0].ahead_s = ahead_s;
        let HostState { first, shards, beside, .. } = self.hosts[host.0];
        for actor in (first.0..first.0 + shards + beside).map(ActorId) {
            self.input(actor, Kind::Timeout, 1, 0, Input::WallClock(self.wall_of(host)));
        }
    }

    /// From now on a job costs a worker of this host's nodes so much: its processors are slow.
    pub fn set_job_cost(&mut self, host: HostId, cost: Duration) {
        self.hosts[host.0].job_cost = cost;
    }

    /// Forgets what relays reported so far, and gives it back.
    pub fn take_events(&mut self) -> Vec<(Instant, HostId, L::Event)> {
        std::mem::take(&mut self.events)
    }

    /// Adds a host. Its nodes hear the wall clock first.
    ///
    /// # Panics
    ///
    /// When it has no node, or an address that another host has.
    pub fn add_host(&mut self, host: Host<L>) -> HostId {
        let kernel = kernel::options(self.options.receive_buffer_max_bytes);
        self.add_host_with(host, kernel)
    }

    /// The same with a kernel of this kind.
    ///
    /// # Panics
    ///
    /// Likewise.
    pub fn add_host_with(&mut self, host: Host<L>, kernel: KernelOptions) -> HostId {
        assert!(!host.nodes.is_empty(), "a host has at least one node");
        let id = HostId(self.hosts.len());
        for addr in &host.addrs {
            assert!(self.by_addr.insert(*addr, id).is_none(), "{addr} is taken");
        }
        let first = ActorId(self.actors.len());
        let (shards, beside) = (host.nodes.len(), host.beside.len());
        for (shard, node) in host.nodes.into_iter().chain(host.beside).enumerate() {
            let shard = ShardId(u16::try_from(shard).expect("no relay has so many shards"));
            let actor = ActorId(self.actors.len());
            let node = Some(node);
            let (timer, accepted, life, charged) = (None, 0, 0, None);
            self.actors.push(Actor { host: id, shard, node, timer, accepted, life, charged });
            self.queue.push(self.now, Due::WallClock(actor, 0));
        }
        let Host { addrs, ports, plain, .. } = host;
        let seed = self.seed.child("kernel", id.0 as u64);
        let of_host = KernelId(self.kernels.len());
        self.kernels.push(Kernel::new(Owner::Host(id), &ports, kernel, &seed));
        self.hosts.push(HostState {
            kernel: of_host,
            addrs,
            ports,
            first,
            shards,
            beside,
            plain,
            ahead_s: 0,
            job_cost: self.options.job_cost,
        });
        id
    }

    /// Has a node of a host take all connections to a port, whether it is a shard or beside them.
    ///
    /// # Panics
    ///
    /// When somebody has the port.
    pub fn listen(&mut self, host: HostId, node: usize, port: u16) {
        let actor = self.actor(host, node);
        assert!(!self.hosts[host.0].ports.contains(&port), "port {port} is taken");
        let kernel = &mut self.kernels[self.hosts[host.0].kernel.0];
        assert!(kernel.owners.insert(port, actor).is_none(), "port {port} is taken");
        self.hosts[host.0].ports.push(port);
        kernel.tcp.listen(port);
    }

    /// Gives a name to addresses, for the resolver. Names are lower case.
    pub fn add_name(&mut self, name: &str, addrs: &[IpAddr]) {
        self.names.insert(name.to_owned(), addrs.to_vec());
    }

    /// Hands a shard an order of its operator.
    pub fn control(&mut self, host: HostId, shard: usize, control: L::Control) {
        let actor = self.actor(host, shard);
        self.input(actor, Kind::Control, 0, 0, Input::Control(control));
    }

    /// Lets the test speak with a node, and then does what the node wants done.
    ///
    /// # Panics
    ///
    /// When the node was killed, or is not a `T`.
    pub fn with<T: Node<L> + Any, R>(
        &mut self,
        host: HostId,
        shard: usize,
        speak: impl FnOnce(&mut T, Instant) -> R,
    ) -> R {
        let actor = self.actor(host, shard);
        let now = self.now;
        let node: &mut dyn Any = &mut **self.node(actor).expect("the node lives");
        let result = speak(node.downcast_mut().expect("the node is what the test takes it for"), now);
        if !self.ask_later(actor) {
            self.poll_outputs(actor);
        }
        result
    }

    /// Sets something about a node of which nothing follows. Other than in [`Simulation::with`] the node is not asked
    /// what it wants done, so that the run is the same as without.
    ///
    /// # Panics
    ///
    /// When the node was killed, or is not a `T`.
    pub fn equip<T: Node<L> + Any>(&mut self, host: HostId, shard: usize, set: impl FnOnce(&mut T)) {
        let actor = self.actor(host, shard);
        let node: &mut dyn Any = &mut **self.node(actor).expect("the node lives");
        set(node.downcast_mut().expect("the node is what the test takes it for"));
    }

    /// Puts something that the test saw into the trace.
    pub fn note(&mut self, what: &dyn core::fmt::Debug) {
        let text = format!("{what:?}");
        self.trace.record(self.now, usize::MAX, Kind::Note, 0, 0, text.as_bytes());
    }

    /// Ends all nodes of a host as a kill of its process would: its connections are reset, new ones
    /// refused.
    pub fn kill(&mut self, host: HostId) {
        let (first, nodes) = (self.hosts[host.0].first.0, self.hosts[host.0].nodes());
        self.trace.record(self.now, first, Kind::Killed, 0, 0, &[]);
        (first..first + nodes).for_each(|actor| self.actors[actor].node = None);
        (first..first + nodes).for_each(|actor| self.forget_charged(ActorId(actor)));
        self.sockets.retain(|(actor, _), _| !(first..first + nodes).contains(&actor.0));
        let kernel = self.hosts[host.0].kernel;
        self.kernels[kernel.0].tcp.stop_listening();
        self.pump(kernel);
        let connections: Vec<_> = self.kernels[kernel.0].sockets.keys().copied().collect();
        connections.into_iter().for_each(|id| self.drop_connection(kernel, id));
        (first..first + nodes).for_each(|actor| self.drop_stacks(ActorId(actor)));
    }

    /// Starts a host anew that was killed, with new nodes in the places of the old ones.
    ///
    /// # Panics
    ///
    /// When one of its nodes lives, or there are more or fewer than before.
    pub fn start_anew(
        &mut self,
        host: HostId,
        nodes: Vec<Box<dyn AnyNode<L>>>,
        beside: Vec<Box<dyn AnyNode<L>>>,
    ) {
        let state = &self.hosts[host.0];
        assert!((nodes.len(), beside.len()) == (state.shards, state.beside), "a host keeps its shape");
        let first = state.first.0;
        self.trace.record(self.now, first, Kind::StartedAnew, 0, 0, &[]);
        for (place, node) in nodes.into_iter().chain(beside).enumerate() {
            let actor = &mut self.actors[first + place];
            assert!(actor.node.is_none(), "the node lives");
            actor.node = Some(node);
            actor.timer = None;
            actor.life += 1;
            let due = Due::WallClock(ActorId(first + place), actor.life);
            self.queue.push(self.now, due);
            self.renew_stacks(ActorId(first + place));
        }
        let HostState { ports, kernel, .. } = &self.hosts[host.0];
        let kernel = &mut self.kernels[kernel.0];
        ports.iter().for_each(|port| kernel.tcp.listen(*port));
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
        assert!(shard < self.hosts[host.0].nodes(), "the host has no such node");
        ActorId(self.hosts[host.0].first.0 + shard)
    }

    pub(crate) fn node(&mut self, actor: ActorId) -> Option<&mut Box<dyn AnyNode<L>>> {
        self.actors[actor.0].node.as_mut()
    }

    /// Hands a node an input, and does what it wants done.
    pub(crate) fn input(&mut self, actor: ActorId, kind: Kind, subject: u64, amount: u64, input: Input<L>) {
        if self.actors[actor.0].node.is_none() {
            return;
        }
        if self.actors[actor.0].is_put_off() {
            return self.put_off(actor, Waiting::Input { kind, subject, amount, input });
        }
        let now = self.now;
        let detail = match &input {
            Input::Failed { error, .. } => format!("{error:?}"),
            Input::Resolved { answer, .. } => format!("{answer:?}"),
            Input::FromShard { message, .. } => format!("{message:?}"),
            Input::Control(control) => format!("{control:?}"),
            _ => String::new(),
        };
        self.trace.record(now, actor.0, kind, subject, amount, detail.as_bytes());
        let is_charged = self.charge_input(actor, &input);
        if let Some(node) = self.node(actor) {
            node.handle_input(now, input);
            if !is_charged {
                self.poll_outputs(actor);
            }
        }
    }

    fn handle(&mut self, due: Due<L>) {
        match due {
            Due::WallClock(actor, life)
            | Due::Resolved(actor, life, ..)
            | Due::Computed(actor, life, ..)
            | Due::Message(actor, life, ..)
            | Due::Packets(actor, life, ..)
                if self.actors[actor.0].life != life => {}
            Due::WallClock(actor, life) => {
                let wall = self.wall_of(self.actors[actor.0].host);
                self.queue.push(self.now + WALL_CLOCK_PERIOD, Due::WallClock(actor, life));
                self.input(actor, Kind::Timeout, 1, 0, Input::WallClock(wall));
            }
            Due::Timer(actor, at) => {
                if self.actors[actor.0].timer == Some(at) && !self.wake(actor) {
                    self.actors[actor.0].timer = None;
                    self.input(actor, Kind::Timeout, 0, 0, Input::Timeout);
                }
            }
            Due::Segment(host, packet) => self.on_segment(self.hosts[host.0].kernel, &packet),
            Due::Unreachable(host, local, remote) => self.on_unreachable(host, local, remote),
            Due::KernelTimer(kernel, at) => self.on_kernel_timer(kernel, at),
            Due::Accepted(kernel, id) => self.on_accepted(kernel, id),
            Due::Look(kernel, id) => self.on_look(kernel, id),
            Due::CloseFlush(kernel, id) => self.on_close_flush(kernel, id),
            Due::Packets(actor, _, stack, packets) => self.on_stack_packets(actor, stack, &packets),
            Due::Resolved(actor, _, id, answer) => {
                self.input(actor, Kind::Resolved, id.0, 0, Input::Resolved { id, answer })
            }
            Due::Computed(actor, _, id, result) => {
                self.input(actor, Kind::Computed, id.0, 0, Input::Computed { id, result: *result })
            }
            Due::Message(actor, _, from, message) => {
                let subject = u64::from(from.0);
                self.input(actor, Kind::FromShard, subject, 0, Input::FromShard { from, message })
            }
            Due::Wires(ends, at) => self.on_wires(ends, at),
            Due::Network(at) => self.on_network(at),
            Due::Datagram(datagram) => self.deliver(&datagram, std::slice::from_ref(&datagram)),
            Due::Cores { host, freed } => self.on_cores(host, freed),
            Due::Outputs(actor, life) => self.on_outputs(actor, life),
            Due::RoundOver(actor, life) => self.on_round_over(actor, life),
            Due::Rested(actor, life) => self.on_rested(actor, life),
        }
    }
}

impl<L: Language> Drop for Simulation<L> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulation of seed {} failed at {:?}", self.seed_number, self.now);
        }
    }
}
