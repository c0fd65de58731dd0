//! Experiment 11 of Reardon's thesis (section 7.2): the delay of one circuit beside the bulk traffic of another one over
//! the same three relays.
//!
//! 1. A private Tor network comes up, each relay and each client on a host of its own, the authorities on one more. Stock
//!    onion proxies, one for each client, build circuits over the same three relays; wires of the plan's making join the
//!    clients to the guard, the guard to the middle and the middle to the exit. The server is on the exit's host.
//! 2. The first client's probes tell the delay that the network has by itself.
//! 3. The second client reads a bulk stream. When that is steady, the first one probes again.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use heddle_netem::{DirectionOptions, WireOptions};

use super::wires::{self, Conduct};
use super::{Arm, BesideBulk, Transport};
use crate::control::{Attacher, CircuitId};
use crate::emulator::{EmulatedHostOptions, Emulation, NetworkOptions as Hosts, RunOptions};
use crate::error::{Error, Result};
use crate::figures::{Labels, labels, mean};
use crate::interrupt;
use crate::socks::Target;
use crate::testnet::{Client, Network, NetworkOptions, Places, Program, RelayOptions};
use crate::traffic::timing::{TimingOptions, run_timing};
use crate::traffic::{Event, Identity, Route, Server, Stop};

/// The relays of the path; their hosts are called like them.
const PATH: [&str; 3] = ["guard", "middle", "exit"];
/// The host of all authorities.
const AUTHORITIES: &str = "authorities";
/// The delay of wires that are not on the path: directories and descriptors go over them.
const OTHER_DELAY_NS: u64 = 1_000_000;
/// The mean pause between probes.
const PROBE_PAUSE: Duration = Duration::from_millis(200);
/// The longest wait for a steady bulk stream.
const WARM_UP_MAX: Duration = Duration::from_secs(15);
/// How long the network may take to come up.
const STARTUP_MAX: Duration = Duration::from_secs(150);
/// What that, circuits and the wait for a steady stream usually take.
pub(super) const OVERHEAD_ESTIMATE: Duration = Duration::from_secs(40);
/// How long a circuit or a stream may take to open.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// What one run of an arm measured.
pub(super) struct Measured {
    pub(super) samples: Vec<Sampled>,
    pub(super) conduct: Conduct,
}

/// The samples of one figure, with its labels beyond the arm's.
pub(super) struct Sampled {
    pub(super) name: &'static str,
    pub(super) labels: Labels,
    pub(super) unit: &'static str,
    pub(super) values: Vec<f64>,
}

/// Runs an arm once. `heddle` is the Heddle program.
pub(super) fn run(
    arm: &Arm,
    options: &BesideBulk,
    seed: u64,
    heddle: &Path,
    on_step: &mut dyn FnMut(&str),
) -> Result<Measured> {
    let emulation = Emulation::start(&hosts(options), &RunOptions { seed, ..RunOptions::default() })?;
    let samples = measure(arm, options, seed, heddle, &emulation, on_step)?;
    Ok(Measured { samples, conduct: wires::conduct(emulation.stop()?) })
}

/// The hosts of the path, the clients' and the authorities'.
fn hosts(options: &BesideBulk) -> Hosts {
    let names = [AUTHORITIES, "client", "client1"].into_iter().chain(PATH);
    let host = |name: &str| EmulatedHostOptions { name: name.to_owned(), ..EmulatedHostOptions::default() };
    let wire = |(from, to): (&str, &str)| WireOptions {
        from: from.to_owned(),
        to: to.to_owned(),
        there: options.wire.clone(),
        back: None,
    };
    let wires = [("client", "guard"), ("client1", "guard"), ("guard", "middle"), ("middle", "exit")];
    Hosts {
        hosts: names.map(host).collect(),
        wires: wires.into_iter().map(wire).collect(),
        default_wire: Some(DirectionOptions { delay_ns: OTHER_DELAY_NS, ..DirectionOptions::default() }),
        ..Hosts::default()
    }
}

