//! A private network of stock and Heddle relays, and what the tests do with it.
//!
//! Each test program starts one network and keeps it until it ends. Its processes and files go with
//! the program, however that ends.

// Every test program uses its own part of this.
#![allow(dead_code)]

#[path = "../../../net/tests/support/not_run.rs"]
pub mod not_run;

use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::control::{Attacher, CircuitId};
use heddle_lab::error::Result;
use heddle_lab::socks::{self, Target};
use heddle_lab::testnet::{Network, NetworkOptions, Program, RelayOptions};
use heddle_lab::traffic::{self, Content, Echo, Server, Transfer};

/// How long anything may take that usually takes a moment.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// By how much a relay's memory may grow while the two stalled streams stand still: less than half of the 55 MB that
/// they have to send. Windows and what the allocator keeps of other work take 12 MB or less.
const HELD_BACK_BYTES_MAX: u64 = 25_000_000;
/// The programs in guard, middle and exit position, in every arrangement.
pub const PROGRAMS: [Program; 2] = [Program::Stock, Program::Heddle];

/// A network, a server behind its exits, and streams on chosen circuits.
pub struct Lab {
    pub network: Network,
    pub server: Server,
    _attacher: Attacher,
}

/// The name of a program's relay in a position.
pub fn nickname(program: Program, position: &str) -> String {
    match program {
        Program::Stock => format!("stock{position}"),
        Program::Heddle => format!("heddle{position}"),
    }
}

/// A stock and a Heddle relay for each position, the latter with these lines in their torrc.
pub fn six_relays(heddle_torrc: &[&str]) -> Vec<RelayOptions> {
    let relays = PROGRAMS.map(|program| {
        ["guard", "middle", "exit"].map(|position| {
            let mut relay = RelayOptions::new(&nickname(program, position), program);
            if program == Program::Heddle {
                relay = heddle_torrc.iter().fold(relay, |relay, line| relay.line(line));
            }
            match position {
                "exit" => relay.exit(),
                _ => relay,
            }
        })
    });
    relays.concat()
}

impl Lab {
    /// Starts a network with these options and the Heddle program under test. With `HEDDLE_TEST_LOGS`
    /// in the environment, a directory, everybody's detailed log goes there.
    pub fn start(options: NetworkOptions) -> Lab {
        Lab::start_with(options, PathBuf::from(env!("CARGO_BIN_EXE_heddle")))
    }

    /// Starts a network whose Heddle relays are run by this program.
    pub fn start_with(mut options: NetworkOptions, heddle: PathBuf) -> Lab {
        if let Some(dir) = env::var_os("HEDDLE_TEST_LOGS") {
            let line = |name: &str| format!("Log info file {}", PathBuf::from(&dir).join(name).display());
            options.authority_torrc.push(line("authorities"));
            options.client_torrc.push(line("client"));
            for relay in &mut options.relays {
                relay.torrc.push(line(&relay.nickname));
            }
        }
        let network =
            Network::start(&NetworkOptions { heddle: Some(heddle), ..options }, &mut |_| ()).unwrap();
        let server = Server::start().unwrap();
        let attacher = Attacher::start(&network.control_socket(), TIMEOUT).unwrap();
        Lab { network, server, _attacher: attacher }
    }

    /// A circuit that a controller built over these relays.
    pub fn circuit(&self, nicknames: &[&str]) -> CircuitId {
        let path = self.network.path(nicknames).unwrap();
        let circuit = self.network.control().unwrap().build_circuit(&path, TIMEOUT);
        circuit.unwrap_or_else(|error| panic!("{nicknames:?}: {error}"))
    }

    /// The same of a network that has just come up: a guard that does not know the consensus yet has room for few
    /// relays at a time, and says so.
    pub fn first_circuit(&self, nicknames: &[&str]) -> CircuitId {
        let path = self.network.path(nicknames).unwrap();
        let mut built = None;
        eventually("a first circuit", || {
            built = self.network.control().unwrap().build_circuit(&path, TIMEOUT).ok();
            built.is_some()
        });
        built.unwrap()
    }

