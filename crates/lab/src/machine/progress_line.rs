//! One line of progress on standard error: rewritten on a terminal, one line per step elsewhere.

use std::io::{self, IsTerminal, Write};

#[derive(Debug)]
pub(crate) struct ProgressLine {
    terminal: bool,
    last: String,
}

impl ProgressLine {
    pub(crate) fn new() -> ProgressLine {
        ProgressLine { terminal: io::stderr().is_terminal(), last: String::new() }
    }

    /// Whether lines can be rewritten.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.terminal
    }

    /// Shows how much time has passed and is left, and the step; elsewhere than on a terminal only once for each.
    pub(crate) fn show(&mut self, time: &str, step: &str) {
        let line = format_args!("[{time}] {step}");
        // Progress is a courtesy: a terminal that is gone must not end the run.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false if self.last != step => writeln!(io::stderr(), "{line}"),
            false => Ok(()),
        };
        step.clone_into(&mut self.last);
    }

    /// Takes the line away.
    pub(crate) fn end(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
