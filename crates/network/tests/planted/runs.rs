//! Runs of the copy's program, as many at a time as there are cores.

use crate::copy::VARIABLE;
use crate::table::PLANTED;
use core::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Virtual time of each.
pub const SECONDS: u64 = 12;
/// How long a run may take: many times what it does where others want the processors too.
const PATIENCE: Duration = Duration::from_secs(1800);

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
        let mut child = Command::new(program)
            .args([SECONDS.to_string(), self.seed.to_string()])
            .env(VARIABLE, number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the copy's program runs");
        // Both are read all the while, because a pipe that is full would hold the program up.
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let (stdout, stderr) = (thread::spawn(|| read(stdout)), thread::spawn(|| read(stderr)));
        let status = await_end(&mut child);
        let stdout = stdout.join().expect("a pipe can be read");
        let stderr = stderr.join().expect("a pipe can be read");
        match status {
            Some(status) if status.success() => Outcome::Held(stdout),
            Some(_) => Outcome::Broke(stderr),
            None => Outcome::Endless(stderr),
        }
    }
}

/// All that comes.
fn read(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a pipe can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How a program ended; `None` when that took too long, and it had to be ended.
fn await_end(child: &mut Child) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it was not waited for yet");
    child.wait().expect("it is our child");
    None
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
    /// It had to be ended; what it had said of what broke.
    Endless(String),
}

impl Outcome {
    pub fn is_broken(&self) -> bool {
        matches!(self, Outcome::Broke(_))
    }

    pub fn is_endless(&self) -> bool {
        matches!(self, Outcome::Endless(_))
    }

    pub fn said(&self) -> &str {
        let (Outcome::Held(said) | Outcome::Broke(said) | Outcome::Endless(said)) = self;
        said
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Held(_) => f.write_str("nothing broke"),
            Outcome::Endless(said) => write!(f, "it had not ended after {PATIENCE:?} {said}"),
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
