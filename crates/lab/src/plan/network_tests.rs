//! Plans with a network: bad input, and what the shipped ones make of hosts, wires and relays.

use std::collections::BTreeMap;

use heddle_netem::Rate;

use super::*;
use crate::error::Result;

const SMALL: &str = r#"
name = "small"
title = "Small"
about = "A plan for tests."
budget = "10 min"
runs = 1

[tor]
relay = [
    { name = "guard" },
    { name = "middle", transport = "stock", torrc = ["RelayBandwidthRate 128 KBytes"] },
    { name = "exit", exit = true },
]

[[tor.wire]]
name = "path"
between = [["web", "guard"], ["guard", "middle"]]
there = { delay = "50 ms" }

[[tor.client]]
name = "web"
path = ["guard", "middle", "exit"]
program = { fetch = { size = ["100 KiB", "300 KiB"], pause = ["0 s", "1 s"] } }

[[tor.client]]
name = "up"
path = ["guard", "middle", "exit"]
program = { upload = {} }

[[tor.phase]]
name = "all"
duration = "5 s"

[[arm]]
name = "tls"
tor = { transport = "tls", nodelay = false, relay_torrc = ["Log debug stdout"] }
"#;

pub(crate) fn small(change: (&str, &str)) -> Result<Loaded> {
    assert!(SMALL.contains(change.0), "{}", change.0);
    parse("small.toml", &SMALL.replacen(change.0, change.1, 1), &BTreeMap::new())
}

pub(crate) fn network_of(plan: &Plan) -> (&Tor, &TorArm) {
    let arm = plan.arms[0].as_ref().tor.as_ref().unwrap();
    (plan.tor.as_ref().unwrap().as_ref(), arm)
}

/// The program of the last client and a flow behind it.
fn flow(name: &str, from: &str, to: &str) -> String {
    let ends = format!("from = \"{from}\"\nto = \"{to}\"");
    format!(
        "program = {{ upload = {{}} }}\n\n[[tor.flow]]\nname = \"{name}\"\n{ends}\nprogram = {{ bulk = {{}} }}"
    )
}

/// A path over too many relays.
fn nine_hops() -> String {
    format!("[{}\"exit\"]", "\"guard\", \"middle\", ".repeat(4))
}

