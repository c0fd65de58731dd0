//! `heddle emulate` with real kernels: what wires do to packets, and what is left when it ends.
//!
//! The programs in the hosts are this test's own binary, which plays a part when `PART` is set.

#[path = "../../net/tests/support/not_run.rs"]
mod not_run;

use std::env;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use not_run::not_run;
use serde_json::Value;
use tempfile::TempDir;

/// Which program to be.
const PART: &str = "HEDDLE_TEST_PART";
/// A file that a server makes when it can be spoken to.
const READY: &str = "HEDDLE_TEST_READY";
/// In the environment of all programs of one test, so that those which are left can be found.
const MARK: &str = "HEDDLE_TEST_MARK";
/// What stands before a program's result in its output.
const RESULT: &str = "result: ";

/// How long anything may take that usually takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is measured that a busy machine makes late.
const RUNS_MAX: usize = 5;

/// Tests that measure are alone while they do it.
static MEASURING: RwLock<()> = RwLock::new(());

fn measuring() -> RwLockWriteGuard<'static, ()> {
    MEASURING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by tests that do not measure, so that they disturb none that does.
fn not_measuring() -> RwLockReadGuard<'static, ()> {
    MEASURING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Not a test by itself: the programs in the hosts.
#[test]
fn part() {
    match env::var(PART).as_deref() {
        Ok("echo") => echo(),
        Ok("ping") => ping(),
        Ok("numbered") => numbered(),
        Ok("sink") => sink(),
        Ok("source") => source(),
        Ok("victim") => victim(),
        _ => {}
    }
}

fn is_ready() {
    fs::write(env::var(READY).unwrap(), "").unwrap();
}

/// Waits for the other program of the test, and tells where it is.
fn server(port: u16) -> SocketAddr {
    let ready = PathBuf::from(env::var(READY).unwrap());
    wait_for("the server", || ready.exists());
    SocketAddr::new(env::var("HEDDLE_SERVER").unwrap().parse().unwrap(), port)
}

fn echo() {
    let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
    is_ready();
    let mut datagram = [0; 2000];
    loop {
        let (len, from) = socket.recv_from(&mut datagram).unwrap();
        socket.send_to(&datagram[..len], from).unwrap();
    }
}

/// The times that datagrams take to the server and back, in milliseconds.
fn ping() {
    let server = server(7);
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut times = Vec::new();
    for _ in 0..25 {
        let start = Instant::now();
        socket.send_to(&[1; 100], server).unwrap();
        socket.recv(&mut [0; 2000]).unwrap();
        times.push((start.elapsed().as_secs_f64() * 1e3).to_string());
    }
    println!("{RESULT}{}", times.join(" "));
}

/// Which of many datagrams came back.
fn numbered() {
    let server = server(7);
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    for number in 0..200u32 {
        socket.send_to(&number.to_be_bytes(), server).unwrap();
    }
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let (mut number, mut came_back) = ([0; 4], Vec::new());
    while socket.recv(&mut number).is_ok() {
        came_back.push(u32::from_be_bytes(number).to_string());
    }
    println!("{RESULT}{}", came_back.join(" "));
}

/// Takes a stream, and answers with how many bytes per second came.
fn sink() {
    let listener = TcpListener::bind("0.0.0.0:9").unwrap();
    is_ready();
    let (mut stream, _) = listener.accept().unwrap();
    let (mut buffer, mut bytes) = ([0; 65_536], 0);
    let start = Instant::now();
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            len => bytes += len,
        }
    }
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    stream.write_all(&rate.to_be_bytes()).unwrap();
}

/// Sends for some seconds, and tells the rate at which it arrived and what the kernel used for that.
fn source() {
    let mut stream = TcpStream::connect(server(9)).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        stream.write_all(&[0; 65_536]).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rate = [0; 8];
    stream.read_exact(&mut rate).unwrap();
    println!("{RESULT}{}", f64::from_be_bytes(rate) * 8.0);
    println!("congestion control: {}", rustix::net::sockopt::tcp_congestion(&stream).unwrap());
}

