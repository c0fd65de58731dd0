//! Networks that are drawn.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::error::Result;
use crate::plan::{Loaded, hosts, parse};

const GROUPS: &str = r#"
name = "groups"
title = "Groups"
about = "A plan for tests."
budget = "10 min"
runs = 1
seed = 3

[set]
clients = "300"

[tor]
server = "server"
delay_ms = { quantiles = [10, 20, 60] }
relay = [
    { name = "relay", count = 20, share = 0.6, rate_kib_s = { quantiles = [75, 100, 1000, 5000] } },
    { name = "exit", count = 20, share = 0.4, exit = true, rate_kib_s = { one_of = [128, 10240] } },
]

[[tor.wire]]
name = "exits"
between = [["exit", "server"], ["exit", "exit"]]
there = { delay = "5 ms" }

[[tor.client]]
name = "web"
count = ${clients}
program = { fetch = { size = ["100 KiB", "500 KiB"], pause = ["0 s", "30 s"] } }
labels = { client = "web" }

[[tor.client]]
name = "bulk"
program = { bulk = {} }

[[tor.phase]]
name = "all"
clients = ["web", "bulk"]
duration = "5 s"

[[arm]]
name = "tls"
tor = { transport = "tls" }
"#;

fn groups(change: (&str, &str)) -> Result<Loaded> {
    assert!(GROUPS.contains(change.0), "{}", change.0);
    parse("groups.toml", &GROUPS.replacen(change.0, change.1, 1), &BTreeMap::new())
}

fn drawn(change: (&str, &str), seed: u64) -> Tor {
    groups(change).unwrap().plan.tor.unwrap().as_ref().drawn(seed).unwrap()
}

/// What tells one network from another.
fn told(tor: &Tor) -> String {
    format!("{:?}\n{:?}\n{:?}", tor.relays, tor.clients, tor.drawn_wires)
}

const SAME: (&str, &str) = ("groups", "groups");

fn rate_kib_s(relay: &Relay) -> f64 {
    assert_eq!(relay.torrc[0], "CountPrivateBandwidth 1");
    let mut words = relay.torrc[1].split_whitespace();
    assert_eq!(words.next(), Some("RelayBandwidthRate"));
    words.next().unwrap().parse::<f64>().unwrap() / 1024.0
}

#[test]
fn groups_become_their_members() {
    let tor = drawn(SAME, 3);
    assert_eq!((tor.relays.len(), tor.clients.len(), tor.phases[0].as_ref().clients.len()), (20, 301, 301));
    assert_eq!(tor.relays[12].as_ref().name, "exit1");
    assert_eq!([&*tor.clients[299].as_ref().name, &*tor.clients[300].as_ref().name], ["web300", "bulk"]);
    // Each exit with the server, and each two of them.
    assert_eq!(tor.wires[0].as_ref().between.len(), 8 + 28);
    for relay in tor.relays.iter().map(Spanned::as_ref) {
        let rate = rate_kib_s(relay);
        let fits =
            if relay.exit { [128.0, 10240.0].contains(&rate) } else { (75.0..=5000.0).contains(&rate) };
        assert!(fits, "{relay:?}");
    }
    assert_eq!(told(&tor.drawn(99).unwrap()), told(&tor), "nothing is left to be drawn");
}

#[test]
fn a_seed_makes_one_network_and_one_more_host_changes_no_other() {
    assert_eq!(told(&drawn(SAME, 3)), told(&drawn(SAME, 3)));
    assert_ne!(told(&drawn(SAME, 3)), told(&drawn(SAME, 4)));
    let (few, many) = (drawn(SAME, 3), drawn(("count = 20, share = 0.6", "count = 13"), 3));
    let rates = |tor: &Tor| -> BTreeMap<String, String> {
        let relays = tor.relays.iter().map(Spanned::as_ref);
        relays.map(|relay| (relay.name.clone(), relay.torrc.concat())).collect()
    };
    assert!(rates(&few).iter().all(|(name, lines)| rates(&many).get(name) == Some(lines)));
    let fewer = drawn(("clients = \"300\"", "clients = \"30\""), 3);
    let paths = |tor: &Tor| tor.clients[..30].iter().map(|one| one.as_ref().path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&few), paths(&fewer));
}

