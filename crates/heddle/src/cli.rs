//! The command line.

use crate::bench_cli::{self, BenchArgs};
use crate::demo_cli::{self, DemoArgs};
use crate::emulate::{self, EmulateArgs};
use crate::lab_cli::{self, LabArgs};
use crate::observe_cli::{self, ObserveArgs};
use crate::proxy_cli::{self, ProxyArgs};
use crate::relay_cli::{self, RelayArgs};
use crate::sim_cli::{self, SimArgs};
use crate::traffic::{self, TrafficArgs};
use clap::{Parser, Subcommand};
use std::error::Error;
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
    #[command(after_help = relay_cli::examples("heddle relay"))]
    Relay(RelayArgs),
    /// Runs a laboratory's onion proxy in a private network; it is no user's client.
    #[command(after_help = proxy_cli::EXAMPLES)]
    Proxy(ProxyArgs),
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
    /// Runs whole networks in virtual time.
    #[command(after_help = sim_cli::EXAMPLES)]
    Sim(SimArgs),
    /// Looks into a relay on this machine while it runs.
    #[command(after_help = observe_cli::EXAMPLES)]
    Observe(ObserveArgs),
    /// Makes traffic for a network under test, and times it.
    #[command(after_help = traffic::EXAMPLES)]
    Traffic(TrafficArgs),
}

/// Reads the command line, does what it says, and tells what to exit with.
pub fn run() -> Result<ExitCode, Box<dyn Error>> {
    match Cli::parse().command {
        Command::Relay(args) => relay_cli::run(args),
        Command::Proxy(args) => proxy_cli::run(args),
        Command::Demo(args) => demo_cli::run(args),
        Command::Bench(args) => bench_cli::run(args),
        Command::Lab(args) => lab_cli::run(args),
        Command::Emulate(args) => Ok(emulate::emulate(args)?),
        Command::Sim(args) => sim_cli::run(args),
        Command::Observe(args) => observe_cli::run(args),
        Command::Traffic(args) => Ok(traffic::traffic(args)?),
    }
}
