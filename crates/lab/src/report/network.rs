//! The network of a plan, for its drawing: hosts along the clients' paths, the wires between them, and which of all is
//! the slowest.

use std::collections::{BTreeMap, BTreeSet};

use heddle_netem::{DirectionOptions, InterfaceOptions};
use toml::Spanned;

use super::sketch::{self, Host, Line, Sketch, Wires};
use super::wires::{bytes, direction, interface, parallel, rate, rate_of};
use super::words::escape;
use crate::plan::{Client, Drawn, Flow, Plan, Relay, Tor, Traffic, WireGroup, WirePair};

/// How many notes stand by themselves.
const NOTES: usize = 5;

/// The drawing with what it does not show in words; empty where the plan has neither hosts nor wires.
pub(super) fn drawing(plan: &Plan) -> String {
    let (svg, notes) = match &plan.tor {
        Some(tor) => {
            let network = Network::of(plan, tor.as_ref());
            (sketch::draw(&network.sketch()), network.notes())
        }
        None => match parallel(plan) {
            wires if wires.is_empty() => return String::new(),
            wires => (sketch::draw_parallel(&wires), Vec::new()),
        },
    };
    let items = |notes: &[String]| -> String {
        let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        if items.is_empty() { items } else { format!("<ul>{items}</ul>") }
    };
    let (shown, folded) = notes.split_at(notes.len().min(NOTES));
    let folded = match folded {
        [] => String::new(),
        folded => format!("<details><summary>{} more</summary>{}</details>", folded.len(), items(folded)),
    };
    format!("<figure class=\"network\">{svg}<figcaption>{}{folded}</figcaption></figure>\n", items(shown))
}

/// A plan's network, looked at from its clients.
struct Network<'a> {
    plan: &'a Plan,
    tor: &'a Tor,
    /// How far from the clients each host stands, of those on paths.
    columns: BTreeMap<&'a str, usize>,
    groups: Vec<Group<'a>>,
    slowest: Option<u64>,
}

