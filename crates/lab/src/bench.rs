//! What a relay costs: CPU-seconds per GB of application data, for stock Tor and for each transport of Heddle.
//!
//! 1. A private network comes up on loopback, with a guard, a middle and an exit of each kind.
//! 2. In each round each kind has its turn: stock clients build several circuits over its three relays and download over
//!    all of them at the same time. What the relays' processes used meanwhile is read from the system.
//! 3. Ratios are made round by round, so that what else the machine did touches both sides of each.
//!
//! Everything runs on this machine: compare the kinds of one run, not the figures of two.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::control::{Attacher, CircuitId, Control};
use crate::error::{Error, Result};
use crate::figures::{self, Samples, Summary, labels};
use crate::interrupt;
use crate::socks::{self, Target};
use crate::testnet::{Client, Network, NetworkOptions, Program, Relay, RelayOptions};
use crate::traffic::{self, Content, Server, Transfer};

/// The relays of a path.
const POSITIONS: [&str; 3] = ["guard", "middle", "exit"];
/// How long a circuit or a stream may take to open.
const OPEN_MAX: Duration = Duration::from_secs(20);
/// Time kept for the orderly end.
const RESERVE: Duration = Duration::from_secs(5);
/// Chooses the downloaded bytes; any would do.
const SEED: u64 = 0x6865_6464_6c65;

/// What runs a path's relays, and how they talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Stock `tor`.
    Stock,
    /// Heddle with stock Tor's link protocol alone.
    Tls,
    /// Heddle with a QUIC stream for each circuit.
    Quic,
}

impl Kind {
    /// All kinds, the baseline first.
    pub const ALL: [Kind; 3] = [Kind::Stock, Kind::Tls, Kind::Quic];

    /// The kind's name in options and labels.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Stock => "stock",
            Kind::Tls => "tls",
            Kind::Quic => "quic",
        }
    }

    fn relay(self, position: &str) -> RelayOptions {
        let nickname = format!("{}{position}", self.name());
        let relay = match self {
            Kind::Stock => RelayOptions::new(&nickname, Program::Stock),
            Kind::Tls | Kind::Quic => RelayOptions::new(&nickname, Program::Heddle)
                .line(&format!("HeddleTransports {}", self.name())),
        };
        if position == "exit" { relay.exit() } else { relay }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("{name:?} is not stock, tls or quic"))
    }
}

/// What the bench does.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The Heddle program, started as `<heddle> relay -f <torrc>`.
    pub heddle: PathBuf,
    /// What is compared, each at most once; ratios are over the first.
    pub kinds: Vec<Kind>,
    /// Circuits at the same time, at least one, dealt out to [`BenchOptions::clients`].
    pub circuits: usize,
    /// Stock clients, at least one.
    pub clients: usize,
    /// Bytes downloaded over each circuit.
    pub download_bytes: u64,
    /// Most rounds; fewer are made when time is short, but at least one.
    pub rounds_max: usize,
    /// Time for all of it.
    pub budget: Duration,
    /// Where `summary.json` goes.
    pub out_dir: PathBuf,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            heddle: std::env::current_exe().unwrap_or_default(),
            kinds: Kind::ALL.to_vec(),
            circuits: 8,
            clients: 2,
            download_bytes: 25_000_000,
            rounds_max: 8,
            budget: Duration::from_secs(300),
            out_dir: PathBuf::from("target/bench"),
        }
    }
}

impl BenchOptions {
    /// Fails with what is wrong with the options.
    pub fn validate(&self) -> Result<()> {
        let mut kinds = self.kinds.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let wrong = |what: &str| Err(Error::Options(what.to_owned()));
        if kinds.is_empty() || kinds.len() != self.kinds.len() {
            return wrong("the bench needs one or several different kinds of relays");
        }
        if self.circuits == 0 || self.clients == 0 || self.download_bytes == 0 || self.rounds_max == 0 {
            return wrong("the bench needs circuits, clients, bytes and rounds");
        }
        Ok(())
    }
}

