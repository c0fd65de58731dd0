//! One phase of an experiment, from its circuits to its figures:
//!
//! 1. Wires become what the phase wants, and circuits are built.
//! 2. Clients with a stream begin; the phase waits until each stream is steady, or was waited for long enough.
//! 3. The others begin. After the warm-up the window opens: what begins from then on counts.
//! 4. The window closes. Probes stop; downloads that have begun go on to their end, beside the streams.
//! 5. Streams stop, circuits are closed, and what was told becomes figures.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use toml::Spanned;

use super::carried;
use super::circuits::{self, OPEN_MAX, Open};
use super::load;
use super::network::{self, Servers};
use super::programs::{Job, Log};
use super::streams::{self, Member, Window};
use super::{Client, Phase, Sampled, Tor, TorArm, Traffic};
use crate::emulator::Emulation;
use crate::error::{Error, Result};
use crate::figures::{Labels, labels};
use crate::interrupt;
use crate::socks::Target;
use crate::testnet::{Network, Relay};
use crate::traffic::{Identity, Route, Stop};
use crate::usage::Usage;

/// How often progress is told in the meantime.
const PROGRESS: Duration = Duration::from_secs(1);

/// Where phases are played: a network that is up.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) tor: &'a Tor,
    pub(super) arm: &'a TorArm,
    pub(super) seed: u64,
    pub(super) emulation: &'a Emulation,
    pub(super) network: &'a Network,
    pub(super) servers: &'a Servers,
}

/// What the clients told, each in its place, and what it cost.
struct Played {
    window: Window,
    logs: Vec<Log>,
    before: Costs,
    after: Costs,
}

/// What has been spent so far.
struct Costs {
    /// By the relays, in their order.
    relays: Vec<Usage>,
    wires: load::Counts,
}