/// Wires that are alike.
struct Group<'a> {
    name: &'a str,
    between: Vec<[&'a str; 2]>,
    directions: [&'a DirectionOptions; 2],
    is_default: bool,
}

impl<'a> Network<'a> {
    fn of(plan: &'a Plan, tor: &'a Tor) -> Network<'a> {
        let mut network = Network {
            plan,
            tor,
            columns: columns(tor),
            groups: tor.wires.iter().map(Group::of).collect(),
            slowest: None,
        };
        let default = network.default_group();
        network.groups.extend(default);
        network.slowest = network.slowest_rate();
        network
    }

    /// The wires on paths that no group names.
    fn default_group(&self) -> Option<Group<'a>> {
        let is_named = |a: &str, b: &str| {
            let mut pairs = self.groups.iter().flat_map(|group| &group.between);
            pairs.any(|pair| *pair == [a, b] || *pair == [b, a])
        };
        let mut between: Vec<[&str; 2]> = Vec::new();
        for way in ways(self.tor) {
            for ends in way.windows(2) {
                let pair = [ends[0], ends[1]];
                if !is_named(pair[0], pair[1]) && !between.contains(&pair) {
                    between.push(pair);
                }
            }
        }
        let directions = [&self.tor.default_wire; 2];
        (!between.is_empty()).then_some(Group { name: "", between, directions, is_default: true })
    }

    /// The slowest rate of all that data passes, whatever arm or phase makes it so.
    fn slowest_rate(&self) -> Option<u64> {
        let groups = self.groups.iter().flat_map(|group| self.rates_of(group));
        let relays = self.tor.relays.iter().flat_map(|relay| rates_of_relay(relay.as_ref()));
        groups.chain(relays).min()
    }

    /// The rates of a group's wires in the direction of the data, in the network and in arms and phases.
    fn rates_of(&self, group: &Group<'a>) -> Vec<u64> {
        let uploads = |program: &Traffic| matches!(program, Traffic::Upload {});
        let clients = self.tor.clients.iter().map(|client| uploads(&client.as_ref().program));
        let flows = self.tor.flows.iter().map(|flow| uploads(&flow.as_ref().program));
        let both = clients.chain(flows).any(|uploads| uploads);
        let is_away = group.between.first().is_some_and(|[from, to]| self.is_away(from, to));
        let carrying = |[there, back]: [&DirectionOptions; 2]| {
            let [to_clients, from_clients] = if is_away { [back, there] } else { [there, back] };
            let other = Some(from_clients).filter(|_| both);
            [Some(to_clients), other].into_iter().flatten().filter_map(rate_of).min()
        };
        let others = self.changes().into_iter().filter(|change| change.group == group.name);
        let others = others.map(|change| change.directions());
        [group.directions].into_iter().chain(others).filter_map(carrying).collect()
    }

    /// Whether the way from one host to another leads away from the clients.
    fn is_away(&self, from: &str, to: &str) -> bool {
        self.columns.get(from) < self.columns.get(to)
    }

    /// What arms and phases make of wires.
    fn changes(&self) -> Vec<Changed<'a>> {
        let mut changes = Vec::new();
        for arm in self.plan.arms.iter().map(Spanned::as_ref) {
            let wires = arm.tor.iter().flat_map(|tor| &tor.wires);
            changes.extend(wires.map(|(group, wires)| Changed {
                by: ("arm", arm.name.clone()),
                group,
                wires,
            }));
        }
        for phase in self.tor.phases.iter().map(Spanned::as_ref) {
            let by = |when: &str| ("phase", format!("{}{when}", phase.name));
            changes.extend(phase.wires.iter().map(|(group, wires)| Changed { by: by(""), group, wires }));
            for change in &phase.changes {
                let when = format!(" after {} s", change.after.as_secs_f64());
                let wires = change.wires.iter();
                changes.extend(wires.map(|(group, wires)| Changed { by: by(&when), group, wires }));
            }
        }
        changes
    }

    /// Whether a group of wires is a bottleneck: the slowest, or named as one.
    fn is_bottleneck(&self, group: &Group<'a>) -> bool {
        let phases = self.tor.phases.iter().flat_map(|phase| &phase.as_ref().bottlenecks);
        let told = self.tor.bottlenecks.iter().filter_map(|one| one.as_ref().wires.as_ref());
        let is_named = phases.chain(told).any(|name| name == group.name);
        is_named || self.slowest.is_some_and(|slowest| self.rates_of(group).contains(&slowest))
    }

    fn sketch(&self) -> Sketch {
        let mut hosts: Vec<Host> = Vec::new();
        let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
        for alike in self.alike() {
            let Some((first, column)) =
                alike.first().and_then(|name| Some((*name, *self.columns.get(name)?)))
            else {
                continue;
            };
            place_of.extend(alike.iter().map(|name| (*name, hosts.len())));
            hosts.push(Host {
                column,
                name: sketch::range(&alike),
                details: self.details(first),
                is_bottleneck: self.is_slow(first),
            });
        }
        let mut wires = Vec::new();
        for group in &self.groups {
            let mut lines: Vec<Line> = Vec::new();
            for [from, to] in &group.between {
                let Some((from, to)) = place_of.get(from).zip(place_of.get(to)) else { continue };
                let line = Line { from: *from, to: *to };
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
            let is_away = group.between.first().is_none_or(|[from, to]| self.is_away(from, to));
            let label = match self.tor.delay_ms.as_ref().filter(|_| group.is_default) {
                Some(drawn) => vec![format!("delay drawn, {} ms", span_of(drawn))],
                None => both_ways(group.directions, is_away),
            };
            let name = Some(group.name.to_owned()).filter(|name| !name.is_empty());
            wires.push(Wires {
                label: name.into_iter().chain(label).collect(),
                lines,
                is_bottleneck: self.is_bottleneck(group),
                is_default: group.is_default,
            });
        }
        Sketch { hosts, wires }
    }

    /// The hosts on paths: those that differ only by a number at the end of their names are together.
    fn alike(&self) -> Vec<Vec<&'a str>> {
        let mut all: Vec<(Likeness<'a>, Vec<&str>)> = Vec::new();
        let names = self.tor.clients.iter().map(|client| &*client.as_ref().name);
        let names = names.chain(self.tor.relays.iter().map(|relay| &*relay.as_ref().name));
        for name in names.chain(self.tor.server.as_deref()).filter(|name| self.columns.contains_key(name)) {
            let of = |group: &Group<'a>| group.between.iter().any(|pair| pair.contains(&name));
            let groups = self.groups.iter().filter(|group| of(group)).map(|group| group.name);
            let stem = sketch::stem(name);
            let likeness = Likeness {
                stem,
                column: self.columns.get(name).copied(),
                groups: groups.collect(),
                details: self.details(name),
            };
            match all.iter_mut().find(|(other, _)| stem != name && *other == likeness) {
                Some((_, names)) => names.push(name),
                None => all.push((likeness, vec![name])),
            }
        }
        all.into_iter().map(|(_, names)| names).collect()
    }

    fn relay(&self, name: &str) -> Option<&'a Relay> {
        self.tor.relays.iter().map(Spanned::as_ref).find(|relay| relay.name == name)
    }

    fn is_slow(&self, name: &str) -> bool {
        self.relay(name)
            .is_some_and(|relay| rates_of_relay(relay).min().is_some_and(|own| Some(own) == self.slowest))
    }

    /// What stands under a host's name.
    fn details(&self, name: &str) -> Vec<String> {
        let client = self.tor.clients.iter().map(Spanned::as_ref).find(|client| client.name == name);
        if let Some(client) = client {
            let chosen = client.path.is_empty().then(|| "path chosen by rates".to_owned());
            let interfaces = interfaces_of(&client.up, &client.down);
            let group = group_of(client.count, client.share);
            return group.into_iter().chain([traffic_of(client)]).chain(interfaces).chain(chosen).collect();
        }
        let Some(relay) = self.relay(name) else { return Vec::new() };
        let group = group_of(relay.count, relay.share);
        let interfaces = interfaces_of(&relay.up, &relay.down);
        let own = torrc_rate(relay).map(|bits| format!("passes on {}", bytes_a_second(bits)));
        let drawn = relay.rate_kib_s.as_ref();
        let drawn = drawn.map(|rate| format!("passes on {} KiB/s, drawn", span_of(rate)));
        let kind = relay.transport.map(|transport| format!("always {transport}"));
        let server = (relay.exit && self.tor.server.is_none()).then(|| "and the server".to_owned());
        let parts = group.into_iter().chain(interfaces).chain(own).chain(drawn);
        parts.chain(kind).chain(server).collect()
    }

    /// What the drawing does not show.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(slowest) = self.slowest {
            notes.push(format!(
                "Thick: the lowest rate that is set, or a bottleneck that the plan names. The lowest rate on the way \
                 of the data is {}.",
                rate(slowest)
            ));
        }
        let mut changed: Vec<(String, Vec<Who>)> = Vec::new();
        for change in self.changes() {
            let is_away =
                self.groups.iter().find(|group| group.name == change.group).is_none_or(|group| {
                    group.between.first().is_none_or(|[from, to]| self.is_away(from, to))
                });
            let text = format!("{}: {}", change.group, both_ways(change.directions(), is_away).join(", "));
            match changed.iter_mut().find(|(other, _)| *other == text) {
                Some((_, places)) => places.push(change.by),
                None => changed.push((text, vec![change.by])),
            }
        }
        notes.extend(
            changed.into_iter().map(|(text, places)| format!("In {}, {text}.", places_in_words(&places))),
        );
        let idle = self.tor.relays.iter().map(|relay| &*relay.as_ref().name);
        let idle: Vec<&str> = idle.filter(|name| !self.columns.contains_key(name)).collect();
        if !idle.is_empty() {
            notes.push(format!("On no path: {}.", sketch::ranges(&idle).join(", ")));
        }
        let pair = |flow: &'a Spanned<Flow>| {
            let flow = flow.as_ref();
            format!("{} and {}", flow.from, flow.to)
        };
        let pairs: BTreeSet<String> = self.tor.flows.iter().map(pair).collect();
        if !pairs.is_empty() {
            let pairs: Vec<String> = pairs.into_iter().collect();
            notes.push(format!("Kernel TCP without Tor: between {}.", pairs.join(", ")));
        }
        notes
    }
}

