//! Hosts, wires and programs of a deployment, in virtual time.
//!
//! Each host has a server, a node with programs that take its kernel, a node for datagrams, and where a client is an
//! onion proxy with programs that go over its circuits. A relay's shards are before all of these.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use heddle_client::OnionProxy;
use heddle_netem::Seed;
use heddle_network::{MadeRelay, OR_PORT, RelayHost, RelayOptions, introduce, transport};
use heddle_proto::params::NetworkParams;
use heddle_relay::{Relay, RelayLanguage};
use heddle_seam::time::Duration;
use heddle_sim::{AnyNode, Host, HostId, KernelOptions, Options, Simulation, Wire};
use heddle_transport::Ciphers;
use heddle_utcp::Algorithm;

use super::datagrams::{DATAGRAM_PORT, DatagramNode};
use super::lines::{OverCircuits, OverKernel};
use super::server::ServerNode;
use super::source_node::{Carrier, SourceNode};
use super::torrc::{self, params, unknown};
use crate::backend::virtual_clock::VirtualClock;
use crate::backend::{Deployment, Role};
use crate::emulator::{EmulatedHostOptions, KernelOptions as Settings, NetworkOptions};
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::testnet::Program;
use crate::trace::Trace;
use crate::traffic::sunk::Sunk;

/// The port of each host's server.
const SERVER_PORT: u16 = 80;
/// The one line of a plan for clients that means something here: stock Tor does not know it.
const FORWARDS: &str = "HeddleForwardDatagrams 1";
/// What there is of stock Tor here: Heddle's relay over TLS with what stock does otherwise on a wire. It leaves Nagle's
/// algorithm on, and its scheduler runs each 10 ms (`KISTSchedRunInterval`) and orders circuits by EWMA. The rest of it
/// is Heddle's.
const STOCK_MODEL: [&str; 3] = ["HeddleTransports tls", "HeddleTCPNoDelay 0", "HeddleScheduler kist 10"];
/// How long a packet takes from a host to itself.
const LOOPBACK: Duration = Duration::from_micros(10);

/// A simulation and what is where in it.
pub(super) struct World {
    pub(super) sim: Simulation<RelayLanguage>,
    pub(super) hosts: BTreeMap<String, Place>,
    pub(super) params: Arc<NetworkParams>,
    /// Whether relays of it stand for stock Tor's.
    pub(super) has_stock_model: bool,
    /// How many flows of pings there were.
    pub(super) pinged: u32,
    /// Tells others how much time has passed.
    clock: Rc<VirtualClock>,
}

/// A host of the simulation.
pub(super) struct Place {
    pub(super) id: HostId,
    pub(super) addr: IpAddr,
    pub(super) relay: Option<RelayHost>,
    pub(super) sunk: Arc<Sunk>,
    /// The numbers of its nodes.
    pub(super) over_kernel: usize,
    pub(super) datagrams: usize,
    pub(super) over_circuits: Option<usize>,
}

impl Place {
    /// Where its server listens.
    pub(super) fn server(&self) -> SocketAddr {
        SocketAddr::new(self.addr, SERVER_PORT)
    }
}

/// What was placed on a host.
#[derive(Default)]
struct Wanted<'a> {
    /// Whether it exits, and its torrc.
    relay: Option<(bool, Cow<'a, [String]>)>,
    client: Option<Client>,
}

/// What a client is.
#[derive(Clone, Copy)]
struct Client {
    /// Whether its circuits' cells are datagrams.
    forwards_datagrams: bool,
}

impl World {
    /// Brings everything up.
    ///
    /// # Errors
    ///
    /// One sentence about what there is not in virtual time.
    pub(super) fn new(deployment: &Deployment, clock: Rc<VirtualClock>, ciphers: Ciphers) -> Result<World> {
        let network = &deployment.network;
        let (wanted, params) = wanted(deployment)?;
        let options = Options { default_wire: Wire::default(), ..Options::default() };
        let mut sim = Simulation::new(deployment.seed, options);
        let seed = Seed::from_number(deployment.seed);
        sim.set_network(&network.topology(), &seed).map_err(|error| Error::Options(error.to_string()))?;
        let mut hosts = BTreeMap::new();
        let nothing = Wanted::default();
        let mut making = Making { params: &params, settings: &network.kernel, ciphers, hosts: 0, relays: 0 };
        for (host, addrs) in network.hosts.iter().zip(network.addresses()) {
            let addr =
                *addrs.first().ok_or_else(|| Error::Options(format!("{} has no address", host.name)))?;
            let wanted = wanted.get(&*host.name).unwrap_or(&nothing);
            let place = making.add_host(&mut sim, host, addr, wanted)?;
            sim.set_wire(place.id, place.id, Wire { latency: LOOPBACK, ..Wire::default() });
            hosts.insert(host.name.clone(), place);
        }
        let relays: Vec<RelayHost> = hosts.values().filter_map(|place| place.relay.clone()).collect();
        introduce(&mut sim, relays.iter());
        let has_stock_model = deployment.programs.iter().any(|placed| is_stock(&placed.role));
        Ok(World { sim, hosts, params: Arc::new(params), has_stock_model, pinged: 0, clock })
    }

