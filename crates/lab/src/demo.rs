//! The project's main job: the same download over Heddle relays and over stock ones, side by side.
//!
//! 1. A private network comes up with every relay that any arm needs.
//! 2. In each round, each arm builds a circuit over its three relays, fetches a few single bytes for
//!    the time to the first byte, then one large file. Arms take turns at going first.
//! 3. Rounds follow each other as long as they fit into the time.
//! 4. The results are printed and written as `summary.json`.
//!
//! Everything between client and server runs on this machine, so it is the machine that is shared,
//! and with it the noise: compare the arms of one run, not the figures of two.

mod report;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::control::{Attacher, Control};
use crate::error::{Error, Result};
use crate::figures::{self, Samples, Summary, labels};
use crate::interrupt;
use crate::socks::{self, Target};
use crate::testnet::{Network, NetworkOptions, Program, RelayOptions};
use crate::traffic::{self, Content, Server, Transfer};

/// Where on a circuit a relay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    /// The first hop.
    Guard,
    /// The second hop.
    Middle,
    /// The last hop.
    Exit,
}

impl Position {
    /// All three, in the order of a path.
    pub const ALL: [Position; 3] = [Position::Guard, Position::Middle, Position::Exit];

    /// The position's name in labels and options.
    pub fn name(self) -> &'static str {
        match self {
            Position::Guard => "guard",
            Position::Middle => "middle",
            Position::Exit => "exit",
        }
    }
}

impl std::str::FromStr for Position {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Position, String> {
        let found = Position::ALL.into_iter().find(|position| position.name() == name);
        found.ok_or_else(|| format!("{name:?} is not guard, middle or exit"))
    }
}

/// Which relays a download goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// Heddle relays in the positions of [`DemoOptions::heddle_positions`], stock ones elsewhere.
    Heddle,
    /// Three stock relays.
    Stock,
}

impl std::str::FromStr for Arm {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Arm, String> {
        match name {
            "heddle" => Ok(Arm::Heddle),
            "stock" => Ok(Arm::Stock),
            _ => Err(format!("{name:?} is not heddle or stock")),
        }
    }
}

/// What the demo does.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The Heddle program, started as `<heddle> relay -f <torrc>`.
    pub heddle: PathBuf,
    /// What is compared, each at most once.
    pub arms: Vec<Arm>,
    /// Where Heddle relays stand in the arm [`Arm::Heddle`]; at least one position.
    pub heddle_positions: Vec<Position>,
    /// Size of the large download in bytes.
    pub download_bytes: u64,
    /// Most rounds; fewer are made when time is short, but at least one.
    pub rounds_max: usize,
    /// Time for all of it. A run that cannot make one round in it fails.
    pub budget: Duration,
    /// Where `summary.json` goes.
    pub out_dir: PathBuf,
}

impl Default for DemoOptions {
    fn default() -> DemoOptions {
        DemoOptions {
            heddle: std::env::current_exe().unwrap_or_default(),
            arms: vec![Arm::Heddle, Arm::Stock],
            heddle_positions: Position::ALL.to_vec(),
            download_bytes: 100_000_000,
            rounds_max: 5,
            budget: Duration::from_secs(175),
            out_dir: PathBuf::from("target/demo"),
        }
    }
}

impl DemoOptions {
    /// Fails with what is wrong with the options.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Options(what.to_owned()));
        let mut arms = self.arms.clone();
        arms.sort_unstable();
        arms.dedup();
        if arms.is_empty() || arms.len() != self.arms.len() {
            return wrong("the demo needs one or two different arms");
        }
        if self.arms.contains(&Arm::Heddle) && self.heddle_positions.is_empty() {
            return wrong("an arm without a Heddle relay is not a Heddle arm");
        }
        if self.download_bytes == 0 || self.rounds_max == 0 {
            return wrong("the demo needs something to download");
        }
        Ok(())
    }

    /// What runs the relay of an arm in a position.
    fn program(&self, arm: Arm, position: Position) -> Program {
        match arm {
            Arm::Heddle if self.heddle_positions.contains(&position) => Program::Heddle,
            _ => Program::Stock,
        }
    }

    /// The value of the label `relays`: an arm with stock relays among its Heddle ones says so.
    fn arm_name(&self, arm: Arm) -> String {
        let heddle = |position: &Position| self.program(arm, *position) == Program::Heddle;
        let heddle: Vec<&str> = Position::ALL.iter().filter(|p| heddle(p)).map(|p| p.name()).collect();
        match heddle.len() {
            0 => "stock".to_owned(),
            3 => "heddle".to_owned(),
            _ => format!("heddle-{}", heddle.join("-")),
        }
    }
}

