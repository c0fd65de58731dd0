//! Networks in virtual time: relays as the program [assembles](heddle_assembly) them, with real keys and TLS, clients,
//! and the servers behind the exits.
//!
//! ```
//! use heddle_network::{Net, Plan, download};
//! use heddle_seam::time::Duration;
//!
//! let mut net = Net::new(&Plan { seed: 7, ..Plan::default() });
//! let circuit = net.build(&[0, 1, 2], true);
//! let exchange = net.begin(circuit, download(100_000));
//! let status = net.await_status(exchange, Duration::from_secs(60), |status| status.received_bytes == 100_000);
//! assert_eq!(status.received_bytes, 100_000);
//! ```
//!
//! One seed gives one run, whatever the machine. What goes wrong is a panic that says what was waited for: this is for
//! tests and experiments.

pub mod authority;
mod drive;
mod relay_options;
pub mod swarm;
pub mod whole;

use core::net::{IpAddr, Ipv4Addr};
use heddle_assembly::{Assembly, Judge, Offered, Shown};
use heddle_client::{
    CircuitNumber, Closed, Destination, Exchange, ExchangeNumber, ExchangeStatus, Handshake, Hop, OnionProxy,
    ProxyEvent,
};
use heddle_dir::certs::ChannelCerts;
use heddle_dir::files::InMemory;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_proto::bucket::Limit;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::Target;
use heddle_proto::credit::HopCredit;
use heddle_proto::crypto::{NtorKeypair, OnionKeys};
use heddle_proto::flow::FlowChoice;
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, ListedRelay, Relay, RelayConfig, RelayLanguage, RelayStats, Relays, Scheduler};
use heddle_seam::language::Language;
use heddle_seam::node::{PortId, StackId};
use heddle_seam::rng::{Entropy, Repeatable, Seed};
use heddle_seam::stopwatch::Stopwatch;
use heddle_seam::time::Duration;
use heddle_sim::{AnyNode, Host, HostId, Internet, Options, Service, Simulation, Wire, pattern};
use heddle_transport::registry::{self, Chosen, Registered};
use heddle_transport::tls::{TlsOptions, TlsTransport};
use std::sync::{Arc, LazyLock, Mutex};

pub const OR_PORT: u16 = 9001;
pub const ECHO: u16 = 7;
pub const SOURCE: u16 = 19;
pub const DIGEST: u16 = 9;
pub const STALL: u16 = 1;
/// Where the servers are.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));
pub(crate) const SERVER_NAME: &str = "server.example";

pub use relay_options::RelayOptions;

/// A relay of the network.
#[derive(Clone)]
pub struct RelayHost {
    pub host: HostId,
    pub hop: Hop,
}

/// The network; the last relay is the exit.
pub struct Net {
    pub sim: Simulation<RelayLanguage>,
    pub relays: Vec<RelayHost>,
    pub client: HostId,
    pub server: HostId,
    /// The shards of each relay.
    pub shards: Vec<usize>,
}

/// What a network is like.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    pub wire: Wire,
    /// What kernels keep of a connection for a reader.
    pub receive_buffer_max_bytes: u32,
    /// The shards of each relay.
    pub shards: Vec<usize>,
    pub max_queue_bytes: usize,
    pub params: NetworkParams,
    /// A relay whose ORPort nobody can connect to.
    pub unreachable: Option<usize>,
    /// Relays that speak QUIC to each other; the others are as stock Tor in this.
    pub quic: Vec<usize>,
    /// Relays that speak tcp-dtls. Those that speak both prefer it.
    pub dtls: Vec<usize>,
    /// Relays that speak QUIC with a connection for each circuit.
    pub per_circuit: Vec<usize>,
    /// Flow control of the exit.
    pub flow_control: FlowChoice,
    /// Credit from hop to hop, of each relay.
    pub hop_credit: HopCredit,
    /// `HeddleScheduler` of each relay.
    pub scheduler: Scheduler,
    /// A relay whose operator allows only so many bytes a second, and as many at once.
    pub slow: Option<(usize, u64)>,
    /// Relays that speak tcp-esp, which they prefer to all others.
    pub esp: Vec<usize>,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            seed: 1,
            wire: Wire::default(),
            receive_buffer_max_bytes: 6 << 20,
            shards: vec![1, 1, 1],
            max_queue_bytes: 16 << 20,
            params: NetworkParams::default(),
            unreachable: None,
            quic: vec![],
            dtls: vec![],
            per_circuit: vec![],
            flow_control: FlowChoice::Auto,
            hop_credit: HopCredit::None,
            scheduler: Scheduler::RoundRobin,
            slow: None,
            esp: vec![],
        }
    }
}

