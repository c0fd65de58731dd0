//! What a relay costs: CPU-seconds per GB of application data, for stock Tor and for each transport of Heddle.
//!
//! 1. A private network comes up on a host of its own that has only loopback, with a guard, a middle and an exit of
//!    each kind.
//! 2. Circuits are built and closed until relays of a transport of their own have found each other.
//! 3. In each round each kind has its turn: stock clients build several circuits over its three relays and download
//!    over all of them at the same time. What the relays' processes used meanwhile is read from the system.
//! 4. Ratios are made round by round, so that what else the machine did touches both sides of each.
//! 5. Rounds in one network are not independent: which cores its relays got and how its circuits fell out stays as it
//!    is. So intervals that are to hold for other networks too are over several, each of which counts once.
//!
//! Everything runs on this machine: compare the kinds of one run, not the figures of two.

mod costs;
mod fit;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::arm::Transport;
use crate::control::{Attacher, CircuitId, Control};
use crate::emulator;
use crate::error::{Error, Result};
use crate::figures::labels;
use crate::machine::BUDGET_MAX;
use crate::machine::interrupt;
use crate::machine::ports::PortBlock;
use crate::metrics::{Metrics, SHARE_MIN};
use crate::results::{Measurement, NOT_COMPLETED, Repetition, RunSamples, Summary};
use crate::socks::{self, Target};
use crate::testnet::{Client, Network, NetworkOptions, Program, Relay, RelayOptions};
use crate::traffic::{self, Content, Server, Transfer};
use crate::turns::order;
use costs::Observation;

/// The relays of a path.
const POSITIONS: [&str; 3] = ["guard", "middle", "exit"];
/// How long a circuit or a stream may take to open.
const OPEN_MAX: Duration = Duration::from_secs(20);
/// Time kept for the orderly end.
const RESERVE: Duration = Duration::from_secs(5);
/// How long relays may take to find each other.
const PAIRING_MAX: Duration = Duration::from_secs(60);
/// How long a relay may take to tell its metrics.
const METRICS_MAX: Duration = Duration::from_secs(5);
/// Chooses the downloaded bytes; any would do.
const SEED: u64 = 0x6865_6464_6c65;

/// Its relay's name at a position on the path; nicknames have letters and digits only.
fn nickname(transport: Transport, position: &str) -> String {
    format!("{}{position}", transport.name().replace('-', ""))
}

fn relay(transport: Transport, position: &str, metrics_port: u16) -> RelayOptions {
    let nickname = nickname(transport, position);
    let relay = match transport.heddle_name() {
        None => RelayOptions::new(&nickname, Program::Stock),
        Some(name) => RelayOptions::new(&nickname, Program::Heddle)
            .line(&format!("HeddleTransports {name}"))
            // As many threads carry cells as stock Tor has for that.
            .line("HeddleShards 1")
            .line(&format!("MetricsPort 127.0.0.1:{metrics_port}"))
            .line("MetricsPortPolicy accept 127.0.0.1"),
    };
    if position == "exit" { relay.exit() } else { relay }
}