/// Fetches of a single byte in each round.
const SMALL_FETCHES: usize = 10;
/// Time kept for the orderly end.
const RESERVE: Duration = Duration::from_secs(3);
/// How long a circuit may take to be built.
const BUILD_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the start of a stream and a single byte may take.
const SMALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Least time between two drawings of the progress of one step.
const REDRAW: Duration = Duration::from_millis(250);
/// Chooses the downloaded bytes; any would do.
const SEED: u64 = 0x6865_6464_6c65;

/// Runs the demo, printing progress to standard error and results to standard output, and writes
/// `summary.json`. A download with the wrong content is an error, after everything is written.
///
/// Ctrl-C ends it with [`Error::Interrupted`], without processes or files left.
pub fn demo(options: &DemoOptions) -> Result<Summary> {
    options.validate()?;
    interrupt::install()?;
    let begun = Instant::now();
    let mut screen = Screen::new(begun, options.budget);
    let run = measure(options, begun, &mut screen);
    screen.end();
    let samples = run?;
    let summary = Summary { commit: figures::commit(), figures: samples.figures() };
    let path = options.out_dir.join("summary.json");
    summary.write(&path)?;
    let names: Vec<String> = options.arms.iter().map(|arm| options.arm_name(*arm)).collect();
    print!("{}", report::text(&summary, &samples, &names));
    println!("\n{} written after {:.0} s", path.display(), begun.elapsed().as_secs_f64());
    let failed = names
        .iter()
        .any(|name| samples.of("sha256_ok", &labels([("relays", name)])).iter().any(|ok| *ok != 1.0));
    match failed {
        true => Err(Error::Malformed { by: "a relay", sent: "bytes with the wrong SHA-256".into() }),
        false => Ok(summary),
    }
}

/// Starts the network, makes the rounds and stops everything.
fn measure(options: &DemoOptions, begun: Instant, screen: &mut Screen) -> Result<Samples> {
    let network = NetworkOptions {
        heddle: Some(options.heddle.clone()),
        relays: relays(options),
        startup_timeout: options.budget / 2,
        ..NetworkOptions::default()
    };
    let network = Network::start(&network, &mut |progress| screen.show(progress.step))?;
    let server = Server::start()?;
    let attacher = Attacher::start(&network.control_socket(), SMALL_TIMEOUT)?;
    let content = Content { seed: SEED, len: options.download_bytes };
    let sha256 = content.sha256();
    let mut demo = Demo {
        options,
        control: network.control()?,
        network: &network,
        server: &server,
        content,
        sha256,
        samples: Samples::default(),
        deadline: begun + options.budget.saturating_sub(RESERVE),
    };
    demo.rounds(screen)?;
    // Streams end before the circuits' keeper does.
    drop(attacher);
    Ok(demo.samples)
}

/// Every relay that an arm needs, once.
fn relays(options: &DemoOptions) -> Vec<RelayOptions> {
    let mut relays: Vec<RelayOptions> = Vec::new();
    for arm in &options.arms {
        for position in Position::ALL {
            let program = options.program(*arm, position);
            let nickname = nickname(program, position);
            if !relays.iter().any(|relay| relay.nickname == nickname) {
                let relay = RelayOptions::new(&nickname, program);
                relays.push(if position == Position::Exit { relay.exit() } else { relay });
            }
        }
    }
    relays
}

fn nickname(program: Program, position: Position) -> String {
    let program = match program {
        Program::Stock => "stock",
        Program::Heddle => "heddle",
    };
    format!("{program}{}", position.name())
}

struct Demo<'a> {
    options: &'a DemoOptions,
    network: &'a Network,
    server: &'a Server,
    control: Control,
    content: Content,
    sha256: [u8; 32],
    samples: Samples,
    deadline: Instant,
}