impl Plan {
    fn options(&self) -> Options {
        let receive_buffer_max_bytes = self.receive_buffer_max_bytes;
        Options { default_wire: self.wire, receive_buffer_max_bytes, ..Options::default() }
    }

    /// What a relay speaks beside TLS, the preferred first.
    fn transports(&self, relay: usize) -> Vec<&'static Registered> {
        let spoken = [
            (&self.esp, "tcp-esp"),
            (&self.dtls, "tcp-dtls"),
            (&self.quic, "quic"),
            (&self.per_circuit, "quic-per-circuit"),
        ];
        let spoken = spoken.into_iter().filter(|(relays, _)| relays.contains(&relay));
        let known = || registry::TRANSPORTS.iter();
        let found = |name| known().find(|line| line.transport.name == name).copied();
        spoken.map(|(_, name)| found(name).expect("a transport of the registry")).collect()
    }
}

impl Net {
    pub fn new(plan: &Plan) -> Self {
        let mut sim = Simulation::new(plan.seed, plan.options());
        let relays: Vec<RelayHost> = plan
            .shards
            .iter()
            .enumerate()
            .map(|(index, shards)| add_planned(&mut sim, plan, index, *shards))
            .collect();
        introduce(&mut sim, relays.iter().zip(plan.shards.iter().copied()));
        let server = internet(&mut sim);
        let client = add_client(&mut sim, 0);
        Net { sim, relays, client, server, shards: plan.shards.clone() }
    }

    /// A path over these relays; the last hop is asked for congestion control if wanted.
    pub fn path(&self, relays: &[usize], congestion_control: bool) -> Vec<(Hop, Handshake)> {
        let last = relays.len() - 1;
        let handshake = |place| match place {
            _ if place == last && congestion_control => Handshake::NtorV3 { congestion_control },
            0 => Handshake::Ntor,
            _ => Handshake::NtorV3 { congestion_control: false },
        };
        relays.iter().enumerate().map(|(n, relay)| (self.relays[*relay].hop.clone(), handshake(n))).collect()
    }

    pub fn proxy<R>(&mut self, speak: impl FnOnce(&mut OnionProxy) -> R) -> R {
        self.sim.with(self.client, 0, |proxy: &mut OnionProxy, _| speak(proxy))
    }

    /// Asks for a circuit and waits until it is built.
    pub fn build(&mut self, relays: &[usize], congestion_control: bool) -> CircuitNumber {
        let path = self.path(relays, congestion_control);
        build(&mut self.sim, self.client, path)
    }

    pub fn begin(&mut self, circuit: CircuitNumber, exchange: Exchange) -> ExchangeNumber {
        begin(&mut self.sim, self.client, circuit, exchange)
    }

    pub fn status(&mut self, exchange: ExchangeNumber) -> ExchangeStatus {
        self.proxy(|proxy| proxy.status(exchange)).expect("the exchange was begun")
    }

    /// Lets time pass until an exchange is as wanted.
    pub fn await_status(
        &mut self,
        exchange: ExchangeNumber,
        time_max: Duration,
        wanted: impl Fn(&ExchangeStatus) -> bool,
    ) -> ExchangeStatus {
        await_status(&mut self.sim, self.client, exchange, time_max, wanted)
    }

    /// Cells that wait in all shards of a relay.
    pub fn queued_cells(&mut self, relay: usize) -> u32 {
        let host = self.relays[relay].host;
        let queued = |shard| self.sim.with(host, shard, |relay: &mut Relay, _| relay.queued_cells());
        (0..self.shards[relay]).map(queued).sum()
    }

    /// What all shards of a relay did.
    pub fn stats(&mut self, relay: usize) -> RelayStats {
        let host = self.relays[relay].host;
        let mut stats = RelayStats::default();
        for shard in 0..self.shards[relay] {
            stats.add(&self.sim.with(host, shard, |relay: &mut Relay, _| relay.stats()));
        }
        stats
    }

    /// Cells that a relay sent over a transport so far.
    pub fn cells_out_over(&mut self, relay: usize, transport: &str) -> u64 {
        let stats = self.stats(relay);
        let found = stats.transports.iter().find(|of| of.name == transport);
        found.map_or(0, |of| of.cells_out)
    }