/// What the bench does.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The Heddle program, started as `<heddle> relay -f <torrc>`.
    pub heddle: PathBuf,
    /// What is compared, each at most once; ratios are over the first.
    pub kinds: Vec<Transport>,
    /// Circuits at the same time, at least one, dealt out to [`BenchOptions::clients`].
    pub circuits: usize,
    /// Stock clients, at least one.
    pub clients: usize,
    /// Bytes downloaded over each circuit.
    pub download_bytes: u64,
    /// How many networks come up, one after the other.
    pub networks: usize,
    /// Most rounds in each; fewer are made when time is short, but at least one.
    pub rounds_max: usize,
    /// Time for each network.
    pub budget: Duration,
    /// What TCP has between all of them, as Linux names it.
    pub congestion_control: String,
    /// Where `summary.json` goes.
    pub out_dir: PathBuf,
    /// Where a table of what operations cost goes, if one is wanted; then each kind carries more loads in each round.
    pub costs: Option<PathBuf>,
    /// The command as typed, for the summary.
    pub command: String,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            heddle: std::env::current_exe().unwrap_or_default(),
            kinds: Transport::here(),
            circuits: 8,
            clients: 2,
            download_bytes: 25_000_000,
            networks: 1,
            rounds_max: 8,
            budget: Duration::from_secs(300),
            congestion_control: "cubic".to_owned(),
            out_dir: PathBuf::from("target/bench"),
            costs: None,
            command: String::new(),
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
        let is_datagrams = |kind: &Transport| matches!(kind, Transport::Flows(_));
        if self.costs.is_some() && !(kinds.contains(&Transport::Tls) && kinds.iter().any(is_datagrams)) {
            return wrong(
                "a table of costs needs tls and a transport over datagrams, as --kinds tls,quic has them",
            );
        }
        let numbers = [self.circuits, self.clients, self.networks, self.rounds_max];
        if numbers.contains(&0) || self.download_bytes == 0 {
            return wrong("the bench needs circuits, clients, bytes, networks and rounds");
        }
        let all = u32::try_from(self.networks).ok().and_then(|networks| self.budget.checked_mul(networks));
        if all.is_none_or(|all| all > BUDGET_MAX) {
            return wrong("the bench takes at most a week");
        }
        Ok(())
    }
}

/// Hears what is happening, and how much time is left.
pub type OnStep<'a> = &'a mut (dyn FnMut(&str, Duration) + Send);

/// Runs the bench, calls `on_step` with what is happening and the time left, and writes `summary.json`, and the samples
/// behind it as `samples.json`. What must not be trusted is no error: see [`Summary::valid`]. A program that is not
/// root must have one thread only when it calls this.
///
/// Ctrl-C ends it with [`Error::Interrupted`], without processes or files left.
pub fn bench(options: &BenchOptions, on_step: OnStep<'_>) -> Result<Summary> {
    options.validate()?;
    interrupt::install()?;
    let host = emulator::lone_host(&options.congestion_control)?;
    let (summary, samples, observations) =
        host.run(|| on_host(options, on_step)).map_err(Error::io("entering the bench's host"))??;
    summary.write(&options.out_dir.join("summary.json"))?;
    samples.write(&options.out_dir)?;
    if let Some(path) = &options.costs {
        costs::write(path, observations, &summary)?;
    }
    Ok(summary)
}

/// The bench, where the calling thread's network is its own.
fn on_host(options: &BenchOptions, on_step: OnStep<'_>) -> Result<(Summary, RunSamples, Vec<Observation>)> {
    let mut taken = Taken {
        samples: RunSamples::default(),
        observations: Vec::new(),
        measurement: Measurement::begin("bench", &options.command, &options.congestion_control),
    };
    taken.measurement.set("stock's scheduler KIST, Heddle's round robin and one shard");
    let deadline = Instant::now() + options.budget * options.networks as u32;
    let mut on_step = |step: &str| on_step(step, deadline.saturating_duration_since(Instant::now()));
    if options.networks == 1 {
        let (rounds, tor) = one_network(options, 0, &mut taken, &mut on_step)?;
        let Taken { samples, observations, measurement } = taken;
        let summary = measurement.end(samples.figures(), rounds, options.rounds_max, tor);
        return Ok((summary, samples, observations));
    }
    taken.measurement.in_networks();
    let (mut made, mut version) = (0, String::new());
    for number in 0..options.networks {
        let observed = taken.observations.len();
        let (rounds, tor) = match one_network(options, number, &mut taken, &mut on_step) {
            Ok(made) => made,
            Err(error) if made == 0 || matches!(error, Error::Interrupted) => return Err(error),
            // What the networks before gave is not lost.
            Err(error) => {
                taken.samples.forget_run(number);
                taken.observations.truncate(observed);
                taken.measurement.doubt(format!("{NOT_COMPLETED}: network {}: {error}", number + 1));
                break;
            }
        };
        (made, version) = (number + 1, tor);
        if rounds < options.rounds_max {
            let wanted = options.rounds_max;
            taken
                .measurement
                .doubt(format!("network {made}: {rounds} of {wanted} rounds fitted into the time"));
        }
    }
    let Taken { samples, observations, measurement } = taken;
    Ok((measurement.end(samples.figures(), made, options.networks, version), samples, observations))
}

