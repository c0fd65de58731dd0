//! One line of progress on standard error: rewritten on a terminal, one line per step elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Least time between two drawings of the progress of one step.
const REDRAW: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Screen {
    begun: Instant,
    budget: Duration,
    terminal: bool,
    last: String,
    drawn: Instant,
}

impl Screen {
    /// `budget` is the time for all of it.
    pub(super) fn new(begun: Instant, budget: Duration) -> Screen {
        let terminal = io::stderr().is_terminal();
        Screen { begun, budget, terminal, last: String::new(), drawn: begun }
    }

    pub(super) fn show(&mut self, step: &str) {
        let elapsed = self.begun.elapsed();
        let left = self.budget.saturating_sub(elapsed).as_secs();
        let line = format_args!("[{:>3} s, at most {left:>3} s left] {step}", elapsed.as_secs());
        // Progress is a courtesy: a terminal that is gone must not end the run.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false if self.last != step => writeln!(io::stderr(), "{line}"),
            false => Ok(()),
        };
        step.clone_into(&mut self.last);
        self.drawn = Instant::now();
    }

    /// Shows how far a download has come, where lines can be rewritten, a few times a second.
    pub(super) fn show_bytes(&mut self, step: &str, bytes: u64) {
        if self.terminal && self.drawn.elapsed() > REDRAW {
            self.show(&format!("{step}, {} MB", bytes / 1_000_000));
        }
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, what: &str) {
        self.end();
        let _ = writeln!(io::stderr(), "{what}");
    }

    /// Takes the line away.
    pub(super) fn end(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
