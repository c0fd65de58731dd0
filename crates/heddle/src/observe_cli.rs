//! `heddle observe`: looks into a relay on this machine while it runs.

use clap::{Args, Subcommand};
use heddle_spe::{MODULE_BYTES_MAX, Request, Watch, When, Which};
use serde_json::{Value, json};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::observe_draw::Seen;
use crate::relay::observe::SOCKET;

/// Examples for `heddle observe --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle observe -d /var/lib/heddle list                        families, series, places, observers, watches
  heddle observe -d DIR watch lanes --every 100ms --for 10s     the length of every circuit's queues
  heddle observe -d DIR watch connections --index 4294967297 --every 10ms --json
  heddle observe -d DIR watch lanes --at before-push > queue    each queue before each cell that joins it
  heddle observe -d DIR draw lanes cells --every 100ms --for 10s --out lanes.html
  heddle observe -d DIR load changes crates/spe/observers/changes.wat
  heddle observe -d DIR watch lanes --every 1ms --with changes  only what has changed, by an observer
  heddle observe -d DIR collect on cell
  heddle observe -d DIR collect show cell                       how long a cell takes: its distribution

The relay's torrc needs `HeddleObserve 1`, and you the right to open observe.sock in its DataDirectory. What is shown
tells single circuits apart: keep none of it about people's traffic longer than you need it.";

