//! `heddle bench circuits`: how fast circuits open between two relays, and what they hold once they are there.
//!
//! 1. A private network comes up on loopback, with two Heddle relays for each kind.
//! 2. A crowd of clients ([`crate::crowd`]) has its channels to the first relay, and builds circuits to the second
//!    until the two have found each other over the kind's transport. What both hold then is idle.
//! 3. The crowd opens all circuits, each with ntor handshakes at both relays: CREATE2, EXTEND2, CREATE2. What both
//!    relays hold then, and the sockets that they have, is told beside what they had when idle.

use crate::crowd::{Crowd, CrowdOptions};
use crate::output;
use clap::Args;
use heddle_client::Hop;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_lab::arm::Transport;
use heddle_lab::emulator;
use heddle_lab::figures::labels;
use heddle_lab::machine::descriptors;
use heddle_lab::machine::interrupt;
use heddle_lab::machine::kernel_memory;
use heddle_lab::machine::ports::PortBlock;
use heddle_lab::machine::sockets::{self, Counts};
use heddle_lab::machine::usage::Usage;
use heddle_lab::metrics::{COUNTS_AGE_MAX, Metrics, SHARE_MIN};
use heddle_lab::results::{Measurement, RunSamples, Summary};
use heddle_lab::testnet::{Network, NetworkOptions, Program, Relay, RelayOptions};
use heddle_net::wall_clock;
use heddle_proto::channel::Target;
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::rng::Seed;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error>;

/// The two relays of a path.
const PLACES: [&str; 2] = ["first", "second"];
/// What TCP has between them: Linux' own default.
const CONGESTION_CONTROL: &str = "cubic";
/// How long relays may take to find each other, and for how long no circuit may be built.
const PAIRING_MAX: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a relay may take to tell its metrics.
const METRICS_MAX: Duration = Duration::from_secs(5);
/// How long relays are left alone before their idle memory is read.
const REST: Duration = Duration::from_secs(2);
/// Sockets of tcp-esp beside those of its circuits: those in advance, and circuits that are built before.
const SOCKETS_MORE: usize = 1_000;
const DESCRIPTORS_MORE: u64 = 4_000;
/// Circuits of one client. It looks through them for each cell that it sends.
const CIRCUITS_PER_CLIENT: usize = 250;
/// Three for each of 40 clients. Of the 1,000 onionskins that a relay keeps, a quarter is reserved for relays, and one
/// address may have a fifth of the rest (`heddle_relay::Limits`): with more than 150 under way some are refused.
const IN_FLIGHT: usize = 120;

#[derive(Debug, Args)]
pub struct CircuitsArgs {
    /// What carries the circuits: tls, or transports by their names.
    #[arg(long, value_delimiter = ',', default_values_t = heddle_kinds(), value_name = "KINDS")]
    kinds: Vec<Transport>,
    /// How many circuits.
    #[arg(long, default_value_t = 10_000)]
    count: usize,
    /// Circuits that are under way at once. All come from one address, which may have 150 onionskins wait.
    #[arg(long, default_value_t = IN_FLIGHT)]
    in_flight: usize,
    /// Where summary.json goes.
    #[arg(long, default_value = "target/bench-circuits", value_name = "DIR")]
    out: PathBuf,
    /// Prints the summary as JSON.
    #[arg(long)]
    json: bool,
}

fn heddle_kinds() -> Vec<Transport> {
    Transport::here().into_iter().filter(|kind| *kind != Transport::Stock).collect()
}

/// Does what the arguments say.
pub fn run(args: &CircuitsArgs) -> Result<ExitCode, Failure> {
    if args.kinds.contains(&Transport::Stock)
        || args.kinds.is_empty()
        || args.count == 0
        || args.in_flight == 0
    {
        return Err("circuits are opened over Heddle's transports, one at least, not over stock Tor".into());
    }
    interrupt::install()?;
    let host = emulator::lone_host(CONGESTION_CONTROL)?;
    let (summary, samples) = host.run(|| measure(args).map_err(|error| error.to_string()))??;
    summary.write(&args.out.join("summary.json"))?;
    samples.write(&args.out)?;
    output::tell(&summary, args.json)
}

