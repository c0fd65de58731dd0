//! A stream of a program, from its asking on: opened, with a request over it, and given up when it takes too long.

use std::time::Duration;

use heddle_seam::time::Instant;

use super::lines::{LineId, LineState, Lines, WayId};
use super::program::Failed;
use super::route::Stage;
use crate::error::Error;

/// How long a stream may take to open, and then to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long for all that goes over it.
    Transfer(Duration),
    /// As long without anything that comes, or that is taken of what [`Conversation::write`] was given.
    Silence(Duration),
}

impl Patience {
    fn time(self) -> Duration {
        match self {
            Patience::Transfer(time) | Patience::Silence(time) => time,
        }
    }
}

/// A stream of a program.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) line: LineId,
    pub(crate) asked: Instant,
    /// When it was there.
    pub(crate) opened: Option<Instant>,
    /// Since when nothing has come, or been taken of what was written.
    moved: Instant,
    /// What is to be written and was not taken yet.
    out: Vec<u8>,
    patience: Patience,
}

impl Conversation {
    /// Asks for a stream, over which `request` goes as soon as it is there.
    pub(crate) fn begin(
        now: Instant,
        lines: &mut dyn Lines,
        way: WayId,
        request: &str,
        patience: Patience,
    ) -> Conversation {
        let (line, out) = (lines.open(now, way), request.as_bytes().to_vec());
        Conversation { line, asked: now, opened: None, moved: now, out, patience }
    }

    /// Writes what is due, reads what has come, and returns how much that is.
    ///
    /// # Errors
    ///
    /// When the stream is over and all was read, or it took too long.
    pub(crate) fn go_on(
        &mut self,
        now: Instant,
        lines: &mut dyn Lines,
        into: &mut Vec<u8>,
    ) -> Result<usize, Failed> {
        if self.opened.is_none() && lines.state(self.line) == LineState::Open {
            (self.opened, self.moved) = (Some(now), now);
        }
        self.flush(now, lines);
        let len = lines.read(now, self.line, into);
        if len > 0 {
            self.moved = now;
            return Ok(len);
        }
        let stage = if self.opened.is_some() { Stage::Transfer } else { Stage::Open };
        if lines.state(self.line) == LineState::Over {
            return Err((stage, lines.take_error(self.line)));
        }
        if now >= self.gives_up() {
            let waiting_for = if stage == Stage::Open { "a stream" } else { "progress over a stream" };
            let (waiting_for, after) = (waiting_for.to_owned(), self.patience.time());
            return Err((stage, Error::Deadline { waiting_for, after }));
        }
        Ok(0)
    }

    /// Hands over more to be written, behind what waits.
    pub(crate) fn say(&mut self, now: Instant, lines: &mut dyn Lines, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.flush(now, lines);
    }

    /// Writes as much of this as is taken, and returns how much. Nothing is while something else waits.
    pub(crate) fn write(&mut self, now: Instant, lines: &mut dyn Lines, bytes: &[u8]) -> usize {
        self.flush(now, lines);
        if self.is_blocked() {
            return 0;
        }
        let len = lines.write(now, self.line, bytes);
        if len > 0 {
            self.moved = now;
        }
        len
    }

    /// Writes what waits.
    pub(crate) fn flush(&mut self, now: Instant, lines: &mut dyn Lines) {
        if self.out.is_empty() {
            return;
        }
        let len = lines.write(now, self.line, &self.out);
        self.out.drain(..len);
    }

    /// Whether something waits to be written.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.out.is_empty()
    }

    /// Notes that something moved of which the stream knows nothing.
    pub(crate) fn has_moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// When it fails if nothing moves until then.
    pub(crate) fn gives_up(&self) -> Instant {
        let since = match (self.opened, self.patience) {
            (None, _) => self.asked,
            (Some(opened), Patience::Transfer(_)) => opened,
            (Some(_), Patience::Silence(_)) => self.moved,
        };
        since + self.patience.time()
    }
}
