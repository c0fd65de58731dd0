//! Experiments with a private Tor network: what a plan says about them.
//!
//! A plan has one network, `[tor]`: relays, clients, and the wires between their hosts. Each arm with `[arm.tor]`
//! brings it up once in each run, with the transport that the arm names, and goes through the network's phases in their
//! order:
//!
//! 1. Relays that are neighbours reach each other over the arm's transport, unless any will do.
//! 2. Every client of the phase builds its circuits over its path. Circuits of the phase before are closed, so that no
//!    phase inherits the windows of another one; the connections between relays stay.
//! 3. Clients that stream begin, and the phase waits until they are steady.
//! 4. The other clients begin. After the warm-up everything counts until the phase's duration is over.
//!
//! Clients, relays, authorities and the server are each on a host of their own, but for the server, which is on the
//! host of the exit that a client uses unless the plan gives it one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::arm::Transport;
use heddle_netem::{DirectionOptions, InterfaceOptions, WireOptions};
use serde::Deserialize;
use toml::Spanned;

use super::clients::{Client, Flow};
use super::contest::Contests;
use super::drawn::Drawn;
use super::pings::Pings;
use super::topology::{Place, Topology};
use super::units;
use super::view::View;
use crate::emulator::{AttackOptions, KernelOptions};
use crate::figures::Labels;

/// The private Tor network of a plan, in TOML `[tor]`.
///
/// What every phase gives, labelled with the labels of arm and phase besides others, is
/// `figures::of_phases`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tor {
    /// The relays, besides three stock authorities.
    #[serde(rename = "relay")]
    pub relays: Vec<Spanned<Relay>>,
    /// The wires between hosts, in groups. Default: every wire is like `default_wire`.
    #[serde(default, rename = "wire")]
    pub wires: Vec<Spanned<WireGroup>>,
    /// Attackers on wires. They wait but for the phases with `attack`. Default: none.
    #[serde(default, rename = "attack")]
    pub attacks: Vec<Spanned<AttackOptions>>,
    /// The wire of each pair of hosts that no group names. Directories and descriptors go over such wires. Default: a
    /// delay of 1 ms and nothing else.
    #[serde(default = "default_wire")]
    pub default_wire: DirectionOptions,
    /// The delay in milliseconds, one way, of each wire on a client's path or a flow's that no group names: drawn for
    /// each by the seed, in place of that of `default_wire`. Default: that one's.
    #[serde(default)]
    pub delay_ms: Option<Drawn>,
    /// What wires are by where their hosts are. Default: hosts are nowhere.
    #[serde(default)]
    pub topology: Option<Topology>,
    /// Those wires, once they were drawn.
    #[serde(skip)]
    pub(crate) drawn_wires: Vec<WireOptions>,
    /// Parts of the network in which relays upgrade, such as `[0.1, 0.3, 1.0]`: each client's label `upgraded_from`
    /// says from which of them on all relays on its path are upgraded, as arms with `upgraded` have it. Default: none.
    #[serde(default)]
    pub upgrade_steps: Vec<f64>,
    /// What the kernels of its hosts are set to. Default: as in the emulator.
    #[serde(default)]
    pub kernel: KernelOptions,
    /// Stock onion proxies, each with one traffic program. Default: none but those of contests.
    #[serde(default, rename = "client")]
    pub clients: Vec<Spanned<Client>>,
    /// Kernel TCP beside Tor, on the same wires. Default: none.
    #[serde(default, rename = "flow")]
    pub flows: Vec<Spanned<Flow>>,
    /// Datagrams among hosts that come back, in phases of their own. Default: none.
    #[serde(default, rename = "ping")]
    pub pings: Vec<Spanned<Pings>>,
    /// Of what the use is told. Default: nothing, but see `wire_use_pct`.
    #[serde(default, rename = "bottleneck")]
    pub bottlenecks: Vec<Spanned<Bottleneck>>,
    /// Circuits beside kernel TCP, each over a wire of its own, whose phases follow the others. Default: none.
    #[serde(default)]
    pub contests: Option<Spanned<Contests>>,
    /// What happens, in this order. Default: nothing but contests.
    #[serde(default, rename = "phase")]
    pub phases: Vec<Spanned<Phase>>,
    /// Whether each run begins with the phase after the one that the run before began with, and goes round, so that no
    /// phase is always the first. Default: no.
    #[serde(default)]
    pub rotate_phases: bool,
    /// The name of a host of the server's own, for wires to it. Default: it is on the host of each client's exit.
    #[serde(default)]
    pub server: Option<String>,
    /// Lines for every authority's torrc, such as `ConsensusParams cc_alg=0`. Default: none.
    #[serde(default)]
    pub authority_torrc: Vec<String>,
    /// Lines for every client's torrc. Default: none.
    #[serde(default)]
    pub client_torrc: Vec<String>,
}