/// Circuits, each with its client's number.
type Circuits = Vec<(usize, CircuitId)>;

/// What was taken so far.
struct Taken {
    samples: RunSamples,
    /// What a table of costs is made of.
    observations: Vec<Observation>,
    measurement: Measurement,
}

/// Brings a network up and makes rounds in it. Returns how many, and stock Tor's version.
fn one_network(
    options: &BenchOptions,
    number: usize,
    taken: &mut Taken,
    on_step: &mut dyn FnMut(&str),
) -> Result<(usize, String)> {
    let deadline = Instant::now() + options.budget;
    let mut ports = PortBlock::reserve()?;
    let mut relays = Vec::new();
    let mut metrics_ports = BTreeMap::new();
    for kind in &options.kinds {
        for position in POSITIONS {
            let port = ports.take()?;
            let relay = relay(*kind, position, port);
            metrics_ports.insert(relay.nickname.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            relays.push(relay);
        }
    }
    let network = NetworkOptions {
        heddle: Some(options.heddle.clone()),
        relays,
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
        number,
        clients,
        server: &server,
        metrics_ports,
        content,
        sha256: content.sha256(),
        deadline: deadline - RESERVE,
    };
    let rounds = bench.rounds(taken, on_step)?;
    // Streams end before their circuits' keepers do.
    drop(keepers);
    Ok((rounds, network.tor_version()?))
}

struct Bench<'a> {
    options: &'a BenchOptions,
    network: &'a Network,
    /// Which network it is, from 0.
    number: usize,
    clients: Vec<&'a Client>,
    server: &'a Server,
    /// Where each relay tells its metrics, by nickname; stock ones do not.
    metrics_ports: BTreeMap<String, SocketAddr>,
    content: Content,
    sha256: [u8; 32],
    deadline: Instant,
}

