//! `heddle bench`: what relays cost.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::circuits_bench::{self, CircuitsArgs};
use crate::output;
use clap::{Args, Subcommand};
use heddle_lab::arm::Transport;
use heddle_lab::bench::{self, BenchOptions};

/// Examples for `heddle bench --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle bench                               stock Tor, and Heddle over TLS and each of its transports
  heddle bench --kinds stock,tls --rounds 3
  heddle bench --networks 6 --rounds 3       intervals over networks, not over rounds in one
  heddle bench --circuits 1 --megabytes 100  one busy circuit instead of eight
  heddle bench --kinds tls,quic,tcp-dtls --rounds 2 --costs costs.json   what operations cost, for virtual time
  heddle bench --json
  heddle bench circuits --kinds tcp-dtls     10,000 circuits between two relays: how fast, and in how much memory

It starts a private network on a host of its own (a network namespace: root, or unprivileged user namespaces)
and leaves nothing behind but summary.json and samples.json. Ratios are over the first kind. It ends with 0 when its
results are valid, with 2 when they are not, and with 1 when they could not be made.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    other: Option<Other>,
    /// What is compared: stock, tls, and transports by their names. Default: all that this machine can have.
    #[arg(long, value_delimiter = ',', default_values_t = Transport::here(), value_name = "KINDS")]
    kinds: Vec<Transport>,
    /// Circuits at the same time.
    #[arg(long, default_value_t = BenchOptions::default().circuits)]
    circuits: usize,
    /// Stock clients.
    #[arg(long, default_value_t = BenchOptions::default().clients)]
    clients: usize,
    /// Size of the download over each circuit.
    #[arg(long, default_value_t = BenchOptions::default().download_bytes / 1_000_000)]
    megabytes: u64,
    /// How many networks come up, one after the other. Of several each counts once in an interval.
    #[arg(long, default_value_t = BenchOptions::default().networks)]
    networks: usize,
    /// Most rounds in each network; fewer are made when time is short.
    #[arg(long, default_value_t = BenchOptions::default().rounds_max)]
    rounds: usize,
    /// Time for each network.
    #[arg(long, default_value_t = BenchOptions::default().budget.as_secs(), value_name = "SECONDS")]
    budget: u64,
    /// The congestion control of TCP between all of them, as Linux names it.
    #[arg(long, default_value_t = BenchOptions::default().congestion_control, value_name = "NAME")]
    congestion_control: String,
    /// Where summary.json goes.
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    out: PathBuf,
    /// Writes a table of what operations of relays cost on this machine, for `heddle lab run --backend sim --cpu`; each
    /// kind but stock carries more loads in each round then.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Prints the summary as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Opens many circuits between two relays of each kind.
    Circuits(CircuitsArgs),
}

/// Does what the arguments say.
pub fn run(args: BenchArgs) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(Other::Circuits(args)) = &args.other {
        return circuits_bench::run(args);
    }
    let options = BenchOptions {
        kinds: args.kinds,
        circuits: args.circuits,
        clients: args.clients,
        download_bytes: args.megabytes.saturating_mul(1_000_000),
        networks: args.networks,
        rounds_max: args.rounds,
        budget: Duration::from_secs(args.budget),
        congestion_control: args.congestion_control,
        out_dir: args.out,
        costs: args.costs,
        command: output::command_line(),
        ..BenchOptions::default()
    };
    let mut last = String::new();
    let summary = bench::bench(&options, &mut |step, left| {
        if last != step {
            eprintln!("[at most {:>3} s left] {step}", left.as_secs());
            last = step.to_owned();
        }
    })?;
    output::tell(&summary, args.json)
}
