//! The hosts, wires, processes and servers of a plan's network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use heddle_netem::{DirectionOptions, Reorder, Step, WireOptions};
use toml::Spanned;

use super::carried;
use super::{Change, Client, Flow, Phase, Relay, Tor, TorArm, WireGroup, WirePair};
use crate::emulator::{EmulatedHostOptions, Emulation, NetworkOptions as Hosts};
use crate::error::{Error, Result};
use crate::testnet::{NetworkOptions, Places, Program, RelayOptions};
use crate::traffic::Server;

/// The host of all authorities.
pub(super) const AUTHORITIES: &str = "authorities";
/// How long the network may take to come up.
const STARTUP_MAX: Duration = Duration::from_secs(180);
/// Has a Heddle relay leave Nagle's algorithm on.
const NAGLE: &str = "HeddleTCPNoDelay 0";
/// Circuits that a phase uses must not grow too old for new streams meanwhile.
const CLIENT_TORRC: &str = "MaxCircuitDirtiness 2 hours";

/// The hosts and wires of a network.
pub(super) fn hosts(tor: &Tor, arm: &TorArm) -> Hosts {
    let links = |name: &str| {
        let relay = tor.relays.iter().map(Spanned::as_ref).find(|relay| relay.name == name);
        relay.map(|relay| (relay.up.clone(), relay.down.clone())).unwrap_or_default()
    };
    let hosts = host_names(tor).into_iter().map(|name| {
        let (up, down) = links(name);
        EmulatedHostOptions { name: name.to_owned(), up, down, ..Default::default() }
    });
    Hosts {
        hosts: hosts.collect(),
        wires: wires(tor, |group| arm.wires.get(group)),
        attacks: tor.attacks.iter().map(|attack| attack.as_ref().clone()).collect(),
        default_wire: Some(tor.default_wire.clone()),
        ..Hosts::default()
    }
}

/// The wires of all groups. `instead` says what those of a group are in place of what the network says.
fn wires<'a>(tor: &'a Tor, instead: impl Fn(&str) -> Option<&'a WirePair>) -> Vec<WireOptions> {
    let mut wires = Vec::new();
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

/// Makes those wires what a phase wants that this or another phase changes.
pub(super) fn set_wires(tor: &Tor, arm: &TorArm, phase: &Phase, emulation: &Emulation) -> Result<()> {
    for group in tor.wires.iter().map(Spanned::as_ref) {
        if tor.phases.iter().any(|phase| phase.as_ref().changes_wires(&group.name)) {
            set_group(group, phase.wires.get(&group.name).or(arm.wires.get(&group.name)), emulation)?;
        }
    }
    Ok(())
}

/// Makes wires what they are from some moment of a phase on.
pub(super) fn change_wires(tor: &Tor, change: &Change, emulation: &Emulation) -> Result<()> {
    let groups = tor.wires.iter().map(Spanned::as_ref);
    for group in groups.filter(|group| change.wires.contains_key(&group.name)) {
        set_group(group, change.wires.get(&group.name), emulation)?;
    }
    Ok(())
}

fn set_group(group: &WireGroup, instead: Option<&WirePair>, emulation: &Emulation) -> Result<()> {
    let [there, back] = directions(group, instead);
    for [from, to] in &group.between {
        emulation.change(from, to, &step_to(there))?;
        emulation.change(to, from, &step_to(back))?;
    }
    Ok(())
}

/// Both directions of a group's wires, or of what is in their place.
pub(super) fn directions<'a>(
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
fn step_to(direction: &DirectionOptions) -> Step {
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
pub(super) fn can_become(direction: &DirectionOptions, other: &DirectionOptions) -> bool {
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
pub(super) fn round_trip_ms(tor: &Tor, arm: &TorArm, phase: &Phase, client: &Client) -> f64 {
    let relays = phase.path_of(client).iter().map(String::as_str);
    let way: Vec<&str> = [&*client.name].into_iter().chain(relays).chain(tor.server.as_deref()).collect();
    way_ms(tor, arm, phase, &way)
}

/// The same for a flow's one wire.
pub(super) fn flow_round_trip_ms(tor: &Tor, arm: &TorArm, phase: &Phase, flow: &Flow) -> f64 {
    way_ms(tor, arm, phase, &[&flow.from, &flow.to])
}

/// How long a packet takes along these hosts and back.
fn way_ms(tor: &Tor, arm: &TorArm, phase: &Phase, way: &[&str]) -> f64 {
    let wires = wires(tor, |group| phase.wires.get(group).or(arm.wires.get(group)));
    let delay_ns = |from: &str, to: &str| {
        let wire = wires.iter().find_map(|wire| match (&*wire.from, &*wire.to) {
            ends if ends == (from, to) => Some(&wire.there),
            ends if ends == (to, from) => Some(wire.back.as_ref().unwrap_or(&wire.there)),
            _ => None,
        });
        wire.unwrap_or(&tor.default_wire).delay_ns
    };
    let both_ns = way.windows(2).map(|ends| delay_ns(ends[0], ends[1]) + delay_ns(ends[1], ends[0]));
    both_ns.sum::<u64>() as f64 / 1e6
}

/// The names of all hosts: the authorities', the server's if it has one, relays' and clients'.
pub(super) fn host_names(tor: &Tor) -> Vec<&str> {
    let relays = tor.relays.iter().map(|relay| &*relay.as_ref().name);
    let clients = tor.clients.iter().map(|client| &*client.as_ref().name);
    [AUTHORITIES].into_iter().chain(tor.server.as_deref()).chain(relays).chain(clients).collect()
}

/// The processes of the network on the hosts of an emulation.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    tor: &'a Tor,
    emulation: &'a Emulation,
}

impl<'a> Placed<'a> {
    pub(super) fn new(tor: &'a Tor, emulation: &'a Emulation) -> Placed<'a> {
        Placed { tor, emulation }
    }

    /// The host of a node. A network calls its clients `client`, `client1` and so on, and its authorities `auth0` and
    /// so on; relays have the names of their hosts.
    fn host<'b>(&'b self, nickname: &'b str) -> &'b str {
        let relays = self.tor.relays.iter().map(Spanned::as_ref);
        if relays.into_iter().any(|relay| relay.name == nickname) {
            return nickname;
        }
        let number = nickname.strip_prefix("client").and_then(|number| match number {
            "" => Some(0),
            number => number.parse::<usize>().ok(),
        });
        match number.and_then(|number| self.tor.clients.get(number)) {
            Some(client) => &client.as_ref().name,
            None => AUTHORITIES,
        }
    }
}