    pub fn circuits(&mut self, relay: usize, shard: usize) -> usize {
        let host = self.relays[relay].host;
        self.sim.with(host, shard, |relay: &mut Relay, _| relay.circuits())
    }
}

/// Whether a circuit ended because somebody calls another's cells a breach of the protocol.
pub(crate) fn is_breach(why: &Closed) -> bool {
    match why {
        Closed::Misbehaved(_) => true,
        Closed::Destroyed(reason) | Closed::Truncated { reason, .. } => *reason == DestroyReason::PROTOCOL,
    }
}

/// Asks a client for a circuit and waits until it is built.
pub fn build<L: Language>(
    sim: &mut Simulation<L>,
    client: HostId,
    path: Vec<(Hop, Handshake)>,
) -> CircuitNumber {
    let number = sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.build(path));
    let number = number.expect("the path has relays");
    await_event(sim, client, ProxyEvent::Built(number));
    number
}

/// Waits for an event of a client; others are dropped.
fn await_event<L: Language>(sim: &mut Simulation<L>, client: HostId, wanted: ProxyEvent) {
    let mut seen = Vec::new();
    let came = sim.run_until(Duration::from_secs(120), |sim| {
        seen.extend(sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.take_events()));
        seen.contains(&wanted)
    });
    assert!(came, "{wanted:?} did not come, but {seen:?}");
}

/// Begins an exchange on a client's circuit.
pub fn begin<L: Language>(
    sim: &mut Simulation<L>,
    client: HostId,
    circuit: CircuitNumber,
    exchange: Exchange,
) -> ExchangeNumber {
    let begun = sim.with(client, 0, |proxy: &mut OnionProxy, now| proxy.begin(now, circuit, exchange));
    begun.expect("a built circuit takes streams")
}

/// Lets time pass until a client's exchange is as wanted.
pub fn await_status<L: Language>(
    sim: &mut Simulation<L>,
    client: HostId,
    exchange: ExchangeNumber,
    time_max: Duration,
    wanted: impl Fn(&ExchangeStatus) -> bool,
) -> ExchangeStatus {
    let status =
        |sim: &mut Simulation<L>| sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.status(exchange));
    let came = sim.run_until(time_max, |sim| status(sim).is_some_and(|status| wanted(&status)));
    let status = status(sim).expect("the exchange was begun");
    assert!(came, "after {time_max:?}: {status:?}");
    sim.note(&status);
    status
}

/// Reads so many bytes.
pub fn download(bytes: u64) -> Exchange {
    Exchange {
        to: Destination::Addr(SERVER),
        port: SOURCE,
        head: bytes.to_be_bytes().to_vec(),
        body_bytes: 0,
        body: pattern,
        reading: true,
    }
}

/// Sends so many bytes and reads their hash.
pub fn upload(bytes: u64) -> Exchange {
    Exchange {
        to: Destination::Name(SERVER_NAME.to_owned()),
        port: DIGEST,
        body_bytes: bytes,
        ..download(bytes)
    }
}

/// The SHA-256 of what a download or an upload of so many bytes carries.
pub fn pattern_sha256(bytes: u64) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest((0..bytes).map(pattern).collect::<Vec<u8>>()).into()
}

/// Adds the servers behind the exits.
fn internet<L: Language>(sim: &mut Simulation<L>) -> HostId {
    let services = [
        (ECHO, Service::Echo),
        (SOURCE, Service::Source),
        (DIGEST, Service::Digest),
        (STALL, Service::Stall),
    ];
    let internet = Internet::new(&services);
    let (addrs, ports) = (vec![SERVER], internet.ports());
    let nodes: Vec<Box<dyn AnyNode<L>>> = vec![Box::new(internet)];
    let server = sim.add_host(Host { addrs, ports, nodes, beside: vec![], plain: true });
    sim.add_name(SERVER_NAME, &[SERVER]);
    server
}