/// A relay and its host, or a group of relays that are alike but for what is drawn.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Its nickname and its host's name: 1 to 19 letters and digits.
    pub name: String,
    /// How many there are; they are called by this name with a number behind it, from 1 on. Default: one, by this name.
    #[serde(default)]
    pub count: Option<usize>,
    /// The part of `count` that this group has, rounded and at least one, so that several groups divide one number.
    /// Default: all.
    #[serde(default)]
    pub share: Option<f64>,
    /// The rate, in 1024 bytes per second, that each keeps (`RelayBandwidthRate`, and as much at once), drawn for each
    /// by the seed, at least 75. Clients without a path choose theirs by it. Default: its torrc alone says.
    #[serde(default)]
    pub rate_kib_s: Option<Drawn>,
    /// Where it is, in a network with a topology. Default: nowhere.
    #[serde(default)]
    pub place: Option<Place>,
    /// Whether it exits. Default: no.
    #[serde(default)]
    pub exit: bool,
    /// How much of the network is upgraded before it, by rates, once that was drawn.
    #[serde(skip)]
    pub(crate) upgrade_rank: Option<f64>,
    /// What it is, whatever the arm says. Default: what the arm says.
    #[serde(default)]
    pub transport: Option<Transport>,
    /// Lines for its torrc, such as `RelayBandwidthRate 128 KBytes`. Default: none.
    #[serde(default)]
    pub torrc: Vec<String>,
    /// What all that its host sends passes first, whoever it is for. Default: no limit.
    #[serde(default)]
    pub up: InterfaceOptions,
    /// What all that its host receives passes last. Default: no limit.
    #[serde(default)]
    pub down: InterfaceOptions,
    /// Labels of its figures, besides `relay`. Default: none.
    #[serde(default)]
    pub labels: Labels,
}

/// Wires that are alike, each with chance of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireGroup {
    /// The name by which arms change it.
    pub name: String,
    /// The pairs of hosts that they join.
    pub between: Vec<[String; 2]>,
    /// The direction from the first host of a pair to the second.
    pub there: DirectionOptions,
    /// The direction from the second to the first. Default: like `there`.
    #[serde(default)]
    pub back: Option<DirectionOptions>,
    /// Labels of what is told of it as a phase's bottleneck. Default: none.
    #[serde(default)]
    pub labels: Labels,
}

/// What limits some clients, and how much of it they use: a wire, all of whose bytes count, or a rate that a relay
/// keeps, of which the cells count that brought its clients their data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    /// Labels of its figure.
    pub labels: Labels,
    /// The group of the wire. If there are several, the busiest counts. Default: none.
    #[serde(default)]
    pub wires: Option<String>,
    /// Which direction of it: `there` or `back`. Default: there.
    #[serde(default)]
    pub direction: Way,
    /// The clients that share a rate and do not share it with others. Default: it is of wires.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The rate that they share, in 1000 bytes per second. Default: that of the wire.
    #[serde(default)]
    pub rate_kb_s: Option<f64>,
}

/// A direction of a group of wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the first host of a pair to the second.
    #[default]
    There,
    /// From the second to the first.
    Back,
}