/// The processes of a Tor network on the hosts of an emulation.
#[derive(Debug)]
struct Placed<'a>(&'a Emulation);

/// The host of a node.
fn host(nickname: &str) -> &str {
    if nickname.starts_with("auth") { AUTHORITIES } else { nickname }
}

impl Places for Placed<'_> {
    fn address(&self, nickname: &str) -> Result<IpAddr> {
        let addresses = self.0.addresses(host(nickname)).unwrap_or_default();
        let missing = || Error::Options(format!("{nickname} has no host"));
        addresses.first().copied().ok_or_else(missing)
    }

    fn enter(&self, nickname: &str, command: &mut Command) -> Result<()> {
        self.0.enter(host(nickname), command)
    }
}

fn network(options: &BesideBulk, heddle: &Path) -> NetworkOptions {
    let program = match options.transport {
        Transport::Stock => Program::Stock,
        Transport::Tls => Program::Heddle,
    };
    let relay = |nickname: &str| {
        let relay = RelayOptions::new(nickname, program);
        if nickname == "exit" { relay.exit() } else { relay }
    };
    NetworkOptions {
        heddle: Some(heddle.to_owned()),
        relays: PATH.map(relay).to_vec(),
        clients: 2,
        startup_timeout: STARTUP_MAX,
        ..NetworkOptions::default()
    }
}

fn measure(
    arm: &Arm,
    options: &BesideBulk,
    seed: u64,
    heddle: &Path,
    emulation: &Emulation,
    on_step: &mut dyn FnMut(&str),
) -> Result<Vec<Sampled>> {
    let places = Placed(emulation);
    let network = network(options, heddle);
    let network = Network::start_at(&network, &places, &mut |progress| on_step(progress.step))?;
    let server = emulation.inside("exit", Server::start)??;
    let clients: Vec<&Client> = network.clients().collect();
    let mut attachers = Vec::new();
    let mut timings = Vec::new();
    for (client, host) in clients.into_iter().zip(["client", "client1"]) {
        on_step("building circuits");
        attachers.push(Attacher::start(&client.control_socket(), OPEN_MAX)?);
        let circuit = client.control()?.build_circuit(&network.path(&PATH)?, OPEN_MAX)?;
        let identity = Identity { label: format!("{} {host}", arm.name), seed, labels: Labels::new() };
        timings.push(Timing { emulation, host, options: timing(client, &server, circuit, identity) });
    }
    let [probes, bulk] = &timings[..] else { return Err(Error::Options("two clients are needed".into())) };

    on_step("delay without other traffic");
    let base_ms = probes.echoes(options.base)?;
    let usage = || PATH.iter().map(|name| network.relay(name)?.usage()).collect::<Result<Vec<_>>>();
    let before = usage()?;
    let (beside_ms, throughput_kb_s) = beside_bulk(options, probes, bulk, on_step)?;
    let after = usage()?;
    network.check()?;

    let mut samples = vec![
        sampled("base_delay_ms", "ms", base_ms.clone()),
        sampled("delay_ms", "ms", beside_ms.clone()),
        sampled("throughput_kb_s", "KB/s", throughput_kb_s),
    ];
    if let (Some(base), Some(beside)) = (mean(&base_ms), mean(&beside_ms)) {
        samples.push(sampled("delay_excess_ms", "ms", vec![beside - base]));
        samples.push(sampled("delay_over_base", "1", vec![beside / base]));
    }
    for (position, (before, after)) in PATH.iter().zip(before.iter().zip(after)) {
        let labels = labels([("position", position)]);
        let cpu = sampled("relay_cpu_s", "s", vec![after.cpu_s - before.cpu_s]);
        let memory = sampled("relay_memory_mb", "MB", vec![after.rss_bytes as f64 / 1e6]);
        samples.extend([cpu, memory].map(|sampled| Sampled { labels: labels.clone(), ..sampled }));
    }
    // Streams end before their circuits' keepers do.
    drop(server);
    Ok(samples)
}