fn add_planned(sim: &mut Simulation<RelayLanguage>, plan: &Plan, index: usize, shards: usize) -> RelayHost {
    let rate = plan.slow.filter(|(slow, _)| *slow == index).map(|(_, rate)| rate);
    let options = RelayOptions {
        shards,
        exits: index + 1 == plan.shards.len(),
        transports: plan.transports(index),
        max_queue_bytes: plan.max_queue_bytes,
        params: plan.params.clone(),
        flow_control: plan.flow_control,
        hop_credit: plan.hop_credit,
        scheduler: plan.scheduler,
        relay_bandwidth: rate.map(|rate| Limit { rate_bytes_per_s: rate, burst_bytes: rate }),
        count_private_bandwidth: rate.is_some(),
        ..RelayOptions::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)))
    };
    let mut made = MadeRelay::new(sim, index, &options);
    let ports = if plan.unreachable == Some(index) { vec![] } else { vec![OR_PORT] };
    let host = made.host(options.addr, ports, vec![]);
    let host = sim.add_host(host);
    made.settle(sim, host, shards)
}

/// A relay that has no host yet.
pub struct MadeRelay {
    nodes: Vec<Relay>,
    hop: Hop,
    keys: Arc<OnionKeys>,
    params: Arc<NetworkParams>,
    transports: Vec<&'static Registered>,
}

impl MadeRelay {
    /// Makes a relay with the keys that all relays of this number have, and chance of its own.
    pub fn new(sim: &Simulation<RelayLanguage>, index: usize, options: &RelayOptions) -> Self {
        let identity = identity(index);
        let seed = sim.seed().child("relay", index as u64);
        let (ids, addr) = (identity.ids(), options.addr);
        let shown = Shown { keys: &identity.keys, certs: &identity.certs, addrs: &[addr] };
        let config = RelayConfig {
            flow_control: options.flow_control,
            hop_credit: options.hop_credit,
            scheduler: options.scheduler,
            relay_bandwidth: options.relay_bandwidth,
            count_private_bandwidth: options.count_private_bandwidth,
            ..relay_config(options.max_queue_bytes, ids, addr, options.exits)
        };
        let nodes = assemble(config, shown, options.shards, &options.transports, &seed);
        let onion = NtorKeypair::generate(&mut seed.child("onion key", 0).rng());
        let hop = Hop {
            target: Target { rsa: ids.rsa, ed25519: Some(ids.ed25519), addrs: vec![(addr, OR_PORT).into()] },
            ntor_key: *onion.public(),
        };
        let keys = Arc::new(OnionKeys {
            rsa_id: ids.rsa.0,
            ed25519_id: ids.ed25519.0,
            ntor_current: onion,
            ntor_previous: None,
        });
        let params = Arc::new(options.params.clone());
        MadeRelay { nodes, hop, keys, params, transports: options.transports.clone() }
    }

    /// Its host, with these nodes beside its shards.
    pub fn host(
        &mut self,
        addr: IpAddr,
        ports: Vec<u16>,
        beside: Vec<Box<dyn AnyNode<RelayLanguage>>>,
    ) -> Host<RelayLanguage> {
        let node = |relay| -> Box<dyn AnyNode<RelayLanguage>> { Box::new(relay) };
        let nodes = std::mem::take(&mut self.nodes).into_iter().map(node).collect();
        Host { addrs: vec![addr], ports, nodes, beside, plain: false }
    }

    /// Opens its UDP ports and its transports' stacks, and tells it what its control plane would.
    pub fn settle(self, sim: &mut Simulation<RelayLanguage>, host: HostId, shards: usize) -> RelayHost {
        open_ports(sim, host, shards, self.transports.len());
        let stacks = (0..).zip(&self.transports).filter_map(|(place, line)| Some((place, line.stack?)));
        for (place, stack) in stacks {
            (0..shards).for_each(|shard| sim.open_stack(host, shard, StackId(place), stack));
        }
        for shard in 0..shards {
            sim.control(host, shard, Control::OnionKeys(self.keys.clone()));
            sim.control(host, shard, Control::Params(self.params.clone()));
        }
        RelayHost { host, hop: self.hop }
    }
}

/// Tells each of these relays, which have so many shards, of all of them.
pub fn introduce<'a>(
    sim: &mut Simulation<RelayLanguage>,
    relays: impl Iterator<Item = (&'a RelayHost, usize)> + Clone,
) {
    let listed = |(relay, _): (&RelayHost, usize)| {
        let Target { rsa, ed25519, addrs } = relay.hop.target.clone();
        ListedRelay { rsa, ed25519, or_addrs: addrs }
    };
    let peers = Arc::new(Relays::new(relays.clone().map(listed), []));
    for (relay, shards) in relays {
        for shard in 0..shards {
            sim.control(relay.host, shard, Control::Peers(peers.clone()));
        }
    }
}

