//! `heddle lab` as a user runs it: lists, a short run over emulated wires, reports, and what Ctrl-C and SIGKILL leave.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// In the environment of a run, so that processes which are left can be found.
const MARK: &str = "HEDDLE_TEST_MARK";

/// A plan that takes two seconds.
const SHORT: &str = r#"
name = "short"
title = "A short plan"
about = "One bulk connection and one row of probes."
budget = "30 s"
runs = 2

[set]
seconds = "1.5"

[[arm]]
name = "both"

[[arm.case]]
labels = { case = "bulk" }
wire = { rate = "10 Mbit/s", delay = "5 ms", queue = { bytes = "125 kB" } }
bulk = { congestion_control = "reno", duration = "${seconds} s", warm_up = "0.5 s" }

[[arm.case]]
labels = { case = "probe" }
wire = { delay = "20 ms", loss = { every_nth = { n = 10 } } }
probe = { count = 1000, interval = "1 ms" }

[[known]]
figure = "goodput_mbit_s"
labels = { case = "bulk" }
value = 9.65
within_pct = 10
source = "1448 of 1500 bytes"

[[known]]
figure = "loss_pct"
labels = { case = "probe" }
value = 10.0
within = 0.0
source = "every tenth"

[[plot]]
title = "Delay"
figure = "delay_ms"
"#;

/// A plan with a Tor network.
const TOR: &str = include_str!("support/tor.toml");

fn lab(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("lab").args(arguments).current_dir(dir).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str], dir: &Path) -> Output {
    lab(arguments, dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn dir_with_plan() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("short.toml"), SHORT).unwrap();
    dir
}

#[test]
fn plans_are_listed_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let list = text(&output(&["list"], dir.path()).stdout);
    assert!(list.lines().any(|line| line.starts_with("calibrate") && line.contains("4 runs")), "{list}");
    let list = json(&output(&["list", "--json"], dir.path()));
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|plan| plan["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"calibrate"), "{names:?}");
    for name in names {
        let shown = output(&["show", name], dir.path());
        assert!(text(&shown.stdout).contains(&format!("name = \"{name}\"")));
        let plan = json(&output(&["show", name, "--json"], dir.path()));
        let number = |key: &str| plan[key].as_f64().unwrap();
        assert!(number("run_s") * number("runs") <= number("budget_s"), "{plan}");
    }
    let shown = output(&["show", "calibrate", "--set", "probes=123"], dir.path());
    assert!(text(&shown.stdout).contains("count = 123,"));
}

