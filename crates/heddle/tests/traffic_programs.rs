//! `heddle traffic` as a script sees it: lines of JSON, exit codes, signals.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

fn heddle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("traffic").args(arguments).stdin(Stdio::null());
    command
}

/// A program that ends with the test, however that ends.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut child = heddle(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Sends Ctrl-C, and returns the last line and whether the program calls it a success.
    fn interrupt(mut self) -> (Value, bool) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let rest: Vec<String> = self.lines.by_ref().lines().map(Result::unwrap).collect();
        let last = rest.last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
        (last, self.child.wait().unwrap().success())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server() -> (Running, String) {
    let mut server = Running::start(&["server", "--listen", "127.0.0.1:0"]);
    let line = server.line();
    assert_eq!(line["event"], "listening");
    let addr = line["addr"].as_str().unwrap().to_owned();
    (server, addr)
}

fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_client_repeats_itself_and_sums_up() {
    let (server, addr) = server();
    let sizes = || {
        let arguments = ["web", "--server", &addr, "--size", "1000-90000", "--pause", "0-5", "--count", "6"];
        let output =
            heddle(&arguments).args(["--seed", "9", "--figure-label", "wire=none"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let summary = last_line(&output);
        assert_eq!((&summary["event"], &summary["ended"]), (&"summary".into(), &"complete".into()));
        let figures = summary["figures"].as_array().unwrap();
        assert!(figures.iter().all(|figure| figure["labels"]["wire"] == "none" && figure["n"] == 6));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "fetch").map(|line| line["bytes"].clone()).collect::<Vec<_>>()
    };
    let first = sizes();
    assert_eq!(first.len(), 6);
    assert_eq!(first, sizes());
    let (_, success) = server.interrupt();
    assert!(success);
}

#[test]
fn ctrl_c_leaves_a_partial_summary() {
    let (_server, addr) = server();
    let mut client =
        Running::start(&["timing", "--server", &addr, "--only", "probes", "--probe-pause", "0.01"]);
    // A probe may begin before the measurement does.
    while client.line()["measured"] != true {}
    let (summary, success) = client.interrupt();
    assert!(success && summary["ended"] == "interrupted", "{summary}");
    assert!(summary["figures"][0]["n"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn lines_go_to_a_file_if_asked() {
    let (_server, addr) = server();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    let arguments = ["bulk", "--server", &addr, "--size", "10", "--count", "1", "--out"];
    let output = heddle(&arguments).arg(&path).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&Value> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!(events, ["fetch", "summary"]);
}

#[test]
fn what_fails_is_counted_and_what_is_wrong_is_said_in_a_line() {
    let output = heddle(&["web", "--server", "127.0.0.1:1", "--count", "1"]).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(last_line(&output)["failures"]["open: connection refused"], 1);
    for (arguments, said) in [
        (&["web", "--server", "1.1.1.1:1", "--paper", "x"][..], "n23-small"),
        (&["markov", "--server", "1.1.1.1:1", "--model", "/dev/null"], "/dev/null is no Markov model"),
        (&["server", "--listen", "192.0.2.1:1"], "192.0.2.1:1"),
    ] {
        let output = heddle(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.lines().count() == 1 && text.contains(said), "{text}");
    }
}
