//! `heddle demo`: Heddle relays and stock ones side by side.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use heddle_lab::demo::{self, Arm, DemoOptions, Position, Wires};

use crate::output;

/// Examples for `heddle demo --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle demo                        the whole comparison on emulated wires, at most three minutes
  heddle demo --heddle middle        only the middle relay is Heddle's in the first arm
  heddle demo --arms heddle --rounds 1
  heddle demo --megabytes 5 --page-kilobytes 1000 --budget 600 --rounds 20
  heddle demo --network mine.toml    hosts and wires of your own; start from crates/lab/src/demo/network.toml
  heddle demo --loopback             no wires: one download of 100 MB over loopback
  heddle demo --loopback --megabytes 20 --arms heddle

It starts three stock authorities, the relays and the stock clients, and leaves nothing behind but
summary.json and report.html. Where the machine has no emulated wires (they need root, or unprivileged user
namespaces, and /dev/net/tun) it says what is missing and takes loopback; `wires` in summary.json says which.
A run in which the emulator was late is written with `valid: false` and the reasons, and ends with 2.";

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The positions at which the first arm has Heddle relays.
    #[arg(long, value_delimiter = ',', default_value = "guard,middle,exit", value_name = "POSITIONS")]
    heddle: Vec<Position>,
    /// What is compared.
    #[arg(long, value_delimiter = ',', default_value = "heddle,stock", value_name = "ARMS")]
    arms: Vec<Arm>,
    /// Puts all processes on loopback, and compares one download and nothing beside it.
    #[arg(long, conflicts_with_all = ["network", "page_kilobytes"])]
    loopback: bool,
    /// Hosts and wires, as for `heddle emulate`. Default: the demo's own.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Size of a bulk download. Default: 1 on emulated wires, 100 on loopback.
    #[arg(long)]
    megabytes: Option<u64>,
    /// Size of a web page.
    #[arg(long, default_value_t = 300)]
    page_kilobytes: u64,
    /// Most rounds; fewer are made when time is short.
    #[arg(long, default_value_t = DemoOptions::default().rounds_max)]
    rounds: usize,
    /// Decides all that chance does to packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time for all of it.
    #[arg(long, default_value_t = 175, value_name = "SECONDS")]
    budget: u64,
    /// Where summary.json and report.html go.
    #[arg(long, default_value = "target/demo", value_name = "DIR")]
    out: PathBuf,
}

/// Does what the arguments say.
pub fn run(args: DemoArgs) -> Result<ExitCode, Box<dyn Error>> {
    let options = DemoOptions {
        arms: args.arms,
        heddle_positions: args.heddle,
        wires: if args.loopback { Wires::Loopback } else { Wires::Emulated },
        network: args.network,
        download_bytes: args.megabytes.map(|megabytes| megabytes.saturating_mul(1_000_000)),
        page_bytes: args.page_kilobytes.saturating_mul(1000),
        rounds_max: args.rounds,
        seed: args.seed,
        budget: Duration::from_secs(args.budget),
        out_dir: args.out,
        command: output::command_line(),
        ..DemoOptions::default()
    };
    Ok(output::validity(&demo::demo(&options)?))
}