impl Places for Placed<'_> {
    fn address(&self, nickname: &str) -> Result<IpAddr> {
        address(self.emulation, self.host(nickname))
    }

    fn enter(&self, nickname: &str, command: &mut Command) -> Result<()> {
        self.emulation.enter(self.host(nickname), command)
    }
}

fn address(emulation: &Emulation, host: &str) -> Result<IpAddr> {
    let addresses = emulation.addresses(host).unwrap_or_default();
    addresses.first().copied().ok_or_else(|| Error::Options(format!("{host} has no address")))
}

/// The processes of a network.
pub(super) fn options(tor: &Tor, arm: &TorArm, heddle: &Path) -> NetworkOptions {
    let all = |ours: &[String], arms: &[String]| [ours, arms].concat();
    let mut client_torrc = vec![CLIENT_TORRC.to_owned()];
    client_torrc.extend(all(&tor.client_torrc, &arm.client_torrc));
    NetworkOptions {
        heddle: Some(heddle.to_owned()),
        relays: tor.relays.iter().map(|options| relay(options.as_ref(), arm)).collect(),
        clients: tor.clients.len(),
        authority_torrc: all(&tor.authority_torrc, &arm.authority_torrc),
        client_torrc,
        startup_timeout: STARTUP_MAX,
        ..NetworkOptions::default()
    }
}

fn relay(options: &Relay, arm: &TorArm) -> RelayOptions {
    let (program, lines) = options.transport.unwrap_or(arm.transport).relay();
    let mut torrc: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    if program == Program::Heddle {
        torrc.extend(carried::torrc());
        torrc.extend((!arm.nodelay).then(|| NAGLE.to_owned()));
    }
    torrc.extend(arm.relay_torrc.iter().chain(&options.torrc).cloned());
    RelayOptions { nickname: options.name.clone(), program, exit: options.exit, torrc }
}

/// The servers of an experiment, by the host that they are on.
#[derive(Debug)]
pub(super) struct Servers {
    /// Those that clients reach through exits.
    behind_exits: BTreeMap<String, Server>,
    /// Those of flows.
    of_flows: BTreeMap<String, Server>,
}

/// Starts a server on the host of every exit that a client uses, or the one on its own host, and those of flows.
pub(super) fn servers(tor: &Tor, emulation: &Emulation) -> Result<Servers> {
    let on_address = |host: &String| -> Result<(String, Server)> {
        let address = address(emulation, host)?;
        Ok((host.clone(), emulation.inside(host, || Server::start_on(address))??))
    };
    let flows: BTreeSet<&String> = tor.flows.iter().map(|flow| &flow.as_ref().to).collect();
    let of_flows = flows.into_iter().map(on_address).collect::<Result<_>>()?;
    if let Some(host) = &tor.server {
        return Ok(Servers { behind_exits: BTreeMap::from([on_address(host)?]), of_flows });
    }
    let paths = tor.clients.iter().map(|client| &client.as_ref().path);
    let paths = paths.chain(tor.phases.iter().map(|phase| &phase.as_ref().path));
    let exits: BTreeSet<&String> = paths.filter_map(|path| path.last()).collect();
    let on_loopback = |exit: &String| Ok((exit.clone(), emulation.inside(exit, Server::start)??));
    Ok(Servers { behind_exits: exits.into_iter().map(on_loopback).collect::<Result<_>>()?, of_flows })
}

impl Servers {
    /// The server of a client in a phase.
    pub(super) fn of(&self, tor: &Tor, phase: &Phase, client: &Client) -> Result<&Server> {
        let host = tor.server.as_ref().or(phase.path_of(client).last());
        let missing = || Error::Options(format!("client {} has no server", client.name));
        host.and_then(|host| self.behind_exits.get(host)).ok_or_else(missing)
    }

    /// The server of a flow.
    pub(super) fn of_flow(&self, flow: &Flow) -> Result<&Server> {
        let missing = || Error::Options(format!("flow {} has no server", flow.name));
        self.of_flows.get(&flow.to).ok_or_else(missing)
    }
}