/// Runs the bench, calls `on_step` with what is happening and the time left, and writes `summary.json`. A download with the
/// wrong content is an error.
///
/// Ctrl-C ends it with [`Error::Interrupted`], without processes or files left.
pub fn bench(options: &BenchOptions, on_step: &mut dyn FnMut(&str, Duration)) -> Result<Summary> {
    options.validate()?;
    interrupt::install()?;
    let deadline = Instant::now() + options.budget;
    let mut on_step = |step: &str| on_step(step, deadline.saturating_duration_since(Instant::now()));
    let relays = options.kinds.iter().flat_map(|kind| POSITIONS.map(|position| kind.relay(position)));
    let network = NetworkOptions {
        heddle: Some(options.heddle.clone()),
        relays: relays.collect(),
        clients: options.clients,
        startup_timeout: options.budget / 2,
        ..NetworkOptions::default()
    };
    let network = Network::start(&network, &mut |progress| on_step(progress.step))?;
    let server = Server::start()?;
    let clients: Vec<&Client> = network.clients().collect();
    let keepers = clients.iter().map(|client| Attacher::start(&client.control_socket(), OPEN_MAX));
    let keepers: Vec<Attacher> = keepers.collect::<Result<_>>()?;
    let content = Content { seed: SEED, len: options.download_bytes };
    let bench = Bench {
        options,
        network: &network,
        clients,
        server: &server,
        content,
        sha256: content.sha256(),
        deadline: deadline - RESERVE,
    };
    let samples = bench.rounds(&mut on_step)?;
    // Streams end before their circuits' keepers do.
    drop(keepers);
    let summary = Summary { commit: figures::commit(), figures: samples.figures() };
    summary.write(&options.out_dir.join("summary.json"))?;
    Ok(summary)
}

struct Bench<'a> {
    options: &'a BenchOptions,
    network: &'a Network,
    clients: Vec<&'a Client>,
    server: &'a Server,
    content: Content,
    sha256: [u8; 32],
    deadline: Instant,
}

