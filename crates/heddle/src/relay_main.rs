//! The `heddle-relay` program: the relay alone, which links no laboratory.

use clap::Parser;
use heddle::relay_cli::{self, RelayArgs};
use mimalloc::MiMalloc;
use std::process::ExitCode;

/// As in the `heddle` program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// An onion relay, a drop-in peer of stock Tor, in which every circuit has its own flow.
#[derive(Debug, Parser)]
#[command(name = "heddle-relay", version, after_help = relay_cli::examples("heddle-relay"))]
struct Cli {
    #[command(flatten)]
    relay: RelayArgs,
}

fn main() -> ExitCode {
    match relay_cli::run(Cli::parse().relay) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("heddle-relay: {error}");
            ExitCode::FAILURE
        }
    }
}
