//! One phase of an experiment, from its circuits to its figures:
//!
//! 1. Wires and attackers become what the phase wants, relays reach each other, and circuits are built.
//! 2. Clients with a stream begin; the phase waits until each stream is steady, or was waited for long enough.
//! 3. The others begin. After the warm-up the window opens: what begins from then on counts. Wires may change meanwhile.
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
use crate::machine::interrupt;
use crate::machine::usage::Usage;
use crate::socks::Target;
use crate::testnet::{Client as Proxy, Network, Relay};
use crate::traffic::{Identity, Route, Server, Stop};

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

/// Somebody with something to do: a client on one of its circuits, or one connection of a flow.
struct Actor<'a> {
    name: &'a str,
    labels: &'a Labels,
    round_trip_ms: f64,
    job: Job<'a>,
}

/// What the actors told, each in its place, and what it cost.
struct Played {
    window: Window,
    logs: Vec<Log>,
    before: Costs,
    after: Costs,
}

/// Numbers the uploads of a phase, of which servers count few.
#[derive(Default)]
struct Uploads(usize);

impl Uploads {
    /// The number of a program's upload; it means nothing to others.
    fn number(&mut self, program: &Traffic) -> usize {
        let number = self.0;
        self.0 += usize::from(matches!(program, Traffic::Upload {}));
        number
    }
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
        let told_before = carried::read(self)?;
        self.emulation.let_attack(phase.attack_early)?;
        let pairs_s = match phase.any_transport {
            true => None,
            false => carried::wait_for_pairs(self, phase, on_step)?,
        };
        on_step(&format!("{}: building circuits", phase.name));
        let cells_before = carried::read(self)?;
        let clients = self.clients(phase);
        let wanted: Vec<_> = clients.iter().map(|(path, client, _)| (*path, *client)).collect();
        let open = circuits::build(self.network, &wanted)?;
        let actors = self.actors(phase, &clients, &open)?;
        let jobs: Vec<&Job<'_>> = actors.iter().map(|actor| &actor.job).collect();
        let played = self.run(phase, &jobs, on_step)?;
        self.network.check()?;
        let left_pct = circuits::left_pct(&open)?;
        circuits::close(&open)?;
        let told_after = carried::read(self)?;
        let (share, fault) = carried::share(self.tor, self.arm, phase, &cells_before, &told_after);

