//! Traces of plans.

use std::path::Path;

use heddle_lab::error::Result;
use heddle_lab::plan::Plan;
use heddle_lab::results::Summary;
use heddle_lab::run::{BackendKind, RunOptions, run};
use heddle_lab::trace::Trace;

use super::capture::Capture;
use super::{everything, files};

const PLAN: &str = r#"
name = "echoes"
title = "Echoes"
about = "A plan for tests."
budget = "1 min"
runs = 1

[tor]
relay = [{ name = "guard" }, { name = "middle" }, { name = "exit", exit = true }]
client = [{ name = "echoer", path = ["guard", "middle", "exit"], program = { echo = { every = "100 ms" } } }]

[[tor.wire]]
name = "path"
between = [["echoer", "guard"], ["guard", "middle"], ["middle", "exit"]]
there = { delay = "10 ms" }

[[tor.phase]]
name = "all"
duration = "2 s"

[[arm]]
name = "tls"
labels = { transport = "tls" }
tor = { transport = "tls" }

[[arm]]
name = "quic"
labels = { transport = "quic" }
tor = { transport = "quic" }
"#;

fn measured(
    dir: &Path,
    out: &str,
    arms: &[&str],
    backend: BackendKind,
    trace: Option<Trace>,
) -> Result<Summary> {
    let file = dir.join("plan.toml");
    std::fs::write(&file, PLAN).unwrap();
    let options = RunOptions {
        loaded: Plan::load(file.to_str().unwrap(), &Default::default())?,
        arms: arms.iter().map(|arm| (*arm).to_owned()).collect(),
        phases: Vec::new(),
        runs: None,
        seed: None,
        out: dir.join(out),
        resume: false,
        command: "a test".to_owned(),
        heddle: Default::default(),
        backend,
        cpu: None,
        null_crypto: false,
        trace,
    };
    run(&options, &mut |_| Ok(()))
}

#[test]
fn a_plan_gives_what_it_gives_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let traced = dir.path().join("trace");
    let trace = Trace::begin(everything(&traced)).unwrap();
    let with = measured(dir.path(), "with", &["quic"], BackendKind::Sim, Some(trace.clone())).unwrap();
    let without = measured(dir.path(), "without", &["quic"], BackendKind::Sim, None).unwrap();
    assert!(with.valid && with.traces == without.traces && with.traces.len() == 1, "{:?}", with.reasons);
    trace.end().unwrap();
    let files = files(&traced);
    for wire in ["guard-echoer.pcapng", "guard-middle.pcapng", "middle-exit.pcapng"] {
        let packets = Capture::read(&files[wire]).packets;
        assert!(packets.len() > 50 && packets.iter().all(|packet| packet.comment.is_none()), "{wire}");
    }
    let log = String::from_utf8(files["circuits.jsonl"].clone()).unwrap();
    for relay in ["guard", "middle", "exit"] {
        let opened = format!(r#""relay":"{relay}","shard":0,"event":"opened","command":"CREATE2""#);
        assert!(log.contains(&opened), "{relay}: {log}");
    }
}

#[test]
fn a_trace_is_of_one_network_in_virtual_time() {
    let dir = tempfile::tempdir().unwrap();
    let traced = dir.path().join("trace");
    let trace = Trace::begin(everything(&traced)).unwrap();
    let refused = |arms: &[&str], backend| {
        measured(dir.path(), "out", arms, backend, Some(trace.clone())).unwrap_err().to_string()
    };
    assert!(refused(&["quic"], BackendKind::Emu).contains("--backend sim"));
    assert!(refused(&["tls", "quic"], BackendKind::Sim).contains("--runs 1 and one name for --arms"));
    assert!(!dir.path().join("out").exists() && files(&traced).is_empty());
}
