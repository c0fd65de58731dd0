//! The first fault of a plan's network that its form alone does not show, and where it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_netem::DirectionOptions;
use toml::Spanned;

use super::case::{Ping, check_probes};
use super::clients::{Client, Flow, Traffic};
use super::congestion_control;
use super::hosts::{AUTHORITIES, NETWORK_HOSTS_MAX, can_become, directions, host_names, hosts};
use super::network::{Bottleneck, Phase, Relay, Tor, TorArm, WireGroup, WirePair};
use super::pings::{PAIRS_MAX, Pings};
use super::sample::Fault;
use super::upgrade::is_part;
use super::view::{EVERY_MIN, IDLE_MAX, View};
use crate::emulator::AttackOptions;
use crate::figures::of_phases;
use crate::traffic::UPLOADS_MAX;

/// The most often that sockets are looked at: a look enters the namespace of each relay and asks its kernel for all.
const LOOK_MIN: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
/// Longest nickname (dir-spec 2.1.1).
const NAME_MAX: usize = 19;
/// Shortest and longest path of a circuit.
const HOPS: std::ops::RangeInclusive<usize> = 1..=8;
/// The most circuits of a client, or connections of a flow.
const TIMES_MAX: usize = 300;
/// The shortest time from one echo to the next.
const ECHO_MIN: Duration = Duration::from_millis(1);
/// The most pings of a phase. Each has a round trip in the results.
const PINGS_MAX: usize = 10_000_000;
/// The longest line for a torrc.
const LINE_MAX: usize = 1000;

/// The first fault of the network itself, in which nothing is left to be drawn.
pub(super) fn check(tor: &Tor) -> Result<(), Fault> {
    let general = |what: String| (None, what);
    let names = host_names(tor);
    if names.len() > NETWORK_HOSTS_MAX {
        return Err(general(format!("{} hosts; possible are {NETWORK_HOSTS_MAX}", names.len())));
    }
    let mut taken = BTreeSet::new();
    if let Some(name) = names.iter().find(|name| !taken.insert(**name)) {
        return Err(general(format!("two hosts are called {name:?}")));
    }
    if tor.relays.is_empty() || tor.clients.is_empty() || tor.phases.is_empty() {
        return Err(general("[tor] needs at least one relay, one client and one phase".into()));
    }
    check_lines(tor.authority_torrc.iter().chain(&tor.client_torrc)).map_err(general)?;
    for relay in &tor.relays {
        check_relay(relay.as_ref()).map_err(|what| (Some(relay.span().start), what))?;
    }
    let (mut groups, mut pairs) = (BTreeSet::new(), BTreeSet::new());
    for group in &tor.wires {
        let at = |what: String| (Some(group.span().start), what);
        if !groups.insert(&group.as_ref().name) {
            return Err(at(format!("wires {:?} are there twice", group.as_ref().name)));
        }
        check_group(group.as_ref(), &taken, &mut pairs).map_err(at)?;
    }
    for attack in &tor.attacks {
        check_attack(attack.as_ref(), &taken).map_err(|what| (Some(attack.span().start), what))?;
    }
    check_direction(&tor.default_wire).map_err(|what| general(format!("default_wire: {what}")))?;
    let relays: BTreeMap<&str, bool> =
        tor.relays.iter().map(|relay| (&*relay.as_ref().name, relay.as_ref().exit)).collect();
    for client in &tor.clients {
        check_client(client.as_ref(), &relays).map_err(|what| (Some(client.span().start), what))?;
    }
    let mut actors: BTreeSet<&str> = tor.clients.iter().map(|client| &*client.as_ref().name).collect();
    for flow in &tor.flows {
        let at = |what: String| (Some(flow.span().start), what);
        check_flow(flow.as_ref(), &taken).map_err(at)?;
        if !actors.insert(&flow.as_ref().name) {
            return Err(at(format!("{:?} is there already", flow.as_ref().name)));
        }
    }
    let mut pings: BTreeMap<&str, &Pings> = BTreeMap::new();
    for some in &tor.pings {
        let at = |what: String| (Some(some.span().start), what);
        check_pings(some.as_ref(), &taken).map_err(at)?;
        if pings.insert(&some.as_ref().name, some.as_ref()).is_some() {
            return Err(at(format!("pings {:?} are there twice", some.as_ref().name)));
        }
    }
    for bottleneck in &tor.bottlenecks {
        let checked = check_bottleneck(bottleneck.as_ref(), &groups, &actors);
        checked.map_err(|what| (Some(bottleneck.span().start), what))?;
    }
    for phase in &tor.phases {
        let checked = check_phase(phase.as_ref(), &actors, &relays, &groups)
            .and_then(|()| check_phase_of_pings(phase.as_ref(), &pings))
            .and_then(|()| check_uploads(tor, phase.as_ref()))
            .and_then(|()| check_view(tor, phase.as_ref()));
        checked.map_err(|what| (Some(phase.span().start), what))?;
    }
    Ok(())
}

