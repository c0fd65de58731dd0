//! Whole runs as a user starts them: the demo over both kinds of wires, and a plan over a Tor network.
//!
//! Every run has namespaces of its own, and mostly waits for its network to come up, so they run side by side.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A plan with a Tor network.
const TOR: &str = include_str!("support/tor.toml");

fn output(arguments: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A busy machine may make the emulator late, and then it says so. Nothing else may be wrong with a run.
fn assert_is_sound(summary: &Value) {
    let reasons: Vec<&str> =
        summary["reasons"].as_array().unwrap().iter().map(|reason| reason.as_str().unwrap()).collect();
    assert_eq!(summary["valid"].as_bool().unwrap(), reasons.is_empty());
    for reason in reasons {
        let of_the_machine =
            ["delivered late", "taken late", "emulator up late", "never taken", "this machine's host"];
        assert!(of_the_machine.iter().any(|words| reason.contains(words)), "{reason}");
    }
}

/// The figures of a run that `wires` joined, by name and labels.
fn results(ran: &Output, dir: &Path, wires: &str) -> Value {
    let summary: Value = serde_json::from_slice(&fs::read(dir.join("out/summary.json")).unwrap()).unwrap();
    assert_eq!(summary["wires"], wires);
    assert_is_sound(&summary);
    assert_eq!(ran.status.success(), summary["valid"].as_bool().unwrap());
    let page = fs::read_to_string(dir.join("out/report.html")).unwrap();
    assert!(page.contains("download_mb_s") && page.contains("heddle demo"));
    let figures = summary["figures"].as_array().unwrap();
    for relays in ["heddle", "stock"] {
        let of = |name: &str| {
            let wanted = |figure: &&Value| figure["name"] == name && figure["labels"]["relays"] == relays;
            figures.iter().filter(wanted).collect::<Vec<_>>()
        };
        assert_eq!(of("sha256_ok")[0]["mean"], 1.0);
        assert_eq!(of("relay_cpu_s_per_gb").len(), 3);
        assert!(of("download_mb_s")[0]["mean"].as_f64().unwrap() > 0.0);
        // Alone, beside bulk, and bulk itself.
        assert_eq!(of("first_byte_ms").len(), if wires == "emulated" { 3 } else { 1 });
        // Heddle's pairs met, and their circuits went over UDP.
        if (wires, relays) == ("emulated", "heddle") {
            assert!(of("middle_udp_pct")[0]["mean"].as_f64().unwrap() >= 99.0);
        }
    }
    summary["figures"].clone()
}

#[test]
fn the_demo_gives_results_over_emulated_wires() {
    let dir = tempfile::tempdir().unwrap();
    let ran = output(&["demo", "--rounds", "1", "--out", "out"], dir.path());
    assert!(matches!(ran.status.code(), Some(0 | 2)), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("heddle over stock, bulk download rate"));
    let figures = results(&ran, dir.path(), "emulated");
    // Two round trips over the wires of the demo's own network.
    let first_bytes = figures.as_array().unwrap().iter().filter(|figure| figure["name"] == "first_byte_ms");
    assert!(first_bytes.into_iter().all(|figure| figure["mean"].as_f64().unwrap() >= 434.8));
}

#[test]
fn the_demo_gives_results_over_loopback() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["demo", "--loopback", "--rounds", "1", "--megabytes", "5", "--out", "out"];
    let ran = output(&arguments, dir.path());
    assert!(matches!(ran.status.code(), Some(0 | 2)), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("all on loopback"));
    results(&ran, dir.path(), "loopback");
}

#[test]
fn a_plan_runs_a_network_of_stock_relays() {
    plan_gives_figures("stock");
}

#[test]
fn a_plan_runs_a_network_of_heddle_relays() {
    plan_gives_figures("quic");
}

fn plan_gives_figures(arm: &str) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tor.toml"), TOR).unwrap();
    let ran = output(&["lab", "run", "tor.toml", "--arms", arm, "--out", "a", "--json"], dir.path());
    assert!(matches!(ran.status.code(), Some(0 | 2)), "{}", text(&ran.stderr));
    let summary: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_is_sound(&summary[0]);
    let figures = summary[0]["figures"].as_array().unwrap();
    let figure = |name: &str, wires: &str, more: &str| {
        let wanted = |figure: &&Value| {
            let labels = figure["labels"].as_object().unwrap();
            let has = |(key, value)| labels.get(key).is_some_and(|label: &Value| label == value);
            figure["name"] == name && has(("wires", wires)) && more.split_once('=').is_none_or(has)
        };
        let found = figures.iter().find(wanted).unwrap_or_else(|| panic!("no {name} with {wires}, {more}"));
        found["mean"].as_f64().unwrap()
    };
    for wires in ["good", "lossy"] {
        // Four wires of 5 ms, and what the relays and the queues add.
        assert!((20.0..2000.0).contains(&figure("echo_ms", wires, "")));
        assert!((10.0..=1000.0).contains(&figure("throughput_kb_s", wires, "way=down")));
        assert!((10.0..=1000.0).contains(&figure("throughput_kb_s", wires, "way=up")));
        assert!((10.0..=60.0).contains(&figure("received_kb_s", wires, "way=kernel")));
        assert!((20.0..2000.0).contains(&figure("echo_p90_ms", wires, "way=both")));
        assert!((0.25..=1.0).contains(&figure("jain", wires, "")));
        if arm == "quic" {
            assert!(figure("transport_cells_share", wires, "") >= 0.99);
        }
        // Between relays are two wires of 5 ms: 10 ms until the middle relay has answered, and then 20 for the exit.
        assert!(figure("circuit_ms", wires, "way=both") >= 30.0);
        assert!(figure("first_byte_ms", wires, "client=web") >= 40.0);
        assert!(figure("wire_use_pct", wires, "direction=back") <= 100.5);
        assert_eq!(figure("circuits_left_pct", wires, ""), 100.0);
    }
    // Kernels tell of every relay's connections; over QUIC hardly anything is in those between relays.
    for relay in ["relay=guard", "relay=middle", "relay=exit"] {
        assert!(figure("socket_window_kb", "good", relay) > 1.0);
        assert!(figure("socket_cwnd_packets", "good", relay) >= 1.0);
        assert!((0.0..=100.0).contains(&figure("socket_unwritable_pct", "good", relay)));
        if arm == "quic" {
            assert!(figure("socket_unsent_kb", "good", relay) < 10.0);
            assert!((1.0..100.0).contains(&figure("loop_idle_pct", "good", relay)));
            assert!(figure("cell_wait_ms", "good", relay) < 1000.0);
        }
    }
    if arm == "stock" {
        // What clients upload fills the wire from the guard to the middle.
        assert!(figure("socket_unacked_packets", "good", "relay=guard") > 0.1);
    }
    assert_eq!(figure("lost_pct", "good", ""), 0.0);
    assert!((1.8..2.2).contains(&figure("lost_pct", "lossy", "")));
}