impl Bench<'_> {
    fn rounds(&self, on_step: &mut dyn FnMut(&str)) -> Result<Samples> {
        let mut samples = Samples::default();
        let mut longest = Duration::ZERO;
        let kinds = &self.options.kinds;
        for round in 0..self.options.rounds_max {
            let start = Instant::now();
            // A round that would not be finished in time is not begun; one is needed in any case.
            if round > 0 && start + longest.mul_f64(1.2) > self.deadline {
                break;
            }
            let mut middles = vec![0.0; kinds.len()];
            for turn in 0..kinds.len() {
                let which = (round + turn) % kinds.len();
                let kind = kinds[which];
                on_step(&format!("round {}: {}", round + 1, kind.name()));
                middles[which] = self.turn(kind, &mut samples)?;
                self.network.check()?;
            }
            for (kind, cost) in kinds.iter().zip(&middles).skip(1) {
                let name = format!("middle_{}_cpu_ratio", kind.name());
                let labels = labels([("transport", kind.name()), ("over", kinds[0].name())]);
                samples.add(&name, labels, "1", cost / middles[0]);
            }
            longest = longest.max(start.elapsed());
        }
        Ok(samples)
    }

    /// One kind's part of a round; returns what its middle relay cost.
    fn turn(&self, kind: Kind, samples: &mut Samples) -> Result<f64> {
        let names = POSITIONS.map(|position| format!("{}{position}", kind.name()));
        let relays: Vec<&Relay> = names.iter().map(|name| self.network.relay(name)).collect::<Result<_>>()?;
        let path: Vec<&str> = relays.iter().map(|relay| relay.fingerprint()).collect();
        let mut controls: Vec<Control> =
            self.clients.iter().map(|client| client.control()).collect::<Result<_>>()?;
        let mut circuits: Vec<(usize, CircuitId)> = Vec::new();
        for number in 0..self.options.circuits {
            let client = number % controls.len();
            circuits.push((client, controls[client].build_circuit(&path, OPEN_MAX)?));
        }
        // The first byte over each circuit opens its way to the server.
        let byte = Content { seed: SEED, len: 1 };
        let byte_sha256 = byte.sha256();
        self.downloads(&circuits, byte, byte_sha256)?;

        let usages = || relays.iter().map(|relay| relay.usage()).collect::<Result<Vec<_>>>();
        let before = usages()?;
        let begun = Instant::now();
        let transfers = self.downloads(&circuits, self.content, self.sha256)?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = usages()?;

        let gigabytes = transfers.iter().map(|transfer| transfer.bytes).sum::<u64>() as f64 / 1e9;
        let transport = labels([("transport", kind.name())]);
        samples.add("download_mb_s", transport.clone(), "MB/s", gigabytes * 1e3 / seconds);
        let mut costs = Vec::new();
        for (position, (before, after)) in POSITIONS.iter().zip(before.iter().zip(&after)) {
            let cost = (after.cpu_s - before.cpu_s) / gigabytes;
            let labels = labels([("transport", kind.name()), ("position", position)]);
            samples.add("relay_cpu_s_per_gb", labels.clone(), "CPU-s/GB", cost);
            samples.add("relay_memory_mb", labels, "MB", after.rss_bytes as f64 / 1e6);
            costs.push(cost);
        }
        for (client, circuit) in circuits {
            match controls[client].close_circuit(circuit) {
                Ok(()) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(costs[1])
    }

    /// Downloads over all circuits at the same time.
    fn downloads(
        &self,
        circuits: &[(usize, CircuitId)],
        content: Content,
        sha256: [u8; 32],
    ) -> Result<Vec<Transfer>> {
        let one = |(client, circuit): (usize, CircuitId)| {
            let start = Instant::now();
            let target = Target::Addr(self.server.addr());
            let proxy = self.clients[client].socks();
            let stream = socks::connect(proxy, &target, Some(&circuit.isolation()), OPEN_MAX)?;
            let left = self.deadline.saturating_duration_since(start);
            let transfer = traffic::download(stream, content, sha256, start, left, &mut |_| {})?;
            match transfer.sha256_ok {
                true => Ok(transfer),
                false => Err(Error::Malformed { by: "a relay", sent: "bytes with the wrong SHA-256".into() }),
            }
        };
        let transfers = thread::scope(|scope| {
            let threads: Vec<_> = circuits.iter().map(|circuit| scope.spawn(move || one(*circuit))).collect();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::Options("a download panicked".into())))
            });
            ended.collect::<Result<Vec<_>>>()
        })?;
        interrupt::check()?;
        Ok(transfers)
    }
}

/// The summary as lines of text.
pub fn text(summary: &Summary) -> String {
    let mut lines = String::new();
    for figure in &summary.figures {
        let labels: Vec<_> = figure.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let interval = figure.ci95.map_or(String::new(), |[low, high]| format!(" ({low:.3} to {high:.3})"));
        lines += &format!(
            "{:24} {:34} {:9.3}{interval} {}, n = {}\n",
            figure.name,
            labels.join(" "),
            figure.mean,
            figure.unit,
            figure.n
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_measure_nothing_are_refused() {
        BenchOptions::default().validate().unwrap();
        let options = |change: fn(&mut BenchOptions)| {
            let mut options = BenchOptions::default();
            change(&mut options);
            options.validate()
        };
        assert!(options(|options| options.kinds.clear()).is_err());
        assert!(options(|options| options.kinds.push(Kind::Stock)).is_err());
        assert!(options(|options| options.circuits = 0).is_err());
        assert!(options(|options| options.rounds_max = 0).is_err());
    }

    #[test]
    fn kinds_have_names_and_only_theirs() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("udp".parse::<Kind>().is_err());
    }
}
