//! A running relay is looked into.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A relay by itself, with a socket for observers.
struct Relay {
    child: Child,
    dir: tempfile::TempDir,
    or_port: SocketAddr,
}

impl Relay {
    fn start() -> Relay {
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let or_port = free.local_addr().unwrap();
        drop(free);
        let torrc = format!(
            "Nickname observed\nORPort {or_port}\nDataDirectory {}\nHeddleObserve 1\nHeddleShards 2\n\
             TestingTorNetwork 1\nPublishServerDescriptor 0\nAssumeReachable 1\nLog notice stdout\n\
             DirAuthority nobody 127.0.0.1:1 {}\n",
            dir.path().join("data").display(),
            "00".repeat(20)
        );
        fs::write(dir.path().join("torrc"), torrc).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
        command.args(["relay", "-f"]).arg(dir.path().join("torrc"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let relay = Relay { child, dir, or_port };
        let begun = Instant::now();
        while UnixStream::connect(relay.socket()).is_err() {
            assert!(begun.elapsed() < PATIENCE, "the relay opens no socket");
            std::thread::yield_now();
        }
        relay
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.data().join("observe.sock")
    }

    fn observe(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
        command.args(["observe", "-d"]).arg(self.data()).args(arguments).output().unwrap()
    }

    /// What a command prints that must not fail.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.observe(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command prints that looks on for a while, when it has what is waited for. It is given longer and longer,
    /// because on a busy machine shards may answer late.
    fn told_in_time(&self, arguments: &[&str], has: impl Fn(&str) -> bool) -> String {
        let (begun, mut lasts_ms) = (Instant::now(), 250);
        loop {
            lasts_ms *= 2;
            let lasts = format!("{lasts_ms}ms");
            let told = self.told(&[arguments, &["--for", &lasts][..]].concat());
            if has(&told) {
                return told;
            }
            assert!(begun.elapsed() < PATIENCE, "{arguments:?} for {lasts} only tells {told}");
        }
    }

    /// Why a command fails.
    fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.observe(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines up to the one that ends an answer, that one included.
fn answer(stream: &mut BufReader<UnixStream>, request: &str) -> Vec<String> {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    lines_until(stream, |line| line == "ok" || line.starts_with("error: "))
}

/// Whether a request is answered, and not refused because too many are there.
fn is_served(stream: &mut BufReader<UnixStream>) -> bool {
    let is_asked = stream.get_mut().write_all(b"list\n").is_ok();
    is_asked
        && stream
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find(|line| line == "ok" || line.starts_with("error: "))
            == Some("ok".to_owned())
}

fn lines_until(stream: &mut BufReader<UnixStream>, last: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(
            stream.read_line(&mut line).unwrap(),
            0,
            "the relay closed the connection after {lines:?}"
        );
        lines.push(line.trim_end().to_owned());
        if last(lines.last().unwrap()) {
            return lines;
        }
    }
}

fn write(dir: &Path, name: &str, wat: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, wat).unwrap();
    path.display().to_string()
}

#[test]
fn families_are_watched_and_times_are_collected() {
    let relay = Relay::start();
    assert_eq!(fs::metadata(relay.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let list = relay.told(&["list"]);
    for line in ["family\tlanes\t", "series\tturn\tns\toff\t", "place\tbefore-push\tlanes"] {
        assert!(list.contains(line), "{line} is not in {list}");
    }
    // A stranger's connection is a channel that is not open.
    let _stranger = TcpStream::connect(relay.or_port).unwrap();
    let mut stream = relay.connect();
    let begun = answer(&mut stream, "watch channels every 1000000\n");
    assert!(begun[0].starts_with("watching\t0\tchannels\twritable_bytes:B\t"), "{begun:?}");
    let seen = lines_until(&mut stream, |line| line.starts_with("row\t0\t"));
    assert_eq!(seen.last().unwrap().split('\t').count(), 5 + 7, "{seen:?}");
    let shards = |rows: &str| -> BTreeSet<i64> {
        let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        rows.lines().map(|line| row(line)["shard"].as_i64().unwrap()).collect()
    };
    let watch = ["watch", "shards", "--every", "5ms", "--json"];
    let rows = relay.told_in_time(&watch, |rows| shards(rows).len() > 1);
    assert_eq!(shards(&rows), BTreeSet::from([0, 1]));

    let page = relay.dir.path().join("shards.html").display().to_string();
    let draw = ["draw", "shards", "slots_used", "--every", "20ms", "--out", &page];
    let has_both = |page: &str| page.contains("shard 0, ") && page.contains("shard 1, ");
    let told = relay.told_in_time(&draw, |_| has_both(&fs::read_to_string(&page).unwrap()));
    assert!(told.contains("shards.html written"), "{told}");
    let drawn = fs::read_to_string(&page).unwrap();
    assert_eq!(drawn.matches("<svg").count(), 3);
    assert!(drawn.contains("2 of them."), "{drawn}");
    let refused = relay.refusal(&["draw", "shards", "cell", "--out", &page]);
    assert!(refused.contains("shards has no field `cell`, but "), "{refused}");
    let refused = relay.refusal(&["draw", "shards", "slots_used", "--out", "/nowhere/shards.html"]);
    assert!(refused.contains("/nowhere/shards.html: "), "{refused}");

    relay.told(&["collect", "on", "turn"]);
    let begun = Instant::now();
    let told = loop {
        let told = relay.told(&["collect", "show", "turn"]);
        if !told.is_empty() {
            break told;
        }
        assert!(begun.elapsed() < PATIENCE, "no turn was timed");
    };
    assert!(told.starts_with("cdf\tturn\t"), "{told}");
    relay.told(&["collect", "off"]);
    relay.told(&["collect", "clear"]);
    assert_eq!(relay.told(&["collect", "show"]), "");
}

#[test]
fn observers_are_loaded_replaced_and_stopped_without_a_trace() {
    let relay = Relay::start();
    let dir = relay.dir.path();
    let sizes = write(dir, "sizes.wat", include_str!("../../spe/observers/sizes.wat"));
    let template = write(dir, "template.wat", include_str!("../../spe/observers/template.wat"));
    let endless = write(dir, "endless.wat", "(module (func (export \"observe\") (loop $on (br $on))))");
    relay.told(&["load", "mine", &sizes]);
    let mut stream = relay.connect();
    answer(&mut stream, "watch shards 0 every 1000000 with mine\n");
    let first = lines_until(&mut stream, |line| line.starts_with("record\t"));
    assert_eq!(first.last().unwrap().split('\t').count(), 4 + 2, "{first:?}");
    assert!(relay.refusal(&["unload", "mine"]).contains("is in use"));
    relay.told(&["load", "mine", &template]);
    // Time, index and 15 fields: the other module looks on.
    lines_until(&mut stream, |line| line.split('\t').count() == 4 + 17);
    relay.told(&["load", "mine", &endless]);
    let ended = lines_until(&mut stream, |line| line.starts_with("ended\t"));
    assert!(ended.last().unwrap().contains("the observer \"mine\" was stopped"), "{ended:?}");
    // The relay goes on, and so does whoever looks.
    assert!(answer(&mut stream, "list\n").len() > 10);
    drop(stream);
    relay.told(&["unload", "mine"]);
    assert!(relay.refusal(&["watch", "shards", "--every", "1s", "--with", "mine"]).contains("no observer"));
}

/// Watches that end at once leave looks behind, which shards work at one after the other.
#[test]
fn whoever_changes_his_mind_a_thousand_times_keeps_nobody_waiting() {
    let relay = Relay::start();
    let mut fickle = relay.connect();
    for id in 0..1_000 {
        let begun = answer(&mut fickle, "watch shards every 1000000\n");
        assert!(begun[0].starts_with(&format!("watching\t{id}\t")), "{begun:?}");
        answer(&mut fickle, &format!("unwatch {id}\n"));
    }
    for id in 1_000..2_000 {
        answer(&mut fickle, "watch lanes at before-push\n");
        answer(&mut fickle, &format!("unwatch {id}\n"));
    }
    let mut other = relay.connect();
    answer(&mut other, "watch shards every 1000000\n");
    lines_until(&mut other, |line| line.starts_with("row\t2000\t"));
    assert!(relay.told(&["list"]).contains("watch\t2000\t"));
}

/// No cell comes, so that nothing is seen.
#[test]
fn a_watch_ends_in_its_time_also_when_nothing_is_seen() {
    let relay = Relay::start();
    let told = relay.told(&["watch", "lanes", "--at", "before-push", "--for", "300ms"]);
    assert!(told.starts_with("watching\t0\tlanes\t") && told.lines().count() == 1, "{told}");
}

#[test]
fn whoever_does_not_read_is_cut_off_and_keeps_nobody_waiting() {
    let relay = Relay::start();
    let mut deaf = relay.connect();
    deaf.get_ref().set_write_timeout(Some(PATIENCE)).unwrap();
    let begun = Instant::now();
    let cut_off = loop {
        if let Err(error) = deaf.get_mut().write_all(b"list\n") {
            break error;
        }
        assert!(begun.elapsed() < PATIENCE, "what it does not read waits without end");
    };
    // Which of both depends on whether the relay closes the socket before this thread hears that it has shut it down.
    assert!(matches!(cut_off.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{cut_off}");
    assert!(relay.told(&["list"]).contains("family\tlanes\t"));
}

#[test]
fn whoever_asks_amiss_is_told_so_in_a_sentence() {
    let relay = Relay::start();
    assert!(relay.refusal(&["watch", "dragons", "--every", "1s"]).contains("there is no family \"dragons\""));
    assert!(relay.refusal(&["watch", "lanes", "--at", "home"]).contains("there is no place \"home\""));
    let other = relay.refusal(&["watch", "lanes", "--at", "before-write"]);
    assert!(other.contains("looks at channels, and not at lanes"), "{other}");
    assert!(relay.refusal(&["collect", "on", "dust"]).contains("there is no series"));
    let wrong = write(relay.dir.path(), "wrong.wat", "(module)");
    assert!(relay.refusal(&["load", "mine", &wrong]).contains("exports no function `observe`"));
    let mut stream = relay.connect();
    assert_eq!(answer(&mut stream, "dance\n").len(), 1);
    let mut rest = String::new();
    assert_eq!(stream.read_to_string(&mut rest).unwrap(), 0, "who talks nonsense is left alone");

    // Four at once, and no more; each that leaves makes room.
    let (mut four, begun) = (Vec::new(), Instant::now());
    while four.len() < 4 {
        // Who came before may not have left yet.
        let mut stream = relay.connect();
        if is_served(&mut stream) {
            four.push(stream);
        }
        assert!(begun.elapsed() < PATIENCE, "nobody made room");
    }
    let mut fifth = relay.connect();
    assert!(lines_until(&mut fifth, |line| line.starts_with("error: "))[0].contains("4 others"));
    drop(four);
    let begun = Instant::now();
    while !relay.observe(&["list"]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "nobody made room");
    }

    let gone = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    let nobody = command.args(["observe", "-d"]).arg(gone.path()).arg("list").output().unwrap();
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("HeddleObserve 1"));
}

/// `bpftrace` and `perf` find probes by these notes.
#[test]
fn the_programs_have_their_probes() {
    for program in [env!("CARGO_BIN_EXE_heddle"), env!("CARGO_BIN_EXE_heddle-relay")] {
        let told = Command::new("readelf").args(["--notes", "--wide", program]).output().unwrap();
        let notes = String::from_utf8(told.stdout).unwrap();
        for probe in ["cell_queued", "cell_left", "channel_write"] {
            let note = format!("Provider: heddle\n    Name: {probe}\n");
            assert!(notes.contains(&note), "{program}: {probe}");
        }
    }
}
