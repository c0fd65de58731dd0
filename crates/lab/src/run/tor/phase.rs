//! One phase of an experiment, from its circuits to its figures:
//!
//! 1. Wires and attackers become what the phase wants, relays reach each other, and circuits are built.
//! 2. Clients with a stream begin; the phase waits until each stream is steady, or was waited for long enough. Where
//!    that is shorter than the rule for a steady stream looks back, it is a warm-up of the streams and nothing more.
//! 3. The others begin. After the warm-up the window opens: what begins from then on counts. Wires may change
//!    meanwhile.
//! 4. The window closes. Probes stop; downloads that have begun go on to their end, beside the streams.
//! 5. Streams stop, circuits are closed, and what was told becomes figures.
//!
//! A phase with pings has wires and attackers as it wants them, and then nothing but pings.

use std::collections::BTreeMap;
use std::time::Duration;

use heddle_netem::Rate;
use toml::Spanned;

use super::hops;
use super::sockets::Looks;
use super::streams::{self, Member, Window};
use super::wire_view::{Viewed, Viewing};
use super::{server_of, transport_use, wire_use};
use crate::backend::{
    Attacks, Built, Circuit, CircuitOrder, Log, Outcome, Reached, ServerKind, Source, SourceId, Spent,
    Testbed, WireFlow,
};
use crate::error::{Error, Result};
use crate::figures::{Labels, labels};
use crate::plan::hosts;
use crate::plan::{Case, Change, Client, Flow, Phase, Pings, Tor, TorArm, Traffic, WireGroup, WirePair};
use crate::run::pings;
use crate::run::sampled::Sampled;

/// A phase of a network that is up.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseRun<'a> {
    pub(super) tor: &'a Tor,
    pub(super) arm: &'a TorArm,
    pub(super) phase: &'a Phase,
    pub(super) seed: u64,
}

/// What a phase gave.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) samples: Vec<Sampled>,
    /// Why its figures must not be trusted.
    pub(super) faults: Vec<String>,
}

/// Somebody with something to do: a client on one of its circuits, or one connection of a flow.
struct Actor<'a> {
    name: &'a str,
    labels: &'a Labels,
    round_trip_ms: f64,
    source: Source,
}

/// What the actors told, each in its place, and what it cost.
struct Played {
    window: Window,
    logs: Vec<Log>,
    before: Costs,
    after: Costs,
    sockets: Looks,
    /// Of each circuit, what its relays counted.
    hops: Vec<Vec<hops::Counted>>,
    viewed: Option<Viewed>,
}

/// What is done again and again while everything counts.
struct Meanwhile<'a> {
    sockets: Looks,
    viewing: Option<Viewing<'a>>,
}

/// What has been spent so far.
struct Costs {
    /// By the relays, in their order; `None` where computing costs nothing.
    relays: Vec<Option<Spent>>,
    wires: wire_use::Counts,
}