    /// A stream on that circuit, or on one of the client's choice. Its reads and writes fail rather than wait for ever.
    pub fn stream(&self, circuit: Option<CircuitId>, target: &Target) -> Result<TcpStream> {
        let isolation = circuit.map(CircuitId::isolation);
        let stream = socks::connect(self.network.socks(), target, isolation.as_ref(), TIMEOUT)?;
        bound_waits(&stream, TIMEOUT);
        Ok(stream)
    }

    /// The file server, by its address.
    pub fn target(&self) -> Target {
        Target::Addr(self.server.addr())
    }

    pub fn download(&self, circuit: Option<CircuitId>, content: Content) -> Result<Transfer> {
        let start = Instant::now();
        let stream = self.stream(circuit, &self.target())?;
        traffic::download(stream, content, content.sha256(), start, TIMEOUT, &mut |_| ())
    }

    pub fn upload(&self, circuit: Option<CircuitId>, content: Content) -> Result<Transfer> {
        let start = Instant::now();
        let stream = self.stream(circuit, &self.target())?;
        traffic::upload(stream, content, content.sha256(), start, TIMEOUT)
    }

    /// Sends so many bytes both ways over a circuit, one way after the other.
    pub fn both_ways(&self, circuit: CircuitId, content: Content) {
        for (way, transfer) in
            [("down", self.download(Some(circuit), content)), ("up", self.upload(Some(circuit), content))]
        {
            let transfer = transfer.unwrap_or_else(|error| panic!("circuit {circuit}, {way}: {error}"));
            assert!(transfer.sha256_ok, "circuit {circuit}, {way}: other bytes arrived");
        }
    }

    pub fn echo(&self, circuit: CircuitId) -> Echo {
        Echo::new(self.stream(Some(circuit), &self.target()).unwrap(), TIMEOUT).unwrap()
    }

    pub fn resolve(&self, circuit: CircuitId, name: &str) -> Result<IpAddr> {
        socks::resolve(self.network.socks(), name, Some(&circuit.isolation()), TIMEOUT)
    }

    /// Closes a circuit that may be gone already.
    pub fn close(&self, circuit: CircuitId) {
        let _ = self.network.control().unwrap().close_circuit(circuit);
    }

    /// Fails when a process has ended by itself or a stock one has complained about a peer.
    pub fn check(&self) {
        self.network.check().unwrap();
        let warnings = self.network.protocol_warnings();
        assert!(warnings.is_empty(), "{}", warnings.join("\n"));
    }
}

/// Waits until something is so, or fails with what was waited for.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has a stream's reads and writes fail when one of them waits for so long.
fn bound_waits(stream: &TcpStream, timeout: Duration) {
    stream.set_read_timeout(Some(timeout)).unwrap();
    stream.set_write_timeout(Some(timeout)).unwrap();
}

/// The next stream to a listener.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    eventually("a stream to the listener", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("there is one");
    bound_waits(&stream, TIMEOUT);
    stream
}

/// A large file both ways over all eight arrangements of stock and Heddle relays. Those with a stock
/// and those with a Heddle exit go side by side.
pub fn every_arrangement(lab: &Lab, content: Content) {
    let arrangement = &|guard, middle, exit| {
        let path = [nickname(guard, "guard"), nickname(middle, "middle"), nickname(exit, "exit")];
        let start = Instant::now();
        let circuit = lab.first_circuit(&path.each_ref().map(String::as_str));
        lab.both_ways(circuit, content);
        lab.close(circuit);
        println!("{}: {:.1} s", path.join(" > "), start.elapsed().as_secs_f64());
    };
    thread::scope(|scope| {
        for exit in PROGRAMS {
            scope.spawn(move || {
                for guard in PROGRAMS {
                    PROGRAMS.into_iter().for_each(|middle| arrangement(guard, middle, exit));
                }
            });
        }
    });
    lab.check();
}

/// Eight circuits over the same three Heddle relays, all busy at once, each with its own bytes.
pub fn eight_circuits_at_once(lab: &Lab, len: u64) {
    thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || {
                let circuit = lab.circuit(&["heddleguard", "heddlemiddle", "heddleexit"]);
                lab.both_ways(circuit, Content { seed, len });
                lab.close(circuit);
            });
        }
    });
    lab.check();
}

