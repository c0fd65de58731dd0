//! Whole relays in virtual time: shards and control plane, which start with nothing but the line of an authority, make
//! their keys, publish, follow the consensus and carry circuits.
//!
//! A relay's nodes are its shards and, beside them, its [`ControlNode`]. What in the program goes through mailboxes
//! goes between them as messages: what a shard has seen, and what the control plane wants of it. What sockets carry is
//! counted by all of them.

use crate::authority::{Authority, DIR_PORT};
use crate::drive::Drive;
use crate::hostile::Hostile;
use crate::made_relay::{assemble, open_ports, setup};
use crate::mischief::Mischief;
use crate::relay_options::{open_exit, usual};
use crate::{HOLE, OR_PORT, add_client, internet};
use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use heddle_assembly::key_options;
use heddle_client::{Handshake, Hop};
use heddle_control::{Carried, ControlLanguage, ControlPlane, Figures, Identity, Told, Wanted};
use heddle_dir::authority::DirAuthority;
use heddle_dir::certs::ChannelCerts;
use heddle_dir::files::Files;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_netem::DirectionOptions;
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_relay::{CircuitLog, Control, Event, Job, Limits, Relay, RelayLanguage, ShardMessage};
use heddle_seam::language::Language;
use heddle_seam::node::{Heard, Input, Node, Output, Said, ShardId, SocketId};
use heddle_seam::rng::{Entropy, Repeatable};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_sim::{AnyNode, Host, HostId, Internet, Options, Simulation, Wire};
use heddle_torrc::Options as Torrc;
use heddle_transport::Ciphers;
use heddle_transport::registry::{Registered, TRANSPORTS};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the authority listens.
const AUTHORITY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 255, 0, 1), DIR_PORT);

/// Names that the resolver knows, beside the servers'.
pub(crate) const MADE_UP_NAMES: [(&str, Ipv4Addr); 4] = [
    ("one.example", Ipv4Addr::new(203, 0, 113, 1)),
    ("two.example", Ipv4Addr::new(203, 0, 113, 2)),
    ("three.example", Ipv4Addr::new(203, 0, 113, 3)),
    ("four.example", Ipv4Addr::new(203, 0, 113, 4)),
];

/// What the nodes of a relay speak: to shards what they speak anyway, and between shards and control plane a little
/// more.
#[derive(Debug)]
pub enum WholeLanguage {}

impl Language for WholeLanguage {
    type Control = Control;
    type Event = Event;
    type Message = Message;
    type Job = Job;
}

/// From one node of a relay to another.
#[derive(Debug)]
pub enum Message {
    BetweenShards(ShardMessage),
    ToShard(Control),
    ToControl(Told),
}

/// Counts what a relay's sockets carry.
#[derive(Debug, Default)]
struct Counter {
    read: AtomicU64,
    written: AtomicU64,
}

impl Counter {
    fn so_far(&self) -> Carried {
        Carried { read: self.read.load(Ordering::Relaxed), written: self.written.load(Ordering::Relaxed) }
    }
}

/// A shard that tells its control plane what concerns it.
pub struct ShardNode {
    pub relay: Relay,
    number: u16,
    control: ShardId,
    carried: Arc<Counter>,
}

impl Node<WholeLanguage> for ShardNode {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        self.relay.recv_buf(socket)
    }

    fn handle_input(&mut self, now: Instant, input: Input<WholeLanguage>) {
        let read = match &input {
            Input::Read { len, .. } => *len,
            Input::Datagrams { datagrams, .. } => datagrams.data.len(),
            _ => 0,
        };
        self.carried.read.fetch_add(read as u64, Ordering::Relaxed);
        let input = input.translate::<RelayLanguage>().unwrap_or_else(|heard| match heard {
            Heard::Computed { id, result } => Input::Computed { id, result },
            Heard::Control(control) => Input::Control(control),
            Heard::FromShard { from, message } => match message {
                Message::BetweenShards(message) => Input::FromShard { from, message },
                Message::ToShard(control) => Input::Control(control),
                Message::ToControl(told) => panic!("a shard was told {told:?}"),
            },
        });
        self.relay.handle_input(now, input);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<WholeLanguage> {
        let output = self.relay.poll_output(now, buf);
        self.carried.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        output.translate().unwrap_or_else(|said| match said {
            Said::Compute { id, job } => Output::Compute { id, job },
            Said::ToShard { to, message } => Output::ToShard { to, message: Message::BetweenShards(message) },
            Said::Event(event) => match Told::of(self.number, event) {
                Ok(told) => Output::ToShard { to: self.control, message: Message::ToControl(told) },
                Err(event) => Output::Event(event),
            },
        })
    }
}