#[test]
fn paths_are_chosen_by_bandwidth_and_flags() {
    let tor = drawn(("clients = \"300\"", "clients = \"3000\""), 3);
    let rates: BTreeMap<&str, f64> =
        tor.relays.iter().map(Spanned::as_ref).map(|relay| (&*relay.name, rate_kib_s(relay))).collect();
    let mut sorted: Vec<f64> = rates.values().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let mut exits: BTreeMap<&str, usize> = BTreeMap::new();
    for client in tor.clients.iter().map(Spanned::as_ref) {
        let [guard, middle, exit] = &client.path[..] else { panic!("{:?}", client.path) };
        assert_eq!(client.path.iter().collect::<BTreeSet<_>>().len(), 3, "{:?}", client.path);
        assert!(rates[&**guard] >= sorted[10] && exit.starts_with("exit"), "{guard}, {middle}, {exit}");
        *exits.entry(exit).or_default() += 1;
    }
    // Fast exits are guards as well, so that they have another weight; those alike are drawn alike.
    let of = |rate: f64| -> Vec<usize> {
        let alike = exits.iter().filter(|(name, _)| rates[**name] == rate);
        alike.map(|(_, count)| *count).collect()
    };
    for alike in [of(128.0), of(10240.0)] {
        let mean = alike.iter().sum::<usize>() as f64 / alike.len() as f64;
        let within = 4.0 * mean.sqrt();
        assert!(alike.iter().all(|count| (*count as f64 - mean).abs() < within), "{exits:?}");
    }
    let [slow, fast] = [of(128.0), of(10240.0)].map(|alike| alike.iter().sum::<usize>() as f64);
    assert!(fast > 10.0 * slow, "{exits:?}");
}

#[test]
fn wires_along_paths_have_delays_of_the_distribution_unless_a_group_names_them() {
    let tor = drawn(SAME, 3);
    let arm = groups(SAME).unwrap().plan.arms[0].as_ref().tor.clone().unwrap();
    let hosts = hosts::hosts(&tor, &arm);
    hosts.check().unwrap();
    let delay_ms = |one: &str, other: &str| {
        let wires = hosts.wires.iter();
        let mut found = wires.filter(|wire| ends(&wire.from, &wire.to) == ends(one, other));
        let wire = found.next().unwrap_or_else(|| panic!("no wire between {one} and {other}"));
        assert!(found.next().is_none() && wire.back.as_ref().is_none_or(|back| *back == wire.there));
        wire.there.delay_ns as f64 / 1e6
    };
    let mut drawn = BTreeSet::new();
    for client in tor.clients.iter().map(Spanned::as_ref) {
        let path = &client.path;
        let mut round_trip_ms = 0.0;
        for [one, other] in [[&client.name, &path[0]], [&path[0], &path[1]], [&path[1], &path[2]]] {
            let ms = delay_ms(one, other);
            let is_named = one.starts_with("exit") && other.starts_with("exit");
            assert!(if is_named { ms == 5.0 } else { (10.0..=60.0).contains(&ms) }, "{one} {other}: {ms}");
            drawn.insert(ms.to_bits());
            round_trip_ms += 2.0 * ms;
        }
        assert_eq!(delay_ms(&path[2], "server"), 5.0);
        let phase = tor.phases[0].as_ref();
        assert!((hosts::round_trip_ms(&tor, &arm, phase, client) - round_trip_ms - 10.0).abs() < 1e-6);
    }
    assert!(drawn.len() > 300, "{}", drawn.len());
}

#[test]
fn what_cannot_be_drawn_is_said_with_its_line() {
    for (change, line, what) in [
        (("count = 20, share = 0.6", "count = 0"), 16, "at least one"),
        (("share = 0.6", "share = 0"), 16, "a share is of a `count`"),
        (("count = 20, share = 0.6", "share = 0.6"), 16, "a share is of a `count`"),
        (("clients = \"300\"", "clients = \"20000\""), 25, "more hosts than 10000"),
        (("[75, 100", "[74, 100"), 16, "rate_kib_s: 74 is among"),
        (("[128, 10240]", "[]"), 17, "rate_kib_s: 0 values"),
        (("[10, 20, 60]", "[10, 20, 6]"), 12, "delay_ms: quantiles go"),
        (
            ("exit = true, rate_kib_s = { one_of = [128, 10240] }", "exit = true"),
            25,
            "some have a `rate_kib_s`",
        ),
        (("exit = true, ", ""), 25, "no path can be chosen: the consensus lists no exit"),
        (("clients = [\"web\", \"bulk\"]", "clients = [\"web\", \"bulk1\"]"), 35, "no client \"bulk1\""),
    ] {
        let error = groups(change).unwrap_err().to_string();
        let place = format!("groups.toml:{line}: ");
        assert!(error.starts_with(&place) && error.contains(what), "{change:?}: {error}");
    }
}