    /// Has all that happens written down, of hosts that this network has.
    ///
    /// # Errors
    ///
    /// When a wire was asked for that it has not.
    pub(super) fn attach(&mut self, trace: &Trace, network: &NetworkOptions) -> Result<()> {
        let names: Vec<String> = network.hosts.iter().map(|host| host.name.clone()).collect();
        let Some(mut logs) = trace.attach(&mut self.sim, &names)? else { return Ok(()) };
        for RelayHost { host, shards, .. } in self.hosts.values().filter_map(|place| place.relay.as_ref()) {
            for shard in 0..*shards {
                let log = logs(*host, shard);
                self.sim.equip(*host, shard.into(), |relay: &mut Relay| relay.follow_circuits(log));
            }
        }
        Ok(())
    }

    /// Lets so much time pass.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] by Ctrl-C.
    pub(super) fn pass(&mut self, time: Duration) -> Result<()> {
        let before = self.sim.now();
        self.sim.run_for(time);
        self.clock.pass(self.sim.now().since(before));
        interrupt::check()
    }

    /// A host by its name.
    pub(super) fn host(&self, name: &str) -> Result<&Place> {
        self.hosts.get(name).ok_or_else(|| Error::Options(format!("there is no host {name:?}")))
    }
}

fn is_stock(role: &Role) -> bool {
    matches!(role, Role::Relay { program: Program::Stock, .. })
}

/// What is wanted of each host, and what the consensus asks for.
fn wanted(deployment: &Deployment) -> Result<(BTreeMap<&str, Wanted<'_>>, NetworkParams)> {
    let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
    let mut asked = NetworkParams::default();
    for placed in &deployment.programs {
        let of = wanted.entry(&placed.host).or_default();
        match &placed.role {
            Role::Authorities { torrc } => asked = params(torrc)?,
            Role::Relay { program: Program::Stock, exit, torrc } => {
                let model = STOCK_MODEL.map(str::to_owned).into_iter();
                of.relay = Some((*exit, model.chain(torrc.iter().cloned()).collect()));
            }
            Role::Relay { program: Program::Heddle, exit, torrc } => of.relay = Some((*exit, torrc.into())),
            Role::OnionProxy { torrc } => {
                let (known, others): (Vec<&String>, _) = torrc.iter().partition(|line| *line == FORWARDS);
                others.first().map_or(Ok(()), |line| Err(unknown("clients", line)))?;
                of.client = Some(Client { forwards_datagrams: !known.is_empty() });
            }
            Role::Server(kind) => {
                let usual = &deployment.network.kernel.congestion_control;
                let other = kind.congestion_control.as_ref().filter(|name| *name != usual);
                if let Some(name) = other {
                    return Err(Error::Lacking(format!(
                        "the servers of the backend sim send by {usual}, as their hosts do, and not by {name}; run it on emu"
                    )));
                }
            }
        }
    }
    Ok((wanted, asked))
}

/// What is the same for all hosts, and how many there are already.
struct Making<'a> {
    params: &'a NetworkParams,
    settings: &'a Settings,
    ciphers: Ciphers,
    hosts: u64,
    relays: usize,
}