/// A control plane beside its shards.
pub struct ControlNode {
    pub plane: ControlPlane,
    carried: Arc<Counter>,
    /// Answers that it has not heard yet.
    answers: VecDeque<Told>,
    /// When a shard said that the relay was reached, for the first time.
    pub reached_at: Option<Instant>,
    /// How often a shard was asked to find out, and said that it did not succeed.
    pub probes: u32,
    pub probes_failed: u32,
}

impl ControlNode {
    fn new(plane: ControlPlane, carried: Arc<Counter>) -> Self {
        let answers = VecDeque::new();
        ControlNode { plane, carried, answers, reached_at: None, probes: 0, probes_failed: 0 }
    }

    /// Does what is wanted, or says who is to.
    fn carry_out(&mut self, wanted: Wanted) -> Option<Output<WholeLanguage>> {
        match wanted {
            Wanted::Tell { shard, control } => {
                self.probes += u32::from(matches!(control, Control::ProbeReachability { .. }));
                return Some(Output::ToShard { to: ShardId(shard), message: Message::ToShard(control) });
            }
            Wanted::Carried => self.answers.push_back(Told::Carried(self.carried.so_far())),
            Wanted::NameServers { .. } => self.answers.push_back(Told::NameServers { known: true }),
            // A host keeps the addresses that it was made with.
            Wanted::Addresses => {}
            Wanted::Figures => {
                let figures = Figures { carried: self.carried.so_far(), ..Figures::default() };
                self.answers.push_back(Told::Figures(Box::new(figures)));
            }
        }
        None
    }
}

impl Node<WholeLanguage> for ControlNode {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        self.plane.recv_buf(socket)
    }

    fn handle_input(&mut self, now: Instant, input: Input<WholeLanguage>) {
        let input = input.translate::<ControlLanguage>().unwrap_or_else(|heard| match heard {
            Heard::FromShard { message: Message::ToControl(told), .. } => {
                if matches!(told, Told::Reachable) {
                    self.reached_at.get_or_insert(now);
                }
                self.probes_failed += u32::from(matches!(told, Told::ProbeFailed));
                Input::Control(told)
            }
            heard => panic!("a control plane was told {heard:?}"),
        });
        self.plane.handle_input(now, input);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<WholeLanguage> {
        loop {
            match self.plane.poll_output(now, buf).translate() {
                Ok(Output::Timeout(due)) => match self.answers.pop_front() {
                    Some(told) => self.plane.handle_input(now, Input::Control(told)),
                    None => return Output::Timeout(due),
                },
                Ok(output) => return output,
                Err(Said::Event(wanted)) => {
                    if let Some(output) = self.carry_out(wanted) {
                        return output;
                    }
                }
                Err(Said::Compute { job: never, .. } | Said::ToShard { message: never, .. }) => {
                    match never {}
                }
            }
        }
    }
}

/// The transports for people's traffic that want nothing of a driver but a UDP port.
pub(crate) fn of_ports_alone() -> Vec<&'static Registered> {
    let is_such = |line: &&&Registered| line.testing_only.is_none() && line.stack.is_none();
    TRANSPORTS.iter().filter(is_such).copied().collect()
}

/// What a network of whole relays is like.
#[derive(Clone, Debug)]
pub struct WholePlan {
    pub seed: u64,
    /// The shards of each relay; the last relay is the exit.
    pub shards: Vec<usize>,
    /// Relays that have to find out whether they are reached; the others assume it.
    pub unsure: Vec<usize>,
    /// Relays that nobody can connect to.
    pub unreachable: Vec<usize>,
    /// How often there is a consensus.
    pub interval: Duration,
    pub params: BTreeMap<String, i32>,
    /// The wire between any two hosts.
    pub wire: Wire,
    /// What all operators chose, beside what the other fields say of each relay.
    pub torrc: Torrc,
    /// What neighbours of each relay have shares of.
    pub limits: Limits,
    /// How much later than others an answer of the resolver may come.
    pub resolve_spread: Duration,
    /// A relay that is malicious, which is an exit as well, and what it does.
    pub rogue: Option<(usize, Arc<Mischief>)>,
}