#[derive(Debug, Args)]
pub struct ObserveArgs {
    /// The DataDirectory of the relay.
    #[arg(short = 'd', long, value_name = "DIR")]
    data_directory: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Says what can be observed, what is, and by whom.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Looks at all of a family, or at one, until it is interrupted.
    Watch(WatchArgs),
    /// Looks at a family for a while and draws one of its fields: over time, and as a distribution.
    Draw(DrawArgs),
    /// Takes times down, or tells those that were.
    Collect {
        /// What to do.
        what: Collect,
        /// A series, or `all`.
        #[arg(default_value = "all")]
        series: String,
        /// Prints JSON, of `show`.
        #[arg(long)]
        json: bool,
    },
    /// Loads an observer, in the place of the one of that name if there is one: a WebAssembly module, as bytes or text.
    Load {
        /// What to call it.
        name: String,
        /// The module.
        file: PathBuf,
    },
    /// Forgets an observer.
    Unload {
        /// Which.
        name: String,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Collect {
    On,
    Off,
    Clear,
    Show,
}

#[derive(Debug, Args)]
struct WatchArgs {
    /// The family.
    family: String,
    /// One observee alone.
    #[arg(long, value_name = "NUMBER")]
    index: Option<u64>,
    /// How often.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "at", required_unless_present = "at")]
    every: Option<Duration>,
    /// Each time that the relay comes by this place.
    #[arg(long, value_name = "PLACE")]
    at: Option<String>,
    /// The observer that makes records of what is seen.
    #[arg(long, value_name = "OBSERVER")]
    with: Option<String>,
    /// For how long.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    lasts: Option<Duration>,
    /// Prints a line of JSON for each observee or record.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DrawArgs {
    /// The family.
    family: String,
    /// The field.
    field: String,
    /// One observee alone.
    #[arg(long, value_name = "NUMBER")]
    index: Option<u64>,
    /// How often.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "100ms")]
    every: Duration,
    /// For how long.
    #[arg(long = "for", value_name = "TIME", value_parser = time, default_value = "10s")]
    lasts: Duration,
    /// The file to write, HTML that needs nothing else.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn time(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 =
        text[..digits].parse().map_err(|_| format!("`{text}` is no time, such as 100ms or 2s"))?;
    match &text[digits..] {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(format!("`{text}` needs a unit: us, ms or s")),
    }
}

/// Does what the arguments say.
pub fn run(args: ObserveArgs) -> Result<ExitCode, Box<dyn Error>> {
    let mut relay = Relay::connect(&args.data_directory)?;
    match args.command {
        Command::List { json } => {
            let lines = relay.ask(&Request::List, &[])?;
            tell(&lines, json)?;
        }
        Command::Watch(watch) => follow(relay, watch)?,
        Command::Draw(args) => draw(relay, &args)?,
        Command::Collect { what, series, json } => {
            let which = if series == "all" { Which::All } else { Which::Named(series) };
            let request = match what {
                Collect::On => Request::Collect { on: true, which },
                Collect::Off => Request::Collect { on: false, which },
                Collect::Clear => Request::Clear(which),
                Collect::Show => Request::Show(which),
            };
            tell(&relay.ask(&request, &[])?, json)?;
        }
        Command::Load { name, file } => {
            let module = module(&file)?;
            let bytes = module.len();
            relay.ask(&Request::Load { name, bytes }, &module)?;
        }
        Command::Unload { name } => {
            relay.ask(&Request::Unload { name }, &[])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a module of WebAssembly, and makes one of its text.
fn module(file: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let refused = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| refused(&error))?;
    // The text of a module that is not too long has a few times its bytes.
    opened.take(16 * MODULE_BYTES_MAX as u64).read_to_end(&mut bytes).map_err(|error| refused(&error))?;
    let module = wat::parse_bytes(&bytes).map_err(|error| refused(&error))?.into_owned();
    if module.len() > MODULE_BYTES_MAX {
        return Err(refused(&format_args!("an observer has at most {MODULE_BYTES_MAX} bytes")).into());
    }
    Ok(module)
}

/// Prints what a watch brings, until its time is over or the relay ends it.
fn follow(mut relay: Relay, args: WatchArgs) -> Result<(), Box<dyn Error>> {
    let when = match (args.every, args.at) {
        (Some(period), _) => When::Every(period),
        (None, place) => When::At(place.unwrap_or_default()),
    };
    let watch = Watch { family: args.family, index: args.index, when, observer: args.with };
    let begun = relay.ask(&Request::Watch(watch), &[])?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let fields = fields(&begun);
    let mut say = |line: &str| match args.json {
        true => writeln!(out, "{}", json_of(line, &fields)).and_then(|()| out.flush()),
        false => writeln!(out, "{line}").and_then(|()| out.flush()),
    };
    begun.iter().filter(|_| !args.json).try_for_each(|line| say(line))?;
    each_line(relay, args.lasts, &mut |line| match say(line) {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        said => said.map(|()| true),
    })
}

/// Takes what a watch brings for a while, and writes a drawing of it.
fn draw(mut relay: Relay, args: &DrawArgs) -> Result<(), Box<dyn Error>> {
    let when = When::Every(args.every);
    let watch = Watch { family: args.family.clone(), index: args.index, when, observer: None };
    let begun = relay.ask(&Request::Watch(watch), &[])?;
    let fields = fields(&begun);
    let place = fields.iter().position(|(name, _)| *name == args.field);
    let known = || fields.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
    let place =
        place.ok_or_else(|| format!("{} has no field `{}`, but {}", args.family, args.field, known()))?;
    // It says when nothing can be written before it looks for that long.
    let file = std::fs::File::create(&args.out).map_err(|error| format!("{}: {error}", args.out.display()));
    let mut file = file?;
    let mut seen = Seen::default();
    each_line(relay, Some(args.lasts), &mut |line| {
        seen.take(line, place);
        Ok(true)
    })?;
    file.write_all(seen.draw(&args.family, &args.field, &fields[place].1).as_bytes())?;
    crate::output::print(&format!("{} written\n", args.out.display()))
}

/// Has `each` take every line that a watch brings, until it says that it has enough, the time is over or the relay ends
/// the watch.
fn each_line(
    relay: Relay,
    lasts: Option<Duration>,
    each: &mut dyn FnMut(&str) -> io::Result<bool>,
) -> Result<(), Box<dyn Error>> {
    // What is too far away to be told never comes.
    let until = lasts.and_then(|lasts| Instant::now().checked_add(lasts));
    let lines = relay.into_lines()?;
    loop {
        let next = match until {
            Some(until) => lines.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let line = match next {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err("the relay closed the connection".into()),
        };
        if let Some(why) = line.strip_prefix("ended\t").and_then(|rest| rest.split_once('\t')) {
            return Err(why.1.to_owned().into());
        }
        // Where lines come faster than they are taken there is always a next one.
        if !each(&line)? || until.is_some_and(|until| until <= Instant::now()) {
            return Ok(());
        }
    }
}

/// The names and units of the fields of what a watch brings, of its first line.
fn fields(begun: &[String]) -> Vec<(String, String)> {
    let words = begun
        .iter()
        .find(|line| line.starts_with("watching\t"))
        .into_iter()
        .flat_map(|line| line.split('\t'));
    words.skip(3).map(|field| field.split_once(':').unwrap_or((field, "1"))).map(owned).collect()
}

fn owned((name, unit): (&str, &str)) -> (String, String) {
    (name.to_owned(), unit.to_owned())
}

/// Prints an answer.
fn tell(lines: &[String], json: bool) -> Result<(), Box<dyn Error>> {
    for line in lines {
        match json {
            true => crate::output::print(&format!("{}\n", json_of(line, &[])))?,
            false => crate::output::print(&format!("{line}\n"))?,
        }
    }
    Ok(())
}

/// A line of the relay's as JSON. `fields` are the names of what a row has.
fn json_of(line: &str, fields: &[(String, String)]) -> Value {
    let words: Vec<&str> = line.split('\t').collect();
    let number = |word: &str| word.parse::<i64>().map_or_else(|_| json!(word), |number| json!(number));
    let pairs = |words: &[&str]| -> Vec<Value> {
        words.iter().filter_map(|word| word.split_once(':')).map(|(a, b)| json!([a, b])).collect()
    };
    match *words.as_slice() {
        ["row", watch, time_ns, shard, index, ref values @ ..] => {
            let named = fields.iter().zip(values).map(|((name, _), value)| (name.clone(), number(value)));
            let of: serde_json::Map<String, Value> = named.collect();
            json!({"watch": number(watch), "time_ns": number(time_ns), "shard": number(shard), "index": number(index),
                "fields": of})
        }
        ["record", watch, time_ns, shard, ref values @ ..] => {
            let values: Vec<Value> = values.iter().map(|value| number(value)).collect();
            json!({"watch": number(watch), "time_ns": number(time_ns), "shard": number(shard), "record": values})
        }
        ["left-out", watch, count] => json!({"watch": number(watch), "left_out": number(count)}),
        ["cdf", series, index, count, mean, ref cdf @ ..] => {
            let cdf: Vec<Value> = cdf
                .iter()
                .filter_map(|step| step.split_once(':'))
                .filter_map(|(value, share)| {
                    Some(json!([value.parse::<u64>().ok()?, share.parse::<f64>().ok()?]))
                })
                .collect();
            json!({"series": series, "index": number(index), "count": number(count),
                "mean": mean.parse::<f64>().ok(), "cdf": cdf})
        }
        ["family", name, about, ref fields @ ..] => {
            json!({"family": name, "about": about, "fields": pairs(fields)})
        }
        ["series", name, unit, on, about] => {
            json!({"series": name, "unit": unit, "on": on == "on", "about": about})
        }
        ["place", name, family] => json!({"place": name, "family": family}),
        ["observer", name] => json!({"observer": name}),
        ["watch", watch, request] => json!({"watch": number(watch), "request": request}),
        _ => json!({"said": line}),
    }
}

/// A relay that lets itself be observed.
struct Relay {
    stream: BufReader<UnixStream>,
}

impl Relay {
    fn connect(data_directory: &Path) -> Result<Relay, Box<dyn Error>> {
        let path = data_directory.join(SOCKET);
        let stream = UnixStream::connect(&path).map_err(|error| {
            format!(
                "{}: {error}; is there a relay with this DataDirectory and `HeddleObserve 1` in its torrc?",
                path.display()
            )
        })?;
        Ok(Relay { stream: BufReader::new(stream) })
    }

    /// The lines of an answer.
    fn ask(&mut self, request: &Request, module: &[u8]) -> Result<Vec<String>, Box<dyn Error>> {
        let stream = self.stream.get_mut();
        writeln!(stream, "{request}")?;
        stream.write_all(module)?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the relay closed the connection".into());
            }
            let line = line.trim_end_matches('\n');
            match line.strip_prefix("error: ") {
                Some(why) => return Err(why.to_owned().into()),
                None if line == "ok" => return Ok(lines),
                None => lines.push(line.to_owned()),
            }
        }
    }

    /// What comes from now on. A thread reads, so that whoever waits for a line can wait for a time, too.
    fn into_lines(self) -> io::Result<mpsc::Receiver<io::Result<String>>> {
        let (sender, lines) = mpsc::sync_channel(1024);
        let read = move || {
            for line in self.stream.lines() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("lines".into()).spawn(read)?;
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!((time("2s"), time("7us")), (Ok(Duration::from_secs(2)), Ok(Duration::from_micros(7))));
        assert!(time("100").unwrap_err().contains("unit") && time("ms").is_err() && time("1h").is_err());
    }

    #[test]
    fn lines_become_json() {
        let fields = [("cells", "cells"), ("oldest_ns", "ns")].map(owned);
        let row = json_of("row\t3\t1000\t0\t7\t5\t-2", &fields);
        assert_eq!(row["fields"], json!({"cells": 5, "oldest_ns": -2}));
        assert_eq!((&row["time_ns"], &row["index"]), (&json!(1000), &json!(7)));
        assert_eq!(json_of("record\t3\t1000\t0\t7\t5", &[])["record"], json!([7, 5]));
        assert_eq!(json_of("cdf\tcell\t0\t2\t15.0\t10:0.5\t20:1", &[])["cdf"], json!([[10, 0.5], [20, 1.0]]));
        assert_eq!(json_of("what is this", &[]), json!({"said": "what is this"}));
    }
}
