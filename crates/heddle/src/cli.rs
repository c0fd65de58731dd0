//! The command line.

use crate::emulate::{self, EmulateArgs};
use crate::lab_cli::{self, LabArgs};
use crate::relay;
use crate::traffic::{self, TrafficArgs};
use clap::{Args, Parser, Subcommand};
use heddle_lab::demo::{self, Arm, DemoOptions, Position};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// An onion relay, a drop-in peer of stock Tor, in which every circuit has its own flow.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a relay from an operator's own torrc.
    #[command(after_help = RELAY_EXAMPLES)]
    Relay(RelayArgs),
    /// Downloads a file over three Heddle relays and over three stock ones, side by side.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Runs experiments over emulated wires and draws their reports.
    #[command(after_help = lab_cli::EXAMPLES)]
    Lab(LabArgs),
    /// Runs programs in hosts that are joined by emulated wires.
    #[command(after_help = emulate::EXAMPLES)]
    Emulate(EmulateArgs),
    /// Makes traffic for a network under test, and times it.
    #[command(after_help = traffic::EXAMPLES)]
    Traffic(TrafficArgs),
}

const RELAY_EXAMPLES: &str = "\
Examples:
  heddle relay -f /etc/tor/torrc             run with that torrc
  heddle relay -f torrc --verify-config      read it, say what is wrong with it, and stop
  heddle relay -f torrc --list-fingerprint   make the keys if there are none, and say who we are

Signals:
  INT    take no new circuits, stop after ShutdownWaitLength; a second one stops at once
  TERM   stop at once
  HUP    read the name servers again and open the log files anew";

const DEMO_EXAMPLES: &str = "\
Examples:
  heddle demo                       the whole comparison, at most three minutes
  heddle demo --heddle middle       only the middle relay is Heddle's in the first arm
  heddle demo --megabytes 20 --arms heddle

It starts three stock authorities, the relays and one stock client on loopback addresses, and leaves
nothing behind but summary.json.";

#[derive(Debug, Args)]
struct RelayArgs {
    /// The torrc.
    #[arg(short = 'f', long = "torrc-file", value_name = "FILE")]
    torrc: PathBuf,
    /// A torrc whose options hold where the other says nothing.
    #[arg(long, value_name = "FILE")]
    defaults_torrc: Option<PathBuf>,
    /// Only read the torrc and say what is wrong with it.
    #[arg(long)]
    verify_config: bool,
    /// Only make the keys if there are none, and print nickname and fingerprint.
    #[arg(long)]
    list_fingerprint: bool,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// The positions at which the first arm has Heddle relays.
    #[arg(long, value_delimiter = ',', default_value = "guard,middle,exit", value_name = "POSITIONS")]
    heddle: Vec<Position>,
    /// What is compared.
    #[arg(long, value_delimiter = ',', default_value = "heddle,stock", value_name = "ARMS")]
    arms: Vec<Arm>,
    /// Size of the download.
    #[arg(long, default_value_t = 100)]
    megabytes: u64,
    /// Time for all of it.
    #[arg(long, default_value_t = 175, value_name = "SECONDS")]
    budget: u64,
    /// Where summary.json goes.
    #[arg(long, default_value = "target/demo", value_name = "DIR")]
    out: PathBuf,
}

/// Reads the command line, does what it says, and tells what to exit with.
pub fn run() -> Result<ExitCode, Box<dyn Error>> {
    match Cli::parse().command {
        Command::Relay(args) => {
            let mut layers = Vec::new();
            layers.extend(args.defaults_torrc);
            layers.push(args.torrc);
            match (args.verify_config, args.list_fingerprint) {
                (true, _) => relay::verify_config(&layers)?,
                (false, true) => relay::list_fingerprint(&layers)?,
                (false, false) => relay::run(&layers)?,
            }
        }
        Command::Demo(args) => {
            let options = DemoOptions {
                arms: args.arms,
                heddle_positions: args.heddle,
                download_bytes: args.megabytes * 1_000_000,
                budget: Duration::from_secs(args.budget),
                out_dir: args.out,
                ..DemoOptions::default()
            };
            demo::demo(&options)?;
        }
        Command::Lab(args) => return lab_cli::run(args),
        Command::Emulate(args) => return Ok(emulate::emulate(args)?),
        Command::Traffic(args) => return Ok(traffic::traffic(args)?),
    }
    Ok(ExitCode::SUCCESS)
}