impl Default for WholePlan {
    fn default() -> Self {
        let mut torrc = usual();
        torrc.heddle.transports = of_ports_alone();
        WholePlan {
            seed: 1,
            shards: vec![1, 1, 1],
            unsure: vec![],
            unreachable: vec![],
            interval: Duration::from_secs(60),
            params: BTreeMap::new(),
            wire: Wire::default(),
            torrc,
            limits: Limits::default(),
            resolve_spread: Duration::ZERO,
            rogue: None,
        }
    }
}

impl WholePlan {
    /// What a relay does that is malicious.
    fn mischief_of(&self, relay: usize) -> Option<&Arc<Mischief>> {
        self.rogue.as_ref().filter(|(rogue, _)| *rogue == relay).map(|(_, mischief)| mischief)
    }
}

/// Gives each shard of a relay, at each of its starts, somebody who hears what happens to its circuits.
pub type CircuitLogs = Box<dyn FnMut(HostId, u16) -> Box<dyn CircuitLog>>;

/// A network of whole relays, an authority, a client and the servers behind the exit.
pub struct WholeNet {
    pub sim: Simulation<WholeLanguage>,
    pub authority: HostId,
    pub relays: Vec<WholeRelay>,
    pub client: HostId,
    /// A client that has nothing to do with the other.
    pub stranger: HostId,
    /// A client whose circuits are to go over the malicious relay, if there is one.
    pub victim: HostId,
    /// Clients that keep no rules ([`Hostile`]); none at first.
    pub hostile: Vec<HostId>,
    /// Where nothing that is sent to ever answers.
    pub hole: IpAddr,
    pub server: HostId,
    plan: WholePlan,
    /// By which relays know the authority.
    line: DirAuthority,
    /// Whom shards tell of circuits.
    circuit_logs: Option<CircuitLogs>,
}

/// A relay of it.
#[derive(Clone)]
pub struct WholeRelay {
    pub host: HostId,
    pub addr: IpAddr,
    pub ids: RelayIds,
    pub shards: usize,
    pub(crate) disk: Arc<Drive>,
    /// How often it was started anew.
    lives: u64,
}

impl WholeNet {
    pub fn new(plan: &WholePlan) -> Self {
        let resolve_spread = plan.resolve_spread;
        let options = Options { default_wire: plan.wire, resolve_spread, ..Options::default() };
        let mut sim = Simulation::new(plan.seed, options);
        let mut rng = sim.seed().child("authority", 0).rng();
        let authority = Authority::new(AUTHORITY, plan.interval, plan.params.clone(), &mut rng);
        let line = authority.line();
        let authority = sim.add_host(Host {
            addrs: vec![IpAddr::V4(*AUTHORITY.ip())],
            ports: vec![DIR_PORT],
            nodes: vec![Box::new(authority)],
            beside: vec![],
            plain: true,
        });
        let add = |index| add_relay(&mut sim, plan, index, &line);
        let relays: Vec<WholeRelay> = (0..plan.shards.len()).map(add).collect();
        let server = internet(&mut sim);
        let [client, stranger, victim] = [0, 1, 2].map(|index| add_client(&mut sim, index));
        let hosts: Vec<HostId> = relays.iter().map(|relay| relay.host).collect();
        let hole = add_hole(&mut sim, &hosts);
        MADE_UP_NAMES.iter().for_each(|(name, addr)| sim.add_name(name, &[IpAddr::V4(*addr)]));
        let (plan, circuit_logs) = (plan.clone(), None);
        let hostile = Vec::new();
        WholeNet {
            sim,
            authority,
            relays,
            client,
            stranger,
            victim,
            hostile,
            hole,
            server,
            plan,
            line,
            circuit_logs,
        }
    }

    /// Adds a client that keeps no rules, and has done nothing yet.
    pub(crate) fn add_hostile(&mut self) -> HostId {
        let index = self.hostile.len() as u8;
        let node = Hostile::new(&self.sim.seed().child("hostile", index.into()));
        let host = self.sim.add_host(Host {
            addrs: vec![IpAddr::V4(Ipv4Addr::new(172, 16, 9, index + 1))],
            ports: vec![],
            nodes: vec![Box::new(node)],
            beside: vec![],
            plain: false,
        });
        self.hostile.push(host);
        host
    }