        let mut faults: Vec<String> =
            fault.map(|fault| format!("{fault} in phase {}", phase.name)).into_iter().collect();
        let mut samples: Vec<Sampled> =
            share.map(|share| one("transport_cells_share", "1", share)).into_iter().collect();
        samples.extend(pairs_s.map(|pairs_s| one("pairs_s", "s", pairs_s)));
        samples.extend(carried::figures(self.tor, &told_before, &told_after));
        let (told, wrong) = self.told(&actors, &played);
        samples.extend(told);
        let fault = |what: String| format!("{what} in phase {}", phase.name);
        faults.extend(wrong.into_iter().filter(|_| !phase.may_fail).map(fault));
        samples.push(one("circuits_left_pct", "%", left_pct));
        samples.extend(self.costs(phase, &played));
        let names: Vec<&str> = actors.iter().map(|actor| actor.name).collect();
        samples.extend(load::used(self.tor, &names, &played.logs, played.window, &samples));
        let building = clients.iter().zip(&open).map(|((.., client), open)| Sampled {
            labels: client.labels.clone(),
            ..one("circuit_ms", "ms", open.took.as_secs_f64() * 1e3)
        });
        samples.extend(building);
        Ok((keep(phase, samples), faults))
    }

    /// The clients of a phase, each as often as it has circuits, with the path of those.
    fn clients<'b>(&'b self, phase: &'b Phase) -> Vec<(&'b [String], &'b Proxy, &'b Client)> {
        let both = self.tor.clients.iter().map(Spanned::as_ref).zip(self.network.clients());
        both.filter(|(options, _)| phase.has(&options.name))
            .flat_map(|(options, client)| {
                std::iter::repeat_n((phase.path_of(options), client, options), options.circuits)
            })
            .collect()
    }

    /// Who has something to do in a phase: clients on their circuits, and then flows.
    fn actors<'b>(
        &'b self,
        phase: &Phase,
        clients: &[(&[String], &Proxy, &'b Client)],
        open: &[Open<'_>],
    ) -> Result<Vec<Actor<'b>>> {
        let mut actors = Vec::new();
        let mut uploads = Uploads::default();
        for (number, ((.., client), open)) in clients.iter().zip(open).enumerate() {
            let server = self.servers.of(self.tor, phase, client)?;
            let route = Route {
                server: Target::Addr(server.addr()),
                proxy: Some(open.client.socks()),
                isolation: Some(open.id.isolation()),
                timeout: timeout(&client.program),
            };
            // Without the arm's name: arms of one run draw the same pauses and sizes.
            let copy = clients[..number].iter().filter(|(.., other)| other.name == client.name).count();
            let label = format!("{} {}{}", phase.name, client.name, copy_name(copy));
            let place = (server, uploads.number(&client.program));
            let job = self.job(phase, &client.name, &client.program, route, label, place);
            let round_trip_ms = network::round_trip_ms(self.tor, self.arm, phase, client);
            actors.push(Actor { name: &client.name, labels: &client.labels, round_trip_ms, job });
        }
        for flow in self.tor.flows.iter().map(Spanned::as_ref).filter(|flow| phase.has(&flow.name)) {
            let server = self.servers.of_flow(flow)?;
            let round_trip_ms = network::flow_round_trip_ms(self.tor, self.arm, phase, flow);
            for number in 0..flow.connections {
                let route =
                    Route { timeout: timeout(&flow.program), ..Route::direct(Target::Addr(server.addr())) };
                let label = format!("{} {}{}", phase.name, flow.name, copy_name(number));
                let place = (server, uploads.number(&flow.program));
                let job = self.job(phase, &flow.from, &flow.program, route, label, place);
                actors.push(Actor { name: &flow.name, labels: &flow.labels, round_trip_ms, job });
            }
        }
        Ok(actors)
    }

    fn job<'b>(
        &self,
        phase: &Phase,
        host: &'b str,
        traffic: &'b Traffic,
        route: Route,
        label: String,
        (server, number): (&'b Server, usize),
    ) -> Job<'b> {
        let identity = Identity { label, seed: self.seed, labels: Labels::new() };
        Job { host, traffic, route, identity, server, number, steady_max: phase.steady_max }
    }

    /// The figures of what was told, and what is wrong with them where nothing may fail.
    fn told(&self, actors: &[Actor<'_>], played: &Played) -> (Vec<Sampled>, Vec<String>) {
        let members = actors.iter().zip(&played.logs).map(|(actor, log)| Member {
            name: actor.name,
            labels: actor.labels,
            program: actor.job.traffic,
            log,
            round_trip_ms: actor.round_trip_ms,
        });
        let groups = streams::groups(members);
        let (mut samples, mut faults) = (streams::fairness(&groups, played.window), Vec::new());
        for group in &groups {
            let (sampled, wrong) = group.figures(played.window);
            samples.extend(sampled);
            faults.extend(wrong);
        }
        (samples, faults)
    }

    fn run(&self, phase: &Phase, jobs: &[&Job<'_>], on_step: &mut dyn FnMut(&str)) -> Result<Played> {
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
            let changed = self.change(phase, window, on_step);
            let after = self.costs_at(window.closes, &format!("{}: measuring", phase.name), on_step);
            let changed = changed.and(self.emulation.let_attack(phase.attack_early));
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
            changed?;
            let logs = logs.into_values().collect::<Result<_>>()?;
            Ok(Played { window, logs, before: before?, after: after? })
        })
    }

    /// Lets attackers act and wires change while everything counts.
    fn change(&self, phase: &Phase, window: Window, on_step: &mut dyn FnMut(&str)) -> Result<()> {
        self.emulation.let_attack(phase.attack || phase.attack_early)?;
        for change in &phase.changes {
            wait(window.opens + change.after, &format!("{}: measuring", phase.name), on_step)?;
            network::change_wires(self.tor, change, self.emulation)?;
        }
        Ok(())
    }

    /// What has been spent by then.
    fn costs_at(&self, then: Instant, step: &str, on_step: &mut dyn FnMut(&str)) -> Result<Costs> {
        wait(then, step, on_step)?;
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

/// Waits until then and tells that from time to time.
fn wait(then: Instant, step: &str, on_step: &mut dyn FnMut(&str)) -> Result<()> {
    let never = Stop::default();
    while Instant::now() < then {
        on_step(step);
        if !never.sleep_until(then.min(Instant::now() + PROGRESS)) {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// How long a program's streams may take to open, and then to go on.
fn timeout(program: &Traffic) -> Duration {
    match program {
        Traffic::Fetch { .. } => 10 * OPEN_MAX,
        _ => OPEN_MAX,
    }
}

/// What tells the second and further circuits of a client from its first.
fn copy_name(number: usize) -> String {
    if number == 0 { String::new() } else { format!(" {number}") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_alone_are_numbered() {
        let bulk = Traffic::Bulk { limit_kb_s: 0, reads_for: Duration::ZERO };
        let mut uploads = Uploads::default();
        let mut number = |program: &Traffic| uploads.number(program);
        assert_eq!(number(&Traffic::Upload {}), 0);
        (0..100).for_each(|_| assert_eq!(number(&bulk), 1));
        assert_eq!([number(&Traffic::Upload {}), number(&Traffic::Upload {})], [1, 2]);
    }
}
