//! The traffic programs of a node, which take turns on its streams.

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_seam::time::Instant;

use crate::backend::Log;
use crate::traffic::lines::Lines;
use crate::traffic::program::{Journal, Program};

/// The programs of a node.
#[derive(Default)]
pub(super) struct Programs {
    running: Vec<Running>,
    /// Those that were begun or asked to end, by their places.
    due: BTreeSet<usize>,
}

struct Running {
    program: Box<dyn Program>,
    journal: Journal,
}

impl Programs {
    /// Starts a program and returns its place.
    pub(super) fn start(&mut self, now: Instant, program: Box<dyn Program>) -> usize {
        self.running.push(Running { program, journal: Journal::new(now) });
        self.due.insert(self.running.len() - 1);
        self.running.len() - 1
    }

    /// Lets those go on that have something to do.
    pub(super) fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) {
        let touched = lines.take_touched();
        let is_due = |program: &dyn Program| {
            program.wakes().is_some_and(|at| at <= now)
                || program.lines().iter().flatten().any(|line| touched.contains(line))
        };
        let mut due = std::mem::take(&mut self.due);
        for (place, Running { program, .. }) in self.running.iter().enumerate() {
            if !program.is_over() && is_due(&**program) {
                due.insert(place);
            }
        }
        for place in due {
            let Running { program, journal } = &mut self.running[place];
            program.step(now, lines, journal);
        }
    }

    /// When the next has something to do by itself.
    pub(super) fn wakes(&self) -> Option<Instant> {
        let living = self.running.iter().filter(|running| !running.program.is_over());
        living.filter_map(|running| running.program.wakes()).min()
    }

    /// Asks a program to end.
    pub(super) fn stop(&mut self, now: Instant, place: usize) {
        self.running[place].program.stop(now);
        self.due.insert(place);
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self, place: usize) -> bool {
        self.running[place].program.is_over()
    }

    /// Whether its stream is steady, was waited for long enough, or has ended.
    pub(super) fn is_steady(&self, place: usize) -> bool {
        let program = &self.running[place].program;
        program.is_over() || program.is_steady()
    }

    /// When the stream of a flood was there, once it is.
    pub(super) fn opened(&self, place: usize) -> Option<Instant> {
        self.running[place].program.opened()
    }

    /// What a program told, each with the time since the hosts came up.
    pub(super) fn take_log(&mut self, place: usize) -> Log {
        let told = self.running[place].journal.take();
        told.into_iter().map(|(at, event)| (Duration::from_nanos(at.as_nanos()), event)).collect()
    }
}