#[test]
fn mistakes_are_one_sentence() {
    let dir = dir_with_plan();
    fs::write(dir.path().join("bad.toml"), SHORT.replace("\"10 Mbit/s\"", "\"10 Mbit\"")).unwrap();
    for (arguments, said) in [
        (&["show", "nonesuch"][..], "there is no plan \"nonesuch\""),
        (&["show", "bad.toml"], "bad.toml:16: \"10 Mbit\" has the unknown unit"),
        (&["show", "none.toml"], "while reading none.toml: No such file"),
        (&["run", "short.toml", "--out", "out", "--set", "second=1"], "it lets you set seconds"),
        (&["run", "short.toml", "--out", "out", "--runs", "0"], "0 runs"),
        (&["run", "short.toml", "--out", "short.toml"], "while making short.toml"),
        (&["run", "short.toml", "--out", "out", "--null-crypto"], "--null-crypto is of virtual time"),
        (&["report", "."], "while reading ./summary.json"),
        (&["report", ".", "."], "needs --out"),
    ] {
        let refused = output(arguments, dir.path());
        let stderr = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_plan_runs_over_emulated_wires() {
    let dir = dir_with_plan();
    let ran = output(&["run", "short.toml", "--out", "a", "--seed", "5", "--json"], dir.path());
    let stderr = text(&ran.stderr);
    assert!(matches!(ran.status.code(), Some(0 | 2)), "{stderr}");
    assert!(stderr.contains("s left] run 2 of 2: both"), "{stderr}");
    let summary: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let summary = &summary[0];
    assert_eq!((&summary["plan"], &summary["backend"]), (&"short".into(), &"emu".into()));
    assert_eq!(summary["seeds"], serde_json::json!([5, 6]));
    // A busy machine may make the run late, and then it says so.
    assert_eq!(summary["valid"].as_bool().unwrap(), summary["reasons"].as_array().unwrap().is_empty());
    let figures = summary["figures"].as_array().unwrap();
    let figure = |name: &str| figures.iter().find(|figure| figure["name"] == name).unwrap();
    // It may also lose some at the receiver's full buffer. Each of two thousand is a twentieth of a percent.
    let (loss_pct, came) =
        (figure("loss_pct")["mean"].as_f64().unwrap(), figure("delay_ms")["n"].as_f64().unwrap());
    assert!((10.0..12.0).contains(&loss_pct) && (came + 20.0 * loss_pct - 2000.0).abs() < 0.5, "{figures:?}");
    assert!(figure("delay_ms")["p50"].as_f64().unwrap() >= 20.0);
    // A second is short: the receiver may read then what had arrived before.
    assert!(figure("goodput_mbit_s")["mean"].as_f64().unwrap() < 15.0);

    // Nothing is written over, and the report is drawn again from what is there.
    let refused = output(&["run", "short.toml", "--out", "a"], dir.path());
    assert!(text(&refused.stderr).contains("choose another directory"));
    let report = fs::read_to_string(dir.path().join("a/report.html")).unwrap();
    fs::remove_file(dir.path().join("a/report.html")).unwrap();
    let drawn = output(&["report", "a"], dir.path());
    assert!(text(&drawn.stdout).contains("goodput_mbit_s (case=bulk)"));
    let again = fs::read_to_string(dir.path().join("a/report.html")).unwrap();
    assert!(again == report, "the report that was drawn again differs");
    let both = json(&output(&["report", "a", "a", "--out", "both.html", "--json"], dir.path()));
    assert_eq!(both.as_array().unwrap().len(), 2);
    assert!(fs::read_to_string(dir.path().join("both.html")).unwrap().contains("Run B"));
}

#[test]
#[ignore = "it brings Tor networks up, for half a minute each"]
fn a_killed_tor_network_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tor.toml"), TOR).unwrap();
    for (number, step) in
        ["starting the relays", "bootstrap", "building circuits", "measuring"].into_iter().enumerate()
    {
        let mut child = start(&["run", "tor.toml", "--out", &format!("out{number}")], &dir);
        wait_for(step, || fs::read_to_string(dir.path().join("stderr")).unwrap().contains(step));
        signal(&child, "KILL");
        child.wait().unwrap();
        assert_nothing_left(&dir);
    }
}

#[test]
fn ctrl_c_leaves_a_partial_report_and_nothing_else() {
    let dir = dir_with_plan();
    let mut child = start(&["run", "short.toml", "--out", "out", "--set", "seconds=20"], &dir);
    wait_for("a run", || fs::read_to_string(dir.path().join("stderr")).unwrap().contains("run 1 of 2"));
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let stderr = fs::read_to_string(dir.path().join("stderr")).unwrap();
    assert!(
        stderr.contains("what was measured before is in out") && stderr.contains("interrupted"),
        "{stderr}"
    );
    let summary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("out/summary.json")).unwrap()).unwrap();
    assert_eq!(summary["valid"], false);
    assert_eq!(summary["seeds"], serde_json::json!([]));
    assert!(fs::read_to_string(dir.path().join("out/report.html")).unwrap().contains("Not valid"));
    assert_nothing_left(&dir);
}

#[test]
fn a_killed_run_leaves_no_process() {
    let dir = dir_with_plan();
    for (number, delay_ms) in [0, 15, 60, 200].into_iter().enumerate() {
        let out = format!("out{number}");
        let mut child = start(&["run", "short.toml", "--out", &out, "--set", "seconds=20"], &dir);
        // The moments are the point here: there is nothing to wait for.
        let then = Instant::now() + Duration::from_millis(delay_ms);
        while Instant::now() < then {
            std::thread::yield_now();
        }
        signal(&child, "KILL");
        child.wait().unwrap();
        assert_nothing_left(&dir);
        assert!(!dir.path().join(out).join("summary.json").exists());
    }
}

/// Starts a run whose standard error goes to a file.
fn start(arguments: &[&str], dir: &TempDir) -> Child {
    let stderr = fs::File::create(dir.path().join("stderr")).unwrap();
    let mut command = lab(arguments, dir.path());
    command.env(MARK, dir.path()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits until no process of the run is there. Namespaces and devices live by processes and their descriptors only.
fn assert_nothing_left(dir: &TempDir) {
    let mark = format!("{MARK}={}", dir.path().display());
    wait_for("the end of all processes", || {
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path().join("environ")));
        !processes.filter_map(|environ| fs::read(environ).ok()).any(|environ| text(&environ).contains(&mark))
    });
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(90), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}
