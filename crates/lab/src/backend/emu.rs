//! The backend `emu`: hosts are network namespaces of this machine with its own kernel, wires are emulated, and
//! programs are real ones.

mod bulk;
mod circuits;
mod datagrams;
mod flow_hosts;
mod sources;
mod tor;
mod utcp_sender;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_net::tcp_diag::TcpConnection;
use heddle_netem::{DirectionStats, Step};

use super::{
    ASK_NOTHING, Attacks, Backend, BackendReport, Built, Circuit, CircuitOrder, Deployment, Log, Outcome,
    Role, Source, SourceId, Spent, Testbed, WireFlow,
};
use crate::capture::Capture;
use crate::emulator::{AttackSummary, Emulation, KernelOptions, RunOptions, Summary};
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::metrics::Metrics;
use crate::plan::{Arm, Case, Tor};
use crate::testnet::stock_version;
use crate::traffic::Stop;
use datagrams::{run_ping, run_probe};
use flow_hosts::{Emulated, FlowHosts};
use sources::Sources;
use tor::TorProcesses;

/// The most hosts of a network with Tor, of which each has a process: more are too much for one machine.
const PROCESS_HOSTS_MAX: usize = 60;
/// How often whoever waits is told so.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long a sleep may last before Ctrl-C is looked at.
const SLICE: Duration = Duration::from_millis(200);

/// Hosts that are network namespaces, joined by emulated wires.
#[derive(Debug)]
pub(crate) struct Emu {
    /// The Heddle program, for Heddle relays.
    pub(crate) heddle: std::path::PathBuf,
}

impl Backend for Emu {
    fn name(&self) -> &'static str {
        "emu"
    }

    fn tor_version(&self) -> String {
        stock_version()
    }

    fn check(&self, arm: &Arm, tor: Option<&Tor>, wanted: &Deployment) -> Result<()> {
        if let (Some(options), Some(tor)) = (&arm.tor, tor)
            && tor.phases_of(options, 0).any(|phase| phase.hops)
        {
            return Err(Error::Lacking(format!(
                "arm {} has clients that ask relays what they counted of circuits, {ASK_NOTHING}",
                arm.name
            )));
        }
        if let Some(line) = wanted.programs.iter().find_map(|placed| line_of_ours(&placed.role)) {
            return Err(Error::Lacking(format!(
                "arm {} has clients with the line {line:?}, and those of the backend emu are stock Tor; run it with \
                 --backend sim",
                arm.name
            )));
        }
        let hosts = wanted.network.hosts.len();
        match tor.is_some() && arm.tor.is_some() && hosts > PROCESS_HOSTS_MAX {
            true => Err(Error::Lacking(format!(
                "arm {} has {hosts} hosts with a process each, and the backend emu brings up {PROCESS_HOSTS_MAX} at \
                 most; run it with --backend sim",
                arm.name
            ))),
            false => Ok(()),
        }
    }

    fn bring_up(&mut self, wanted: &Deployment, on_step: &mut dyn FnMut(&str)) -> Result<Box<dyn Testbed>> {
        let run = RunOptions { seed: wanted.seed, ..RunOptions::default() };
        let emulation = Arc::new(Emulation::start(&wanted.network, &run)?);
        if !wanted.network.attacks.is_empty() {
            emulation.let_attack(wanted.attackers_act)?;
        }
        let tor = TorProcesses::start(&wanted.programs, &emulation, &self.heddle, on_step)?;
        let origin = Instant::now();
        Ok(Box::new(Hosts {
            sources: Sources::new(origin),
            tor,
            origin,
            seed: wanted.seed,
            kernel: wanted.network.kernel.clone(),
            emulation,
        }))
    }
}

/// A line for clients that stock Tor does not know.
fn line_of_ours(role: &Role) -> Option<&String> {
    let Role::OnionProxy { torrc } = role else { return None };
    torrc.iter().find(|line| line.starts_with("Heddle"))
}

/// Hosts that are up. What uses the emulation goes before it does: fields are dropped in this order.
struct Hosts {
    sources: Sources,
    tor: TorProcesses,
    origin: Instant,
    seed: u64,
    kernel: KernelOptions,
    emulation: Arc<Emulation>,
}

