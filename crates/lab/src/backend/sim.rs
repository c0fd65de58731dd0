//! The backend `sim`: hosts, wires, relays and traffic in one process and in virtual time. The relays and the wires are
//! those of `emu`, with drivers and kernels of the simulator; see `docs/guide/sim.md`.

mod datagrams;
mod flood;
mod flows;
mod lines;
mod programs;
mod server;
mod source_node;
mod tap;
mod telling;
mod torrc;
mod world;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant as Real};

use heddle_client::{CircuitNumber, Handshake, Hop};
use heddle_net::tcp_diag::TcpConnection;
use heddle_netem::{DirectionStats, DropReason, Step};
use heddle_proto::cell::measure::Measured;
use heddle_relay::{Relay, RelayStats};
use heddle_seam::time::Instant;
use heddle_sim::HostId;
use heddle_transport::Ciphers;

use super::virtual_clock::VirtualClock;
use super::{
    BUILDING_MAX, Backend, BackendReport, Built, Circuit, CircuitOrder, Deployment, Log, OPEN_MAX, Outcome,
    Source, SourceId, Spent, Testbed, WireFlow,
};
use crate::capture::Capture;
use crate::costs::Cpu;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::plan::{Arm, Tor, TorArm, Traffic};
use crate::trace::Trace;
use crate::traffic::UPLOADS_MAX;
use lines::OverCircuits;
use source_node::SourceNode;
use tap::{Kept, Tap};
use world::World;

/// How often whoever waits is told so, in real time.
const PROGRESS: Duration = Duration::from_secs(1);
/// How much virtual time passes before it is looked whether what is waited for has come.
const LOOK: Duration = Duration::from_millis(1);
/// The same for what takes its time.
const LONG_LOOK: Duration = Duration::from_millis(50);
/// How long sources may take that were asked to stop: more than a download may hang.
const STOP_MAX: Duration = Duration::from_secs(600);
/// What a testbed says of itself.
const SETTINGS: [&str; 4] = [
    "kernels have TCP by utcp",
    "each relay has one shard, and 256 MiB for queues, unless its torrc says otherwise",
    "onion proxies are Heddle's",
    "all relays are known from the start, and nothing is fetched from directories",
];

/// What it says where a plan has stock Tor.
const STOCK_MODEL_SETTING: &str =
    "stock relays are a model: Heddle's over TLS with Nagle's algorithm and KIST's interval of 10 ms";
/// The same of one whose links do not encrypt.
const NULL_CRYPTO: &str =
    "null link cryptography: records of TLS, QUIC and DTLS are as long as real ones, and not encrypted";
/// The same where nobody is charged for computing.
const NOT_CHARGED: &str = "computing takes no time but for handshakes of circuits: there are no figures of \
    processor time and memory";

/// Hosts in virtual time.
#[derive(Debug)]
pub(crate) struct Sim {
    clock: Rc<VirtualClock>,
    /// What each relay computes with.
    cpu: Option<Cpu>,
    /// Writes down what happens in the first network.
    trace: Option<Trace>,
    null_crypto: bool,
}

impl Sim {
    /// One whose relays are charged for computing, if that is wanted, and of whose first network there is a trace.
    /// With `null_crypto` records are as long as ever, and their bytes are copied: for networks of many hosts.
    pub(crate) fn new(null_crypto: bool, cpu: Option<Cpu>, trace: Option<Trace>) -> Sim {
        Sim { clock: Rc::default(), cpu, trace, null_crypto }
    }

    fn ciphers(&self) -> Ciphers {
        if self.null_crypto { heddle_nullcrypto::ciphers() } else { Ciphers::default() }
    }
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn tor_version(&self) -> String {
        String::new()
    }

    fn clock(&self) -> Option<Rc<VirtualClock>> {
        Some(Rc::clone(&self.clock))
    }

    fn cpu(&self) -> Option<&Cpu> {
        self.cpu.as_ref()
    }