impl Demo<'_> {
    fn rounds(&mut self, screen: &mut Screen) -> Result<()> {
        let mut longest = Duration::ZERO;
        for round in 0..self.options.rounds_max {
            let start = Instant::now();
            // A round that would not be finished in time is not begun; one is needed in any case.
            if round > 0 && start + longest.mul_f64(1.2) > self.deadline {
                break;
            }
            let mut arms = self.options.arms.clone();
            let count = arms.len();
            arms.rotate_left(round % count);
            for arm in arms {
                let name = self.options.arm_name(arm);
                let step = format!("round {}: {name}", round + 1);
                screen.show(&step);
                self.arm(arm, &name, &mut |bytes| screen.show_bytes(&step, bytes))?;
                self.network.check()?;
            }
            longest = longest.max(start.elapsed());
        }
        Ok(())
    }

    /// One arm's part of a round: a circuit, the small fetches, the large one.
    fn arm(&mut self, arm: Arm, name: &str, on_bytes: &mut dyn FnMut(u64)) -> Result<()> {
        let programs = Position::ALL.map(|position| self.options.program(arm, position));
        let mut relays = Vec::new();
        for (program, position) in programs.into_iter().zip(Position::ALL) {
            relays.push((position, self.network.relay(&nickname(program, position))?));
        }
        let path: Vec<&str> = relays.iter().map(|(_, relay)| relay.fingerprint()).collect();
        let circuit = self.control.build_circuit(&path, BUILD_TIMEOUT)?;

        let arm_labels = labels([("relays", name)]);
        let isolation = circuit.isolation();
        let target = Target::Addr(self.server.addr());
        let mut fetch = |content: Content, sha256, timeout| -> Result<Transfer> {
            let start = Instant::now();
            let stream = socks::connect(self.network.socks(), &target, Some(&isolation), SMALL_TIMEOUT)?;
            traffic::download(stream, content, sha256, start, timeout, on_bytes)
        };
        let byte = Content { seed: SEED, len: 1 };
        let byte_sha256 = byte.sha256();
        for _ in 0..SMALL_FETCHES {
            let transfer = fetch(byte, byte_sha256, SMALL_TIMEOUT)?;
            self.samples.add("first_byte_ms", arm_labels.clone(), "ms", transfer.first_byte_ms);
            let ok = f64::from(u8::from(transfer.sha256_ok));
            self.samples.add("sha256_ok", arm_labels.clone(), "1", ok);
        }

        let before = relays.iter().map(|(_, relay)| relay.usage());
        let before: Vec<_> = before.collect::<Result<_>>()?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let transfer = fetch(self.content, self.sha256, left)?;
        self.samples.add("download_mb_s", arm_labels.clone(), "MB/s", transfer.mb_s());
        self.samples.add("sha256_ok", arm_labels, "1", f64::from(u8::from(transfer.sha256_ok)));
        for ((position, relay), before) in relays.iter().zip(before) {
            let cpu_s = relay.usage()?.cpu_s - before.cpu_s;
            let labels = labels([("relays", name), ("position", position.name())]);
            let per_gb = cpu_s / (transfer.bytes as f64 / 1e9);
            self.samples.add("relay_cpu_s_per_gb", labels, "CPU-s/GB", per_gb);
        }
        match self.control.close_circuit(circuit) {
            Ok(()) | Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// One line of progress on standard error: rewritten on a terminal, one line per step elsewhere.
struct Screen {
    begun: Instant,
    budget: Duration,
    terminal: bool,
    last: String,
    drawn: Instant,
}

impl Screen {
    fn new(begun: Instant, budget: Duration) -> Screen {
        let terminal = io::stderr().is_terminal();
        Screen { begun, budget, terminal, last: String::new(), drawn: begun }
    }

    fn show(&mut self, step: &str) {
        let elapsed = self.begun.elapsed();
        let left = self.budget.saturating_sub(elapsed).as_secs();
        let line = format_args!("[{:>3} s, at most {left:>3} s left] {step}", elapsed.as_secs());
        // Progress is a courtesy: a terminal that is gone must not end the run.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false if self.last != step => writeln!(io::stderr(), "{line}"),
            false => Ok(()),
        };
        self.last = step.to_owned();
        self.drawn = Instant::now();
    }

    /// Shows how far a download has come, where lines can be rewritten, a few times a second.
    fn show_bytes(&mut self, step: &str, bytes: u64) {
        if self.terminal && self.drawn.elapsed() > REDRAW {
            self.show(&format!("{step}, {} MB", bytes / 1_000_000));
        }
    }

    fn end(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_say_what_they_are() {
        let mut options = DemoOptions::default();
        assert_eq!(options.arm_name(Arm::Heddle), "heddle");
        assert_eq!(options.arm_name(Arm::Stock), "stock");
        options.heddle_positions = vec!["middle".parse().unwrap()];
        assert_eq!(options.arm_name(Arm::Heddle), "heddle-middle");
        let names: Vec<_> = relays(&options).into_iter().map(|relay| relay.nickname).collect();
        assert_eq!(names, ["stockguard", "heddlemiddle", "stockexit", "stockmiddle"]);
        options.heddle_positions.clear();
        assert!(options.validate().is_err());
        options.arms = vec![Arm::Stock];
        options.validate().unwrap();
        options.arms = vec![Arm::Stock, Arm::Stock];
        assert!(options.validate().is_err());
    }
}
