//! The network stacks that a relay with `tcp-esp` makes itself: that they go with it, however it ends, and what it does
//! where the system gives it none.

#[path = "../../net/tests/support/not_run.rs"]
mod not_run;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use not_run::not_run;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(60);
/// What the relay says of each stack, and where it has none.
const HAS_STACK: &str = "tcp-esp has a network stack of its own";
const HAS_NONE: &str = "tcp-esp is not offered, and circuits take the other transports";
/// What it says last when it starts.
const RUNS: &str = "The relay runs in";
/// What root begins a program with that it runs as an ordinary user.
const NOBODY: [&str; 7] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];

/// A relay that knows nobody, run by a program that `wrapper` begins with.
struct Relay {
    child: Child,
    log: PathBuf,
    _dir: TempDir,
}

impl Relay {
    fn start(wrapper: &[&str], lines: &str) -> Relay {
        let dir = tempfile::tempdir().unwrap();
        // Whoever the wrapper makes of us may write there.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let (torrc, log) = (dir.path().join("torrc"), dir.path().join("log"));
        let options = format!(
            "Nickname stacked\nAddress 192.0.2.1\nORPort 127.0.0.1:auto\nDataDirectory {}\nLog info file {}\n\
             HeddleTransports tcp-esp,quic,tls\n{lines}\n",
            dir.path().join("data").display(),
            log.display(),
        );
        fs::write(&torrc, options).unwrap();
        let words: Vec<&str> =
            [wrapper, &[env!("CARGO_BIN_EXE_heddle-relay"), "-f", torrc.to_str().unwrap()]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Relay { child: command.spawn().unwrap(), log, _dir: dir }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it runs; false if it ended instead.
    fn runs(&mut self) -> bool {
        let begun = Instant::now();
        while !self.said().contains(RUNS) {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(begun.elapsed() < TIMEOUT, "the relay does not start: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// The processes that make its sockets, by what it says of them.
    fn helpers(&self) -> Vec<u32> {
        let said = self.said();
        let stacks = said.lines().filter(|line| line.contains(HAS_STACK));
        let pids = stacks.filter_map(|line| line.split("process ").nth(1)?.split(' ').next()?.parse().ok());
        pids.collect()
    }

    fn kill(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All network namespaces that there are, as far as one may see.
fn namespaces() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok()).collect()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a program ends well that `wrapper` begins with.
fn can(wrapper: &[&str], words: &[&str]) -> bool {
    let words = [wrapper, words].concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|end| end.success())
}

/// A relay of two shards, none of which has a stack: it says so once, with the step that failed, and goes on.
fn runs_without_stacks(wrapper: &[&str], step: &str) {
    let mut relay = Relay::start(wrapper, "HeddleShards 2");
    assert!(relay.runs());
    let said = relay.said();
    assert_eq!(said.matches(HAS_NONE).count(), 1, "{said}");
    assert!(said.contains(&format!("{step} failed: ")), "{said}");
    assert!(!said.contains(HAS_STACK) && relay.helpers().is_empty(), "{said}");
    // QUIC has its ports all the same, one for each shard.
    assert_eq!(said.matches("UDP port ").count(), 2, "{said}");
}

#[test]
fn nothing_of_its_stacks_stays_however_it_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut relay = Relay::start(&[], "HeddleShards 3");
        assert!(relay.runs());
        if relay.said().contains(HAS_NONE) {
            return not_run("stacks of a relay's own, for want of namespaces or of a device");
        }
        let helpers = relay.helpers();
        assert_eq!(helpers.len(), 3, "{}", relay.said());
        let of_helpers: BTreeSet<PathBuf> = helpers
            .iter()
            .filter_map(|helper| fs::read_link(format!("/proc/{helper}/ns/net")).ok())
            .collect();
        if of_helpers.len() != helpers.len() {
            assert!(!rustix::process::geteuid().is_root(), "{of_helpers:?}");
            not_run("that the namespaces of a relay's stacks end, for want of root");
        }
        // Its devices are seen in its namespaces alone.
        let devices = fs::read_to_string("/proc/net/dev").unwrap();
        assert!(!devices.contains("esp0"), "{devices}");
        relay.kill(signal);
        wait_for("the helpers to end", || {
            helpers.iter().all(|helper| !fs::exists(format!("/proc/{helper}")).unwrap())
        });
        wait_for("the namespaces to end", || namespaces().is_disjoint(&of_helpers));
    }
}

/// Without the right to make a namespace: as in a container, or where the system is set so.
#[test]
fn where_the_system_gives_it_none_the_transport_is_not_offered() {
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";
    let wrapper = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"];
    if !can(&wrapper[..3], &["true"]) {
        return not_run("a relay without namespaces, for want of user namespaces to take them away in");
    }
    runs_without_stacks(&wrapper, "making a network namespace");
}

/// As in a container that was given no devices.
#[test]
fn without_the_device_the_transport_is_not_offered() {
    // What stands there in its stead makes no devices.
    let script = "{ [ ! -e /dev/net/tun ] || mount --bind /dev/null /dev/net/tun; } && exec \"$@\"";
    let wrapper = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"];
    if !can(&wrapper, &["unshare", "--net", "true"]) {
        return not_run("a relay without /dev/net/tun, for want of user namespaces to take it away in");
    }
    runs_without_stacks(&wrapper, "opening /dev/net/tun");
}

/// Root that runs it as an ordinary user, in a user namespace that may have none below it.
#[test]
fn an_ordinary_user_without_user_namespaces_is_not_offered_the_transport() {
    // Whoever may set that there has rights, and gives them up before the relay begins.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --ambient-caps=-all --inh-caps=-all -- \"$@\"";
    let inside = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", script, "sh"];
    let wrapper = [&NOBODY[..], &inside].concat();
    if !can(&wrapper, &["test", "-x", env!("CARGO_BIN_EXE_heddle-relay")]) {
        return not_run(
            "a relay of an ordinary user without user namespaces, for want of root, one to take them away in, \
             or a program for it",
        );
    }
    assert!(!can(&wrapper, &["unshare", "--user", "true"]), "there are user namespaces");
    runs_without_stacks(&wrapper, "making a user namespace");
}

/// As in a sandbox that lets nobody write below `/proc/sys`.
#[test]
fn settings_that_cannot_be_written_are_told_once() {
    let script = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$@\"";
    let wrapper = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"];
    if !can(&wrapper, &["true"]) {
        return not_run("a relay whose settings cannot be written, for want of user namespaces");
    }
    let mut relay = Relay::start(&wrapper, "HeddleShards 2");
    assert!(relay.runs());
    let said = relay.said();
    if said.contains(HAS_NONE) {
        return not_run("a relay whose settings cannot be written, for want of namespaces or of a device");
    }
    assert_eq!(said.matches("does not let the relay set").count(), 1, "{said}");
    assert!(said.contains("net/ipv4/tcp_fastopen"), "{said}");
}

/// Root that runs it as an ordinary user.
#[test]
fn an_ordinary_user_has_stacks_where_user_namespaces_are_allowed() {
    let has_program = can(&NOBODY, &["test", "-x", env!("CARGO_BIN_EXE_heddle-relay")]);
    // Linux gives it to everybody, but some machines keep it to root.
    let has_device = can(&NOBODY, &["test", "-w", "/dev/net/tun"]);
    if !can(&NOBODY, &["unshare", "--user", "true"]) || !has_program || !has_device {
        return not_run(
            "a relay of an ordinary user, for want of root, user namespaces, /dev/net/tun or a program for it",
        );
    }
    let mut relay = Relay::start(&NOBODY, "HeddleShards 1");
    assert!(relay.runs());
    let said = relay.said();
    assert_eq!(said.matches(HAS_STACK).count(), 1, "{said}");
    assert!(!said.contains(HAS_NONE), "{said}");
}

#[test]
fn an_unknown_congestion_control_ends_the_start_with_a_sentence() {
    let mut relay = Relay::start(&[], "HeddleESPCongestionControl nonesuch");
    if relay.runs() {
        assert!(relay.said().contains(HAS_NONE));
        return not_run("an unknown congestion control, for want of namespaces or of a device");
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut relay.child.stderr.take().unwrap(), &mut said).unwrap();
    let begins =
        "heddle-relay: HeddleESPCongestionControl nonesuch is none of this kernel's congestion controls";
    assert!(said.starts_with(begins) && said.contains("cubic"), "{said}");
}