impl Stage<'_> {
    /// Plays a phase. Returns its figures, and why they must not be trusted.
    pub(super) fn play(
        &self,
        phase: &Phase,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<(Vec<Sampled>, Vec<String>)> {
        network::set_wires(self.tor, self.arm, phase, self.emulation)?;
        on_step(&format!("{}: building circuits", phase.name));
        let networks = self.network.clients().enumerate();
        let chosen: Vec<(&Client, usize, _)> = (self.tor.clients.iter().map(Spanned::as_ref).zip(networks))
            .map(|(options, (number, client))| (options, number, client))
            .filter(|(options, ..)| phase.has(options))
            .collect();
        let pairs: Vec<_> = chosen.iter().map(|(options, _, client)| (*options, *client)).collect();
        let told_before = carried::read(self)?;
        let open = circuits::build(self.network, &pairs)?;
        let jobs = chosen.iter().zip(&open);
        let jobs = jobs.map(|((options, number, _), open)| self.job(phase, options, *number, *open));
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let played = self.run(phase, &jobs, on_step)?;
        self.network.check()?;
        let left_pct = circuits::left_pct(&open)?;
        circuits::close(&open)?;
        let (share, fault) = carried::share(self.tor, self.arm, &told_before, &carried::read(self)?);

        let mut faults: Vec<String> =
            fault.map(|fault| format!("{fault} in phase {}", phase.name)).into_iter().collect();
        let mut samples: Vec<Sampled> =
            share.map(|share| one("transport_cells_share", "1", share)).into_iter().collect();
        let members = chosen.iter().zip(&played.logs).map(|((client, ..), log)| Member {
            client,
            log,
            round_trip_ms: network::round_trip_ms(self.tor, self.arm, phase, client),
        });
        for group in streams::groups(members) {
            let (sampled, silent) = group.figures(played.window);
            samples.extend(sampled);
            let fault = |name: String| format!("{name} got nothing in phase {}", phase.name);
            faults.extend(silent.into_iter().filter(|_| !phase.may_fail).map(fault));
        }
        samples.push(one("circuits_left_pct", "%", left_pct));
        samples.extend(self.costs(phase, &played));
        Ok((keep(phase, samples), faults))
    }

    fn job<'b>(
        &'b self,
        phase: &Phase,
        client: &'b Client,
        number: usize,
        open: Open<'_>,
    ) -> Result<Job<'b>> {
        let route = Route {
            server: Target::Addr(self.servers.of(self.tor, client)?.addr()),
            proxy: Some(open.client.socks()),
            isolation: Some(open.id.isolation()),
            timeout: match client.program {
                Traffic::Fetch { .. } => 10 * OPEN_MAX,
                _ => OPEN_MAX,
            },
        };
        // Without the arm's name: arms of one run draw the same pauses and sizes.
        let label = format!("{} {}", phase.name, client.name);
        Ok(Job {
            host: &client.name,
            traffic: &client.program,
            route,
            identity: Identity { label, seed: self.seed, labels: Labels::new() },
            server: self.servers.of(self.tor, client)?,
            number,
            steady_max: phase.steady_max,
        })
    }

    fn run(&self, phase: &Phase, jobs: &[Job<'_>], on_step: &mut dyn FnMut(&str)) -> Result<Played> {
        let (stop_streams, stop_probes) = (Stop::default(), Stop::default());
        let lasts = phase.warm_up + phase.duration;
        thread::scope(|scope| {
            let (steady, heard) = channel();
            let mut running = BTreeMap::new();
            for (place, job) in jobs.iter().enumerate().filter(|(_, job)| job.traffic.streams()) {
                let (stop, steady) = (&stop_streams, Some(steady.clone()));
                running.insert(place, scope.spawn(move || job.run(self.emulation, lasts, stop, steady)));
            }
            drop(steady);
            if !running.is_empty() {
                on_step(&format!("{}: waiting for steady streams", phase.name));
            }
            // There is an end of it when every stream has told, or one has ended.
            for () in heard.iter().take(running.len()) {}

            for (place, job) in jobs.iter().enumerate().filter(|(_, job)| !job.traffic.streams()) {
                let stop = &stop_probes;
                running.insert(place, scope.spawn(move || job.run(self.emulation, lasts, stop, None)));
            }
            let opens = Instant::now() + phase.warm_up;
            let window = Window { opens, closes: opens + phase.duration };
            let before = self.costs_at(window.opens, &format!("{}: warming up", phase.name), on_step);
            let attacked = self.emulation.let_attack(phase.attack);
            let after = self.costs_at(window.closes, &format!("{}: measuring", phase.name), on_step);
            let attacked = attacked.and(self.emulation.let_attack(false));
            stop_probes.ask();
            let mut logs = BTreeMap::new();
            let (others, streams): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(place, _)| !jobs[*place].traffic.streams());
            for (place, thread) in others.into_iter().chain(streams) {
                if jobs[place].traffic.streams() {
                    stop_streams.ask();
                }
                logs.insert(place, join(thread));
            }
            interrupt::check()?;
            attacked?;
            let logs = logs.into_values().collect::<Result<_>>()?;
            Ok(Played { window, logs, before: before?, after: after? })
        })
    }

    /// What has been spent by then.
    fn costs_at(&self, then: Instant, step: &str, on_step: &mut dyn FnMut(&str)) -> Result<Costs> {
        let never = Stop::default();
        while Instant::now() < then {
            on_step(step);
            if !never.sleep_until(then.min(Instant::now() + PROGRESS)) {
                return Err(Error::Interrupted);
            }
        }
        let relays = self.network.relays().iter().map(Relay::usage).collect::<Result<_>>()?;
        Ok(Costs { relays, wires: load::counts(self.tor, self.emulation)? })
    }

    fn costs(&self, phase: &Phase, played: &Played) -> Vec<Sampled> {
        let Played { before, after, .. } = played;
        let mut samples = load::figures(self.tor, self.arm, phase, &before.wires, &after.wires);
        let relays = self.network.relays().iter();
        for (relay, (before, after)) in relays.zip(before.relays.iter().zip(&after.relays)) {
            let sampled = |name: &str, unit, value| Sampled {
                name: name.to_owned(),
                labels: labels([("relay", relay.nickname())]),
                unit,
                values: vec![value],
            };
            samples.push(sampled("relay_cpu_s", "s", after.cpu_s - before.cpu_s));
            samples.push(sampled("relay_memory_mb", "MB", after.rss_bytes as f64 / 1e6));
        }
        samples
    }
}

/// A figure with one sample and no labels of its own.
fn one(name: &str, unit: &'static str, value: f64) -> Sampled {
    Sampled { name: name.to_owned(), labels: Labels::new(), unit, values: vec![value] }
}

fn join(thread: ScopedJoinHandle<'_, Result<Log>>) -> Result<Log> {
    thread.join().unwrap_or_else(|_| Err(Error::Options("a client's program panicked".into())))
}

/// Keeps the figures that the phase wants, and gives them the names and labels that it wants.
pub(super) fn keep(phase: &Phase, samples: Vec<Sampled>) -> Vec<Sampled> {
    let keep = |sampled: Sampled| {
        let name = match phase.figures.get(&sampled.name) {
            Some(name) => name.clone(),
            None if phase.figures.is_empty() => sampled.name,
            None => return None,
        };
        let labels = phase.labels.clone().into_iter().chain(sampled.labels).collect();
        Some(Sampled { name, labels, ..sampled })
    };
    samples.into_iter().filter_map(keep).collect()
}