/// The first fault of an arm that runs the network. The network itself has none.
pub(super) fn check_arm(tor: &Tor, arm: &TorArm) -> Result<(), String> {
    check_lines(arm.relay_torrc.iter().chain(&arm.authority_torrc).chain(&arm.client_torrc))?;
    if arm.upgraded.is_some_and(|part| !is_part(part)) {
        return Err("`upgraded` is a part of the network, from 0 to 1".into());
    }
    for (name, pair) in &arm.wires {
        check_pair(tor, name, pair)?;
    }
    let names = |name: &String| tor.phases.iter().any(|phase| phase.as_ref().name == *name);
    if let Some(unknown) = arm.phases.iter().find(|name| !names(name)) {
        return Err(format!("there is no phase {unknown:?}"));
    }
    for phase in tor.phases.iter().map(Spanned::as_ref) {
        let changes = phase.changes.iter().flat_map(|change| &change.wires);
        for (name, pair) in phase.wires.iter().chain(changes) {
            let group = check_pair(tor, name, pair)?;
            let before = directions(group, arm.wires.get(name));
            let fits = before.into_iter().zip(directions(group, Some(pair)));
            if !fits.into_iter().all(|(before, after)| can_become(before, after)) {
                let what = "queue, framing, flap, schedule, bounds in flight and whether jitter reorders";
                return Err(format!("phase {:?} changes wires {name:?} in what stays: {what}", phase.name));
            }
        }
    }
    hosts(tor, arm).check().map_err(|error| error.to_string())
}

/// Checks a group of wires. `pairs` are those that have a wire already.
fn check_group<'a>(
    group: &'a WireGroup,
    hosts: &BTreeSet<&str>,
    pairs: &mut BTreeSet<[&'a str; 2]>,
) -> Result<(), String> {
    for [from, to] in &group.between {
        if let Some(host) = [from, to].into_iter().find(|host| !hosts.contains(&***host)) {
            return Err(format!("there is no host {host:?}"));
        }
        if !pairs.insert(if from < to { [from, to] } else { [to, from] }) {
            return Err(format!("{from:?} and {to:?} have a wire already"));
        }
    }
    check_direction(&group.there)?;
    group.back.iter().try_for_each(check_direction)
}

/// Checks what a group of wires is instead, and returns the group.
fn check_pair<'a>(tor: &'a Tor, name: &str, pair: &WirePair) -> Result<&'a WireGroup, String> {
    let group = tor.wires.iter().map(Spanned::as_ref).find(|group| group.name == name);
    let group = group.ok_or_else(|| format!("the network has no wires {name:?}"))?;
    check_direction(&pair.there)?;
    pair.back.iter().try_for_each(check_direction)?;
    Ok(group)
}

fn check_attack(attack: &AttackOptions, hosts: &BTreeSet<&str>) -> Result<(), String> {
    if let Some(host) = [&attack.from, &attack.to].into_iter().find(|host| !hosts.contains(&***host)) {
        return Err(format!("there is no host {host:?}"));
    }
    attack.fault().map_or(Ok(()), Err)
}

fn check_direction(direction: &DirectionOptions) -> Result<(), String> {
    direction.validate().map_err(|error| error.to_string())
}

fn check_relay(relay: &Relay) -> Result<(), String> {
    let Relay { name, torrc, .. } = relay;
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("{name:?} is no name for a relay: that has 1 to {NAME_MAX} letters and digits"));
    }
    // The network's own names for its other processes.
    if ["auth", "client"].iter().any(|taken| name.starts_with(taken)) {
        return Err(format!("a relay cannot be called {name:?}: that is for authorities and clients"));
    }
    check_lines(torrc.iter())
}

