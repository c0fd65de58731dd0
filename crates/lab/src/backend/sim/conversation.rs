//! What the programs of a host have in common: a stream that is asked for, a request over it, and what they tell.

use std::time::Duration;

use heddle_seam::time::Instant;

use super::lines::{LineId, LineState, Lines, Way};
use crate::backend::{Log, OPEN_MAX};
use crate::error::Error;
use crate::traffic::Event;
use crate::traffic::route::{Stage, kind};

/// What failed, and in which part.
pub(super) type Failed = (Stage, Error);

/// What a program tells, each with the time since the hosts came up.
pub(super) struct Journal {
    begun: Instant,
    pub(super) log: Log,
}

impl Journal {
    pub(super) fn new(begun: Instant) -> Journal {
        Journal { begun, log: Log::new() }
    }

    /// Seconds since then.
    pub(super) fn t_s(&self, now: Instant) -> f64 {
        now.since(self.begun).as_secs_f64()
    }

    pub(super) fn say(&mut self, now: Instant, event: Event) {
        self.log.push((Duration::from_nanos(now.as_nanos()), event));
    }

    pub(super) fn failed(&mut self, now: Instant, (stage, error): &Failed) {
        let event =
            Event::Failure { t_s: self.t_s(now), kind: kind(*stage, error), error: error.to_string() };
        self.say(now, event);
    }
}

/// A stream of a program, from its asking on.
pub(super) struct Conversation {
    pub(super) line: LineId,
    pub(super) asked: Instant,
    /// When it was there.
    pub(super) opened: Option<Instant>,
    /// Since when nothing has moved.
    moved: Instant,
    /// What is to be written and was not taken yet.
    out: Vec<u8>,
    silence_max: Duration,
}

impl Conversation {
    /// Asks for a stream, over which `request` goes as soon as it is there. It fails when it is not there in time, or
    /// when nothing moves for so long.
    pub(super) fn begin(
        now: Instant,
        lines: &mut dyn Lines,
        way: Way,
        request: &str,
        silence_max: Duration,
    ) -> Conversation {
        let (line, out) = (lines.open(now, way), request.as_bytes().to_vec());
        Conversation { line, asked: now, opened: None, moved: now, out, silence_max }
    }

    /// Writes what is due, reads what has come, and returns how much that is.
    ///
    /// # Errors
    ///
    /// When the stream is over and all was read, or nothing moved for too long.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        lines: &mut dyn Lines,
        into: &mut Vec<u8>,
    ) -> Result<usize, Failed> {
        let state = lines.state(self.line);
        if state == LineState::Open && self.opened.is_none() {
            (self.opened, self.moved) = (Some(now), now);
        }
        self.flush(now, lines);
        let len = lines.read(now, self.line, into);
        if len > 0 {
            self.moved = now;
        }
        let stage = if self.opened.is_some() { Stage::Transfer } else { Stage::Open };
        match state {
            LineState::Over(said) if len == 0 => {
                Err((stage, Error::Refused { by: "the stream's end", said }))
            }
            _ if now >= self.gives_up() => {
                let waiting_for = if stage == Stage::Open { "a stream" } else { "progress over a stream" };
                Err((stage, Error::Deadline { waiting_for: waiting_for.to_owned(), after: self.silence_max }))
            }
            _ => Ok(len),
        }
    }

    /// Hands over more to be written, behind what waits.
    pub(super) fn say(&mut self, now: Instant, lines: &mut dyn Lines, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.flush(now, lines);
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self, now: Instant, lines: &mut dyn Lines) {
        if self.out.is_empty() {
            return;
        }
        let len = lines.write(now, self.line, &self.out);
        self.out.drain(..len);
        if len > 0 {
            self.moved = now;
        }
    }

    /// Whether something waits to be written.
    pub(super) fn is_blocked(&self) -> bool {
        !self.out.is_empty()
    }

    /// Notes that something moved of which the stream knows nothing.
    pub(super) fn has_moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// When it fails if nothing moves until then.
    pub(super) fn gives_up(&self) -> Instant {
        self.moved + if self.opened.is_some() { self.silence_max } else { self.silence_max.max(OPEN_MAX) }
    }
}
