//! What a plan says while it runs.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::backend::virtual_clock::VirtualClock;
use crate::machine::progress_line::ProgressLine;

pub(super) struct Screen {
    begun: Instant,
    expected: Duration,
    /// Whose time it is that is expected, where it is not the machine's.
    clock: Option<Rc<VirtualClock>>,
    line: ProgressLine,
}

impl Screen {
    pub(super) fn new(begun: Instant, expected: Duration, clock: Option<Rc<VirtualClock>>) -> Screen {
        Screen { begun, expected, clock, line: ProgressLine::new() }
    }

    pub(super) fn show(&mut self, step: &str) {
        let elapsed = self.begun.elapsed();
        let time = match &self.clock {
            Some(clock) => told_of(elapsed, clock.passed(), self.expected),
            None => {
                let left = self.expected.saturating_sub(elapsed).as_secs();
                format!("{:>3} s, about {left:>3} s left", elapsed.as_secs())
            }
        };
        self.line.show(&time, step);
    }

    pub(super) fn end(&mut self) {
        self.line.end();
    }
}

/// What is told of virtual time, of which so much has passed and so much is expected.
fn told_of(elapsed: Duration, passed: Duration, expected: Duration) -> String {
    let speed = passed.as_secs_f64() / elapsed.as_secs_f64().max(1e-3);
    let left = match speed > 0.0 {
        true => format!(", about {:>3.0} s left", expected.saturating_sub(passed).as_secs_f64() / speed),
        false => String::new(),
    };
    format!("{:>3} s, virtual {:>4} s, {speed:.1} times as fast{left}", elapsed.as_secs(), passed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_is_told_with_its_speed() {
        let s = Duration::from_secs;
        let told = told_of(s(10), s(250), s(300));
        assert_eq!(told, " 10 s, virtual  250 s, 25.0 times as fast, about   2 s left");
        assert_eq!(told_of(s(1), s(0), s(300)), "  1 s, virtual    0 s, 0.0 times as fast");
    }
}