impl Making<'_> {
    fn add_host(
        &mut self,
        sim: &mut Simulation<RelayLanguage>,
        host: &EmulatedHostOptions,
        addr: IpAddr,
        wanted: &Wanted<'_>,
    ) -> Result<Place> {
        let sunk = Arc::new(Sunk::default());
        let nodes = self.nodes(sim, wanted.client, &sunk);
        let mut kernel = kernel(host, self.settings)?;
        let (id, relay) = match &wanted.relay {
            None => {
                // Stock onion proxies leave Nagle's algorithm on; what servers and programs set is without.
                kernel.nagle = wanted.client.is_some();
                let mut nodes = nodes.into_iter();
                let server = nodes.next().into_iter().collect();
                let (addrs, beside) = (vec![addr], nodes.collect());
                let host = Host { addrs, ports: vec![], nodes: server, beside, plain: false };
                (sim.add_host_with(host, kernel), None)
            }
            Some((exits, torrc)) => {
                let torrc = torrc::options(torrc, *exits)?;
                kernel.nagle = !torrc.heddle.tcp_no_delay;
                let options =
                    RelayOptions { addr, torrc, params: self.params.clone(), ciphers: self.ciphers };
                let mut made = MadeRelay::new(sim, self.relays, options);
                self.relays += 1;
                let id = sim.add_host_with(made.host(vec![OR_PORT], nodes), kernel);
                (id, Some(made.settle(sim, id)))
            }
        };
        let first = relay.as_ref().map_or(0, |relay| usize::from(relay.shards));
        self.hosts += 1;
        sim.listen(id, first, SERVER_PORT);
        sim.open_ports(id, first + 2, &[DATAGRAM_PORT]);
        let (over_kernel, datagrams) = (first + 1, first + 2);
        let over_circuits = wanted.client.map(|_| first + 3);
        Ok(Place { id, addr, relay, sunk, over_kernel, datagrams, over_circuits })
    }

    /// What runs on a host beside a relay.
    fn nodes(
        &self,
        sim: &Simulation<RelayLanguage>,
        client: Option<Client>,
        sunk: &Arc<Sunk>,
    ) -> Vec<Box<dyn AnyNode<RelayLanguage>>> {
        let mut nodes: Vec<Box<dyn AnyNode<RelayLanguage>>> = vec![
            Box::new(ServerNode::new(Arc::clone(sunk))),
            Box::new(SourceNode::new(Carrier::Kernel(OverKernel::new()))),
            Box::new(DatagramNode::default()),
        ];
        if let Some(client) = client {
            let seed = sim.seed().child("client", self.hosts);
            let channels = Box::new(transport(&seed, self.ciphers));
            let mut proxy = OnionProxy::new(channels, Arc::new(self.params.clone()), &seed);
            proxy.forward_datagrams(client.forwards_datagrams);
            nodes.push(Box::new(SourceNode::new(Carrier::Circuits(Box::new(OverCircuits::new(proxy))))));
        }
        nodes
    }
}

/// Looks whether everything of a deployment is there in virtual time.
pub(super) fn check(deployment: &Deployment) -> Result<()> {
    let (wanted, _) = wanted(deployment)?;
    for (exits, torrc) in wanted.values().filter_map(|wanted| wanted.relay.as_ref()) {
        torrc::options(torrc, *exits)?;
    }
    let network = &deployment.network;
    network.hosts.iter().try_for_each(|host| kernel(host, &network.kernel).map(drop))
}

/// A kernel as Linux is by default, with the plan's memory for sockets.
fn kernel(host: &EmulatedHostOptions, settings: &Settings) -> Result<KernelOptions> {
    let name = host.congestion_control.as_ref().unwrap_or(&settings.congestion_control);
    let algorithm = match &**name {
        "cubic" => Algorithm::Cubic,
        "reno" => Algorithm::Reno,
        name => {
            return Err(Error::Lacking(format!(
                "the kernels of the backend sim have cubic and reno, and not {name}; run it on emu"
            )));
        }
    };
    let mut ecn = false;
    for (name, value) in &settings.sysctl {
        match (&**name, &**value) {
            ("net.ipv4.tcp_ecn", "1") => ecn = true,
            ("net.ipv4.tcp_no_metrics_save", "1") => {}
            _ => {
                return Err(Error::Lacking(format!(
                    "the kernels of the backend sim do not know {name} = {value}; run it on emu"
                )));
            }
        }
    }
    let receive_buffer_max_bytes = settings.tcp_rmem[2];
    Ok(KernelOptions {
        algorithm,
        ecn,
        send_buffer_max_bytes: settings.tcp_wmem[2],
        receive_buffer_max_bytes,
        receive_buffer_initial_bytes: receive_buffer_max_bytes.min(64 << 10),
        ..KernelOptions::linux()
    })
}