#[test]
fn bad_networks_are_refused_with_one_sentence_and_the_line() {
    for (change, line, what) in [
        (("\"exit\", exit = true", "\"exit\", exits = true"), 12, "exits"),
        (("exit = true", "exit = false"), 20, "does not end at an exit"),
        (("{ name = \"guard\" }", "{ name = \"gu ard\" }"), 10, "no name for a relay"),
        (("{ name = \"guard\" }", "{ name = \"client7\" }"), 10, "authorities and clients"),
        (("{ name = \"guard\" }", "{ name = \"middle\" }"), 8, "two hosts are called \"middle\""),
        (("{ name = \"guard\" }", "{ name = \"authorities\" }"), 8, "two hosts are called"),
        (("128 KBytes", "128\\nExitRelay 1"), 11, "no line for a torrc"),
        (("transport = \"stock\"", "transport = \"stocks\""), 11, "stocks"),
        (("\"50 ms\"", "\"50\""), 18, "no unit"),
        (("delay = \"50 ms\"", "duplicate = \"150 %\""), 15, "1.5"),
        (("[\"web\", \"guard\"], [", "[\"web\"], ["), 17, "array of length 2"),
        (("[\"web\", \"guard\"]", "[\"wob\", \"guard\"]"), 15, "no host \"wob\""),
        (("[\"guard\", \"middle\"]]", "[\"guard\", \"web\"]]"), 15, "have a wire already"),
        (("\"middle\", \"exit\"]", "\"mid\", \"exit\"]"), 20, "\"mid\", which is no relay"),
        (("\"middle\", \"exit\"]", "\"guard\", \"exit\"]"), 20, "twice in a row"),
        (("[\"guard\", \"middle\", \"exit\"]", &nine_hops()), 20, "a path of 9 relays"),
        (("\"300 KiB\"", "\"30 KiB\""), 20, "least to the greatest"),
        (("\"100 KiB\", ", ""), 23, "array of length 2"),
        (("upload = {}", "uploads = {}"), 28, "uploads"),
        (("upload = {}", "upload = { size = 1 }"), 28, "size"),
        (("\"5 s\"", "\"0.5 s\""), 30, "at least a second"),
        (("duration = \"5 s\"", "duration = \"5 s\"\nclients = [\"wib\"]"), 30, "no client \"wib\""),
        (
            ("duration = \"5 s\"", "duration = \"5 s\"\nfigures = { echo = \"x\" }"),
            30,
            "no phase gives \"echo\"",
        ),
        (
            (
                "[[tor.phase]]",
                "[[tor.attack]]\nfrom = \"up\"\nto = \"x\"\nkind = { drop = {} }\n[[tor.phase]]",
            ),
            30,
            "no host \"x\"",
        ),
        (
            (
                "[[tor.phase]]",
                "[[tor.attack]]\nfrom = \"up\"\nto = \"up\"\nkind = { drop = {} }\n[[tor.phase]]",
            ),
            30,
            "two different",
        ),
        (("[[tor.phase]]", "[[tor.phases]]"), 30, "phase"),
        (("upload = {}", "echo = { every = \"0.1 ms\" }"), 25, "a millisecond"),
        (("program = { upload = {} }", "program = { upload = {} }\ncircuits = 0"), 25, "0 times"),
        (("program = { upload = {} }", &flow("up", "exit", "guard")), 30, "is there already"),
        (("program = { upload = {} }", &flow("k", "exit", "gard")), 30, "no host \"gard\""),
        (("program = { upload = {} }", &flow("k", "exit", "exit")), 30, "no wire"),
        (("duration = \"5 s\"", "duration = \"5 s\"\npath = [\"guard\"]"), 30, "does not end at an exit"),
        (
            ("duration = \"5 s\"", "duration = \"5 s\"\nchanges = [{ after = \"5 s\", wires = {} }]"),
            30,
            "before",
        ),
        (
            (
                "duration = \"5 s\"",
                "duration = \"5 s\"\nchanges = [{ after = \"1 s\", wires = { x = { there = {} } } }]",
            ),
            35,
            "no wires \"x\"",
        ),
        (("[[tor.phase]]", "[[tor.bottleneck]]\nlabels = {}\n[[tor.phase]]"), 30, "either `wires`"),
        (
            ("[[tor.phase]]", "[[tor.bottleneck]]\nlabels = {}\nwires = \"x\"\n[[tor.phase]]"),
            30,
            "no wires \"x\"",
        ),
        (("nodelay = false", "nodelay = 0"), 36, "boolean"),
        (("nodelay = false", "wires = { paths = { there = {} } }"), 34, "no wires \"paths\""),
        (("nodelay = false", "phases = [\"none\"]"), 34, "no phase \"none\""),
        (("duration = \"5 s\"", "duration = \"5 s\"\nwires = { x = { there = {} } }"), 35, "no wires \"x\""),
        (
            (
                "duration = \"5 s\"",
                "duration = \"5 s\"\nwires = { path = { there = { jitter_reorders = true } } }",
            ),
            35,
            "phase \"all\" changes wires \"path\" in what stays",
        ),
        (("\"Log debug stdout\"", "\"\""), 34, "no line for a torrc"),
        (("[[arm]]", "[[arm]]\nrepeat = true"), 34, "is not repeated"),
        (
            ("[[arm]]", "[[arm]]\nname = \"quic\"\ntor = { transport = \"quic\" }\n[[arm]]"),
            37,
            "arm \"quic\" has the same labels and a phase in common",
        ),
        (("program = { upload = {} }", "program = { upload = {} }\ncircuits = 65"), 31, "65 uploads"),
    ] {
        let error = small(change).unwrap_err().to_string();
        let place = format!("small.toml:{line}: ");
        assert!(error.starts_with(&place) && error.contains(what), "{change:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let (start, rest) = SMALL.split_once("[tor]").unwrap();
    let (_, arms) = rest.split_once("[[arm]]").unwrap();
    let error = parse("small.toml", &format!("{start}[[arm]]{arms}"), &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("[tor] is missing"), "{error}");
}

#[test]
fn arms_change_wires_by_the_name_of_their_group() {
    let wires = "wires = { path = { there = { rate = \"1 Mbit/s\" } } }";
    let loaded = small(("nodelay = false", wires)).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let hosts = hosts::hosts(tor, arm);
    let names: Vec<&str> = hosts.hosts.iter().map(|host| &*host.name).collect();
    assert_eq!(names, ["authorities", "guard", "middle", "exit", "web", "up"]);
    assert_eq!(hosts.wires.len(), 2);
    assert!(hosts.wires.iter().all(|wire| wire.there.rate == Rate::BitsPerS(1_000_000)));
    assert!(
        hosts.wires.iter().all(|wire| wire.there.delay_ns == 0 && wire.back.as_ref() == Some(&wire.there))
    );
    assert_eq!(hosts.default_wire.unwrap().delay_ns, 1_000_000);
}

#[test]
fn a_relays_links_are_its_hosts() {
    let limited = ("{ name = \"guard\" }", "{ name = \"guard\", up = { rate = \"1 Mbit/s\" } }");
    let loaded = small(limited).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let hosts = hosts::hosts(tor, arm).hosts;
    let rates: Vec<_> = hosts.iter().map(|host| (host.up.rate, host.down.rate)).collect();
    let free = (Rate::Unlimited, Rate::Unlimited);
    assert_eq!(rates[..3], [free, (Rate::BitsPerS(1_000_000), Rate::Unlimited), free]);
}

#[test]
fn phases_go_round_where_the_plan_says_so() {
    let phase = "[[tor.phase]]\nname = \"other\"\nduration = \"1 s\"\n\n[[tor.phase]]";
    let names = |change: (&str, &str), run| -> Vec<String> {
        let text = SMALL.replacen("[[tor.phase]]", phase, 1).replacen(change.0, change.1, 1);
        let loaded = parse("small.toml", &text, &BTreeMap::new()).unwrap();
        let (tor, arm) = network_of(&loaded.plan);
        tor.phases_of(arm, run).map(|phase| phase.name.clone()).collect()
    };
    let round = ("[tor]", "[tor]\nrotate_phases = true");
    assert_eq!([names(round, 0), names(round, 1)], [["other", "all"], ["all", "other"]]);
    assert_eq!(names(("small", "small"), 1), ["other", "all"]);
    assert_eq!(names(("tor = { ", "tor = { phases = [\"all\"], "), 0), ["all"]);
}

#[test]
fn the_least_that_a_round_trip_takes_is_what_its_wires_say() {
    let of = |change| {
        let loaded = small(change).unwrap();
        let (tor, arm) = network_of(&loaded.plan);
        hosts::round_trip_ms(tor, arm, tor.phases[0].as_ref(), tor.clients[0].as_ref())
    };
    // From client to guard to middle 50 ms each, and 1 ms to the exit, and back.
    assert_eq!(of(("small", "small")), 202.0);
    assert_eq!(of(("there = { delay = \"50 ms\" }", "there = { delay = \"50 ms\" }\nback = {}")), 102.0);
    let changed = "duration = \"5 s\"\nwires = { path = { there = {} } }";
    assert_eq!(of(("duration = \"5 s\"", changed)), 2.0);
    assert_eq!(of(("[tor]", "[tor]\nserver = \"server\"")), 204.0);
    // In a phase that has another path, that counts: from the client to the exit at once.
    assert_eq!(of(("duration = \"5 s\"", "duration = \"5 s\"\npath = [\"guard\", \"exit\"]")), 102.0);
    let loaded = small(("program = { upload = {} }", &flow("kernel", "guard", "middle"))).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let (phase, kernel) = (tor.phases[0].as_ref(), tor.flows[0].as_ref());
    assert_eq!(hosts::flow_round_trip_ms(tor, arm, phase, kernel), 100.0);
}

#[test]
fn a_view_is_of_a_wire_that_its_visitor_uses() {
    let view =
        |view: &str| small(("duration = \"5 s\"", &format!("duration = \"5 s\"\nview = {{ {view} }}")));
    let wire = "wire = [\"middle\", \"guard\"]";
    let loaded = view(&format!("{wire}, visitor = \"web\"")).unwrap();
    let phase = network_of(&loaded.plan).0.phases[0].as_ref();
    assert!(phase.builds_for("web") && phase.view.as_ref().unwrap().every.as_secs() == 1);
    for (bad, what) in [
        (format!("{wire}, visitor = \"nobody\""), "no client \"nobody\""),
        ("wire = [\"guard\", \"exit\"], visitor = \"web\"".into(), "between \"guard\" and \"exit\""),
        (format!("{wire}, visitor = \"web\", every = \"0.3 s\""), "at least 400 ms apart"),
        (format!("{wire}, visitor = \"web\", every = \"6 s\""), "within the phase"),
        (format!("{wire}, visitor = \"web\", idle = 101"), "101 idle circuits"),
    ] {
        let error = view(&bad).unwrap_err().to_string();
        assert!(error.starts_with("small.toml:30: ") && error.contains(what), "{error}");
    }
}
