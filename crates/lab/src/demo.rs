//! The project's main job: browsing and a bulk download over Heddle relays and over stock ones, side by side.
//!
//! 1. A private network comes up with every relay that any arm needs, on hosts that emulated wires join (`wires`).
//!    Where the machine has no such wires, or on request, everything is on loopback (`loopback`).
//! 2. In each round, each arm has its turn over its three relays. Arms take turns at going first (`rounds`).
//! 3. Rounds follow each other as long as they fit into the time.
//! 4. The results are printed and written as `summary.json` and `report.html` (`results`).
//!
//! Everything between client and server runs on this machine, so it is the machine that is shared, and with it the
//! noise: compare the arms of one run, not the figures of two.

mod loopback;
mod network;
mod report;
mod results;
mod rounds;
mod screen;
mod wires;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::{BUDGET_MAX, interrupt};
use crate::results::Summary;
use crate::testnet::{Program, RelayOptions};

use rounds::Rounds;

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

impl FromStr for Position {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Position, String> {
        let found = Position::ALL.into_iter().find(|position| position.name() == name);
        found.ok_or_else(|| format!("{name:?} is not guard, middle or exit"))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which relays are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// Heddle relays in the positions of [`DemoOptions::heddle_positions`], stock ones elsewhere.
    Heddle,
    /// Three stock relays.
    Stock,
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Arm, String> {
        match name {
            "heddle" => Ok(Arm::Heddle),
            "stock" => Ok(Arm::Stock),
            _ => Err(format!("{name:?} is not heddle or stock")),
        }
    }
}

/// What joins the processes of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wires {
    /// Each relay and each client is on a host of its own, and wires that delay and lose are between them: a bulk
    /// client and a browsing client share an arm's relays.
    Emulated,
    /// All are on this machine's loopback: one client downloads one file.
    Loopback,
}

impl Wires {
    /// The name in `summary.json`.
    pub fn name(self) -> &'static str {
        match self {
            Wires::Emulated => "emulated",
            Wires::Loopback => "loopback",
        }
    }

    fn download_bytes(self) -> u64 {
        match self {
            Wires::Emulated => 1_000_000,
            Wires::Loopback => 100_000_000,
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
    /// What joins the processes. Where the machine has no emulated wires, loopback is taken.
    pub wires: Wires,
    /// Hosts and wires as for `heddle emulate`, with the hosts of `demo/network.toml`. Default: that file.
    pub network: Option<PathBuf>,
    /// Size of a bulk download in bytes. Default: 1 MB on emulated wires, 100 MB on loopback.
    pub download_bytes: Option<u64>,
    /// Size of a web page in bytes; there are pages on emulated wires only.
    pub page_bytes: u64,
    /// Most rounds; fewer are made when time is short, but at least one.
    pub rounds_max: usize,
    /// Decides all that chance does to packets.
    pub seed: u64,
    /// Time for all of it. A run that cannot make one round in it fails.
    pub budget: Duration,
    /// Where `summary.json` and `report.html` go.
    pub out_dir: PathBuf,
    /// The command as typed, for the report.
    pub command: String,
}

impl Default for DemoOptions {
    fn default() -> DemoOptions {
        DemoOptions {
            heddle: std::env::current_exe().unwrap_or_default(),
            arms: vec![Arm::Heddle, Arm::Stock],
            heddle_positions: Position::ALL.to_vec(),
            wires: Wires::Emulated,
            network: None,
            download_bytes: None,
            page_bytes: 300_000,
            rounds_max: 8,
            seed: 1,
            budget: Duration::from_secs(175),
            out_dir: PathBuf::from("target/demo"),
            command: "heddle demo".to_owned(),
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
        if self.download_bytes == Some(0) || self.page_bytes == 0 || self.rounds_max == 0 {
            return wrong("the demo needs something to download");
        }
        if self.budget > BUDGET_MAX {
            return wrong("the demo takes at most a week");
        }
        if self.wires == Wires::Loopback && self.network.is_some() {
            return wrong("loopback has no hosts and wires");
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

    /// Whether an arm has Heddle relays only.
    fn is_all_heddle(&self, arm: Arm) -> bool {
        Position::ALL.iter().all(|position| self.program(arm, *position) == Program::Heddle)
    }

    /// The nicknames of an arm's relays, from guard to exit.
    fn path(&self, arm: Arm) -> [String; 3] {
        Position::ALL.map(|position| nickname(self.program(arm, position), position))
    }

    /// Every relay that an arm needs, once.
    fn relays(&self) -> Vec<RelayOptions> {
        let mut relays: Vec<RelayOptions> = Vec::new();
        for arm in &self.arms {
            for position in Position::ALL {
                let program = self.program(*arm, position);
                let nickname = nickname(program, position);
                if !relays.iter().any(|relay| relay.nickname == nickname) {
                    let relay = RelayOptions::new(&nickname, program);
                    relays.push(if position == Position::Exit { relay.exit() } else { relay });
                }
            }
        }
        relays
    }
}

fn nickname(program: Program, position: Position) -> String {
    let program = match program {
        Program::Stock => "stock",
        Program::Heddle => "heddle",
    };
    format!("{program}{}", position.name())
}

/// Runs the demo, printing progress to standard error and results to standard output, and writes `summary.json` and
/// `report.html`. A transfer with the wrong content is an error, after everything is written. A program that is not
/// root must have one thread only when it calls this, or gets no emulated wires.
///
/// Ctrl-C ends it with [`Error::Interrupted`], without processes left, and with the results of the rounds that were
/// complete.
pub fn demo(options: &DemoOptions) -> Result<Summary> {
    options.validate()?;
    interrupt::install()?;
    results::forget(&options.out_dir)?;
    let mut rounds = Rounds::new(options);
    let result = match options.wires {
        Wires::Loopback => loopback::measure(&mut rounds),
        Wires::Emulated => match wires::measure(&mut rounds) {
            Err(Error::Lacking(what)) => {
                rounds.fall_back(what);
                loopback::measure(&mut rounds)
            }
            result => result,
        },
    };
    rounds.screen.end();
    results::finish(rounds, result)
}
