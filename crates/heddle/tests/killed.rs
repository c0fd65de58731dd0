//! What `heddle emulate` and `heddle lab run` leave when they are ended at any moment: nothing.
//!
//! The moments and signals are drawn from a seed. Each program is ended a few times; `HEDDLE_KILL_ROUNDS=50` has it
//! ended more often, and `HEDDLE_KILL_SEED` at other moments.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// In the environment of all processes of one test, so that those which are left can be found.
const MARK: &str = "HEDDLE_TEST_MARK";
/// How long everything may take to go.
const GONE_MAX: Duration = Duration::from_secs(30);
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::KILL];

/// Programs that leave their parents, take no notice of signals, and talk all the time.
const NETWORK: &str = r#"
[[host]]
name = "a"
run = ["(setsid sh -c 'trap \"\" INT TERM HUP; while :; do sleep 0.05; done' &); exec sleep 600"]

[[host]]
name = "b"
run = ["exec bash -c \"trap '' INT TERM; while :; do echo x >/dev/udp/10.0.0.1/9; sleep 0.002; done\""]

[[wire]]
from = "a"
to = "b"
there = { rate = "10 Mbit/s", delay = "20 ms" }
"#;

const PLAN: &str = r#"
name = "short"
title = "A short plan"
about = "One bulk connection and one row of probes."
budget = "30 s"
runs = 2

[[arm]]
name = "bulk"

[[arm.case]]
labels = { case = "bulk" }
wire = { rate = "10 Mbit/s", delay = "5 ms" }
bulk = { congestion_control = "cubic", duration = "0.6 s" }

[[arm]]
name = "probe"

[[arm.case]]
labels = { case = "probe" }
wire = { delay = "20 ms" }
probe = { count = 300, interval = "1 ms" }
"#;

#[test]
fn emulate_leaves_nothing() {
    let site = Site::new(2);
    fs::write(site.path("net.toml"), NETWORK).unwrap();
    let captures = site.path("captures").display().to_string();
    // The first arguments run the command, the second only what the file says.
    let command = ["emulate", "net.toml", "--", "sh", "-c", "(setsid sleep 600 &); sleep 600"];
    let alone = ["emulate", "net.toml", "--pcap", &captures];
    site.end_often(&[&command, &alone], Duration::from_millis(700), &["net.toml", "captures"]);
}

#[test]
fn lab_runs_leave_nothing_but_their_results() {
    let site = Site::new(3);
    fs::write(site.path("short.toml"), PLAN).unwrap();
    site.end_often(
        &[&["lab", "run", "short.toml", "--out", "out"]],
        Duration::from_secs(4),
        &["short.toml", "out"],
    );
}

/// A whole Tor network: authorities, relays, onion proxies, their directories and logs. It takes a while to come up.
#[test]
#[ignore = "takes minutes"]
fn tor_networks_leave_nothing_but_their_results() {
    let site = Site::new(4);
    site.end_often(&[&["lab", "run", "thesis-exp11", "--out", "out"]], Duration::from_secs(50), &["out"]);
}

/// Where programs are started: a directory that is also their directory for temporary files.
struct Site {
    dir: TempDir,
    random: u64,
}

/// What the machine has besides processes that an emulation could have left.
#[derive(Debug, PartialEq)]
struct Machine {
    devices: BTreeSet<String>,
    named_namespaces: BTreeSet<String>,
    mounts: String,
    routes: String,
}

impl Site {
    fn new(seed: u64) -> Site {
        let more = env::var("HEDDLE_KILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0u64);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Site { dir, random: seed + 1000 * more }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the program again and again and ends it within `latest`. Only what is in `allowed` may be left each time.
    fn end_often(mut self, programs: &[&[&str]], latest: Duration, allowed: &[&str]) {
        let rounds = env::var("HEDDLE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3usize);
        let machine = Machine::now();
        for round in 0..rounds {
            let arguments = programs[round % programs.len()];
            let signal = SIGNALS[(round + self.below(3) as usize) % 3];
            // As many moments in the first tenth, where hosts are made, as later.
            let span_us = if self.below(2) == 0 { latest.as_micros() / 10 } else { latest.as_micros() };
            let moment = Duration::from_micros(self.below(span_us as u64));
            self.end_once(arguments, signal, moment);
            let said = format!("round {round}: {arguments:?} after {moment:?} by {signal:?}");
            self.assert_nothing_left(&said, allowed);
            assert_eq!(Machine::now(), machine, "{said}");
        }
    }

    fn end_once(&self, arguments: &[&str], signal: Signal, moment: Duration) {
        let _ = fs::remove_dir_all(self.path("out"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env(MARK, self.dir.path()).env("TMPDIR", self.path("tmp"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while start.elapsed() < moment && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_micros(200).min(moment));
        }
        // A command in a host may take Ctrl-C as it likes; the third one ends everything.
        while child.try_wait().unwrap().is_none() {
            let _ = kill_process(Pid::from_child(&child), signal);
            let again = Instant::now();
            while again.elapsed() < Duration::from_secs(3) && child.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_millis(2));
            }
            assert!(start.elapsed() < moment + GONE_MAX, "{arguments:?} does not end by {signal:?}");
        }
    }

    fn assert_nothing_left(&self, said: &str, allowed: &[&str]) {
        let start = Instant::now();
        loop {
            let processes = self.processes();
            let temporary = names(&self.path("tmp"));
            if processes.is_empty() && temporary.is_empty() {
                break;
            }
            assert!(start.elapsed() < GONE_MAX, "{said}: {processes:?} {temporary:?} are left");
            thread::sleep(Duration::from_millis(5));
        }
        let mut left = names(self.dir.path());
        left.retain(|name| name != "tmp" && !allowed.contains(&&**name));
        assert!(left.is_empty(), "{said}: {left:?} are left");
    }

    /// The processes of this test that run: namespaces and devices live by processes and their descriptors only.
    fn processes(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.dir.path().display());
        let is_ours = |name: &String| {
            let environment = fs::read(Path::new("/proc").join(name).join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        names(Path::new("/proc")).into_iter().filter(is_ours).collect()
    }

    /// The next number below `bound` (SplitMix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

impl Machine {
    fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mountinfo");
        Machine {
            devices: names(Path::new("/sys/class/net")),
            named_namespaces: names(Path::new("/run/netns")),
            mounts: mounts.lines().filter(|line| line.contains("nsfs")).collect(),
            routes: read("/proc/net/route"),
        }
    }
}

/// The names in a directory; none when it is not there.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