    /// What hosts are called, in the order of their numbers.
    pub fn host_names(&self) -> Vec<String> {
        let others = [
            (self.authority, "authority"),
            (self.client, "client"),
            (self.stranger, "stranger"),
            (self.victim, "victim"),
            (self.server, "server"),
        ];
        let hosts = self.relays.len() + others.len() + self.hostile.len() + 1;
        let mut names = vec!["hole".to_owned(); hosts];
        (0..).zip(&self.hostile).for_each(|(index, host)| names[host.0] = format!("hostile{index}"));
        others.iter().for_each(|(host, name)| names[host.0] = (*name).to_owned());
        let relays = self.relays.iter().enumerate();
        relays.for_each(|(index, relay)| names[relay.host.0] = nickname(index));
        names
    }

    /// From now on somebody hears what happens to all circuits at all relays, also at those that are started anew.
    /// Nothing that happens depends on it.
    pub fn follow_circuits(&mut self, logs: CircuitLogs) {
        self.circuit_logs = Some(logs);
        (0..self.relays.len()).for_each(|relay| self.lend_logs(relay));
    }

    fn lend_logs(&mut self, relay: usize) {
        let WholeRelay { host, shards, .. } = self.relays[relay];
        let Some(logs) = &mut self.circuit_logs else { return };
        for shard in 0..shards {
            let log = logs(host, shard as u16);
            self.sim.equip(host, shard, |node: &mut ShardNode| node.relay.follow_circuits(log));
        }
    }

    /// Speaks with a relay's control plane.
    pub fn control<R>(&mut self, relay: usize, speak: impl FnOnce(&mut ControlNode) -> R) -> R {
        let WholeRelay { host, shards, .. } = self.relays[relay];
        self.sim.with(host, shards, |node: &mut ControlNode, _| speak(node))
    }

    /// The relays that a relay knows of, with all that a circuit over them needs.
    pub fn known(&mut self, relay: usize) -> Vec<Hop> {
        self.control(relay, |control| {
            let relays = control.plane.consensus().map(|consensus| consensus.relays.clone());
            let hop = |relay: heddle_dir::consensus::Relay| {
                let (target, ntor_key) = relay.hop()?;
                Some(Hop { target, ntor_key })
            };
            relays.unwrap_or_default().into_iter().filter_map(hop).collect()
        })
    }

    /// What a relay's sockets have carried.
    pub fn carried(&mut self, relay: usize) -> Carried {
        self.control(relay, |control| control.carried.so_far())
    }

    /// Ends a relay as a kill of its process would.
    pub fn kill(&mut self, relay: usize) {
        self.sim.kill(self.relays[relay].host);
    }

    /// Starts a relay anew that was killed, from its disk.
    pub fn start_anew(&mut self, relay: usize) {
        let of = &mut self.relays[relay];
        of.lives += 1;
        let wall = self.sim.wall_of(of.host);
        let made = Made::new(&self.sim, &self.plan, relay, of.lives, of.disk.clone(), &self.line, wall);
        assert_eq!(made.ids, of.ids, "it is who it was");
        self.sim.start_anew(of.host, made.shards, vec![made.control]);
        self.lend_logs(relay);
    }

    /// Puts what relays know and what lies on their disks into the trace.
    pub fn note_all(&mut self) {
        for relay in 0..self.relays.len() {
            let known = self.known(relay);
            let standing = self.control(relay, |control| control.plane.standing().clone());
            let files = self.relays[relay].disk.clone();
            let read = |path: std::path::PathBuf| {
                let bytes = files.read(&path, 1 << 24).expect("it is in memory");
                (path, bytes.map(|bytes| Sha256::digest(&bytes[..])))
            };
            let disk: Vec<_> = files.paths().into_iter().map(read).collect();
            let ntor: Vec<_> = known.iter().map(|hop| (hop.target.clone(), hop.ntor_key)).collect();
            self.sim.note(&(standing, ntor, disk));
        }
    }

    /// A path over these relays, as the first of them knows the others; `None` while it does not know all.
    pub fn path(&mut self, relays: &[usize]) -> Option<Vec<(Hop, Handshake)>> {
        let known = self.known(relays[0]);
        let hop = |relay: &usize| {
            let ids = self.relays[*relay].ids;
            let hop = known.iter().find(|hop| hop.target.rsa == ids.rsa)?;
            Some((hop.clone(), Handshake::NtorV3 { congestion_control: relay == relays.last()? }))
        };
        relays.iter().map(hop).collect()
    }
}