fn measure(args: &CircuitsArgs) -> Result<(Summary, RunSamples), Failure> {
    let mut measurement = Measurement::begin("circuits", &output::command_line(), CONGESTION_CONTROL);
    let mut ports = PortBlock::reserve()?;
    let sockets = args.count + SOCKETS_MORE;
    // A relay gives half of them to circuits. Those that get no socket go over TLS, and the summary tells how many.
    if let Err(error) = descriptors::grant(2 * sockets as u64 + DESCRIPTORS_MORE) {
        eprintln!("relays have no more descriptors than this system gives them: {error}");
    }
    let mut pairs = Vec::new();
    let mut relays = Vec::new();
    for kind in &args.kinds {
        let metrics = [ports.take()?, ports.take()?];
        for (place, port) in PLACES.iter().zip(metrics) {
            let relay = relay_options(*kind, place, port);
            // A relay does not grant itself a socket for each of so many circuits.
            relays.push(relay.line(&format!("HeddleESPSocketsMax {sockets}")));
        }
        pairs.push((*kind, metrics.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))));
    }
    let network =
        NetworkOptions { heddle: Some(std::env::current_exe()?), relays, ..NetworkOptions::default() };
    let mut last = String::new();
    let network = Network::start(&network, &mut |progress| {
        if last != progress.step {
            eprintln!("{}", progress.step);
            progress.step.clone_into(&mut last);
        }
    })?;
    let mut samples = RunSamples::default();
    for (kind, metrics) in pairs {
        eprintln!("{}: {} circuits", kind.name(), args.count);
        let relays = PLACES.map(|place| network.relay(&nickname(kind, place)));
        let [first, second] = relays;
        let pair = Pair { kind, relays: [first?, second?], metrics };
        pair.measure(args, &mut samples, &mut measurement)?;
        network.check()?;
    }
    Ok((measurement.end(samples.figures(), 1, 1, network.tor_version()?), samples))
}

/// Two relays with circuits between them.
struct Pair<'a> {
    kind: Transport,
    relays: [&'a Relay; 2],
    metrics: [SocketAddr; 2],
}

/// What a relay holds at one moment.
struct Taken {
    usage: Usage,
    sockets: Counts,
}