fn sampled(name: &'static str, unit: &'static str, values: Vec<f64>) -> Sampled {
    Sampled { name, labels: Labels::new(), unit, values }
}

fn timing(client: &Client, server: &Server, circuit: CircuitId, identity: Identity) -> TimingOptions {
    let route = Route {
        server: Target::Addr(server.addr()),
        proxy: Some(client.socks()),
        isolation: Some(circuit.isolation()),
        timeout: OPEN_MAX,
    };
    TimingOptions { warmup_max: WARM_UP_MAX, ..TimingOptions::new(route, identity) }
}

/// A timing client on its host.
struct Timing<'a> {
    emulation: &'a Emulation,
    host: &'static str,
    options: TimingOptions,
}

impl Timing<'_> {
    /// Probes for a while, and returns how long each answer took, in milliseconds.
    fn echoes(&self, duration: Duration) -> Result<Vec<f64>> {
        let options =
            TimingOptions { bulk: false, probe_pause: Some(PROBE_PAUSE), duration, ..self.options.clone() };
        let mut echoes = Vec::new();
        let mut on_event = |event: &Event| {
            if let Event::Probe { measured: true, echo_ms, .. } = event {
                echoes.push(*echo_ms);
            }
        };
        self.emulation.inside(self.host, || run_timing(&options, &Stop::default(), &mut on_event))??;
        interrupt::check()?;
        if echoes.is_empty() {
            return Err(Error::Refused { by: "the network", said: "no probe came back".into() });
        }
        Ok(echoes)
    }

    /// Reads a bulk stream until stopped, and returns the KB (1000 bytes) of each measured second. `on_steady` is called
    /// when the measurement begins.
    fn throughputs(&self, limit_b_s: u64, stop: &Stop, on_steady: impl FnOnce() + Send) -> Result<Vec<f64>> {
        let options = TimingOptions {
            bulk: true,
            bulk_limit_b_s: limit_b_s,
            probe_pause: None,
            // Whoever started it stops it.
            duration: Duration::from_secs(3600),
            ..self.options.clone()
        };
        let mut throughputs = Vec::new();
        let mut on_steady = Some(on_steady);
        let mut on_event = |event: &Event| match event {
            Event::Measuring { .. } => {
                if let Some(on_steady) = on_steady.take() {
                    on_steady();
                }
            }
            Event::Second { measured: true, throughput_kb_s, .. } => throughputs.push(*throughput_kb_s),
            _ => {}
        };
        self.emulation.inside(self.host, || run_timing(&options, stop, &mut on_event))??;
        if throughputs.iter().sum::<f64>() <= 0.0 {
            return Err(Error::Refused { by: "the network", said: "no bulk data came".into() });
        }
        Ok(throughputs)
    }
}

/// Probes beside a steady bulk stream: their delays in milliseconds, and the bulk stream's KB of each second.
fn beside_bulk(
    options: &BesideBulk,
    probes: &Timing<'_>,
    bulk: &Timing<'_>,
    on_step: &mut dyn FnMut(&str),
) -> Result<(Vec<f64>, Vec<f64>)> {
    on_step("waiting for a steady bulk stream");
    let stop = Stop::default();
    let (steady, begun) = channel();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // The receiver is there until this thread has been joined.
            bulk.throughputs(options.bulk_limit_kb_s * 1000, &stop, move || {
                let _ = steady.send(());
            })
        });
        let echoes = match begun.recv() {
            Ok(()) => {
                on_step("delay beside bulk traffic");
                probes.echoes(options.duration)
            }
            Err(_) => Err(Error::Refused { by: "the network", said: "the bulk stream ended at once".into() }),
        };
        stop.ask();
        let throughputs =
            reader.join().unwrap_or_else(|_| Err(Error::Options("a bulk client panicked".into())));
        // Why there was no bulk stream is its reader's to say.
        let throughputs = throughputs?;
        Ok((echoes?, throughputs))
    })
}
