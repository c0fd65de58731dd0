//! `heddle demo` as a user runs it: what it refuses, what it writes, and what Ctrl-C and SIGKILL leave.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// In the environment of a run, so that processes which are left can be found.
const MARK: &str = "HEDDLE_TEST_MARK";

fn demo(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("demo").args(arguments).current_dir(dir).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str], dir: &Path) -> Output {
    demo(arguments, dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn mistakes_are_said_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("net.toml"), "[[host]]\nname = 'web'\n").unwrap();
    for (arguments, said) in [
        (&["--arms", "stock,stock"][..], "one or two different arms"),
        (&["--megabytes", "0"], "something to download"),
        (&["--rounds", "0"], "something to download"),
        (&["--heddle", "centre"], "\"centre\" is not guard, middle or exit"),
        (&["--loopback", "--network", "net.toml"], "cannot be used with"),
        (&["--network", "net.toml"], "needs a host \"bulk\""),
        (&["--network", "none.toml"], "while reading none.toml: No such file"),
    ] {
        let refused = output(arguments, dir.path());
        let stderr = text(&refused.stderr);
        assert!(!refused.status.success() && stderr.contains(said), "{arguments:?}: {stderr}");
        assert!(!dir.path().join("target").exists(), "{arguments:?} made something");
    }
}

/// The figures of a run that `wires` joined, by name and labels.
fn results(dir: &Path, wires: &str) -> Value {
    let summary: Value = serde_json::from_slice(&fs::read(dir.join("out/summary.json")).unwrap()).unwrap();
    assert_eq!(summary["wires"], wires);
    // A busy machine may make the emulator late, and then it says so.
    assert_eq!(summary["valid"].as_bool().unwrap(), summary["reasons"].as_array().unwrap().is_empty());
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
    }
    summary["figures"].clone()
}

#[test]
#[ignore = "it brings Tor networks up, for a minute each"]
fn both_kinds_of_wires_give_results() {
    let dir = tempfile::tempdir().unwrap();
    let ran = output(&["--rounds", "1", "--out", "out"], dir.path());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("heddle over stock, bulk download rate"));
    let figures = results(dir.path(), "emulated");
    // Two round trips over the wires of the demo's own network.
    let first_bytes = figures.as_array().unwrap().iter().filter(|figure| figure["name"] == "first_byte_ms");
    assert!(first_bytes.into_iter().all(|figure| figure["mean"].as_f64().unwrap() >= 434.8));

    let loopback = ["--loopback", "--rounds", "1", "--megabytes", "5", "--out", "out"];
    let ran = output(&loopback, dir.path());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("all on loopback"));
    results(dir.path(), "loopback");
}

#[test]
#[ignore = "it brings Tor networks up, for half a minute each"]
fn nothing_is_left_of_a_run_that_was_ended() {
    let dir = tempfile::tempdir().unwrap();
    let steps = ["authorities' keys", "first consensus", "bootstrap", "pages alone", "beside bulk"];
    for (step, signal) in steps.into_iter().flat_map(|step| [(step, "INT"), (step, "KILL")]) {
        let mut child = start(&dir);
        wait_for(step, || fs::read_to_string(dir.path().join("stderr")).unwrap().contains(step));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), if signal == "INT" { Some(1) } else { None }, "{step}");
        wait_for("processes to end", || left(&dir).is_empty());
        assert!(!dir.path().join("out").exists(), "no round was complete: {step}");
    }
}

fn start(dir: &TempDir) -> Child {
    let stderr = fs::File::create(dir.path().join("stderr")).unwrap();
    let mut command = demo(&["--out", "out"], dir.path());
    command.env(MARK, dir.path()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(100), "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that were started by a run in `dir`.
fn left(dir: &TempDir) -> Vec<String> {
    let mark = format!("{MARK}={}", dir.path().display());
    let marked = |pid: &str| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && marked(name)).collect()
}
