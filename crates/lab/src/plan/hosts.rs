//! The hosts and wires of a plan's network, and what their delays add up to.

use std::collections::BTreeMap;

use heddle_netem::{DirectionOptions, InterfaceOptions, Reorder, Step, WireOptions};
use toml::Spanned;

use super::clients::{Client, Flow};
use super::network::{Phase, Tor, TorArm, WireGroup, WirePair};
use crate::emulator::{EmulatedHostOptions, NetworkOptions};

/// The host of all authorities.
pub(crate) const AUTHORITIES: &str = "authorities";

/// The most hosts of a network. Addresses would last for more, but nobody has run as many.
pub(crate) const NETWORK_HOSTS_MAX: usize = 10_000;

/// The hosts and wires of a network, in which nothing is left to be drawn.
pub(crate) fn hosts(tor: &Tor, arm: &TorArm) -> NetworkOptions {
    let relays = tor.relays.iter().map(Spanned::as_ref).map(|relay| (&*relay.name, (&relay.up, &relay.down)));
    let clients =
        tor.clients.iter().map(Spanned::as_ref).map(|client| (&*client.name, (&client.up, &client.down)));
    let known: BTreeMap<&str, (&InterfaceOptions, &InterfaceOptions)> = relays.chain(clients).collect();
    let links = |name: &str| {
        let own = known.get(name).map(|(up, down)| ((*up).clone(), (*down).clone()));
        own.unwrap_or_default()
    };
    let hosts = host_names(tor).into_iter().map(|name| {
        let (up, down) = links(name);
        EmulatedHostOptions { name: name.to_owned(), up, down, ..Default::default() }
    });
    NetworkOptions {
        hosts: hosts.collect(),
        wires: wires(tor, |group| arm.wires.get(group)),
        attacks: tor.attacks.iter().map(|attack| attack.as_ref().clone()).collect(),
        default_wire: Some(tor.default_wire.clone()),
        kernel: tor.kernel.clone(),
        ..NetworkOptions::default()
    }
}

/// The wires of all groups, and those that were drawn. `instead` says what those of a group are in place of what the
/// network says.
fn wires<'a>(tor: &'a Tor, instead: impl Fn(&str) -> Option<&'a WirePair>) -> Vec<WireOptions> {
    let mut wires = tor.drawn_wires.clone();
    for group in tor.wires.iter().map(Spanned::as_ref) {
        let [there, back] = directions(group, instead(&group.name));
        wires.extend(group.between.iter().map(|[from, to]| WireOptions {
            from: from.clone(),
            to: to.clone(),
            there: there.clone(),
            back: Some(back.clone()),
        }));
    }
    wires
}

/// Both directions of a group's wires, or of what is in their place.
pub(crate) fn directions<'a>(
    group: &'a WireGroup,
    instead: Option<&'a WirePair>,
) -> [&'a DirectionOptions; 2] {
    let (there, back) = match instead {
        Some(pair) => (&pair.there, &pair.back),
        None => (&group.there, &group.back),
    };
    [there, back.as_ref().unwrap_or(there)]
}

/// The change after which a direction is like this one, whatever it was before.
pub(crate) fn step_to(direction: &DirectionOptions) -> Step {
    Step {
        at_ns: 0,
        rate: Some(direction.rate),
        mtu_bytes: Some(direction.mtu_bytes),
        delay_ns: Some(direction.delay_ns),
        jitter: Some(direction.jitter.clone()),
        loss: Some(direction.loss.clone()),
        reorder: Some(direction.reorder.clone().unwrap_or(Reorder { probability: 0.0, hold_ns: 0 })),
        duplicate: Some(direction.duplicate),
        corrupt: Some(direction.corrupt),
        down: Some(direction.down),
    }
}

/// Whether a direction can become another one while packets are under way: in all that a [`Step`] does not change they
/// are the same.
pub(crate) fn can_become(direction: &DirectionOptions, other: &DirectionOptions) -> bool {
    let DirectionOptions {
        rate, mtu_bytes, delay_ns, jitter, loss, reorder, duplicate, corrupt, down, ..
    } = other.clone();
    let changed = DirectionOptions {
        rate,
        mtu_bytes,
        delay_ns,
        jitter,
        loss,
        reorder,
        duplicate,
        corrupt,
        down,
        ..direction.clone()
    };
    changed == *other
}

/// How long a packet takes over the wires of a client's path to its server and back, by their delays alone, in
/// milliseconds.
pub(crate) fn round_trip_ms(tor: &Tor, arm: &TorArm, phase: &Phase, client: &Client) -> f64 {
    let relays = phase.path_of(client).iter().map(String::as_str);
    let way: Vec<&str> = [&*client.name].into_iter().chain(relays).chain(tor.server.as_deref()).collect();
    way_ms(tor, arm, phase, &way)
}

/// The same for a flow's one wire.
pub(crate) fn flow_round_trip_ms(tor: &Tor, arm: &TorArm, phase: &Phase, flow: &Flow) -> f64 {
    way_ms(tor, arm, phase, &[&flow.from, &flow.to])
}

/// How long a packet takes along these hosts and back.
fn way_ms(tor: &Tor, arm: &TorArm, phase: &Phase, way: &[&str]) -> f64 {
    let steps = way.windows(2).flat_map(|ends| between(tor, arm, phase, [ends[0], ends[1]]));
    steps.map(|direction| direction.delay_ns).sum::<u64>() as f64 / 1e6
}

/// What the wire from one host to another is in a phase, there and back.
pub(crate) fn between<'a>(
    tor: &'a Tor,
    arm: &'a TorArm,
    phase: &'a Phase,
    [from, to]: [&str; 2],
) -> [&'a DirectionOptions; 2] {
    let drawn = tor.drawn_wires.iter();
    let drawn =
        drawn.map(|wire| (&wire.from, &wire.to, [&wire.there, wire.back.as_ref().unwrap_or(&wire.there)]));
    let groups = tor.wires.iter().map(Spanned::as_ref).flat_map(|group| {
        let both = directions(group, phase.wires.get(&group.name).or(arm.wires.get(&group.name)));
        group.between.iter().map(move |[from, to]| (from, to, both))
    });
    let wire = drawn.chain(groups).find_map(|(one, other, [there, back])| match (&**one, &**other) {
        ends if ends == (from, to) => Some([there, back]),
        ends if ends == (to, from) => Some([back, there]),
        _ => None,
    });
    wire.unwrap_or([&tor.default_wire; 2])
}

/// The names of all hosts: the authorities', the server's if it has one, relays' and clients'.
pub(crate) fn host_names(tor: &Tor) -> Vec<&str> {
    let relays = tor.relays.iter().map(|relay| &*relay.as_ref().name);
    let clients = tor.clients.iter().map(|client| &*client.as_ref().name);
    [AUTHORITIES].into_iter().chain(tor.server.as_deref()).chain(relays).chain(clients).collect()
}
