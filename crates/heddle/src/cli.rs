//! The command line.

use crate::bench_cli::{self, BenchArgs};
use crate::demo_cli::{self, DemoArgs};
use crate::emulate::{self, EmulateArgs};
use crate::lab_cli::{self, LabArgs};
use crate::relay;
use crate::traffic::{self, TrafficArgs};
use clap::{Args, Parser, Subcommand};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Browses beside a bulk download over three Heddle relays and over three stock ones, side by side.
    #[command(after_help = demo_cli::EXAMPLES)]
    Demo(DemoArgs),
    /// Measures what relays cost, stock Tor's and each transport's.
    #[command(after_help = bench_cli::EXAMPLES)]
    Bench(BenchArgs),
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
        Command::Demo(args) => return demo_cli::run(args),
        Command::Bench(args) => return bench_cli::run(args),
        Command::Lab(args) => return lab_cli::run(args),
        Command::Emulate(args) => return Ok(emulate::emulate(args)?),
        Command::Traffic(args) => return Ok(traffic::traffic(args)?),
    }
    Ok(ExitCode::SUCCESS)
}