impl PhaseRun<'_> {
    pub(super) fn measure(
        &self,
        testbed: &mut dyn Testbed,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<Measured> {
        let PhaseRun { tor, arm, phase, .. } = *self;
        self.set_wires(testbed)?;
        if !phase.pings.is_empty() {
            return self.ping(testbed, on_step);
        }
        let told_before = transport_use::read(tor, testbed)?;
        let attacks_before = testbed.attacks()?;
        testbed.let_attack(phase.attack_early)?;
        let pairs_s = match phase.any_transport {
            true => None,
            false => transport_use::wait_for_pairs(tor, arm, phase, testbed, on_step)?,
        };
        on_step(&format!("{}: building circuits", phase.name));
        let cells_before = transport_use::read(tor, testbed)?;
        let clients = self.clients();
        let built = testbed.build_circuits(&self.orders(&clients))?;
        let actors = self.actors(&clients, &built)?;
        let circuits: Vec<Circuit> = built.iter().map(|built| built.circuit).collect();
        let played = self.run(&actors, &circuits, testbed, on_step)?;
        testbed.check()?;
        let left_pct = left_pct(&circuits, testbed)?;
        testbed.close_circuits(&circuits)?;
        let told_after = transport_use::read(tor, testbed)?;
        let (share, fault) = transport_use::share(tor, arm, phase, &cells_before, &told_after);

        let mut samples: Vec<Sampled> =
            share.map(|share| Sampled::one("transport_cells_share", share)).into_iter().collect();
        samples.extend(pairs_s.map(|pairs_s| Sampled::one("pairs_s", pairs_s)));
        samples.extend(transport_use::figures(tor, &told_before, &told_after));
        let (told, wrong) = told(&actors, &played, tor, phase);
        samples.extend(told);
        samples.extend(left_pct.map(|left_pct| Sampled::one("circuits_left_pct", left_pct)));
        samples.extend(self.costs(&clients, &played));
        samples.extend(attacks(phase, &attacks_before, &testbed.attacks()?));
        let names: Vec<&str> = actors.iter().map(|actor| actor.name).collect();
        samples.extend(wire_use::inflicted(tor, phase, &played.before.wires, &played.after.wires));
        samples.extend(wire_use::used(tor, &names, &played.logs, played.window, &samples));
        let building = clients.iter().zip(&built).map(|(client, built)| {
            Sampled::one("circuit_ms", built.took.as_secs_f64() * 1e3).with(client.labels.clone())
        });
        samples.extend(building);
        samples.extend(played.sockets.figures(tor));
        samples.extend(hops::figures(tor, phase, &clients, &played.hops));
        let (seen, missed) = played.viewed.as_ref().map(Viewed::figures).unwrap_or_default();
        samples.extend(seen);
        let wrong = wrong.into_iter().filter(|_| !phase.may_fail);
        let faults = fault
            .into_iter()
            .chain(missed)
            .chain(wrong)
            .map(|what| format!("{what} in phase {}", phase.name));
        Ok(Measured { faults: faults.collect(), samples: keep(phase, samples) })
    }

    /// Has hosts ping each other, all pairs at the same time.
    fn ping(&self, testbed: &mut dyn Testbed, on_step: &mut dyn FnMut(&str)) -> Result<Measured> {
        let PhaseRun { tor, arm, phase, .. } = *self;
        testbed.let_attack(phase.attack || phase.attack_early)?;
        let pings = tor.pings.iter().map(Spanned::as_ref).filter(|pings| phase.pings.contains(&pings.name));
        let pairs = pings.flat_map(|pings| pings.between.iter().map(move |pair| (pings, pair)));
        let asked: Vec<(&Pings, &[String; 2], Case)> = pairs
            .map(|(pings, pair)| {
                let wire = hosts::between(tor, arm, phase, [&pair[0], &pair[1]]);
                let case = Case::of_pings(pings.lasting(phase.duration), wire.map(Clone::clone));
                (pings, pair, case)
            })
            .collect();
        let flows: Vec<WireFlow<'_>> =
            asked.iter().map(|(_, [from, to], case)| WireFlow { from, to, case }).collect();
        let step = format!("{}: pinging", phase.name);
        let outcomes = testbed.run_flows(&flows, &mut || on_step(&step))?;
        testbed.check()?;
        testbed.let_attack(phase.attack_early)?;
        let mut measured = Measured::default();
        for ((pings, [from, to], case), outcome) in asked.iter().zip(outcomes) {
            let Outcome::Ping { rtts_ms } = outcome else {
                unreachable!("a case of pings gives what became of pings")
            };
            if rtts_ms.iter().all(Option::is_none) && !phase.may_fail {
                measured
                    .faults
                    .push(format!("no ping from {from} to {to} came back in phase {}", phase.name));
            }
            let samples = pings::samples(&rtts_ms, case.directions()).into_iter();
            measured.samples.extend(samples.map(|sampled| sampled.with(pings.labels_of(to))));
        }
        measured.samples = keep(phase, measured.samples);
        Ok(measured)
    }

    /// The clients of the phase, each as often as it has circuits; none where flows stand in for them.
    fn clients(&self) -> Vec<&Client> {
        let clients = self.tor.clients.iter().map(Spanned::as_ref);
        let clients = clients.filter(|client| self.phase.has(&client.name) && !self.arm.stand_ins);
        clients.flat_map(|client| std::iter::repeat_n(client, client.circuits)).collect()
    }

    fn orders<'b>(&'b self, clients: &[&'b Client]) -> Vec<CircuitOrder<'b>> {
        let order =
            |client: &&'b Client| CircuitOrder { proxy: &client.name, path: self.phase.path_of(client) };
        clients.iter().map(order).collect()
    }

    /// Who has something to do: clients on their circuits, and then flows.
    fn actors<'b>(&'b self, clients: &[&'b Client], built: &[Built]) -> Result<Vec<Actor<'b>>> {
        let PhaseRun { tor, arm, phase, .. } = *self;
        let mut actors = Vec::new();
        for (number, (client, built)) in clients.iter().zip(built).enumerate() {
            let copy = clients[..number].iter().filter(|other| other.name == client.name).count();
            let server = match (&tor.server, phase.path_of(client).last()) {
                (Some(host), _) => (host.clone(), Reached::FromAnywhere.into()),
                (None, Some(exit)) => (exit.clone(), Reached::FromItsHost.into()),
                (None, None) => return Err(Error::Options(format!("client {} has no server", client.name))),
            };
            let source = Source {
                circuit: Some(built.circuit),
                ..self.source(&client.name, &client.name, &client.program, server, copy)
            };
            let round_trip_ms = hosts::round_trip_ms(tor, arm, phase, client);
            actors.push(Actor { name: &client.name, labels: &client.labels, round_trip_ms, source });
        }
        let runs = |flow: &&Flow| phase.has(&flow.name) && (!flow.stands_in || arm.stand_ins);
        let flows = tor.flows.iter().map(Spanned::as_ref).filter(runs);
        actors.extend(
            flows.flat_map(|flow| (0..flow.connections).map(move |number| self.connection(flow, number))),
        );
        Ok(actors)
    }

    /// One connection of a flow.
    fn connection<'b>(&'b self, flow: &'b Flow, number: usize) -> Actor<'b> {
        let server = (flow.to.clone(), server_of(flow));
        let source = self.source(&flow.from, &flow.name, &flow.program, server, number);
        let round_trip_ms = hosts::flow_round_trip_ms(self.tor, self.arm, self.phase, flow);
        Actor { name: &flow.name, labels: &flow.labels, round_trip_ms, source }
    }

    fn source(
        &self,
        host: &str,
        name: &str,
        traffic: &Traffic,
        server: (String, ServerKind),
        copy: usize,
    ) -> Source {
        Source {
            host: host.to_owned(),
            traffic: traffic.clone(),
            circuit: None,
            server,
            // Without the arm's name: arms of one run draw the same pauses and sizes.
            label: format!("{} {name}{}", self.phase.name, copy_name(copy)),
            seed: self.seed,
            steady_max: self.phase.steady_max,
            lasts: self.phase.warm_up + self.phase.duration,
        }
    }

    fn run(
        &self,
        actors: &[Actor<'_>],
        circuits: &[Circuit],
        testbed: &mut dyn Testbed,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<Played> {
        let PhaseRun { tor, arm, phase, .. } = *self;
        let mut viewing = Viewing::new(tor, arm, phase, testbed)?;
        let start = |streams: bool, testbed: &mut dyn Testbed| -> Result<Vec<(usize, SourceId)>> {
            let chosen =
                actors.iter().enumerate().filter(|(_, actor)| actor.source.traffic.streams() == streams);
            let (places, sources): (Vec<usize>, Vec<Source>) =
                chosen.map(|(place, actor)| (place, actor.source.clone())).unzip();
            Ok(places.into_iter().zip(testbed.start(sources)?).collect())
        };
        let streams = start(true, testbed)?;
        if !streams.is_empty() {
            on_step(&format!("{}: waiting for steady streams", phase.name));
        }
        testbed.wait_until_steady(&ids(&streams))?;
        let others = start(false, testbed)?;
        let opens = testbed.now() + phase.warm_up;
        let window = Window { opens, closes: opens + phase.duration };
        let before = self.costs_at(window.opens, "warming up", testbed, on_step)?;
        testbed.measuring(true)?;
        hops::ask(phase, circuits, testbed)?;
        testbed.let_attack(phase.attack || phase.attack_early)?;
        if let Some(viewing) = &mut viewing {
            viewing.begin([window.opens, window.closes], testbed)?;
        }
        let mut meanwhile = Meanwhile { sockets: Looks::new(phase, window.opens), viewing };
        for change in &phase.changes {
            self.measure_until(window.opens + change.after, &mut meanwhile, testbed, on_step)?;
            self.change_wires(&change.wires, testbed)?;
        }
        self.measure_until(window.closes, &mut meanwhile, testbed, on_step)?;
        let after = self.costs_at(window.closes, "measuring", testbed, on_step)?;
        testbed.measuring(false)?;
        hops::ask(phase, circuits, testbed)?;
        let Meanwhile { sockets, viewing } = meanwhile;
        let viewed = viewing.map(|viewing| viewing.end(testbed)).transpose()?;
        testbed.let_attack(phase.attack_early)?;
        let mut logs = BTreeMap::new();
        for some in [others, streams] {
            let told = testbed.stop(&ids(&some))?;
            logs.extend(some.into_iter().map(|(place, _)| place).zip(told));
        }
        let hops = hops::counted(phase, circuits, testbed)?;
        Ok(Played { window, logs: logs.into_values().collect(), before, after, sockets, hops, viewed })
    }

    /// Lets time pass until then, and does what is due meanwhile.
    fn measure_until(
        &self,
        then: Duration,
        meanwhile: &mut Meanwhile<'_>,
        testbed: &mut dyn Testbed,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let Meanwhile { sockets, viewing } = meanwhile;
        loop {
            let look = sockets.due_before(then);
            let act = viewing.as_ref().and_then(|viewing| viewing.due_before(then));
            match (look, act, viewing.as_mut()) {
                (look, Some(act), Some(viewing)) if look.is_none_or(|look| act <= look) => {
                    self.pass_until(act, "measuring", testbed, on_step)?;
                    viewing.act(testbed)?;
                }
                (Some(look), ..) => {
                    self.pass_until(look, "measuring", testbed, on_step)?;
                    sockets.look(self.tor, self.phase, testbed)?;
                }
                (None, ..) => break,
            }
        }
        self.pass_until(then, "measuring", testbed, on_step)
    }

    fn pass_until(
        &self,
        then: Duration,
        doing: &str,
        testbed: &mut dyn Testbed,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let step = format!("{}: {doing}", self.phase.name);
        testbed.pass_until(then, &mut || on_step(&step))
    }

    /// What has been spent by then.
    fn costs_at(
        &self,
        then: Duration,
        doing: &str,
        testbed: &mut dyn Testbed,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<Costs> {
        self.pass_until(then, doing, testbed, on_step)?;
        let relays = self.tor.relays.iter().map(|relay| testbed.usage(&relay.as_ref().name));
        Ok(Costs { relays: relays.collect::<Result<_>>()?, wires: wire_use::counts(self.tor, testbed)? })
    }

    /// What was spent meanwhile. The logs of `clients` come first among those of all actors.
    fn costs(&self, clients: &[&Client], played: &Played) -> Vec<Sampled> {
        let Played { before, after, logs, window, .. } = played;
        let mut samples = wire_use::figures(self.tor, self.arm, self.phase, &before.wires, &after.wires);
        let received_gb = |relay: &str| {
            let over_it = |client: &&Client| self.phase.path_of(client).iter().any(|name| name == relay);
            let theirs = clients.iter().zip(logs).filter(|(client, _)| over_it(client));
            theirs.map(|(_, log)| streams::received_kb(log, *window)).sum::<f64>() / 1e6
        };
        let relays = self.tor.relays.iter().map(Spanned::as_ref);
        for (relay, (before, after)) in relays.zip(before.relays.iter().zip(&after.relays)) {
            let (Some(before), Some(after)) = (before, after) else { continue };
            let (cpu_s, gb) = (after.cpu_s - before.cpu_s, received_gb(&relay.name));
            let relay = labels([("relay", &relay.name)]);
            samples.push(Sampled::one("relay_cpu_s", cpu_s).with(relay.clone()));
            if gb > 0.0 {
                samples.push(Sampled::one("relay_cpu_s_per_gb", cpu_s / gb).with(relay.clone()));
            }
            let memory = after.memory_bytes.map(|bytes| Sampled::one("relay_memory_mb", bytes as f64 / 1e6));
            samples.extend(memory.map(|memory| memory.with(relay)));
        }
        samples
    }

    /// Makes those wires what the phase wants that this or another phase changes.
    fn set_wires(&self, testbed: &mut dyn Testbed) -> Result<()> {
        for group in self.tor.wires.iter().map(Spanned::as_ref) {
            if self.tor.phases.iter().any(|phase| phase.as_ref().changes_wires(&group.name)) {
                let instead = self.phase.wires.get(&group.name).or(self.arm.wires.get(&group.name));
                set_group(group, instead, testbed)?;
            }
        }
        Ok(())
    }

    /// Makes wires what they are from some moment of the phase on.
    fn change_wires(&self, wires: &BTreeMap<String, WirePair>, testbed: &mut dyn Testbed) -> Result<()> {
        let groups = self.tor.wires.iter().map(Spanned::as_ref);
        let changed = groups.filter_map(|group| Some((group, wires.get(&group.name)?)));
        changed.into_iter().try_for_each(|(group, pair)| set_group(group, Some(pair), testbed))
    }
}

/// How often attackers acted in a phase that has some, by what they do.
fn attacks(phase: &Phase, before: &Attacks, after: &Attacks) -> Vec<Sampled> {
    if !(phase.attack || phase.attack_early) {
        return Vec::new();
    }
    let acted = |kind: &&str| after[kind] - before.get(kind).copied().unwrap_or(0);
    let of = |kind: &&str| Sampled::one("attacks", acted(kind) as f64).with(labels([("kind", *kind)]));
    after.keys().map(of).collect()
}

fn set_group(group: &WireGroup, instead: Option<&WirePair>, testbed: &mut dyn Testbed) -> Result<()> {
    let [there, back] = hosts::directions(group, instead);
    for [from, to] in &group.between {
        testbed.change_wire(from, to, &hosts::step_to(there))?;
        testbed.change_wire(to, from, &hosts::step_to(back))?;
    }
    Ok(())
}

/// The figures of what was told, and what is wrong with them where nothing may fail.
fn told(actors: &[Actor<'_>], played: &Played, tor: &Tor, phase: &Phase) -> (Vec<Sampled>, Vec<String>) {
    let last = phase.changes.last();
    let members = actors.iter().zip(&played.logs).map(|(actor, log)| Member {
        name: actor.name,
        labels: actor.labels,
        program: &actor.source.traffic,
        log,
        round_trip_ms: actor.round_trip_ms,
    });
    let groups = streams::groups(members);
    let (mut samples, mut faults) = (streams::fairness(&groups, played.window), Vec::new());
    for group in &groups {
        let (sampled, wrong) = group.figures(played.window);
        samples.extend(sampled);
        let back = last.and_then(|change| {
            group.back(change.after, faster(tor, phase, change, group.labels())?, played.window)
        });
        samples.extend(back);
        faults.extend(wrong);
    }
    (samples, faults)
}

/// By how much a change makes the bottleneck faster of who has these labels: 1 where there is none, or no rate. `None`
/// where there is one that does not change.
fn faster(tor: &Tor, phase: &Phase, change: &Change, labels: &Labels) -> Option<f64> {
    let is_theirs = |group: &&WireGroup| {
        phase.bottlenecks.contains(&group.name)
            && group.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let Some(group) = tor.wires.iter().map(Spanned::as_ref).find(is_theirs) else { return Some(1.0) };
    match (group.there.rate, change.wires.get(&group.name)?.there.rate) {
        (Rate::BitsPerS(before), Rate::BitsPerS(after)) => Some(after as f64 / before as f64),
        _ => Some(1.0),
    }
}

/// The share of circuits that are open still, in percent; `None` where there were none.
fn left_pct(circuits: &[Circuit], testbed: &mut dyn Testbed) -> Result<Option<f64>> {
    let mut left = 0;
    for circuit in circuits {
        left += usize::from(testbed.is_open(*circuit)?);
    }
    Ok((!circuits.is_empty()).then(|| 100.0 * left as f64 / circuits.len() as f64))
}

fn ids(sources: &[(usize, SourceId)]) -> Vec<SourceId> {
    sources.iter().map(|(_, id)| *id).collect()
}

/// What tells the second and further circuits of a client from its first.
fn copy_name(number: usize) -> String {
    if number == 0 { String::new() } else { format!(" {number}") }
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
