//! `heddle traffic`: what flows through a network under test, and how it is timed.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use heddle_lab::figures::Labels;
use heddle_lab::machine::interrupt;
use heddle_lab::socks::{Isolation, Target};
use heddle_lab::traffic::fetch::{self, FetchOptions, Profile, run_fetches};
use heddle_lab::traffic::markov::{MarkovModel, MarkovOptions, run_markov};
use heddle_lab::traffic::timing::{TimingOptions, run_timing};
use heddle_lab::traffic::{Event, Identity, Report, Route, Server, Stop, parse_target};
use heddle_lab::{Error, Result};

/// What `--help` says in the end.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle traffic server --listen 10.0.0.9:8080
  heddle traffic timing --server 10.0.0.9:8080 --socks 127.0.0.1:9050
  heddle traffic timing --server 10.0.0.9:8080 --only probes --duration 30
  heddle traffic web --server 10.0.0.9:8080 --socks 127.0.0.1:9050 --paper n23-small --count 200
  heddle traffic bulk --server 10.0.0.9:8080 --socks 127.0.0.1:9050 --paper pctcp-live --duration 600
  heddle traffic markov --server 10.0.0.9:8080 --socks 127.0.0.1:9050 --model model.json

Every line of the output is a JSON object; its \"event\" says what it tells. The last one is the \"summary\", with the
figures (n, mean, p50, p90, p99) and the failures by kind. After Ctrl-C it covers what was done until then.
Run a client with --seed and --label: the same pair gives the same sizes, pauses, probes and streams again.";

/// The command line of `heddle traffic`.
#[derive(Debug, Args)]
pub struct TrafficArgs {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    /// Serves all of the clients until it is stopped.
    Server(ServerArgs),
    /// Measures throughput by a stream of timestamps, and latency by probes beside it.
    Timing(TimingArgs),
    /// Downloads pages with pauses between them, as the web clients of the papers.
    Web(FetchArgs),
    /// Downloads files one after another, as the bulk clients of the papers.
    Bulk(FetchArgs),
    /// Opens streams and exchanges packets as a Markov model of TGen says.
    Markov(MarkovArgs),
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Where to listen; port 0 leaves the choice to the system, and the first line of the output tells.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Stop after that time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct OutputArgs {
    /// Write the lines to a file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ClientArgs {
    /// The traffic server.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_target)]
    server: Target,
    /// The SOCKS port of an onion proxy; default is no proxy.
    #[arg(long, value_name = "ADDRESS:PORT")]
    socks: Option<SocketAddr>,
    /// The SOCKS user name; Tor puts streams with different names on different circuits.
    #[arg(long, value_name = "NAME", requires = "socks")]
    user: Option<String>,
    /// How long the opening of a stream may take, and a transfer or a stall after it.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    timeout: Duration,
    /// The seed of the experiment.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This client's name in the experiment.
    #[arg(long, default_value = "client")]
    label: String,
    /// A label for every figure; may be repeated.
    #[arg(long = "figure-label", value_name = "KEY=VALUE", value_parser = figure_label)]
    figure_labels: Vec<(String, String)>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The stream of timestamps.
    Bulk,
    /// The probes.
    Probes,
}

#[derive(Debug, Args)]
struct TimingArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Leave the other part out.
    #[arg(long)]
    only: Option<Part>,
    /// How long to measure, after the stream has become steady.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    duration: Duration,
    /// The longest wait for a steady stream.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    warmup_max: Duration,
    /// The mean pause between probes.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    probe_pause: Duration,
    /// The rate of the stream in bytes per second; 0 is as fast as it goes.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    bulk_limit: u64,
}

#[derive(Debug, Args)]
struct FetchArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The experiment: n23-small, n23-large, pctcp-live or pctcp-large.
    #[arg(long, default_value = "n23-small", value_name = "NAME")]
    paper: String,
    /// The size of a download instead of the paper's: bytes, or from-to.
    #[arg(long, value_name = "BYTES", value_parser = range)]
    size: Option<[u64; 2]>,
    /// The pause after a download instead of the paper's: milliseconds, or from-to.
    #[arg(long, value_name = "MS", value_parser = range)]
    pause: Option<[u64; 2]>,
    /// Stop after so many downloads.
    #[arg(long)]
    count: Option<u64>,
    /// Begin no download after that time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
}

#[derive(Debug, Args)]
struct MarkovArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The model: JSON with stream_model, packet_model and, if --flow-interval is not given, flow_model.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The mean time from one flow to the next instead of the model's.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    flow_interval: Option<Duration>,
    /// Stop after so many flows.
    #[arg(long)]
    flows: Option<u64>,
    /// Stop after that time; default is a minute if --flows is not given.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Streams at one time; those beyond are left out.
    #[arg(long, default_value_t = 64)]
    streams_max: usize,
    /// Packets of one stream; longer ones are cut.
    #[arg(long, default_value_t = 20_000)]
    packets_max: usize,
}