    fn null_crypto(&self) -> bool {
        self.null_crypto
    }

    fn check(&self, arm: &Arm, tor: Option<&Tor>, wanted: &Deployment) -> Result<()> {
        let lacking = match (&arm.tor, tor) {
            (Some(options), Some(tor)) => lacking(tor, options),
            _ => flows::lacking(arm),
        };
        match lacking {
            Some(what) => Err(Error::Lacking(format!("arm {} {what}", arm.name))),
            None => world::check(wanted).map_err(|error| of_arm(&arm.name, error)),
        }
    }

    fn bring_up(&mut self, wanted: &Deployment, _on_step: &mut dyn FnMut(&str)) -> Result<Box<dyn Testbed>> {
        let mut world = World::new(wanted, Rc::clone(&self.clock), self.ciphers())?;
        if let Some(cpu) = &self.cpu {
            for relay in world.hosts.values().filter_map(|place| place.relay.as_ref()) {
                world.sim.set_processors(relay.host, cpu.processors());
            }
        }
        if let Some(trace) = &self.trace {
            world.attach(trace, &wanted.network)?;
        }
        Ok(Box::new(Hosts {
            world,
            null_crypto: self.null_crypto,
            cpu: self.cpu.clone(),
            circuits: Vec::new(),
            watched: Kept::default(),
            sources: Vec::new(),
            uploads: 0,
        }))
    }
}

/// The same with the arm's name.
fn of_arm(name: &str, error: Error) -> Error {
    match error {
        Error::Lacking(what) => Error::Lacking(format!("arm {name}: {what}")),
        error => error,
    }
}

/// What an arm of a network needs that there is not, to be read after the arm's name.
fn lacking(tor: &Tor, arm: &TorArm) -> Option<&'static str> {
    for phase in tor.phases_of(arm, 0) {
        if phase.sockets.is_some() {
            return Some("looks at the sockets of kernels, which the backend sim has not; run it on emu");
        }
        if phase.attack || phase.attack_early {
            return Some("has attackers, and the backend sim has none; run it on emu");
        }
    }
    None
}

/// Hosts that are up.
struct Hosts {
    world: World,
    null_crypto: bool,
    cpu: Option<Cpu>,
    circuits: Vec<Opened>,
    /// What is kept of a wire.
    watched: Kept,
    /// By their ids; those that were stopped are gone.
    sources: Vec<Option<Started>>,
    /// How many uploads there are. Servers tell few of them apart, by number.
    uploads: usize,
}

/// A circuit and whose it is.
#[derive(Clone, Copy, Debug)]
struct Opened {
    node: (HostId, usize),
    number: CircuitNumber,
}

/// A source, and which of its node's programs it is.
#[derive(Clone, Copy, Debug)]
struct Started {
    node: (HostId, usize),
    place: usize,
}

impl Hosts {
    /// Speaks with a node that has programs.
    fn at<R>(
        &mut self,
        (host, node): (HostId, usize),
        speak: impl FnOnce(&mut SourceNode, Instant) -> R,
    ) -> R {
        self.world.sim.with(host, node, speak)
    }

    fn circuit(&self, circuit: Circuit) -> Result<Opened> {
        let opened = self.circuits.get(circuit.0).copied();
        opened.ok_or_else(|| Error::Options("there is no such circuit".into()))
    }

    /// Does something with each of these circuits.
    fn act(&mut self, circuits: &[Circuit], what: impl Fn(&mut OverCircuits, CircuitNumber)) -> Result<()> {
        for circuit in circuits {
            let Opened { node, number } = self.circuit(*circuit)?;
            self.at(node, |node, _| {
                node.refresh();
                if let Some(circuits) = node.circuits() {
                    what(circuits, number);
                }
            });
        }
        Ok(())
    }

    fn source(&self, source: SourceId) -> Result<Started> {
        let started = self.sources.get(source.0).copied().flatten();
        started.ok_or_else(|| Error::Options("a source of traffic was stopped twice".into()))
    }