/// The shards of a relay.
fn assemble(
    config: RelayConfig,
    shown: Shown<'_>,
    shards: usize,
    transports: &[&'static Registered],
    seed: &Seed,
) -> Vec<Relay> {
    let assembly = Assembly {
        config,
        shards: shards as u16,
        shown,
        chosen: &Chosen::new(),
        offload: true,
        anchor: *ANCHOR,
        stopwatch: Stopwatch::default(),
    };
    let mut relays: Vec<Relay> = Vec::new();
    for shard in 0..shards {
        let seed = seed.child("shard", shard as u64);
        let offered = transports.iter().enumerate().map(|(place, transport)| Offered {
            port: PortId(place as u8),
            number: udp_port(shard, place),
            transport,
        });
        let chance = |part: &str| -> Box<dyn Entropy> { Box::new(Repeatable::new(&seed.child(part, 0))) };
        let relay = assembly.shard(shard as u16, &offered.collect::<Vec<_>>(), relays.first(), &chance);
        relays.push(relay.expect("keys and options are good"));
    }
    relays
}

fn open_ports<L: Language>(sim: &mut Simulation<L>, host: HostId, shards: usize, transports: usize) {
    for shard in 0..shards {
        let ports: Vec<u16> = (0..transports).map(|place| udp_port(shard, place)).collect();
        sim.open_ports(host, shard, &ports);
    }
}

fn relay_config(max_queue_bytes: usize, ids: RelayIds, addr: IpAddr, is_exit: bool) -> RelayConfig {
    RelayConfig {
        exit_policy: is_exit.then(everywhere),
        extend_to_private: true,
        max_queue_bytes,
        ..RelayConfig::new(ids, addr)
    }
}

fn everywhere() -> ExitPolicy {
    ExitPolicy::from_rules(&["accept *:*".parse().expect("a rule of the grammar")])
}

/// What virtual time counts from; nothing else depends on it.
static ANCHOR: LazyLock<std::time::Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "libraries want a time that only this makes")]
    std::time::Instant::now()
});

/// The first shard's for its first transport.
pub const FIRST_UDP_PORT: u16 = 4430;

/// Each shard has a port of its own for each transport.
fn udp_port(shard: usize, place: usize) -> u16 {
    FIRST_UDP_PORT + shard as u16 + 100 * place as u16
}

/// Adds an onion proxy.
pub fn add_client<L: Language>(sim: &mut Simulation<L>, index: u8) -> HostId {
    let seed = sim.seed().child("client", index.into());
    let proxy = OnionProxy::new(Box::new(transport(&seed)), Arc::default(), &seed);
    let addrs = vec![IpAddr::V4(Ipv4Addr::new(172, 16, 0, index + 1))];
    let nodes: Vec<Box<dyn AnyNode<L>>> = vec![Box::new(proxy)];
    sim.add_host(Host { addrs, ports: vec![], nodes, beside: vec![], plain: false })
}

/// Channels of somebody without an identity: a client's, or an attacker's.
pub fn transport(seed: &Seed) -> TlsTransport {
    let entropy = Box::new(Repeatable::new(&seed.child("tls", 0)));
    TlsTransport::new(TlsOptions::default(), None, Arc::new(Judge), entropy).expect("the options are good")
}

/// Keys and certificates, made once in a process, because RSA takes its time.
struct Identity {
    keys: RelayKeys,
    certs: Arc<ChannelCerts>,
}

impl Identity {
    fn ids(&self) -> RelayIds {
        RelayIds { rsa: RsaId(self.keys.rsa_id()), ed25519: Ed25519Id(self.keys.ed25519_id()) }
    }
}

fn identity(index: usize) -> Arc<Identity> {
    static MADE: Mutex<Vec<Option<Arc<Identity>>>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().expect("nobody fails while he makes keys");
    if made.len() <= index {
        made.resize(index + 1, None);
    }
    made[index].get_or_insert_with(|| Arc::new(make_identity(index as u64))).clone()
}

fn make_identity(index: u64) -> Identity {
    let mut rng = Seed::from_number(index).child("identity", index).rng();
    let unix_s = Options::default().wall.as_secs();
    let options = KeyOptions { files: Arc::new(InMemory::default()), ..KeyOptions::new("data", "heddle") };
    let keys = RelayKeys::load_or_create(options, unix_s, &mut rng).expect("keys are made");
    let certs = Arc::new(ChannelCerts::create(&keys, unix_s, &mut rng).expect("certificates are made"));
    Identity { keys, certs }
}
