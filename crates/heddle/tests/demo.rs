//! `heddle demo` as a user runs it: what it refuses, what it writes, and what Ctrl-C and SIGKILL leave.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
