//! The traffic of plans as programs without threads: what they ask for and when, what they count and tell is as in
//! [`crate::traffic`], of which they are made where it is about *what* is done.

mod bulk;
mod echo;
mod fetch;
mod probe;
mod upload;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use heddle_seam::time::Instant;

use super::conversation::{Conversation, Journal};
use super::lines::{LineId, Lines, Way};
use super::server::Sunk;
use crate::backend::{Log, Source};
use crate::plan::Traffic;
use crate::traffic::Identity;
use crate::traffic::seconds::{Found, Seconds, SteadyBy};

/// One program.
trait Program {
    /// Does what is to be done now. Called when something is new of its streams, when its time is there, and when
    /// something that it wants to write was not taken before.
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal);

    /// When it has something to do by itself.
    fn wakes(&self) -> Option<Instant>;

    /// The stream that it has.
    fn stream(&self) -> Option<&Conversation>;

    /// Where that stream is.
    fn line(&self) -> Option<LineId> {
        self.stream().map(|stream| stream.line)
    }

    /// Whether it waits until a stream takes more.
    fn is_blocked(&self) -> bool {
        self.stream().is_some_and(Conversation::is_blocked)
    }

    /// Asks it to end; downloads that have begun go on to their end.
    fn stop(&mut self, now: Instant);

    /// Whether it has ended.
    fn is_over(&self) -> bool;

    /// Whether its stream is steady, or was waited for long enough.
    fn is_steady(&self) -> bool {
        true
    }

    /// When the stream was there of a program that has one without end and tells nothing.
    fn opened(&self) -> Option<Instant> {
        None
    }
}

/// What a stream without end brings, told second by second since its program began.
struct EachSecond {
    begun: Instant,
    /// How many seconds were told, and when the last one ended.
    told: u32,
    ended: Instant,
    seconds: Seconds,
}

impl EachSecond {
    fn new(now: Instant, by: SteadyBy, steady_max: Duration) -> Self {
        EachSecond { begun: now, told: 0, ended: now, seconds: Seconds::new(by, steady_max) }
    }

    /// When the second under way ends.
    fn next(&self) -> Instant {
        second(self.begun, self.told + 1)
    }

    /// Tells each second that is over, with what was found in it.
    fn tell(&mut self, now: Instant, journal: &mut Journal, mut found: impl FnMut() -> Found) {
        while self.next() <= now {
            self.told += 1;
            self.push(now, true, journal, found());
        }
    }

    /// Tells the second that was begun: of one that has just begun nothing is left.
    fn end(&mut self, now: Instant, journal: &mut Journal, found: impl FnOnce() -> Found) {
        if now > self.ended {
            self.push(now, false, journal, found());
        }
    }

    fn push(&mut self, now: Instant, is_whole: bool, journal: &mut Journal, found: Found) {
        let (ended, length) = (now.since(self.begun), now.since(self.ended));
        let (told, measuring) = self.seconds.push(found, ended, length, is_whole);
        self.ended = now;
        journal.say(now, told);
        if let Some(measuring) = measuring {
            journal.say(now, measuring);
        }
    }
}

/// The programs of a host.
#[derive(Default)]
pub(super) struct Programs {
    running: Vec<Running>,
    /// Those that have something to do, by their places.
    due: BTreeSet<usize>,
}

struct Running {
    program: Box<dyn Program>,
    journal: Journal,
}

impl Programs {
    /// Starts what a source does. Returns its place.
    pub(super) fn start(
        &mut self,
        now: Instant,
        source: &Source,
        way: Way,
        sunk: Rc<Sunk>,
        number: usize,
    ) -> usize {
        let identity =
            Identity { label: source.label.clone(), seed: source.seed, labels: Default::default() };
        let program: Box<dyn Program> = match source.traffic {
            Traffic::Probe { pause } => Box::new(probe::Probe::new(now, way, &identity, pause)),
            Traffic::Echo { every } => Box::new(echo::Echo::new(now, way, every)),
            Traffic::Bulk { limit_kb_s, reads_for } => {
                let reads_for = Some(reads_for).filter(|reads_for| !reads_for.is_zero());
                Box::new(bulk::Bulk::new(now, way, limit_kb_s, reads_for, source.steady_max))
            }
            Traffic::Upload {} => Box::new(upload::Upload::new(now, way, sunk, number, source.steady_max)),
            Traffic::Fetch { size, pause } => {
                let profile = fetch::profile(size, pause);
                Box::new(fetch::Fetch::new(now, way, &identity, &profile, source.lasts))
            }
        };
        self.add(now, program)
    }

    /// Has a host send zeros as fast as they are taken, which the server counts by this number.
    pub(super) fn flood(&mut self, now: Instant, way: Way, number: usize) -> usize {
        self.add(now, Box::new(upload::Flood::new(now, way, number)))
    }

    fn add(&mut self, now: Instant, program: Box<dyn Program>) -> usize {
        self.running.push(Running { program, journal: Journal::new(now) });
        self.due.insert(self.running.len() - 1);
        self.running.len() - 1
    }

    /// Lets those go on that have something to do.
    pub(super) fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) {
        let touched = lines.take_touched();
        let is_due = |program: &dyn Program| {
            program.wakes().is_some_and(|at| at <= now)
                || program.is_blocked()
                || program.line().is_some_and(|line| touched.contains(&line))
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

    /// When the next has something to do, or its stream takes more.
    pub(super) fn wakes(&self, now: Instant, lines: &dyn Lines) -> Option<Instant> {
        let of = |program: &dyn Program| {
            let writable = program.line().filter(|_| program.is_blocked());
            let writable = writable.and_then(|line| lines.writable_at(now, line));
            program.wakes().into_iter().chain(writable).min()
        };
        let living = self.running.iter().filter(|running| !running.program.is_over());
        living.filter_map(|running| of(&*running.program)).min()
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

    /// What a program told.
    pub(super) fn take_log(&mut self, place: usize) -> Log {
        std::mem::take(&mut self.running[place].journal.log)
    }
}

/// When the `n`-th second after the beginning of a program ends.
fn second(begun: Instant, number: u32) -> Instant {
    begun + Duration::from_secs(1) * number
}