/// What hosts in one box have in common.
#[derive(PartialEq)]
struct Likeness<'a> {
    stem: &'a str,
    column: Option<usize>,
    groups: Vec<&'a str>,
    details: Vec<String>,
}

/// An arm or a phase: which of both, and its name.
type Who = (&'static str, String);

fn places_in_words(places: &[Who]) -> String {
    let of = |kind: &str| {
        let names = places.iter().filter(|(other, _)| *other == kind).map(|(_, name)| name.as_str());
        let names: Vec<&str> = names.collect();
        let plural = if names.len() > 1 { "s" } else { "" };
        (!names.is_empty()).then(|| format!("{kind}{plural} {}", names.join(", ")))
    };
    [of("arm"), of("phase")].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// What somebody makes of a group of wires.
struct Changed<'a> {
    by: Who,
    group: &'a str,
    wires: &'a WirePair,
}

impl<'a> Changed<'a> {
    fn directions(&self) -> [&'a DirectionOptions; 2] {
        [&self.wires.there, self.wires.back.as_ref().unwrap_or(&self.wires.there)]
    }
}

impl<'a> Group<'a> {
    fn of(group: &'a Spanned<WireGroup>) -> Group<'a> {
        let group = group.as_ref();
        let between = group.between.iter().map(|[from, to]| [&**from, &**to]);
        Group {
            name: &group.name,
            between: between.collect(),
            directions: [&group.there, group.back.as_ref().unwrap_or(&group.there)],
            is_default: false,
        }
    }
}

/// The ways of all clients' circuits, from the client to the server.
fn ways(tor: &Tor) -> Vec<Vec<&str>> {
    let mut ways = Vec::new();
    for client in tor.clients.iter().map(Spanned::as_ref) {
        let phases = tor.phases.iter().map(Spanned::as_ref).filter(|phase| phase.has(&client.name));
        let paths = phases.map(|phase| phase.path_of(client)).chain([&*client.path]);
        for path in paths {
            let relays: Vec<Vec<&str>> = match path.is_empty() {
                true => possible(tor),
                false => vec![path.iter().map(String::as_str).collect()],
            };
            for relays in relays {
                let way: Vec<&str> =
                    [&*client.name].into_iter().chain(relays).chain(tor.server.as_deref()).collect();
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
    }
    ways
}

/// The ways of a client that chooses its path: over each group of relays that do not exit, as guard and middle, to each
/// that does.
fn possible(tor: &Tor) -> Vec<Vec<&str>> {
    let relays = || tor.relays.iter().map(Spanned::as_ref);
    let mut before: Vec<Vec<&str>> =
        relays().filter(|relay| !relay.exit).map(|relay| vec![&*relay.name]).collect();
    if before.is_empty() {
        before.push(Vec::new());
    }
    let exits: Vec<&str> = relays().filter(|relay| relay.exit).map(|relay| &*relay.name).collect();
    before.iter().flat_map(|before| exits.iter().map(|exit| [&before[..], &[*exit]].concat())).collect()
}

/// How many hosts a group is, if it is one.
fn group_of(count: Option<usize>, share: Option<f64>) -> Option<String> {
    let count = count?;
    Some(match share {
        Some(share) => format!("{} % of {count}", 100.0 * share),
        None => format!("{count} of them"),
    })
}

/// The least and the greatest of what is drawn.
fn span_of(drawn: &Drawn) -> String {
    let [least, most] = drawn.bounds();
    if least == most { format!("{least}") } else { format!("{least} to {most}") }
}

/// The links of a host, each direction by itself where they differ.
fn interfaces_of(up: &InterfaceOptions, down: &InterfaceOptions) -> Vec<String> {
    let (up, down) = (interface(up), interface(down));
    if up == down {
        return up;
    }
    let up = up.into_iter().map(|part| format!("sends {part}"));
    up.chain(down.into_iter().map(|part| format!("receives {part}"))).collect()
}

/// The column of each host on a path, from the clients' on. The server's is behind all others.
fn columns(tor: &Tor) -> BTreeMap<&str, usize> {
    let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
    for way in ways(tor) {
        for (column, name) in way.into_iter().enumerate() {
            let known = columns.entry(name).or_insert(column);
            *known = column.min(*known);
        }
    }
    if let Some(server) = tor.server.as_deref() {
        let last = columns.iter().filter(|(name, _)| **name != server).map(|(_, column)| *column).max();
        columns.insert(server, last.map_or(0, |last| last + 1));
    }
    columns
}

/// What both directions have in common, and each by itself where they differ.
fn both_ways([there, back]: [&DirectionOptions; 2], is_away: bool) -> Vec<String> {
    let (there, back) = (direction(there), direction(back));
    let own = |parts: &[String], other: &[String], arrow: &str| -> Vec<String> {
        let own = parts.iter().filter(|part| !other.contains(part));
        own.map(|part| format!("{arrow} {part}")).collect()
    };
    let arrows = if is_away { ["→", "←"] } else { ["←", "→"] };
    let owns = [own(&there, &back, arrows[0]), own(&back, &there, arrows[1])];
    let common = there.iter().filter(|part| back.contains(part)).cloned();
    let all: Vec<String> = owns.into_iter().flatten().chain(common).collect();
    if all.is_empty() { vec!["no delay".to_owned()] } else { all }
}

fn traffic_of(client: &Client) -> String {
    let what = match client.program {
        Traffic::Probe { .. } => "probes".to_owned(),
        Traffic::Echo { .. } => "echoes".to_owned(),
        Traffic::Bulk { .. } => "bulk stream".to_owned(),
        Traffic::Upload {} => "upload".to_owned(),
        Traffic::Fetch { size: [least, most], .. } if least == most => format!("fetches {}", bytes(least)),
        Traffic::Fetch { size: [least, most], .. } => format!("fetches {} to {}", bytes(least), bytes(most)),
    };
    if client.circuits == 1 { what } else { format!("{what}, {} circuits", client.circuits) }
}

/// The rates that a relay and its host keep, in bits per second.
fn rates_of_relay(relay: &Relay) -> impl Iterator<Item = u64> {
    let interfaces = [&relay.up, &relay.down].map(|interface| match interface.rate {
        heddle_netem::Rate::BitsPerS(bits) => Some(bits),
        heddle_netem::Rate::Unlimited => None,
    });
    let drawn = relay.rate_kib_s.as_ref().map(|rate| (rate.bounds()[0] * 8192.0) as u64);
    interfaces.into_iter().chain([torrc_rate(relay), drawn]).flatten()
}

/// The rate that a relay's torrc gives it, in bits per second.
fn torrc_rate(relay: &Relay) -> Option<u64> {
    let rates = relay.torrc.iter().filter_map(|line| {
        let mut words = line.split_whitespace();
        let option = words.next()?.to_ascii_lowercase();
        let number: u64 = words.next()?.parse().ok()?;
        let is_rate = matches!(&*option, "relaybandwidthrate" | "bandwidthrate");
        let unit = words.next().unwrap_or("bytes").to_ascii_lowercase();
        let bytes = match unit.trim_end_matches('s') {
            "byte" => 1,
            "kbyte" | "kb" => 1 << 10,
            "mbyte" | "mb" => 1 << 20,
            _ => return None,
        };
        is_rate.then_some(number.saturating_mul(8 * bytes))
    });
    rates.min()
}

fn bytes_a_second(bits: u64) -> String {
    format!("{}/s", bytes(bits / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> Plan {
        Plan::load(name, &BTreeMap::new()).unwrap().plan
    }

    /// The texts of a drawing, and the classes of its lines.
    fn parts(html: &str) -> (Vec<&str>, Vec<&str>) {
        let texts = html.split("<text").skip(1).map(|rest| {
            let rest = rest.split_once('>').unwrap().1;
            rest.split_once('<').unwrap().0
        });
        let classes = html.split("class=\"wire ").skip(1).map(|rest| rest.split_once('"').unwrap().0);
        (texts.collect(), classes.collect())
    }

    #[test]
    fn every_host_on_a_path_is_there_once_and_the_bottleneck_is_thick() {
        let html = drawing(&plan("mixed"));
        let (texts, classes) = parts(&html);
        for host in ["web", "bulk", "guard", "middle", "exit", "sguard", "smiddle", "sexit"] {
            assert_eq!(texts.iter().filter(|text| **text == host).count(), 1, "{host} in {texts:?}");
        }
        for said in ["clients", "10 ms", "relays", "10 Mbit/s", "20 ms", "queue 100 kB", "always stock"] {
            assert!(texts.contains(&said), "{said} in {texts:?}");
        }
        assert!(html.contains("on the way of the data is 10 Mbit/s"), "{html}");
        // Six wires between relays, and four of clients.
        let thick = classes.iter().filter(|class| class.contains("bottleneck")).count();
        assert_eq!((thick, classes.len()), (6, 10), "{classes:?}");
    }

    #[test]
    fn what_only_arms_make_slow_and_what_a_relay_passes_on_are_bottlenecks() {
        let html = drawing(&plan("thesis-exp11"));
        assert!(parts(&html).1.iter().all(|class| class.contains("bottleneck")), "{html}");
        let changed = "path: 10 Mbit/s, 50 ms, queue 125 kB";
        assert!(
            html.contains(changed) && html.contains("In arms stock-10mbit, tls-10mbit, quic-10mbit, "),
            "{html}"
        );
        assert!(html.contains("On no path: other0 to other2"), "{html}");
        let html = drawing(&plan("n23-bottleneck"));
        assert_eq!(html.matches("class=\"host bottleneck\"").count(), 1);
        assert!(html.contains("passes on 131 kB/s"), "{html}");
    }

    #[test]
    fn hosts_that_differ_by_a_number_share_a_box() {
        let mut plan = plan("mixed");
        let tor = plan.tor.as_mut().unwrap().get_mut();
        let reader = tor.clients[1].as_ref().clone();
        for number in 1..=30 {
            let name = format!("reader{number}");
            tor.wires[0].get_mut().between.push([name.clone(), "guard".to_owned()]);
            tor.clients.push(Spanned::new(0..0, Client { name, ..reader.clone() }));
        }
        let html = drawing(&plan);
        let (texts, _) = parts(&html);
        assert_eq!(texts.iter().filter(|text| text.contains("reader")).count(), 1, "{texts:?}");
        assert!(texts.contains(&"reader1 to reader30"), "{texts:?}");
    }

    #[test]
    fn every_shipped_plan_is_drawn_and_hostile_names_are_text() {
        for shipped in crate::plan::shipped() {
            let html = drawing(&plan(shipped.name));
            assert!(html.contains("<svg") && !html.contains("NaN"), "{}: {html}", shipped.name);
        }
        let mut plan = plan("mixed");
        let tor = plan.tor.as_mut().unwrap().get_mut();
        tor.wires[0].get_mut().name = "<script>".to_owned();
        tor.relays[0].get_mut().name = "<script>".to_owned();
        tor.clients[0].get_mut().path[0] = "<script>".to_owned();
        let html = drawing(&plan);
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "{html}");
    }

    #[test]
    fn single_wires_are_between_two_hosts() {
        let html = drawing(&plan("calibrate"));
        let (texts, _) = parts(&html);
        assert_eq!(texts[..2], ["sender", "receiver"]);
        assert!(texts.iter().any(|text| text.starts_with("10 Mbit/s, ")), "{texts:?}");
    }
}