fn check_flow(flow: &Flow, hosts: &BTreeSet<&str>) -> Result<(), String> {
    if let Some(host) = [&flow.from, &flow.to].into_iter().find(|host| !hosts.contains(&***host)) {
        return Err(format!("there is no host {host:?}"));
    }
    if flow.from == flow.to {
        return Err(format!("flow {:?} has no wire from {:?} to itself", flow.name, flow.from));
    }
    flow.congestion_control.iter().try_for_each(|name| congestion_control::check_name(name))?;
    check_traffic(&flow.program, flow.connections)
}

fn check_pings(pings: &Pings, hosts: &BTreeSet<&str>) -> Result<(), String> {
    if pings.between.is_empty() {
        return Err(format!("pings {:?} are between nobody", pings.name));
    }
    for [from, to] in &pings.between {
        if let Some(host) = [from, to].into_iter().find(|host| !hosts.contains(&***host)) {
            return Err(format!("there is no host {host:?}"));
        }
        if from == to {
            return Err(format!("pings {:?} have no wire from {from:?} to itself", pings.name));
        }
    }
    Ok(())
}

/// Checks that a phase with pings has them, and nothing else.
fn check_phase_of_pings(phase: &Phase, known: &BTreeMap<&str, &Pings>) -> Result<(), String> {
    let (mut pairs, mut all) = (0, 0_usize);
    for name in &phase.pings {
        let pings = known.get(&**name).ok_or_else(|| format!("there are no pings {name:?}"))?;
        let Ping { count, interval, bytes } = pings.lasting(phase.duration);
        check_probes("pings", count, interval, bytes)?;
        pairs += pings.between.len();
        all = all.saturating_add(count.saturating_mul(pings.between.len()));
    }
    if all > PINGS_MAX {
        return Err(format!("{all} pings in one phase; possible are {PINGS_MAX}"));
    }
    if pairs > PAIRS_MAX {
        return Err(format!("{pairs} pairs of hosts that ping in one phase; possible are {PAIRS_MAX}"));
    }
    let is_alone = phase.clients.is_empty()
        && phase.changes.is_empty()
        && phase.view.is_none()
        && phase.bottlenecks.is_empty()
        && phase.sockets.is_none()
        && !phase.hops
        && phase.warm_up.is_zero();
    match phase.pings.is_empty() || is_alone {
        true => Ok(()),
        false => {
            Err("a phase with pings has no clients, changes, view, sockets, hops, bottlenecks or warm-up"
                .into())
        }
    }
}

fn check_bottleneck(
    bottleneck: &Bottleneck,
    groups: &BTreeSet<&String>,
    actors: &BTreeSet<&str>,
) -> Result<(), String> {
    let Bottleneck { wires, clients, rate_kb_s, .. } = bottleneck;
    if let Some(client) = clients.iter().find(|client| !actors.contains(&***client)) {
        return Err(format!("there is no client {client:?}"));
    }
    if rate_kb_s.is_some_and(|rate| rate.is_nan() || rate <= 0.0 || rate.is_infinite()) {
        return Err("the rate of a bottleneck is above 0".into());
    }
    match (wires, rate_kb_s) {
        (Some(group), None) if clients.is_empty() => match groups.contains(group) {
            true => Ok(()),
            false => Err(format!("the network has no wires {group:?}")),
        },
        (None, Some(_)) if !clients.is_empty() => Ok(()),
        _ => Err("a bottleneck has either `wires`, or `clients` and a rate".into()),
    }
}

/// Checks a program that runs so many times at once.
fn check_traffic(program: &Traffic, times: usize) -> Result<(), String> {
    if !(1..=TIMES_MAX).contains(&times) {
        return Err(format!("a program runs {times} times at once; possible is from 1 to {TIMES_MAX}"));
    }
    match *program {
        Traffic::Fetch { size: [least, most], pause: [shortest, longest] }
            if least > most || shortest > longest =>
        {
            Err("sizes and pauses go from the least to the greatest".into())
        }
        Traffic::Fetch { size: [_, u64::MAX], .. } => Err("nobody can download that much".into()),
        Traffic::Echo { every } if every < ECHO_MIN => Err("echoes are at least a millisecond apart".into()),
        _ => Ok(()),
    }
}