    /// The relays of a path, and how each is joined: as stock clients do.
    fn path(&self, names: &[String]) -> Result<Vec<(Hop, Handshake)>> {
        let congestion_control = self.world.params.get("cc_alg", CC_VEGAS, 0, CC_VEGAS) == CC_VEGAS;
        let last = names.len().saturating_sub(1);
        let hop = |(place, name): (usize, &String)| {
            let relay = self.world.host(name)?.relay.as_ref();
            let relay = relay.ok_or_else(|| Error::Options(format!("{name} has no relay")))?;
            let congestion_control = congestion_control && place == last;
            Ok((relay.hop.clone(), Handshake::NtorV3 { congestion_control }))
        };
        names.iter().enumerate().map(hop).collect()
    }

    /// Builds circuits at the same time.
    fn build_together(&mut self, wanted: &[CircuitOrder<'_>]) -> Result<Vec<(Opened, Duration)>> {
        let mut building = Vec::new();
        for order in wanted {
            let path = self.path(order.path)?;
            let host = self.world.host(order.proxy)?;
            let missing = || Error::Options(format!("{} has no onion proxy", order.proxy));
            let node = (host.id, host.over_circuits.ok_or_else(missing)?);
            let asked =
                self.at(node, |node, _| node.circuits().and_then(|circuits| circuits.proxy.build(path)));
            let number = asked.ok_or_else(|| Error::Options("a path has no relays".into()))?;
            building.push(Opened { node, number });
        }
        let begun = self.world.sim.now();
        let mut built = Vec::new();
        while built.len() < building.len() {
            let opened = building[built.len()];
            let found = self.at(opened.node, |node, _| {
                let circuits = node.circuits()?;
                Some((circuits.built_at(opened.number), circuits.proxy.has_circuit(opened.number)))
            });
            match found {
                Some((Some(at), _)) => built.push((opened, at.since(begun))),
                Some((None, true)) if self.world.sim.now().since(begun) < OPEN_MAX => {
                    self.world.pass(LOOK)?
                }
                Some((None, true)) => {
                    let waiting_for = "the building of a circuit".to_owned();
                    return Err(Error::Deadline { waiting_for, after: OPEN_MAX });
                }
                _ => return Err(Error::Refused { by: "a relay", said: "it ended a circuit".into() }),
            }
        }
        Ok(built)
    }

    fn start_one(&mut self, source: &Source) -> Result<SourceId> {
        let (name, _) = &source.server;
        let server = self.world.host(name)?;
        let (to, sunk) = (server.server(), Arc::clone(&server.sunk));
        let (node, circuit) = match source.circuit {
            Some(circuit) => {
                let Opened { node, number } = self.circuit(circuit)?;
                (node, Some(number))
            }
            None => {
                let host = self.world.host(&source.host)?;
                ((host.id, host.over_kernel), None)
            }
        };
        let number = self.uploads;
        if matches!(source.traffic, Traffic::Upload {}) {
            self.uploads += 1;
            if number >= UPLOADS_MAX {
                return Err(Error::Options(format!("the server counts no client {number}")));
            }
        }
        let place = self.at(node, |node, now| {
            node.refresh();
            let way = node.carrier.add_way(circuit, to)?;
            Some(node.programs.start(now, source.program(now, way, sunk, number)))
        });
        let place = place.ok_or_else(|| Error::Options("a source has no way to its server".into()))?;
        self.sources.push(Some(Started { node, place }));
        Ok(SourceId(self.sources.len() - 1))
    }

    /// Lets time pass until all of these are so.
    fn pass_until_all(
        &mut self,
        started: &[Started],
        is_so: impl Fn(&SourceNode, usize) -> bool,
        what: &str,
    ) -> Result<()> {
        let begun = self.world.sim.now();
        for Started { node, place } in started {
            while !self.at(*node, |node, _| is_so(node, *place)) {
                if self.world.sim.now().since(begun) > STOP_MAX {
                    return Err(Error::Deadline { waiting_for: what.to_owned(), after: STOP_MAX });
                }
                self.world.pass(LOOK)?;
            }
        }
        Ok(())
    }
}

/// `cc_alg` of proposal 324's Vegas, which is the default of stock clients.
const CC_VEGAS: i32 = 2;

impl Testbed for Hosts {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.sim.now().as_nanos())
    }

    fn pass_until(&mut self, then: Duration, on_wait: &mut dyn FnMut()) -> Result<()> {
        let mut told = Real::now();
        on_wait();
        while let Some(left) = then.checked_sub(self.now()).filter(|left| !left.is_zero()) {
            self.world.pass(left.min(LONG_LOOK))?;
            if told.elapsed() >= PROGRESS {
                told = Real::now();
                on_wait();
            }
        }
        Ok(())
    }

    fn change_wire(&mut self, from: &str, to: &str, step: &Step) -> Result<()> {
        step.validate().map_err(|error| Error::Options(format!("wire from {from} to {to}: {error}")))?;
        let (one, other) = (self.world.host(from)?.id, self.world.host(to)?.id);
        let changed = self.world.sim.change_network(one, other, step);
        changed.map_err(|error| Error::Options(format!("changing the wire from {from} to {to}: {error}")))
    }

    fn let_attack(&mut self, on: bool) -> Result<()> {
        match on {
            true => Err(Error::Lacking("the backend sim has no attackers".into())),
            false => Ok(()),
        }
    }

    fn watch(&mut self, one: &str, other: &str) -> Result<()> {
        let (tap, kept) = Tap::new([self.world.host(one)?.id, self.world.host(other)?.id]);
        self.world.sim.watch_wires(Box::new(tap));
        self.watched = kept;
        Ok(())
    }

    fn watched(&mut self) -> Result<Capture> {
        Ok(self.watched.take().unwrap_or_default())
    }

    fn build_circuits(&mut self, wanted: &[CircuitOrder<'_>]) -> Result<Vec<Built>> {
        let mut all = Vec::new();
        for some in wanted.chunks(BUILDING_MAX) {
            for (opened, took) in self.build_together(some)? {
                self.circuits.push(opened);
                all.push(Built { circuit: Circuit(self.circuits.len() - 1), took });
            }
        }
        Ok(all)
    }

    fn is_open(&mut self, circuit: Circuit) -> Result<bool> {
        let Opened { node, number } = self.circuit(circuit)?;
        Ok(self
            .at(node, |node, _| node.circuits().is_some_and(|circuits| circuits.proxy.has_circuit(number))))
    }

    fn close_circuits(&mut self, circuits: &[Circuit]) -> Result<()> {
        self.act(circuits, |circuits, number| circuits.proxy.close_circuit(number))
    }

    fn start(&mut self, sources: Vec<Source>) -> Result<Vec<SourceId>> {
        sources.iter().map(|source| self.start_one(source)).collect()
    }

    fn wait_until_steady(&mut self, sources: &[SourceId]) -> Result<()> {
        let started = sources.iter().map(|source| self.source(*source)).collect::<Result<Vec<_>>>()?;
        self.pass_until_all(&started, |node, place| node.programs.is_steady(place), "a steady stream")
    }

    fn stop(&mut self, sources: &[SourceId]) -> Result<Vec<Log>> {
        let started = sources.iter().map(|source| self.source(*source)).collect::<Result<Vec<_>>>()?;
        for Started { node, place } in &started {
            self.at(*node, |node, now| {
                node.refresh();
                node.programs.stop(now, *place);
            });
        }
        self.pass_until_all(&started, |node, place| node.programs.is_over(place), "the end of traffic")?;
        sources.iter().for_each(|source| self.sources[source.0] = None);
        if self.sources.iter().all(Option::is_none) {
            self.uploads = 0;
        }
        let log =
            |Started { node, place }: &Started| self.at(*node, |node, _| node.programs.take_log(*place));
        Ok(started.iter().map(log).collect())
    }

    fn run_flows(&mut self, flows: &[WireFlow<'_>], on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>> {
        flows::run(&mut self.world, flows, on_wait)
    }

    fn wire(&mut self, from: &str, to: &str) -> Result<DirectionStats> {
        let (from, to) = (self.world.host(from)?.id, self.world.host(to)?.id);
        Ok(self.world.sim.network_stats(from, to))
    }

    fn usage(&mut self, relay: &str) -> Result<Option<Spent>> {
        let host = self.world.host(relay)?.id;
        let spent = self.world.sim.processor_time(host);
        Ok(spent.map(|spent| Spent { cpu_s: spent.as_secs_f64(), memory_bytes: None }))
    }

    fn connections(&mut self, _relay: &str) -> Result<Option<Vec<(String, TcpConnection)>>> {
        Ok(None)
    }

    fn metrics(&mut self, relay: &str) -> Result<Option<Metrics>> {
        let place = self.world.host(relay)?;
        let relay = place.relay.as_ref().map(|relay| (relay.host, relay.shards));
        let Some((host, shards)) = relay else { return Ok(None) };
        let mut stats = RelayStats::default();
        for shard in 0..usize::from(shards) {
            stats.add(&self.world.sim.with(host, shard, |relay: &mut Relay, _| relay.stats()));
        }
        Ok(Some(telling::metrics(&stats)))
    }

    fn ask_relays(&mut self, circuits: &[Circuit]) -> Result<()> {
        self.act(circuits, OverCircuits::ask_relays)
    }

    fn told_by_relays(&mut self, circuits: &[Circuit]) -> Result<Vec<Vec<Vec<Measured>>>> {
        let mut told = Vec::new();
        let begun = self.world.sim.now();
        for circuit in circuits {
            let Opened { node, number } = self.circuit(*circuit)?;
            while self
                .at(node, |node, _| node.circuits().is_some_and(|circuits| circuits.has_questions(number)))
            {
                if self.world.sim.now().since(begun) > OPEN_MAX {
                    let waiting_for = "relays to answer what they counted of a circuit".to_owned();
                    return Err(Error::Deadline { waiting_for, after: OPEN_MAX });
                }
                self.world.pass(LOOK)?;
            }
            told.push(self.at(node, |node, _| {
                node.circuits().map(|circuits| circuits.take_told(number)).unwrap_or_default()
            }));
        }
        Ok(told)
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_down(self: Box<Self>) -> Result<BackendReport> {
        let sim = &self.world.sim;
        let overfull = sim.network_totals().drops.get(DropReason::InFlightFull);
        let reasons = (overfull > 0)
            .then(|| format!("{overfull} packets found the bound of packets on their way reached"))
            .into_iter()
            .collect();
        let of_model = self.world.has_stock_model.then_some(STOCK_MODEL_SETTING);
        let null = self.null_crypto.then_some(NULL_CRYPTO);
        let computing = self.cpu.as_ref().map_or(NOT_CHARGED.to_owned(), Cpu::told);
        let settings = SETTINGS.into_iter().chain(of_model).chain(null).map(str::to_owned);
        let settings = settings.chain([computing]).collect();
        let trace = Some(sim.trace_hash().to_string());
        let relays = self.world.hosts.values().filter_map(|place| place.relay.as_ref());
        let overrun: u64 = relays.map(|relay| sim.datagrams_overrun(relay.host)).sum();
        let overrun = self.cpu.as_ref().map(|_| ("datagrams_overrun".to_owned(), overrun as f64));
        let noise = overrun.into_iter().collect();
        Ok(BackendReport { reasons, settings, noise, trace, ..BackendReport::default() })
    }
}
