//! `heddle sim`: networks in virtual time.

use crate::trace_cli::{self, TraceArgs};
use clap::{Args, Subcommand};
use heddle_dir::guard::guarded;
use heddle_lab::trace::Trace;
use heddle_network::swarm::{Outcome, Swarm};
use serde_json::json;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Examples for `heddle sim --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle sim swarm                          100 seeds of two minutes each, on all cores
  heddle sim swarm --seeds 10000 --minutes 10
  heddle sim swarm --first 4711 --seeds 1   one seed alone, to see again what it broke
  heddle sim swarm --first 4711 --seeds 1 --trace seed-4711
                                            the same with what went over the wires, and what became of circuits
  heddle sim swarm --json                   a line of JSON for each seed

Nothing leaves the process: relays, clients, servers, kernels and wires are all in it, and time is a number.";

/// How often progress is told where nobody sits at a terminal.
const TELL_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Does whatever chance says to networks of whole relays, and looks whether anything breaks.
    ///
    /// Each seed is a network that comes up from nothing: relays make their keys, publish, follow a consensus. Then
    /// circuits and streams come and go, relays are killed and started anew, wires lose, reorder, double and stop.
    /// What arrives is compared byte by byte with what was sent; nothing may be left of what was ended; and in the end
    /// files go over paths that begin at each relay but the exit. One seed gives one run of a build, bit for bit.
    Swarm(SwarmArgs),
}

#[derive(Clone, Debug, Args)]
struct SwarmArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; the others follow.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    first: u64,
    /// Virtual time of each, after its network has come up.
    #[arg(long, default_value_t = 2.0, value_parser = minutes)]
    minutes: f64,
    /// Seeds at the same time; as many as there are cores by default.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Prints a line of JSON for each seed.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trace: TraceArgs,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("`{text}` is no number of minutes"))?;
    match minutes > 0.0 && minutes <= 10_000.0 {
        true => Ok(minutes),
        false => Err("it must be above 0 and at most 10,000".to_owned()),
    }
}

/// What came of a seed: what happened, or what was broken.
type SeedResult = Result<Outcome, String>;

/// Does what the arguments say.
pub fn run(args: SimArgs) -> Result<ExitCode, Box<dyn Error>> {
    let Command::Swarm(args) = args.command;
    if args.trace.dir().is_some() && args.seeds != 1 {
        return Err("a trace is of one seed: add --seeds 1, and --first for another than 0".into());
    }
    let trace = args.trace.clone().begin()?;
    let started = Instant::now();
    let mut failed = Vec::new();
    let mut total = Total::default();
    each_seed(&args, trace.as_ref(), started, |seed, result| {
        if args.json {
            println!("{}", line(seed, &result));
        }
        match result {
            Ok(outcome) => total.add(&outcome),
            Err(what) => {
                eprintln!("seed {seed} broke: {what}\n  again: {}", command(&args, seed));
                failed.push(seed);
            }
        }
    })?;
    if let Some(trace) = &trace {
        trace_cli::end(trace)?;
    }
    if !args.json {
        print!("{}", total.text(started.elapsed()));
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} of {} seeds broke something:", failed.len(), args.seeds);
    failed.iter().for_each(|seed| println!("  {}", command(&args, *seed)));
    Ok(ExitCode::FAILURE)
}

/// The command that runs one seed again, and writes down what happens.
fn command(args: &SwarmArgs, seed: u64) -> String {
    format!("heddle sim swarm --first {seed} --seeds 1 --minutes {} --trace seed-{seed}", args.minutes)
}

/// Runs a seed.
fn run_seed(seed: u64, time: Duration, trace: Option<&Trace>) -> Result<SeedResult, heddle_lab::Error> {
    let traced = || {
        let mut swarm = Swarm::new(seed);
        if let Some(trace) = trace {
            let net = swarm.net();
            let names = net.host_names();
            if let Some(logs) = trace.attach(&mut net.sim, &names)? {
                net.follow_circuits(logs);
            }
        }
        Ok(swarm.run(time))
    };
    // Nothing is used any more of a network in which something broke.
    guarded(traced).map_or_else(|what| Ok(Err(what)), |outcome| outcome.map(Ok))
}

/// Runs all seeds on so many threads, and has each result told here.
fn each_seed(
    args: &SwarmArgs,
    trace: Option<&Trace>,
    started: Instant,
    mut tell: impl FnMut(u64, SeedResult),
) -> Result<(), Box<dyn Error>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let (sender, results) = mpsc::channel();
    let time = Duration::from_secs_f64(args.minutes * 60.0);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(cores).clamp(1, 1024) {
            let (sender, next) = (sender.clone(), &next);
            std::thread::Builder::new().name("seed".into()).spawn_scoped(scope, move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= args.seeds {
                        return;
                    }
                    let seed = args.first.wrapping_add(place);
                    let _ = sender.send((seed, run_seed(seed, time, trace)));
                }
            })?;
        }
        drop(sender);
        let is_seen = std::io::stderr().is_terminal();
        let every = if is_seen { Duration::from_secs(1) } else { TELL_EVERY };
        let (mut done, mut told_at) = (0, Instant::now());
        loop {
            match results.recv_timeout(every) {
                Ok((seed, result)) => {
                    done += 1;
                    tell(seed, result?);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if told_at.elapsed() >= every {
                told_at = Instant::now();
                eprintln!("{}", progress(done, args.seeds, started.elapsed()));
            }
        }
        Ok(())
    })
}

fn progress(done: u64, of: u64, took: Duration) -> String {
    let left = match done {
        0 => "no seed is done yet".to_owned(),
        _ => format!("about {:.0} s left", took.as_secs_f64() * (of - done) as f64 / done as f64),
    };
    format!("[{left}] {done} of {of} seeds")
}

fn line(seed: u64, result: &SeedResult) -> serde_json::Value {
    match result {
        Ok(outcome) => json!({
            "seed": seed,
            "hash": outcome.hash.to_string(),
            "virtual_s": outcome.time.as_secs_f64(),
            "relays": outcome.relays,
            "shards": outcome.shards,
            "circuits": outcome.circuits,
            "streams": outcome.streams,
            "checked_bytes": outcome.bytes,
            "faults": outcome.faults,
        }),
        Err(what) => json!({ "seed": seed, "broke": what }),
    }
}

/// What happened in all seeds.
#[derive(Default)]
struct Total {
    seeds: u64,
    time: Duration,
    relays: usize,
    circuits: u64,
    streams: u64,
    bytes: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.time += outcome.time;
        self.relays += outcome.relays;
        self.circuits += outcome.circuits;
        self.streams += outcome.streams;
        self.bytes += outcome.bytes;
        for (fault, times) in &outcome.faults {
            *self.faults.entry(fault).or_default() += times;
        }
    }

    fn text(&self, took: Duration) -> String {
        let hours = self.time.as_secs_f64() / 3600.0;
        let mut text = format!(
            "{} seeds held: {} relays, {} circuits, {} streams, {:.1} MB compared, {hours:.1} hours of virtual time in {:.0} s\n",
            self.seeds,
            self.relays,
            self.circuits,
            self.streams,
            self.bytes as f64 / 1e6,
            took.as_secs_f64(),
        );
        let faults: Vec<String> =
            self.faults.iter().map(|(fault, times)| format!("{times} {fault}")).collect();
        text.push_str(&format!("  beside {}\n", faults.join(", ")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: SimArgs,
    }

    fn parse(arguments: &[&str]) -> Result<SwarmArgs, String> {
        let arguments = ["sim", "swarm"].iter().chain(arguments);
        let Command::Swarm(args) =
            Only::try_parse_from(arguments).map_err(|error| error.to_string())?.args.command;
        Ok(args)
    }

    #[test]
    fn minutes_are_a_time() {
        assert_eq!(parse(&["--minutes", "0.5"]).unwrap().minutes, 0.5);
        for bad in ["0", "-1", "NaN", "inf", "much"] {
            assert!(parse(&["--minutes", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_seed_is_run_once_and_the_command_runs_it_again() {
        let args = parse(&["--seeds", "3", "--first", "7", "--minutes", "0.01"]).unwrap();
        let mut seen = Vec::new();
        each_seed(&args, None, Instant::now(), |seed, result| seen.push((seed, result.unwrap().hash)))
            .unwrap();
        seen.sort_by_key(|(seed, _)| *seed);
        assert_eq!(seen.iter().map(|(seed, _)| *seed).collect::<Vec<_>>(), [7, 8, 9]);
        let again = command(&args, 8);
        let again = parse(&again.split(' ').skip(3).collect::<Vec<_>>()).unwrap();
        assert_eq!(again.trace.dir(), Some(std::path::Path::new("seed-8")));
        each_seed(&again, None, Instant::now(), |seed, result| {
            assert_eq!((seed, result.unwrap().hash), seen[1]);
        })
        .unwrap();
    }

    #[test]
    fn what_is_chosen_of_a_trace_needs_one() {
        for of_it in ["--trace-wire=a-b", "--trace-headers", "--trace-circuit=1", "--trace-bytes-max=1"] {
            assert!(parse(&[of_it]).unwrap_err().contains("--trace"), "{of_it}");
            assert!(parse(&[of_it, "--trace", "dir"]).is_ok(), "{of_it}");
        }
    }
}