impl Pair<'_> {
    fn measure(
        &self,
        args: &CircuitsArgs,
        samples: &mut RunSamples,
        measurement: &mut Measurement,
    ) -> Result<(), Failure> {
        let proxies = args.count.div_ceil(CIRCUITS_PER_CLIENT);
        let path = self.relays.map(hop);
        let [first, second] = path;
        let options = CrowdOptions {
            path: vec![first?, second?],
            proxies,
            in_flight: args.in_flight.div_ceil(proxies),
        };
        let mut crowd = Crowd::start(&options, &Seed::from_bytes(&[7; 32]))?;
        let early = self.find_each_other(&mut crowd, proxies)?;
        std::thread::sleep(REST);
        let (idle, lanes) = (self.taken()?, self.lanes()?);
        let kernel_idle = kernel_memory::of_sockets();
        let begun = Instant::now();
        crowd.open(early + args.count, PATIENCE)?;
        let seconds = begun.elapsed().as_secs_f64();
        let (full, kernel_full) = (self.taken()?, kernel_memory::of_sockets());
        interrupt::check()?;
        let share = (self.lanes()? - lanes) / args.count as f64;
        if share < SHARE_MIN {
            let doubt = format!("only {:.1} % of the circuits are on {}", 100.0 * share, self.kind.name());
            eprintln!("{doubt}");
            measurement.doubt(doubt);
        }
        let transport = [("transport", self.kind.name())];
        samples.add(0, "circuits_per_s", &labels(transport), "1/s", &[args.count as f64 / seconds]);
        samples.add(0, "transport_lanes_share", &labels(transport), "1", &[share]);
        if let Some((full, idle)) = kernel_full.zip(kernel_idle) {
            let of_circuit = (full as f64 - idle as f64) / args.count as f64;
            samples.add(0, "circuit_kernel_memory_bytes", &labels(transport), "B", &[of_circuit]);
        } else {
            eprintln!("what the kernel holds for sockets is not told: only root may read /proc/slabinfo");
        }
        for (place, (idle, full)) in PLACES.iter().zip(idle.iter().zip(&full)) {
            let labels = || labels([("transport", self.kind.name()), ("relay", place)]);
            let above = full.usage.rss_bytes as f64 - idle.usage.rss_bytes as f64;
            samples.add(0, "idle_memory_mb", &labels(), "MB", &[idle.usage.rss_bytes as f64 / 1e6]);
            samples.add(0, "memory_above_idle_mb", &labels(), "MB", &[above / 1e6]);
            samples.add(0, "circuit_memory_bytes", &labels(), "B", &[above / args.count as f64]);
            let cpu_ms = 1e3 * (full.usage.cpu_s - idle.usage.cpu_s) / args.count as f64;
            samples.add(0, "opened_circuit_cpu_ms", &labels(), "ms", &[cpu_ms]);
            let more = full.sockets.all as f64 - idle.sockets.all as f64;
            samples.add(0, "sockets_more", &labels(), "1", &[more]);
            samples.add(0, "udp_sockets", &labels(), "1", &[full.sockets.udp as f64]);
        }
        Ok(())
    }

    /// Has each of the crowd build a circuit, and then one of them after the other until one goes over the kind's
    /// transport. Returns how many were built.
    fn find_each_other(&self, crowd: &mut Crowd, proxies: usize) -> Result<usize, Failure> {
        let begun = Instant::now();
        let mut built = proxies;
        loop {
            crowd.open(built, PATIENCE)?;
            interrupt::check()?;
            if self.kind == Transport::Tls || self.lanes()? >= 1.0 {
                return Ok(built);
            }
            if begun.elapsed() > PAIRING_MAX {
                let seconds = PAIRING_MAX.as_secs();
                let kind = self.kind.name();
                return Err(format!("after {seconds} s the relays have not met over {kind}").into());
            }
            built += 1;
        }
    }

    /// Circuits that the second relay has over the kind's transport.
    fn lanes(&self) -> Result<f64, Failure> {
        std::thread::sleep(COUNTS_AGE_MAX);
        let metrics = Metrics::scrape(self.metrics[1], METRICS_MAX)?;
        Ok(metrics.sum("heddle_lanes", &[("transport", self.kind.name())]))
    }

    fn taken(&self) -> Result<Vec<Taken>, Failure> {
        let taken =
            |relay: &&Relay| Ok(Taken { usage: relay.usage()?, sockets: sockets::count(relay.pid())? });
        self.relays.iter().map(taken).collect()
    }
}

/// A relay's name at a place; nicknames have letters and digits only.
fn nickname(kind: Transport, place: &str) -> String {
    format!("{}{place}", kind.name().replace('-', ""))
}

fn relay_options(kind: Transport, place: &str, metrics_port: u16) -> RelayOptions {
    RelayOptions::new(&nickname(kind, place), Program::Heddle)
        .line(&format!("HeddleTransports {}", kind.name()))
        .line(&format!("MetricsPort 127.0.0.1:{metrics_port}"))
        .line("MetricsPortPolicy accept 127.0.0.1")
}

/// How clients reach a relay, by its own keys.
fn hop(relay: &Relay) -> Result<Hop, Failure> {
    let options = KeyOptions::new(relay.dir().join("data"), relay.nickname());
    let mut rng = Seed::from_bytes(&[8; 32]).rng();
    let keys = RelayKeys::load_or_create(options, wall_clock().as_secs(), &mut rng)?;
    let ntor_key = keys.ntor_keys().first().ok_or("a relay has no onion key")?.public;
    let target = Target {
        rsa: RsaId(keys.rsa_id()),
        ed25519: Some(Ed25519Id(keys.ed25519_id())),
        addrs: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, relay.or_port()))],
    };
    Ok(Hop { target, ntor_key })
}
