//! The command line of the relay: `heddle relay`, and the whole of `heddle-relay`.

use crate::relay;
use clap::Args;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `--help` ends with, where the program is called `program`.
pub fn examples(program: &str) -> String {
    format!(
        "\
Examples:
  {program} -f /etc/tor/torrc             run with that torrc
  {program} -f torrc --verify-config      read it, say what is wrong with it, and stop
  {program} -f torrc --list-fingerprint   make the keys if there are none, and say who we are

Signals:
  INT    take no new circuits, stop after ShutdownWaitLength; a second one stops at once
  TERM   stop at once
  HUP    read the name servers again and open the log files anew"
    )
}

#[derive(Debug, Args)]
pub struct RelayArgs {
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

/// Runs the relay until a signal ends it, or does the one thing that was asked for.
pub fn run(args: RelayArgs) -> Result<ExitCode, Box<dyn Error>> {
    let mut layers = Vec::new();
    layers.extend(args.defaults_torrc);
    layers.push(args.torrc);
    match (args.verify_config, args.list_fingerprint) {
        (true, _) => relay::verify_config(&layers)?,
        (false, true) => relay::list_fingerprint(&layers)?,
        (false, false) => relay::run(&layers)?,
    }
    Ok(ExitCode::SUCCESS)
}