/// A part of an experiment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name in progress.
    pub name: String,
    /// Labels of its figures. Default: none.
    #[serde(default)]
    pub labels: Labels,
    /// What groups of wires are instead in this phase, by name, in all but what cannot be changed while packets are
    /// under way: queue, framing, flaps, schedules, bounds in flight, and whether jitter reorders. Default: as arm and
    /// network say.
    #[serde(default)]
    pub wires: BTreeMap<String, WirePair>,
    /// What changes while everything counts, in this order. Default: nothing.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Who does something, clients and flows. Default: all.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The pings that hosts send at the same time for as long as it lasts. Then nobody else does anything in it, and
    /// there are no circuits. Default: none.
    #[serde(default)]
    pub pings: Vec<String>,
    /// The relays of its clients' circuits, guard first. Default: each client's own path.
    #[serde(default)]
    pub path: Vec<String>,
    /// The longest wait for streams to be steady. Default: 15 s.
    #[serde(default = "steady_max", deserialize_with = "units::duration")]
    pub steady_max: Duration,
    /// What does not count of what follows. Default: 0 s.
    #[serde(default, deserialize_with = "units::duration")]
    pub warm_up: Duration,
    /// How long everything counts, at least a second. A download that began before the end is waited for.
    #[serde(deserialize_with = "units::duration")]
    pub duration: Duration,
    /// Which figures are kept, and under which names. Default: all, under their own.
    #[serde(default)]
    pub figures: BTreeMap<String, String>,
    /// How often the TCP connections between relays are looked at while everything counts. Default: never.
    #[serde(default, deserialize_with = "units::some_duration")]
    pub sockets: Option<Duration>,
    /// Whether clients ask the relays of their own circuits what they counted of them while everything counts, as in
    /// PCTCP, section 5.1: `hop_cells`, `hop_wait_ms`, `hop_wait_max_ms`, `hop_queue_max_cells`. Every relay of the
    /// network has `HeddleMeasure 1` then. Default: no.
    #[serde(default)]
    pub hops: bool,
    /// The wire that somebody looks at while everything counts, and whose circuits begin and end meanwhile. Default:
    /// nobody looks at any.
    #[serde(default)]
    pub view: Option<View>,
    /// The groups of wires of whose direction `there` is told what the traffic does to it: `queue_delay_ms`,
    /// `loss_inflicted_pct` and `marked_pct`. A client's is the one all of whose labels it has. Default: none.
    #[serde(default)]
    pub bottlenecks: Vec<String>,
    /// Whether it is only for arms with `stand_ins`. Default: no.
    #[serde(default)]
    pub stand_ins: bool,
    /// Whether the attackers act while everything counts. Default: no.
    #[serde(default)]
    pub attack: bool,
    /// Whether they act from the phase's beginning on, when its circuits are built; in the run's first phase, from the
    /// network's. Default: no.
    #[serde(default)]
    pub attack_early: bool,
    /// Whether it makes no difference which transport carries the circuits. Otherwise the phase waits until relays have
    /// reached each other over the arm's, and the run is invalid when that carries less than 99 % of the cells.
    /// Default: no.
    #[serde(default)]
    pub any_transport: bool,
    /// The longest wait for relays to reach each other over the arm's transport. Default: 60 s.
    #[serde(default = "pairs_max", deserialize_with = "units::duration")]
    pub pairs_max: Duration,
    /// Whether a client that gets nothing is a result, and echoes that never come back are. Otherwise the run is
    /// invalid. Default: no.
    #[serde(default)]
    pub may_fail: bool,
}

/// A change of wires within a phase.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When, from the moment on that everything counts.
    #[serde(deserialize_with = "units::duration")]
    pub after: Duration,
    /// What groups of wires are from then on, by name; see [`Phase::wires`].
    pub wires: BTreeMap<String, WirePair>,
}