impl Testbed for Hosts {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn pass_until(&mut self, then: Duration, on_wait: &mut dyn FnMut()) -> Result<()> {
        let then = self.origin + then;
        let never = Stop::default();
        while Instant::now() < then {
            on_wait();
            if !never.sleep_until(then.min(Instant::now() + PROGRESS)) {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn change_wire(&mut self, from: &str, to: &str, step: &Step) -> Result<()> {
        self.emulation.change(from, to, step)
    }

    fn let_attack(&mut self, on: bool) -> Result<()> {
        self.emulation.let_attack(on)
    }

    fn measuring(&mut self, on: bool) -> Result<()> {
        self.emulation.measuring(on)
    }

    fn watch(&mut self, one: &str, other: &str) -> Result<()> {
        self.emulation.watch(one, other)
    }

    fn watched(&mut self) -> Result<Capture> {
        let kept = self.emulation.watched()?;
        Ok(kept.since(self.emulation.elapsed().saturating_sub(self.now())))
    }

    fn build_circuits(&mut self, wanted: &[CircuitOrder<'_>]) -> Result<Vec<Built>> {
        self.tor.build_circuits(wanted)
    }

    fn is_open(&mut self, circuit: Circuit) -> Result<bool> {
        self.tor.circuit(circuit)?.is_open()
    }

    fn close_circuits(&mut self, circuits: &[Circuit]) -> Result<()> {
        circuits.iter().try_for_each(|circuit| self.tor.circuit(*circuit)?.close())
    }

    fn start(&mut self, sources: Vec<Source>) -> Result<Vec<SourceId>> {
        sources.into_iter().map(|source| self.sources.start(source, &self.tor, &self.emulation)).collect()
    }

    fn wait_until_steady(&mut self, sources: &[SourceId]) -> Result<()> {
        self.sources.wait_until_steady(sources);
        Ok(())
    }

    fn stop(&mut self, sources: &[SourceId]) -> Result<Vec<Log>> {
        let logs = self.sources.stop(sources);
        interrupt::check()?;
        logs
    }

    fn run_flows(&mut self, flows: &[WireFlow<'_>], on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>> {
        let hosts = Emulated::new(&self.emulation, flows, self.kernel.tcp_wmem[2], self.seed);
        run_all(flows, &hosts, on_wait)
    }

    fn wire(&mut self, from: &str, to: &str) -> Result<DirectionStats> {
        self.emulation.direction_stats(from, to)
    }

    fn attacks(&mut self) -> Result<Attacks> {
        let mut attacks = Attacks::new();
        for AttackSummary { kind, acted, .. } in self.emulation.attacks()? {
            *attacks.entry(kind).or_default() += acted;
        }
        Ok(attacks)
    }

    fn usage(&mut self, relay: &str) -> Result<Option<Spent>> {
        Ok(Some(self.tor.relay(relay)?.usage()?.into()))
    }

    fn connections(&mut self, relay: &str) -> Result<Option<Vec<(String, TcpConnection)>>> {
        self.tor.connections(relay, &self.emulation).map(Some)
    }

    fn metrics(&mut self, relay: &str) -> Result<Option<Metrics>> {
        self.tor.metrics(relay, &self.emulation)
    }

    fn check(&mut self) -> Result<()> {
        self.tor.check()
    }

    fn take_down(self: Box<Self>) -> Result<BackendReport> {
        let Hosts { sources, tor, emulation, .. } = *self;
        drop(sources);
        drop(tor);
        let shared = || Error::Options("something still runs in the hosts".into());
        let emulation = Arc::into_inner(emulation).ok_or_else(shared)?;
        Ok(report(emulation.stop()?))
    }
}

/// Runs all flows at the same time and returns what came of each, in their order.
fn run_all(flows: &[WireFlow<'_>], hosts: &dyn FlowHosts, on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let flows = flows.iter().enumerate();
        let running: Vec<_> =
            flows.map(|(place, flow)| scope.spawn(move || run_flow(flow.case, place, hosts))).collect();
        while running.iter().any(|flow| !flow.is_finished()) {
            on_wait();
            thread::sleep(SLICE);
        }
        let joined = running.into_iter().map(|flow| {
            flow.join().unwrap_or_else(|_| Err(Error::Options("a flow of the plan panicked".into())))
        });
        joined.collect()
    })
}

/// Runs one flow to its end.
fn run_flow(case: &Case, place: usize, hosts: &dyn FlowHosts) -> Result<Outcome> {
    match (&case.bulk, &case.share, &case.probe, &case.ping) {
        (Some(options), ..) => bulk::run_bulk(options, place, hosts),
        (None, Some(share), ..) => bulk::run_share(share, place, hosts),
        (None, None, Some(probe), _) => run_probe(probe, case.stragglers(), place, hosts),
        (None, None, None, Some(ping)) => run_ping(ping, case.stragglers(), place, hosts),
        (None, None, None, None) => Err(Error::Options("nothing flows in a case".into())),
    }
}

/// What an emulation says about itself.
pub(crate) fn report(summary: Summary) -> BackendReport {
    let noise = [
        ("lateness p99 in µs", summary.lateness.p99_us),
        ("lateness at most in µs", summary.lateness.max_us),
        ("unattended p99 in µs", summary.unattended.p99_us),
        ("unattended at most in µs", summary.unattended.max_us),
        ("waking p99 in µs", summary.waking.p99_us),
        ("waking at most in µs", summary.waking.max_us),
        ("lateness p99 of the worst second in µs", summary.by_second.lateness.max_us),
        ("unattended p99 of the worst second in µs", summary.by_second.unattended.max_us),
        ("waking p99 of the worst seconds in µs", summary.by_second.waking.max_us),
        ("lateness p99 of the worst phase in µs", summary.measured.lateness.max_us),
        ("unattended p99 of the worst phase in µs", summary.measured.unattended.max_us),
        ("waking p99 of the worst phase in µs", summary.measured.waking.max_us),
        ("packets broken or not taken by their kernel", summary.packets_refused as f64),
        ("oversleeping p99 in µs", summary.oversleeping.p99_us),
        ("oversleeping at most in µs", summary.oversleeping.max_us),
        ("giving p99 in µs", summary.giving.p99_us),
        ("giving at most in µs", summary.giving.max_us),
    ];
    let noise = noise.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let KernelOptions { tcp_rmem, tcp_wmem, sysctl, .. } = &summary.kernel;
    let more = sysctl.iter().map(|(name, value)| format!("{name} {value}"));
    let used: BTreeSet<&str> = summary.hosts.iter().map(|host| host.congestion_control.as_str()).collect();
    let used = used.into_iter().map(|name| format!("congestion control {name}"));
    let memory = [format!("tcp_rmem {tcp_rmem:?}"), format!("tcp_wmem {tcp_wmem:?}")];
    let settings = used.chain(memory).chain(more).chain(summary.notes).collect();
    BackendReport { is_late: summary.is_late, reasons: summary.reasons, noise, settings, trace: None }
}