const PLACED: &str = r#"
name = "placed"
title = "Placed"
about = "A plan for tests."
budget = "10 min"
runs = 1

[tor]
server = "server"
default_wire = { delay = "1 ms", jitter_reorders = true }
relay = [
    { name = "here", place = "A" },
    { name = "there", count = 8, exit = true, place = ["A", "B", "B"] },
    { name = "nowhere", exit = true },
]

[tor.topology]
server = "B"
places = ["A", "B"]
delay_ms = [[5], [20, 10]]
lost_pct = [1, 2]

[[tor.wire]]
name = "named"
between = [["here", "there3"]]
there = { delay = "70 ms" }

[[tor.client]]
name = "web"
place = "A"
path = ["here", "nowhere"]
program = { bulk = {} }

[[tor.ping]]
name = "all"
between = [["here", "there"], ["there", "there"], ["server", "here"]]
every = "10 ms"

[[tor.phase]]
name = "pings"
pings = ["all"]
duration = "5 s"

[[arm]]
name = "tls"
tor = { transport = "tls" }
"#;

fn placed(change: (&str, &str)) -> Result<Loaded> {
    assert!(PLACED.contains(change.0), "{}", change.0);
    parse("placed.toml", &PLACED.replacen(change.0, change.1, 1), &BTreeMap::new())
}

#[test]
fn wires_are_what_the_places_of_their_ends_say() {
    let plan = placed(("runs", "runs")).unwrap().plan;
    let tor = plan.tor.unwrap();
    let drawn = tor.as_ref().drawn(1).unwrap();
    let place: BTreeMap<&str, &str> = drawn.places();
    assert_eq!((place.len(), place["here"], place["server"]), (11, "A", "B"));
    assert!((1..=8).any(|member| place[&*format!("there{member}")] == "B"));
    // Each two of nine, and the server's; the one that a group names is not among them, nor are those to nowhere.
    assert_eq!((drawn.pings[0].as_ref().between.len(), drawn.drawn_wires.len()), (37, 36 + 1));
    for wire in &drawn.drawn_wires {
        let ms = match (&*wire.from, &*wire.to) {
            ("here", "web") => 5,
            (from, to) => match (place[from], place[to]) {
                ("A", "A") => 5,
                ("B", "B") => 10,
                _ => 20,
            },
        };
        assert_eq!((wire.there.delay_ns, wire.there.jitter_reorders), (ms * 1_000_000, true), "{wire:?}");
        assert!(wire.there.loss != heddle_netem::Loss::None && wire.back.is_none(), "{wire:?}");
    }
    // What is drawn already stays.
    let again = drawn.drawn(2).unwrap();
    assert_eq!((again.places(), &again.drawn_wires), (place.clone(), &drawn.drawn_wires));
    assert_ne!(tor.as_ref().drawn(2).unwrap().places(), place);
}

#[test]
fn places_that_are_nowhere_and_pings_of_nobody_are_refused() {
    for (change, what) in [
        (("place = \"A\"", "place = \"C\""), "no place \"C\""),
        (("[5], [20, 10]", "[5], [20]"), "delay_ms has a row"),
        (("server = \"server\"", "server = \"server\"\ndelay_ms = { one_of = [1] }"), "not both"),
        (("every = \"10 ms\"", "every = \"10 us\""), "an interval of at least 100 µs"),
        (("every = \"10 ms\"", "every = \"6 s\""), "0 pings"),
        (("[\"server\", \"here\"]", "[\"server\", \"hero\"]"), "no host \"hero\""),
        (("pings = [\"all\"]", "pings = [\"some\"]"), "no pings \"some\""),
        (("count = 8", "count = 40"), "possible are 500"),
        (("duration = \"5 s\"", "duration = \"3000 s\""), "possible are 10000000"),
        (("pings = [\"all\"]", "pings = [\"all\"]\nclients = [\"web\"]"), "has no clients, changes, view"),
    ] {
        let error = placed(change).unwrap_err().to_string();
        assert!(error.contains(what) && error.lines().count() == 1, "{change:?}: {error}");
    }
}