/// How an arm runs the plan's network, in TOML `[arm.tor]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TorArm {
    /// What its relays are.
    pub transport: Transport,
    /// The part of the network, by relays' rates, that is that; the rest speaks TLS alone. Which relays those are is
    /// drawn by the seed, and a greater part has those of a smaller one. Default: all.
    #[serde(default)]
    pub upgraded: Option<f64>,
    /// `false` has Heddle's relays hold back small writes as stock Tor does (Nagle's algorithm). Default: `true`.
    #[serde(default = "yes")]
    pub nodelay: bool,
    /// Lines for every relay's torrc. Default: none.
    #[serde(default)]
    pub relay_torrc: Vec<String>,
    /// Lines for every authority's torrc, after the network's own. Default: none.
    #[serde(default)]
    pub authority_torrc: Vec<String>,
    /// Lines for every client's torrc, after the network's own. Default: none.
    #[serde(default)]
    pub client_torrc: Vec<String>,
    /// What groups of wires are instead, by name. Default: as the network says.
    #[serde(default)]
    pub wires: BTreeMap<String, WirePair>,
    /// The phases that it goes through, by name, in the network's order. Default: all.
    #[serde(default)]
    pub phases: Vec<String>,
    /// Whether flows that stand in for clients run in place of all clients. Default: clients run, and no such flow
    /// does.
    #[serde(default)]
    pub stand_ins: bool,
}

/// Both directions of a wire.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WirePair {
    /// From the first host of a pair to the second.
    pub there: DirectionOptions,
    /// From the second to the first. Default: like `there`.
    #[serde(default)]
    pub back: Option<DirectionOptions>,
}

impl Way {
    /// Its name in labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::There => "there",
            Way::Back => "back",
        }
    }
}

impl Tor {
    /// The phases of an arm in the order of the run with this number.
    pub(crate) fn phases_of(&self, arm: &TorArm, run: usize) -> impl Iterator<Item = &Phase> {
        let phases = self.phases.iter().map(Spanned::as_ref);
        let mut phases: Vec<&Phase> = phases.filter(|phase| arm.plays(phase)).collect();
        if self.rotate_phases && !phases.is_empty() {
            let first = run % phases.len();
            phases.rotate_left(first);
        }
        phases.into_iter()
    }
}

impl TorArm {
    /// Whether some phase is gone through by both.
    pub(crate) fn shares_a_phase(&self, other: &TorArm) -> bool {
        self.phases.is_empty() || other.phases.is_empty() || self.phases.iter().any(|name| other.has(name))
    }

    /// Whether it names the phase, or none.
    pub(crate) fn has(&self, phase: &str) -> bool {
        self.phases.is_empty() || self.phases.iter().any(|name| name == phase)
    }

    /// Whether it goes through the phase.
    pub(crate) fn plays(&self, phase: &Phase) -> bool {
        self.has(&phase.name) && (self.stand_ins || !phase.stand_ins)
    }
}

impl Phase {
    /// Whether a client or flow of this name does something in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.pings.is_empty() && self.clients.is_empty() || self.clients.iter().any(|client| client == name)
    }

    /// Whether a client of this name has circuits in it.
    pub(crate) fn builds_for(&self, name: &str) -> bool {
        self.has(name) || self.view.as_ref().is_some_and(|view| view.visitor == name)
    }

    /// The relays of a client's circuits.
    pub(crate) fn path_of<'a>(&'a self, client: &'a Client) -> &'a [String] {
        if self.path.is_empty() { &client.path } else { &self.path }
    }

    /// Whether it changes the wires of a group, from its beginning on or later.
    pub(crate) fn changes_wires(&self, group: &str) -> bool {
        let changes = self.changes.iter().map(|change| &change.wires);
        [&self.wires].into_iter().chain(changes).any(|wires| wires.contains_key(group))
    }
}

fn default_wire() -> DirectionOptions {
    DirectionOptions { delay_ns: 1_000_000, ..DirectionOptions::default() }
}

fn steady_max() -> Duration {
    Duration::from_secs(15)
}

pub(super) fn pairs_max() -> Duration {
    Duration::from_secs(60)
}

fn yes() -> bool {
    true
}