/// What a TCP connection and then a UDP socket to the server come to.
fn victim() {
    let mut stream = TcpStream::connect(server(9)).unwrap();
    let ended = loop {
        if let Err(error) = stream.write_all(&[0; 10_000]) {
            break error.kind();
        }
    };
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(server(7)).unwrap();
    socket.send(&[0; 100]).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let answer = socket.recv(&mut [0; 100]).map_err(|error| error.kind());
    println!("{RESULT}{ended:?} {answer:?}");
}

/// A network of a client and a server, on which `part` runs.
struct Network {
    dir: TempDir,
    /// Namespaces that had a name before.
    named: Vec<String>,
}

impl Network {
    /// `wire` is the TOML of the wire, `server` the part of the server.
    fn new(wire: &str, server: &str) -> Network {
        let dir = tempfile::tempdir().unwrap();
        let part = env::current_exe().unwrap();
        let run = format!("{PART}={server} exec {} --exact part --nocapture >/dev/null", part.display());
        let toml = format!(
            "[[host]]\nname = \"client\"\n[[host]]\nname = \"server\"\nrun = ['{run}']\n\
             [[wire]]\nfrom = \"client\"\nto = \"server\"\n{wire}\n"
        );
        fs::write(dir.path().join("net.toml"), toml).unwrap();
        Network { dir, named: named_namespaces() }
    }

    /// `heddle emulate` with these options before its command.
    fn command(&self, options: &[&str]) -> Command {
        let ready = self.dir.path().join("ready");
        let _ = fs::remove_file(&ready);
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
        command.arg("emulate").arg(self.dir.path().join("net.toml")).args(options);
        command.env(READY, ready).env(MARK, self.mark()).stdin(Stdio::null());
        command
    }

    /// Runs `part` in the client. Returns its result and the summary.
    fn run(&self, part: &str, options: &[&str]) -> (String, Value) {
        let mut command = self.command(options);
        command.args(["--json", "--"]).arg(env::current_exe().unwrap());
        command.args(["--exact", "part", "--nocapture"]).env(PART, part);
        let output = command.output().unwrap();
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        let result = text.lines().find_map(|line| Some(line.split_once(RESULT)?.1.to_owned()));
        let said = String::from_utf8_lossy(&output.stdout);
        let summary = said.lines().last().unwrap_or_default();
        (format!("{}\n{text}", result.expect(&text)), serde_json::from_str(summary).expect(&text))
    }

    fn mark(&self) -> String {
        self.dir.path().display().to_string()
    }

    /// The processes of this test that run.
    fn processes(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark());
        let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let is_ours = |process: &PathBuf| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        entries.filter(is_ours).map(|process| process.display().to_string()).collect()
    }

    fn assert_nothing_is_left(&self) {
        wait_for("the end of all processes", || self.processes().is_empty());
        // Without a name somewhere, a namespace ends with its processes and descriptors.
        assert_eq!(named_namespaces(), self.named);
        assert!(!fs::read_to_string("/proc/net/dev").unwrap().contains("wire0"));
    }
}

fn named_namespaces() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|mount| mount.contains(" nsfs ")).map(str::to_owned).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(1));
    }
}

fn numbers(result: &str) -> Vec<f64> {
    result.lines().next().unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect()
}

