//! What a traffic program is: a machine that is told the time and what is new of its streams, asks for streams, reads
//! and writes, and says what it saw. It has no threads, sockets or clocks, so that one program measures over real
//! sockets ([`super::drive`]) and in virtual time.

use heddle_seam::time::Instant;

use super::lines::{LineId, Lines};
use super::report::Event;
use super::route::{Stage, kind};
use crate::error::Error;

/// How many streams a program has at a time, at most: those of a timing client.
pub(crate) const STREAMS_MAX: usize = 2;

/// What failed, and in which part.
pub(crate) type Failed = (Stage, Error);

/// One program.
pub(crate) trait Program {
    /// Does what is to be done now. Called when something is new of its streams, and when its time is there.
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal);

    /// When it has something to do by itself.
    fn wakes(&self) -> Option<Instant>;

    /// Where its streams are.
    fn lines(&self) -> [Option<LineId>; STREAMS_MAX];

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

/// What a program tells.
#[derive(Debug)]
pub(crate) struct Journal {
    begun: Instant,
    told: Vec<(Instant, Event)>,
}

impl Journal {
    /// That of a program that begins now.
    pub(crate) fn new(begun: Instant) -> Journal {
        Journal { begun, told: Vec::new() }
    }

    /// Seconds since it began.
    pub(crate) fn t_s(&self, now: Instant) -> f64 {
        now.since(self.begun).as_secs_f64()
    }

    /// Notes an event.
    pub(crate) fn say(&mut self, now: Instant, event: Event) {
        self.told.push((now, event));
    }

    /// Notes that something failed.
    pub(crate) fn failed(&mut self, now: Instant, (stage, error): &Failed) {
        let event =
            Event::Failure { t_s: self.t_s(now), kind: kind(*stage, error), error: error.to_string() };
        self.say(now, event);
    }

    /// What was told since the last call, each with its time.
    pub(crate) fn take(&mut self) -> Vec<(Instant, Event)> {
        std::mem::take(&mut self.told)
    }
}

/// Milliseconds from one moment to a later one.
pub(crate) fn ms(from: Instant, to: Instant) -> f64 {
    to.since(from).as_secs_f64() * 1e3
}