fn add_relay(
    sim: &mut Simulation<WholeLanguage>,
    plan: &WholePlan,
    index: usize,
    authority: &DirAuthority,
) -> WholeRelay {
    let disk = Arc::new(Drive::default());
    let made = Made::new(sim, plan, index, 0, disk.clone(), authority, sim.wall());
    let shards = made.shards.len();
    let ports = if plan.unreachable.contains(&index) { vec![] } else { vec![OR_PORT] };
    let (addrs, nodes, beside) = (vec![addr(index)], made.shards, vec![made.control]);
    let host = sim.add_host(Host { addrs, ports, nodes, beside, plain: false });
    open_ports(sim, host, &torrc(plan, index, authority));
    WholeRelay { host, addr: addr(index), ids: made.ids, shards, disk, lives: 0 }
}

/// Adds a host to which no wire of these leads any more.
fn add_hole(sim: &mut Simulation<WholeLanguage>, from: &[HostId]) -> IpAddr {
    let hole = Host {
        addrs: vec![HOLE],
        ports: vec![],
        nodes: vec![Box::new(Internet::new(&[]))],
        beside: vec![],
        plain: true,
    };
    let hole = sim.add_host(hole);
    let down = DirectionOptions { down: true, ..DirectionOptions::default() };
    from.iter().for_each(|host| sim.set_wire(*host, hole, down.clone()));
    HOLE
}

fn addr(index: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1))
}

fn nickname(index: usize) -> String {
    format!("relay{index}")
}

/// What the operator of a relay chose.
fn torrc(plan: &WholePlan, index: usize, authority: &DirAuthority) -> Torrc {
    let mut torrc = Torrc {
        nickname: nickname(index),
        dir_authority: vec![authority.clone()],
        assume_reachable: !plan.unsure.contains(&index),
        ..plan.torrc.clone()
    };
    torrc.heddle.shards = Some(plan.shards[index] as u16);
    if plan.mischief_of(index).is_some() || index + 1 == plan.shards.len() {
        open_exit(&mut torrc);
    }
    torrc
}

/// The nodes of a relay, as the program makes them at its start.
struct Made {
    ids: RelayIds,
    shards: Vec<Box<dyn AnyNode<WholeLanguage>>>,
    control: Box<dyn AnyNode<WholeLanguage>>,
}

impl Made {
    fn new(
        sim: &Simulation<WholeLanguage>,
        plan: &WholePlan,
        index: usize,
        life: u64,
        files: Arc<Drive>,
        authority: &DirAuthority,
        wall: UnixTime,
    ) -> Self {
        let seed = sim.seed().child("relay", index as u64).child("life", life);
        let now_unix_s = wall.as_secs();
        let mut entropy = Repeatable::new(&seed.child("control", 0));
        let torrc = torrc(plan, index, authority);
        let key_options = KeyOptions { files: files.clone(), ..key_options(&torrc) };
        let keys = RelayKeys::load_or_create(key_options, now_unix_s, &mut entropy.rng());
        let keys = keys.expect("keys are made");
        let certs = ChannelCerts::create(&keys, now_unix_s, &mut entropy.rng());
        let certs = Arc::new(certs.expect("certificates are made"));
        let ids = RelayIds { rsa: RsaId(keys.rsa_id()), ed25519: Ed25519Id(keys.ed25519_id()) };

        let carried = Arc::new(Counter::default());
        let setup = setup(&torrc, addr(index), plan.limits.clone());
        let control = ShardId(setup.shards);
        let node = |(number, relay)| -> Box<dyn AnyNode<WholeLanguage>> {
            Box::new(ShardNode { relay, number, control, carried: carried.clone() })
        };
        let beside = (Ciphers::default(), plan.mischief_of(index));
        let shards = (0..).zip(assemble(&setup, &keys, &certs, &seed, beside)).map(node).collect();
        let identity = Identity { keys, certs, files };
        let plane = setup.control_plane(identity, true, now_unix_s, Box::new(entropy));
        let control = Box::new(ControlNode::new(plane, carried));
        Made { ids, shards, control }
    }
}
