//! `heddle sim swarm --trace` as a user runs it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn swarm(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command
        .args(["sim", "swarm", "--minutes", "0.05", "--json", "--first", "0"])
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_seed_has_one_trace_and_the_hash_that_it_has_without() {
    let dir = tempfile::tempdir().unwrap();
    let hash = |arguments: &[&str]| {
        let output = swarm(&[&["--seeds", "1"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        (line["hash"].as_str().unwrap().to_owned(), text(&output.stderr))
    };
    let [one, again] = ["one", "again"].map(|name| dir.path().join(name));
    let traced = |dir: &Path| hash(&["--trace-headers", "--trace", dir.to_str().unwrap()]);
    let (first, told) = traced(&one);
    assert_eq!((&traced(&again).0, &hash(&[]).0), (&first, &first));
    let files = [one, again].map(|dir| files(&dir));
    assert!(files[0] == files[1], "{:?}", files[0].keys());
    let [files, _] = files;
    assert!(told.contains(&format!("trace: {} files of ", files.len())), "{told}");
    for name in ["authority-relay0.pcapng", "relay0-relay1.pcapng", "relay0-client.pcapng"] {
        assert!(files[name].len() > 10_000, "{name}");
    }
    // A circuit of the client over three relays, of which each may have several shards.
    let log = text(&files["circuits.jsonl"]);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut relays: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["event"] == "opened") {
        let path = relays.entry(line["circuit"].as_u64().unwrap()).or_default();
        let relay = line["relay"].as_str().unwrap();
        if path.last() != Some(&relay) {
            path.push(relay);
        }
    }
    // The last ones still stand when the run is over.
    let of = |circuit: u64, event: &str| {
        lines.iter().filter(|line| line["circuit"] == circuit && line["event"] == event).collect::<Vec<_>>()
    };
    let long = relays.iter().filter(|(_, path)| path.len() >= 3).map(|(circuit, _)| *circuit);
    let ended: Vec<u64> = long.filter(|circuit| !of(*circuit, "destroyed").is_empty()).collect();
    assert!(ended.len() >= 8, "{relays:?}");
    for circuit in ended {
        let (opened, destroyed) = (of(circuit, "opened"), of(circuit, "destroyed"));
        let by = opened[0]["neighbour"].as_str();
        assert!(matches!(by, Some("client" | "victim")), "{circuit}: {by:?}");
        assert_eq!(opened.len(), destroyed.len(), "{circuit}");
    }
}

#[test]
fn a_trace_is_of_one_seed() {
    let output = swarm(&["--seeds", "2", "--trace", "nowhere"]);
    assert!(!output.status.success() && !Path::new("nowhere").exists());
    assert!(text(&output.stderr).contains("--seeds 1"), "{}", text(&output.stderr));
}

#[test]
fn a_wire_that_is_not_there_is_told_before_anything_happens() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let output =
        swarm(&["--seeds", "1", "--trace", trace.to_str().unwrap(), "--trace-wire", "relay0-relay99"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let told = text(&output.stderr);
    assert!(
        told.contains(r#"no wire is called "relay0-relay99""#) && told.contains("authority-relay0"),
        "{told}"
    );
}
