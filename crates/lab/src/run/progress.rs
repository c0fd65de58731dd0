//! Progress on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// One line of progress on standard error: rewritten on a terminal, one line per step elsewhere.
pub(super) struct Screen {
    begun: Instant,
    expected: Duration,
    terminal: bool,
    last: String,
}

impl Screen {
    pub(super) fn new(begun: Instant, expected: Duration) -> Screen {
        Screen { begun, expected, terminal: io::stderr().is_terminal(), last: String::new() }
    }

    pub(super) fn show(&mut self, step: &str) {
        let elapsed = self.begun.elapsed();
        let left = self.expected.saturating_sub(elapsed).as_secs();
        let line = format_args!("[{:>3} s, about {left:>3} s left] {step}", elapsed.as_secs());
        // Progress is a courtesy: a terminal that is gone must not end the run.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false if self.last != step => writeln!(io::stderr(), "{line}"),
            false => Ok(()),
        };
        step.clone_into(&mut self.last);
    }

    pub(super) fn end(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
