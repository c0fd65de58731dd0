//! What the demo says while it runs.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::machine::progress_line::ProgressLine;

/// Least time between two drawings of the progress of one step.
const REDRAW: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Screen {
    begun: Instant,
    budget: Duration,
    line: ProgressLine,
    drawn: Instant,
}

impl Screen {
    /// `budget` is the time for all of it.
    pub(super) fn new(begun: Instant, budget: Duration) -> Screen {
        Screen { begun, budget, line: ProgressLine::new(), drawn: begun }
    }

    pub(super) fn show(&mut self, step: &str) {
        let elapsed = self.begun.elapsed();
        let left = self.budget.saturating_sub(elapsed).as_secs();
        self.line.show(&format!("{:>3} s, at most {left:>3} s left", elapsed.as_secs()), step);
        self.drawn = Instant::now();
    }

    /// Shows how far a download has come, where lines can be rewritten, a few times a second.
    pub(super) fn show_bytes(&mut self, step: &str, bytes: u64) {
        if self.line.is_rewritten() && self.drawn.elapsed() > REDRAW {
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
        self.line.end();
    }
}
