//! Runs of the copy's program, as many at a time as there are cores.

use crate::copy::VARIABLE;
use crate::table::PLANTED;
use core::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// Virtual time of each.
pub const SECONDS: u64 = 12;

/// A seed, with a bug or without.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    bug: Option<usize>,
    seed: u64,
}

impl Run {
    /// With a bug, under the seed that finds it.
    pub fn with(bug: usize) -> Self {
        Run { bug: Some(bug), seed: PLANTED[bug].seed }
    }

    pub fn without(seed: u64) -> Self {
        Run { bug: None, seed }
    }

    pub fn is_planted(self) -> bool {
        self.bug.is_some()
    }

    /// What should have been found, in a sentence.
    pub fn what_breaks(self) -> &'static str {
        self.bug.map_or("", |bug| PLANTED[bug].breaks)
    }

    fn go(self, program: &Path) -> Outcome {
        let number = self.bug.map_or(0, |bug| bug + 1);
        let run = Command::new(program)
            .args([SECONDS.to_string(), self.seed.to_string()])
            .env(VARIABLE, number.to_string())
            .stdin(Stdio::null())
            .output()
            .expect("the copy's program runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match run.status.success() {
            true => Outcome::Held(text(run.stdout)),
            false => Outcome::Broke(text(run.stderr)),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.bug.map_or("nothing", |bug| PLANTED[bug].name);
        write!(f, "seed {} with {name}", self.seed)
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Nothing broke; what happened.
    Held(String),
    /// What broke.
    Broke(String),
}

impl Outcome {
    pub fn is_broken(&self) -> bool {
        matches!(self, Outcome::Broke(_))
    }

    pub fn said(&self) -> &str {
        let (Outcome::Held(said) | Outcome::Broke(said)) = self;
        said
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Held(_) => f.write_str("nothing broke"),
            // Of a panic the first line says where, and the second what.
            Outcome::Broke(said) => {
                let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("note:")).collect();
                write!(f, "{}", said.join(" "))
            }
        }
    }
}

/// Runs them all; in the order in which they ended.
pub fn run_all(program: &Path, runs: Vec<Run>) -> Vec<(Run, Outcome)> {
    let (left, done) = (Mutex::new(runs), Mutex::new(Vec::new()));
    let work = || {
        while let Some(run) = { left.lock().expect("nobody panicked").pop() } {
            let began = Instant::now();
            let outcome = run.go(program);
            println!("{run}, {:.1} s: {outcome}", began.elapsed().as_secs_f64());
            done.lock().expect("nobody panicked").push((run, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    done.into_inner().expect("nobody panicked")
}