impl Bench<'_> {
    /// Makes rounds, and returns how many they were.
    fn rounds(&self, taken: &mut Taken, on_step: &mut dyn FnMut(&str)) -> Result<usize> {
        let mut longest = Duration::ZERO;
        let kinds = &self.options.kinds;
        for kind in kinds.iter().copied().filter(|kind| matches!(kind, Transport::Flows(_))) {
            on_step("waiting for relays to find each other");
            self.pair(kind)?;
        }
        let mut rounds = 0;
        // What each kind's middle cost in each round, where nothing went wrong.
        let mut middles: Vec<Vec<Option<f64>>> = Vec::new();
        for round in 0..self.options.rounds_max {
            let start = Instant::now();
            // A round that would not be finished in time is not begun; one is needed in any case.
            if round > 0 && start + longest.mul_f64(1.2) > self.deadline {
                break;
            }
            let mut costs = vec![None; kinds.len()];
            // Not alike in every network, which may have fewer rounds than there are kinds.
            for which in order(kinds.len(), 2 * self.number + round) {
                let kind = kinds[which];
                on_step(&format!("{}: {}", self.place(round), kind.name()));
                costs[which] = self.turn(kind, round, taken)?;
                if self.options.costs.is_some() && kind != Transport::Stock {
                    self.observe(kind, &mut taken.observations)?;
                }
                self.network.check()?;
            }
            middles.push(costs);
            rounds = round + 1;
            longest = longest.max(start.elapsed());
        }
        self.compare(&middles, &mut taken.samples);
        Ok(rounds)
    }

    /// Where a round's samples belong: to themselves, or to their network if there are several.
    fn run(&self, round: usize) -> usize {
        if self.options.networks > 1 { self.number } else { round }
    }

    fn place(&self, round: usize) -> String {
        match self.options.networks {
            1 => format!("round {}", round + 1),
            _ => format!("network {}, round {}", self.number + 1, round + 1),
        }
    }

    /// Sets what middles cost beside the first kind's: in each round, or of all rounds of a network.
    fn compare(&self, middles: &[Vec<Option<f64>>], samples: &mut RunSamples) {
        let kinds = &self.options.kinds;
        for (which, kind) in kinds.iter().enumerate().skip(1) {
            let labels = labels([("transport", kind.name()), ("over", kinds[0].name())]);
            let mut sums: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
            for (round, costs) in middles.iter().enumerate() {
                if let (Some(cost), Some(base)) = (costs[which], costs[0]) {
                    let [all, all_base] = sums.entry(self.run(round)).or_default();
                    *all += cost;
                    *all_base += base;
                }
            }
            for (run, sums) in sums {
                samples.add_ratio(run, "middle_cpu_over", &labels, sums);
            }
        }
    }

    /// The relays of a kind, along the path.
    fn relays(&self, kind: Transport) -> Result<Vec<&Relay>> {
        let names = POSITIONS.map(|position| nickname(kind, position));
        names.iter().map(|name| self.network.relay(name)).collect()
    }

    fn metrics(&self, relay: &Relay) -> Result<Metrics> {
        let addr = self.metrics_ports.get(relay.nickname());
        let addr = addr.ok_or_else(|| Error::Options(format!("{} tells no metrics", relay.nickname())))?;
        Metrics::scrape(*addr, METRICS_MAX)
    }

    /// Builds circuits until the middle has a connection with both of its neighbours: relays find each other by
    /// circuits only.
    fn pair(&self, kind: Transport) -> Result<()> {
        let relays = self.relays(kind)?;
        let path: Vec<&str> = relays.iter().map(|relay| relay.fingerprint()).collect();
        let mut control = self.network.control()?;
        let begun = Instant::now();
        let links = [("transport", kind.name())];
        while self.metrics(relays[1])?.sum("heddle_links", &links) < 2.0 {
            interrupt::check()?;
            if begun.elapsed() > PAIRING_MAX {
                let waiting_for = format!("relays to find each other over {}", kind.name());
                return Err(Error::Deadline { waiting_for, after: PAIRING_MAX });
            }
            let circuit = control.build_circuit(&path, OPEN_MAX)?;
            close(&mut control, circuit)?;
        }
        Ok(())
    }

    /// Builds the circuits over these relays, each with its client's number.
    fn circuits(&self, relays: &[&Relay]) -> Result<(Vec<Control>, Circuits)> {
        let path: Vec<&str> = relays.iter().map(|relay| relay.fingerprint()).collect();
        let mut controls: Vec<Control> =
            self.clients.iter().map(|client| client.control()).collect::<Result<_>>()?;
        let mut circuits = Vec::new();
        for number in 0..self.options.circuits {
            let client = number % controls.len();
            circuits.push((client, controls[client].build_circuit(&path, OPEN_MAX)?));
        }
        Ok((controls, circuits))
    }

    /// One kind's part of a round; returns what its middle relay cost, if all went well.
    fn turn(&self, kind: Transport, round: usize, taken: &mut Taken) -> Result<Option<f64>> {
        let (run, place) = (self.run(round), self.place(round));
        let Taken { samples, measurement, .. } = taken;
        let relays = self.relays(kind)?;
        let (mut controls, circuits) = self.circuits(&relays)?;
        // The first byte over each circuit opens its way to the server.
        let byte = Content { seed: SEED, len: 1 };
        let byte_sha256 = byte.sha256();
        let byte = self.downloads(&circuits, byte, byte_sha256)?;

        let usages = || relays.iter().map(|relay| relay.usage()).collect::<Result<Vec<_>>>();
        let is_told = kind != Transport::Stock;
        let told = is_told.then(|| self.metrics(relays[1])).transpose()?;
        let before = usages()?;
        let begun = Instant::now();
        let transfers = self.downloads(&circuits, self.content, self.sha256)?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = usages()?;
        if let Some(told) = told {
            let share = self.metrics(relays[1])?.cell_share(&told, kind.name()).unwrap_or(0.0);
            let labels = labels([("transport", kind.name())]);
            samples.add(run, "transport_cells_share", &labels, "1", &[share]);
            if share < SHARE_MIN {
                let name = kind.name();
                let part = 100.0 * share;
                measurement.doubt(format!("{place}: {name} carried only {part:.1} % of the middle's cells"));
            }
        }
        for (client, circuit) in circuits {
            close(&mut controls[client], circuit)?;
        }
        let wrong = byte.iter().chain(&transfers).filter(|transfer| !transfer.sha256_ok).count();
        if wrong > 0 {
            measurement.doubt(format!("{place}: over {} {wrong} downloads had wrong bytes", kind.name()));
            return Ok(None);
        }

        let gigabytes = transfers.iter().map(|transfer| transfer.bytes).sum::<u64>() as f64 / 1e9;
        let transport = labels([("transport", kind.name())]);
        samples.add(run, "download_mb_s", &transport, "MB/s", &[gigabytes * 1e3 / seconds]);
        let mut costs = Vec::new();
        for (position, (before, after)) in POSITIONS.iter().zip(before.iter().zip(&after)) {
            let cost = (after.cpu_s - before.cpu_s) / gigabytes;
            let labels = labels([("transport", kind.name()), ("position", position)]);
            samples.add(run, "relay_cpu_s_per_gb", &labels, "CPU-s/GB", &[cost]);
            samples.add(run, "relay_memory_mb", &labels, "MB", &[after.rss_bytes as f64 / 1e6]);
            costs.push(cost);
        }
        Ok(Some(costs[1]))
    }

    /// Downloads over all circuits at the same time. Whether the bytes are right is for the caller to look.
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
            traffic::download(stream, content, sha256, start, left, &mut |_| {})
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