/// Streams that end while the other side still sends: what is under way then is nobody's, but it
/// counts for the circuit's windows, and more of it is left over than a window holds.
pub fn half_closed_streams(lab: &Lab, path: &[&str]) {
    let circuit = lab.circuit(path);
    let rude = RudeServer::start();
    let mut chunk = [7; 50_000];
    for _ in 0..12 {
        // The server leaves while the client sends. It may notice late or not at all.
        let mut stream = lab.stream(Some(circuit), &Target::Addr(rude.addr)).unwrap();
        if let Err(error) = (0..20).try_for_each(|_| stream.write_all(&chunk)) {
            let is_stuck = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(!is_stuck, "nobody took what the server that left did not want: {error}");
        }
        // The client leaves while the server sends.
        let mut stream = lab.stream(Some(circuit), &lab.target()).unwrap();
        stream.write_all(b"GET /bytes/1/20000000 HTTP/1.0\r\n\r\n").unwrap();
        stream.read_exact(&mut chunk).unwrap();
    }
    lab.both_ways(circuit, Content { seed: 9, len: 2_000_000 });
    lab.close(circuit);
    lab.check();
}

/// A download that is not read and an upload that is not taken, while their circuit's other streams
/// go on. Afterwards both arrive whole.
pub fn stalled_streams_hold_up_no_other(lab: &Lab, path: &[&str]) {
    let circuit = lab.circuit(path);
    let memory = || {
        let relays = lab.network.relays().iter().filter(|relay| relay.program() == Program::Heddle);
        relays
            .map(|relay| (relay.nickname().to_owned(), relay.usage().unwrap().rss_bytes))
            .collect::<Vec<_>>()
    };
    let before = memory();
    let content = Content { seed: 10, len: 30_000_000 };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut uploading = lab.stream(Some(circuit), &Target::Addr(listener.local_addr().unwrap())).unwrap();
    // Both stand still for as long as all else takes.
    let patience = 10 * TIMEOUT;
    bound_waits(&uploading, patience);
    let pattern: Vec<u8> = (0..=250).cycle().take(251 * 100).collect();
    thread::scope(|scope| {
        // Dropped by a panic, as is what the download waits for: nobody waits for those who stand still then.
        let mut taker = accept(&listener);
        let (stalls, stalled) = mpsc::channel::<()>();
        let (resume, resumed) = mpsc::channel::<()>();
        let download = scope.spawn(move || {
            let stream = lab.stream(Some(circuit), &lab.target()).unwrap();
            traffic::download(stream, content, content.sha256(), Instant::now(), patience, &mut |_| {
                // The first bytes have come. It goes on when the other end is dropped.
                let _ = stalls.send(());
                let _ = resumed.recv();
            })
        });
        scope.spawn(|| {
            for _ in 0..1000 {
                uploading.write_all(&pattern).unwrap();
            }
            uploading.shutdown(Shutdown::Write).unwrap();
        });
        stalled.recv_timeout(TIMEOUT).unwrap();
        let mut echo = lab.echo(circuit);
        for _ in 0..20 {
            echo.round_trip(b"still there").unwrap();
        }
        lab.both_ways(circuit, Content { seed: 11, len: 3_000_000 });
        for ((nickname, before), (_, held_back)) in before.iter().zip(memory()) {
            println!("{nickname}: {before} bytes, then {held_back}");
            assert!(held_back < before + HELD_BACK_BYTES_MAX, "{nickname}: {before} bytes, then {held_back}");
        }
        drop(resume);
        assert!(download.join().unwrap().unwrap().sha256_ok);
        let mut chunk = vec![0; pattern.len()];
        for _ in 0..1000 {
            taker.read_exact(&mut chunk).unwrap();
            assert!(chunk == pattern);
        }
        assert_eq!(taker.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
    lab.close(circuit);
    lab.check();
}

/// A server that reads a little and leaves.
struct RudeServer {
    addr: SocketAddr,
}

impl RudeServer {
    /// Its thread waits for streams until the program ends.
    fn start() -> RudeServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                bound_waits(&stream, TIMEOUT);
                // Whether the client is still there does not matter to it.
                let _ = stream.read(&mut [0; 1000]);
            }
        });
        RudeServer { addr }
    }
}
