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
pub mod hostile;
mod made_relay;
mod mischief;
mod relay_options;
pub mod swarm;
pub mod whole;

use core::net::{IpAddr, Ipv4Addr};
use heddle_client::{
    CircuitNumber, Closed, Destination, Exchange, ExchangeNumber, ExchangeStatus, Handshake, Hop, OnionProxy,
    ProxyEvent,
};
use heddle_control::Judge;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::params::NetworkParams;
use heddle_relay::{Relay, RelayLanguage, RelayStats};
use heddle_seam::language::Language;
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::Duration;
use heddle_sim::{AnyNode, Host, HostId, Internet, Service, Simulation, Wire, pattern};
use heddle_torrc::Options;
use heddle_transport::Ciphers;
use heddle_transport::registry::Registered;
use heddle_transport::tls::{TlsOptions, TlsTransport};
use relay_options::open_exit;
use std::sync::Arc;

pub const OR_PORT: u16 = 9001;
pub const ECHO: u16 = 7;
pub const SOURCE: u16 = 19;
pub const DIGEST: u16 = 9;
pub const STALL: u16 = 1;
/// Servers that do nobody any good.
pub(crate) const ENDLESS: u16 = 2;
pub(crate) const MUTE: u16 = 3;
pub(crate) const CUT: u16 = 4;
pub(crate) const RESET: u16 = 5;
/// Where the servers are.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));
pub(crate) const SERVER_NAME: &str = "server.example";
/// Where nobody ever answers, in networks of whole relays.
pub const HOLE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

pub use made_relay::{FIRST_UDP_PORT, MadeRelay, RelayHost, introduce};
pub use relay_options::{RelayOptions, usual};

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
    /// What all operators chose, beside what the other fields say of each relay.
    pub torrc: Options,
    pub params: NetworkParams,
    /// A relay whose ORPort nobody can connect to.
    pub unreachable: Option<usize>,
    /// What each relay speaks beside TLS, the preferred first; relays beyond these are as stock Tor in this.
    pub transports: Vec<Vec<&'static Registered>>,
    /// A relay whose operator allows only so many bytes a second, and as many at once.
    pub slow: Option<(usize, u64)>,
    /// Where the cryptography of all links comes from.
    pub ciphers: Ciphers,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            seed: 1,
            wire: Wire::default(),
            receive_buffer_max_bytes: 6 << 20,
            shards: vec![1, 1, 1],
            torrc: usual(),
            params: NetworkParams::default(),
            unreachable: None,
            transports: vec![],
            slow: None,
            ciphers: Ciphers::default(),
        }
    }
}

impl Plan {
    /// The same where these relays speak this too, and prefer it to what they speak already.
    pub fn speaking(mut self, transport: &'static Registered, relays: &[usize]) -> Self {
        self.transports.resize(self.shards.len(), vec![]);
        relays.iter().for_each(|relay| self.transports[*relay].insert(0, transport));
        self
    }

    fn simulation(&self) -> heddle_sim::Options {
        let receive_buffer_max_bytes = self.receive_buffer_max_bytes;
        let options = heddle_sim::Options::default();
        heddle_sim::Options { default_wire: self.wire, receive_buffer_max_bytes, ..options }
    }

    /// What the operator of a relay chose.
    fn torrc(&self, relay: usize) -> Options {
        let mut torrc = self.torrc.clone();
        torrc.heddle.shards = Some(self.shards[relay] as u16);
        torrc.heddle.transports = self.transports.get(relay).cloned().unwrap_or_default();
        if relay + 1 == self.shards.len() {
            open_exit(&mut torrc);
        }
        if let Some((_, rate)) = self.slow.filter(|(slow, _)| *slow == relay) {
            (torrc.relay_bandwidth_rate, torrc.relay_bandwidth_burst) = (rate, rate);
            torrc.count_private_bandwidth = true;
        }
        torrc
    }
}

impl Net {
    pub fn new(plan: &Plan) -> Self {
        let mut sim = Simulation::new(plan.seed, plan.simulation());
        let relays = (0..plan.shards.len()).map(|index| add_planned(&mut sim, plan, index));
        let relays: Vec<RelayHost> = relays.collect();
        introduce(&mut sim, relays.iter());
        let server = internet(&mut sim);
        let client = add_client_with(&mut sim, 0, plan.ciphers);
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
        (ENDLESS, Service::Endless),
        (MUTE, Service::Mute),
        (CUT, Service::Cut),
        (RESET, Service::Reset),
    ];
    let internet = Internet::new(&services);
    let (addrs, ports) = (vec![SERVER], internet.ports());
    let nodes: Vec<Box<dyn AnyNode<L>>> = vec![Box::new(internet)];
    let server = sim.add_host(Host { addrs, ports, nodes, beside: vec![], plain: true });
    sim.add_name(SERVER_NAME, &[SERVER]);
    server
}

/// Adds an onion proxy.
pub fn add_client<L: Language>(sim: &mut Simulation<L>, index: u8) -> HostId {
    add_client_with(sim, index.into(), Ciphers::default())
}

/// Adds an onion proxy whose channels' cryptography comes from here.
pub fn add_client_with<L: Language>(sim: &mut Simulation<L>, index: u16, ciphers: Ciphers) -> HostId {
    let seed = sim.seed().child("client", index.into());
    let proxy = OnionProxy::new(Box::new(transport(&seed, ciphers)), Arc::default(), &seed);
    let addrs = vec![IpAddr::V4(Ipv4Addr::from(0xac10_0001 + u32::from(index)))];
    let nodes: Vec<Box<dyn AnyNode<L>>> = vec![Box::new(proxy)];
    sim.add_host(Host { addrs, ports: vec![], nodes, beside: vec![], plain: false })
}

/// Channels of somebody without an identity: a client's, or an attacker's.
pub fn transport(seed: &Seed, ciphers: Ciphers) -> TlsTransport {
    let entropy = Box::new(Repeatable::new(&seed.child("tls", 0)));
    let options = TlsOptions { ciphers, ..TlsOptions::default() };
    TlsTransport::new(options, None, Arc::new(Judge), entropy).expect("the options are good")
}

fn add_planned(sim: &mut Simulation<RelayLanguage>, plan: &Plan, index: usize) -> RelayHost {
    let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1));
    let options =
        RelayOptions { addr, torrc: plan.torrc(index), params: plan.params.clone(), ciphers: plan.ciphers };
    let mut made = MadeRelay::new(sim, index, options);
    let ports = if plan.unreachable == Some(index) { vec![] } else { vec![OR_PORT] };
    let host = made.host(ports, vec![]);
    let host = sim.add_host(host);
    made.settle(sim, host)
}