/// Closes a circuit, unless it is gone already.
fn close(control: &mut Control, circuit: CircuitId) -> Result<()> {
    match control.close_circuit(circuit) {
        Ok(()) | Err(Error::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The summary as lines of text.
pub fn text(summary: &Summary) -> String {
    let Summary { commit, conditions, tor, settings, noise, .. } = summary;
    let settings: Vec<&str> = settings.values().flatten().map(String::as_str).collect();
    let mut lines = format!(
        "commit {commit}, tor {tor}; {} cores of {}, Linux {}, {}; load {} before and {} after\n",
        conditions.cores,
        conditions.processor,
        conditions.kernel,
        settings.join(", "),
        noise.load_before,
        noise.load_after
    );
    lines.extend(summary.reasons.iter().map(|reason| format!("NOT VALID: {reason}\n")));
    if summary.intervals_over == Repetition::RoundsInOneNetwork {
        lines += "Intervals are over rounds in one network: they say how repeatable rounds are, not what another \
                  network would give.\n";
    }
    let within = match summary.intervals_over {
        Repetition::Networks => format!(" in {} networks", summary.seeds.len()),
        Repetition::Runs | Repetition::RoundsInOneNetwork => String::new(),
    };
    for figure in &summary.figures {
        let labels: Vec<_> = figure.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let interval = figure.ci95.map_or(String::new(), |[low, high]| format!(" ({low:.3} to {high:.3})"));
        lines += &format!(
            "{:24} {:34} {:9.3}{interval} {}, n = {}{within}\n",
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
        assert!(options(|options| options.kinds.push(Transport::Stock)).is_err());
        assert!(options(|options| options.circuits = 0).is_err());
        assert!(options(|options| options.rounds_max = 0).is_err());
        assert!(options(|options| options.budget = Duration::from_secs(u64::MAX)).is_err());
    }
}