#[test]
fn a_wire_of_50_ms_takes_100_ms_there_and_back() {
    let _alone = measuring();
    let network = Network::new(r#"there = { delay = "50 ms" }"#, "echo");
    // Packets are late because the emulator is, or because the machine is busy. That passes, and the emulator stays.
    for run in 1.. {
        let (result, summary) = network.run("ping", &[]);
        let least_ms = numbers(&result).into_iter().fold(f64::INFINITY, f64::min);
        assert!(least_ms >= 100.0, "less is impossible: {result}, {summary}");
        assert_eq!(summary["wires"][0]["packets_out"], 25, "{summary}");
        assert_eq!(summary["hosts"][0]["device_drops"], 0);
        network.assert_nothing_is_left();
        if least_ms < 101.0 && summary["lateness"]["p50_us"].as_f64().unwrap() < 500.0 {
            break;
        }
        assert!(run < RUNS_MAX, "no run was on time, and not this one: {result}, {summary}");
    }
}

#[test]
fn cubic_fills_a_wire_and_no_packet_is_longer_than_on_a_real_one() {
    let _alone = measuring();
    // The queue holds what the wire does in a round trip.
    let wire = r#"there = { rate = "10 Mbit/s", delay = "50 ms", queue = { bytes = "125 kB" } }"#;
    let network = Network::new(wire, "sink");
    let captures = network.dir.path().join("captures");
    let (result, summary) = network.run("source", &["--pcap", captures.to_str().unwrap()]);
    assert!(result.contains("congestion control: cubic"), "{result}");
    let rate_mbit_s = numbers(&result)[0] / 1e6;
    assert!((rate_mbit_s - 9.56).abs() < 0.956, "{rate_mbit_s} Mbit/s, {summary}");
    assert_eq!(summary["hosts"][0]["congestion_control"], "cubic");

    let lengths = captured_lengths(&captures.join("client-server.pcapng"));
    assert_eq!(lengths.iter().max(), Some(&1500));
    let counted: u64 = summary["wires"].as_array().unwrap().iter().map(packets_at_all_ends).sum();
    assert_eq!(lengths.len() as u64 + summary["captures_missed"].as_u64().unwrap(), counted);
}

fn packets_at_all_ends(wire: &Value) -> u64 {
    let drops = wire["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
    wire["packets_in"].as_u64().unwrap() + wire["packets_out"].as_u64().unwrap() + drops.sum::<u64>()
}

/// The lengths of the packets in a capture.
fn captured_lengths(path: &Path) -> Vec<u32> {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut lengths) = (0, Vec::new());
    while at < file.len() {
        if word(at) == 6 {
            assert_eq!(word(at + 20), word(at + 24));
            lengths.push(word(at + 24));
        }
        at += word(at + 4) as usize;
    }
    lengths
}

#[test]
fn a_seed_decides_what_is_lost() {
    let _shared = not_measuring();
    let wire = r#"
        there = { delay = "1 ms", loss = { bernoulli = { probability = "20 %" } } }
        back = { delay = "1 ms" }"#;
    let network = Network::new(wire, "echo");
    let came_back = |seed: &str| numbers(&network.run("numbered", &["--seed", seed]).0);
    let first = came_back("7");
    assert!((120..190).contains(&first.len()), "{first:?}");
    assert_eq!(came_back("7"), first);
    assert_ne!(came_back("8"), first);
}

#[test]
fn attackers_reset_connections_and_refuse_datagrams() {
    let _shared = not_measuring();
    let wire = r#"
        there = { delay = "5 ms", rate = "10 Mbit/s" }
        [[attack]]
        from = "client"
        to = "server"
        flow = { protocol = "tcp", to_port = 9, payload_bytes_min = 1 }
        each = { packets = 100 }
        times = 1
        kind = { reset = { both_ends = true } }
        [[attack]]
        from = "client"
        to = "server"
        flow = { protocol = "udp" }
        kind = { unreachable = {} }"#;
    let network = Network::new(wire, "sink");
    let (result, summary) = network.run("victim", &[]);
    assert_eq!(result.lines().next(), Some("ConnectionReset Err(ConnectionRefused)"), "{result}");
    let attacks = &summary["attacks"];
    assert_eq!((&attacks[0]["kind"], &attacks[0]["acted"]), (&"reset".into(), &1.into()), "{summary}");
    assert_eq!((&attacks[1]["kind"], &attacks[1]["acted"]), (&"unreachable".into(), &1.into()), "{summary}");
}

#[test]
fn a_run_that_was_late_says_so() {
    let _shared = not_measuring();
    // Only the percentile is passed in any case: how late a packet was at most is the machine's doing.
    let network = Network::new("[lateness]\np99 = \"1 ns\"\nmax = \"600 s\"", "echo");
    let (_, summary) = network.run("ping", &[]);
    assert_eq!(summary["valid"], false, "{summary}");
    let reasons = summary["reasons"].as_array().unwrap();
    assert!(reasons.iter().all(|reason| reason.as_str().unwrap().contains("99th percentile")), "{summary}");
    assert_eq!(reasons.len(), 4, "{summary}");
}

#[test]
fn the_command_decides_the_exit_code() {
    let _shared = not_measuring();
    let network = Network::new("", "echo");
    for (script, code) in [("exit 7", 7), ("kill -TERM $$", 143), ("exit 0", 0)] {
        let output = network.command(&["--", "sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    }
    let output = network.command(&["--", "/nonexistent/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("starting /nonexistent/program in client"), "{}", text(&output));
    let output = network.command(&["--duration", "0.1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    network.assert_nothing_is_left();
}

#[test]
fn what_is_missing_is_said() {
    let _shared = not_measuring();
    let network = Network::new("", "echo");
    let plain_file = network.dir.path().join("net.toml").display().to_string();
    for (device, said) in
        [("/nonexistent", "/nonexistent does not exist"), (&plain_file, "gives no TUN device")]
    {
        let output = network.command(&["--tun-device", device, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    let toml = network.dir.path().join("net.toml");
    let mut congested = fs::read_to_string(&toml).unwrap();
    congested.push_str("[kernel]\ncongestion_control = \"nonesuch\"\n");
    fs::write(&toml, congested).unwrap();
    let output = network.command(&["--", "true"]).output().unwrap();
    assert!(
        text(&output).contains("has not loaded the congestion control \"nonesuch\""),
        "{}",
        text(&output)
    );
}

#[test]
fn signals_reach_the_command_and_end_everything() {
    let _shared = not_measuring();
    let network = Network::new("", "echo");
    let traps = "trap 'exit 5' TERM INT; echo started; while :; do sleep 0.05; done";
    for (signal, script, code) in [
        (rustix::process::Signal::INT, traps, 5),
        (rustix::process::Signal::TERM, traps, 5),
        (rustix::process::Signal::INT, "echo started; exec sleep 600", 130),
        (rustix::process::Signal::TERM, "echo started; exec sleep 600", 143),
    ] {
        let mut heddle = started(network.command(&["--", "sh", "-c", script]));
        rustix::process::kill_process(rustix::process::Pid::from_child(&heddle), signal).unwrap();
        assert_eq!(heddle.wait().unwrap().code(), Some(code), "{signal:?} {script}");
        network.assert_nothing_is_left();
    }
}

/// Starts a command and waits until it says so.
fn started(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"started\n");
    child
}

#[test]
fn being_killed_at_any_moment_leaves_nothing() {
    let _shared = not_measuring();
    let network = Network::new("", "echo");
    // A program that leaves its parent and would run on by itself.
    let script = "(setsid sleep 600 &) ; echo started; exec sleep 600";
    for delay_ms in [0, 1, 3, 5, 8, 12, 20, 40, 80] {
        let mut command = network.command(&["--", "sh", "-c", script]);
        let mut heddle = command.stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(delay_ms));
        heddle.kill().unwrap();
        heddle.wait().unwrap();
        network.assert_nothing_is_left();
    }
    let mut heddle = started(network.command(&["--", "sh", "-c", script]));
    // The program that leaves its parent may be the last to start.
    let (start, mut seen) = (Instant::now(), 0);
    while seen < 5 && start.elapsed() < PATIENCE {
        seen = network.processes().len();
    }
    heddle.kill().unwrap();
    heddle.wait().unwrap();
    assert!(seen >= 5, "{seen} processes");
    network.assert_nothing_is_left();
}

/// As an ordinary user, in a user namespace. Root becomes nobody for it.
#[test]
fn it_needs_no_root() {
    let _shared = not_measuring();
    let limit = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    if limit.trim() == "0" || !rustix::process::getuid().is_root() {
        // Without root, all other tests show it.
        not_run("a user namespace made by nobody, for want of root or of user namespaces");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let network = Network::new(r#"there = { delay = "1 ms" }"#, "echo");
    let dir = network.dir.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    // Neither the build directory nor /dev/net/tun need be for everybody.
    let heddle = dir.join("heddle");
    fs::copy(env!("CARGO_BIN_EXE_heddle"), &heddle).unwrap();
    let tun = dir.join("tun");
    let made = Command::new("mknod").arg(&tun).args(["c", "10", "200"]).status();
    match made {
        Ok(status) if status.success() => {
            fs::set_permissions(&tun, fs::Permissions::from_mode(0o666)).unwrap()
        }
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
        _ => return not_run("a user namespace made by nobody, for want of a TUN device of its own"),
    }
    let mut command = Command::new(heddle);
    command.arg("emulate").arg(dir.join("net.toml")).arg("--tun-device").arg(tun).args(["--", "sh", "-c"]);
    command.arg("id -u; exit 3").uid(65_534).gid(65_534).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).starts_with("0\n") && text(&output).contains("without root"), "{}", text(&output));
}