/// Runs the program to its end or to Ctrl-C.
pub fn traffic(args: TrafficArgs) -> Result<ExitCode> {
    interrupt::install()?;
    match args.program {
        Program::Server(args) => serve(&args),
        Program::Timing(args) => {
            let mut options = TimingOptions::new(args.client.route(), args.client.identity());
            options.duration = args.duration;
            options.warmup_max = args.warmup_max;
            options.bulk = args.only != Some(Part::Probes);
            options.bulk_limit_b_s = args.bulk_limit;
            options.probe_pause = (args.only != Some(Part::Bulk)).then_some(args.probe_pause);
            report(&args.client.output, |stop, on_event| run_timing(&options, stop, on_event))
        }
        Program::Web(args) => fetches("web", &fetch::WEB_PROFILES, &args),
        Program::Bulk(args) => fetches("bulk", &fetch::BULK_PROFILES, &args),
        Program::Markov(args) => {
            let model = MarkovModel::read(&args.model)?;
            let mut options = MarkovOptions::new(args.client.route(), args.client.identity(), model);
            options.flow_interval = args.flow_interval;
            options.flows = args.flows;
            if args.flows.is_some() || args.duration.is_some() {
                options.duration = args.duration;
            }
            options.streams_max = args.streams_max;
            options.packets_max = args.packets_max;
            report(&args.client.output, |stop, on_event| run_markov(&options, stop, on_event))
        }
    }
}

fn serve(args: &ServerArgs) -> Result<ExitCode> {
    let stop = Stop::default();
    let mut lines = Lines::open(&args.output, &stop)?;
    let server = Server::start_at(args.listen)?;
    lines.write(&Event::Listening { addr: server.addr().to_string() }.to_json());
    match args.duration {
        Some(duration) => drop(stop.sleep_until(Instant::now() + duration)),
        None => while stop.sleep_until(Instant::now() + Duration::from_secs(3600)) {},
    }
    lines.close().map(|()| ExitCode::SUCCESS)
}

fn fetches(program: &str, profiles: &[Profile], args: &FetchArgs) -> Result<ExitCode> {
    let mut profile = fetch::profile(profiles, &args.paper)?;
    profile.size_bytes = args.size.unwrap_or(profile.size_bytes);
    profile.pause_ms = args.pause.unwrap_or(profile.pause_ms);
    let options = FetchOptions {
        program: program.into(),
        route: args.client.route(),
        identity: args.client.identity(),
        profile,
        count: args.count,
        duration: args.duration,
    };
    report(&args.client.output, |stop, on_event| run_fetches(&options, stop, on_event))
}

/// Runs a client and writes what it says. A client that measured nothing fails.
fn report(
    output: &OutputArgs,
    client: impl FnOnce(&Stop, &mut dyn FnMut(&Event)) -> Result<Report>,
) -> Result<ExitCode> {
    let stop = Stop::default();
    let mut lines = Lines::open(output, &stop)?;
    let report = client(&stop, &mut |event| lines.write(&event.to_json()))?;
    lines.write(&report.to_json());
    lines.close()?;
    if report.figures.is_empty() {
        eprintln!("heddle: nothing was measured; the summary counts what failed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

impl ClientArgs {
    fn route(&self) -> Route {
        let user = self.user.clone();
        Route {
            server: self.server.clone(),
            proxy: self.socks,
            isolation: user.map(|username| Isolation { username, password: "x".into() }),
            timeout: self.timeout,
        }
    }

    fn identity(&self) -> Identity {
        let labels: Labels = self.figure_labels.iter().cloned().collect();
        Identity { label: self.label.clone(), seed: self.seed, labels }
    }
}

/// The output, a line for each thing said.
struct Lines<'a> {
    out: Box<dyn Write>,
    stop: &'a Stop,
    failed: Option<io::Error>,
}

impl Lines<'_> {
    fn open<'a>(args: &OutputArgs, stop: &'a Stop) -> Result<Lines<'a>> {
        let out: Box<dyn Write> = match &args.out {
            None => Box::new(io::stdout()),
            Some(path) => {
                let file = File::create(path).map_err(Error::io(format!("creating {}", path.display())))?;
                Box::new(LineWriter::new(file))
            }
        };
        Ok(Lines { out, stop, failed: None })
    }

    /// A line that cannot be written ends the program, for nobody would read the others.
    fn write(&mut self, line: &str) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = writeln!(self.out, "{line}") {
            self.failed = Some(error);
            self.stop.ask();
        }
    }

    fn close(self) -> Result<()> {
        self.failed.map_or(Ok(()), |error| Err(Error::io("writing the output")(error)))
    }
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    let wrong = |_| format!("{text:?} is no time");
    match Duration::try_from_secs_f64(seconds).map_err(wrong)? {
        Duration::ZERO => Err("it must be more than nothing".into()),
        time if time > Duration::from_secs(365 * 86_400) => Err("it is more than a year".into()),
        time => Ok(time),
    }
}

fn range(text: &str) -> std::result::Result<[u64; 2], String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok([from, to]),
        _ => Err(format!("{text:?} is neither a number nor two as FROM-TO")),
    }
}

fn figure_label(text: &str) -> std::result::Result<(String, String), String> {
    let found = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = found.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "x", "-1", "0", "nan", "inf", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(range("300"), Ok([300, 300]));
        assert_eq!(range("100-500"), Ok([100, 500]));
        for wrong in ["", "-", "5-1", "a", "1-2-3"] {
            assert!(range(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(figure_label("wire=shared"), Ok(("wire".into(), "shared".into())));
        assert!(figure_label("=x").is_err() && figure_label("x").is_err());
    }
}