/// Checks that circuits of the visitor go over the wire that is looked at.
fn check_view(tor: &Tor, phase: &Phase) -> Result<(), String> {
    let Some(View { wire, visitor, every, idle }) = &phase.view else { return Ok(()) };
    let client = tor.clients.iter().map(Spanned::as_ref).find(|client| client.name == *visitor);
    let client =
        client.ok_or_else(|| format!("there is no client {visitor:?} whose circuits could begin"))?;
    let [one, other] = wire;
    let is_wire = |step: &[String]| [[one, other], [other, one]].contains(&[&step[0], &step[1]]);
    if !phase.path_of(client).windows(2).any(is_wire) {
        return Err(format!("circuits of {visitor:?} do not go between {one:?} and {other:?}"));
    }
    if *every < EVERY_MIN || *every > phase.duration {
        return Err("circuits begin at least 400 ms apart, and within the phase".into());
    }
    match *idle {
        0..=IDLE_MAX => Ok(()),
        idle => Err(format!("{idle} idle circuits; possible are {IDLE_MAX}")),
    }
}

/// Checks that whoever counts uploads can tell those of a phase apart.
fn check_uploads(tor: &Tor, phase: &Phase) -> Result<(), String> {
    let clients = tor.clients.iter().map(Spanned::as_ref);
    let clients = clients.map(|client| (&client.name, &client.program, client.circuits));
    let flows = tor.flows.iter().map(Spanned::as_ref);
    let flows = flows.map(|flow| (&flow.name, &flow.program, flow.connections));
    let uploads = |(name, program, times): (&String, &Traffic, usize)| {
        (phase.has(name) && matches!(program, Traffic::Upload {})).then_some(times)
    };
    match clients.chain(flows).filter_map(uploads).sum() {
        0..=UPLOADS_MAX => Ok(()),
        count => Err(format!("{count} uploads in one phase; possible are {UPLOADS_MAX}")),
    }
}

fn check_lines<'a>(mut lines: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let bad = |line: &&String| line.is_empty() || line.len() > LINE_MAX || line.contains(char::is_control);
    match lines.find(bad) {
        Some(line) => Err(format!("{line:?} is no line for a torrc")),
        None => Ok(()),
    }
}

fn check_client(client: &Client, relays: &BTreeMap<&str, bool>) -> Result<(), String> {
    if client.name == AUTHORITIES {
        return Err(format!("a client cannot be called {:?}", client.name));
    }
    check_path(&client.path, relays)?;
    check_traffic(&client.program, client.circuits)
}

/// Checks the path of a circuit. `relays` says which of them exit.
fn check_path(path: &[String], relays: &BTreeMap<&str, bool>) -> Result<(), String> {
    if !HOPS.contains(&path.len()) {
        return Err(format!(
            "a path of {} relays; possible is from {} to {}",
            path.len(),
            HOPS.start(),
            HOPS.end()
        ));
    }
    if let Some(hop) = path.iter().find(|hop| !relays.contains_key(&***hop)) {
        return Err(format!("the path has {hop:?}, which is no relay"));
    }
    if path.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("the path has the same relay twice in a row".into());
    }
    if !path.last().and_then(|last| relays.get(&**last)).is_some_and(|exit| *exit) {
        return Err("the path does not end at an exit".into());
    }
    Ok(())
}

fn check_phase(
    phase: &Phase,
    clients: &BTreeSet<&str>,
    relays: &BTreeMap<&str, bool>,
    groups: &BTreeSet<&String>,
) -> Result<(), String> {
    if phase.sockets.is_some_and(|every| every < LOOK_MIN) {
        return Err(format!("phase {:?} looks at sockets more often than every 10 ms", phase.name));
    }
    if phase.duration < SECOND {
        return Err("a phase is measured for at least a second".into());
    }
    if let Some(client) = phase.clients.iter().find(|client| !clients.contains(&***client)) {
        return Err(format!("there is no client {client:?}"));
    }
    if let Some(group) = phase.bottlenecks.iter().find(|group| !groups.contains(group)) {
        return Err(format!("the network has no wires {group:?}"));
    }
    if !phase.path.is_empty() {
        check_path(&phase.path, relays)?;
    }
    let times = phase.changes.iter().map(|change| change.after);
    if !times.is_sorted() || phase.changes.iter().any(|change| change.after >= phase.duration) {
        return Err("changes come one after the other, and before the phase is over".into());
    }
    let names: Vec<&str> = of_phases().map(|quantity| quantity.name).collect();
    match phase.figures.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!("no phase gives {name:?}; there are {}", names.join(", "))),
        None => Ok(()),
    }
}
