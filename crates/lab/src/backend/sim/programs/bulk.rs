//! A stream of the server's clock without end; see [`crate::traffic::timing`].

use std::time::Duration;

use heddle_seam::time::Instant;

use super::{EachSecond, Program};
use crate::backend::OPEN_MAX;
use crate::backend::sim::conversation::{Conversation, Failed, Journal};
use crate::backend::sim::lines::{Lines, Way};
use crate::traffic::clock::{Readings, ms_between};
use crate::traffic::request::Request;
use crate::traffic::seconds::{Found, SteadyBy};
use crate::traffic::timing::REOPEN;

/// A program that reads such a stream.
pub(super) struct Bulk {
    way: Way,
    request: String,
    reads_for: Option<Duration>,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// When it stops reading for good.
    stalls: Option<Instant>,
    readings: Readings,
    tally: Tally,
    each_second: EachSecond,
    /// When it was called last.
    stepped: Instant,
    is_asked: bool,
    is_over: bool,
    chunk: Vec<u8>,
}

/// What came since the last tick.
#[derive(Default)]
struct Tally {
    bytes: u64,
    delays_ms: f64,
    delays: u64,
}

impl Tally {
    fn found(&self) -> Found {
        let delay_ms = (self.delays > 0).then(|| self.delays_ms / self.delays as f64);
        Found { bytes: self.bytes, delay_ms, latency_ms: None }
    }
}

impl Bulk {
    pub(super) fn new(
        now: Instant,
        way: Way,
        limit_kb_s: u64,
        reads_for: Option<Duration>,
        steady_max: Duration,
    ) -> Bulk {
        Bulk {
            way,
            request: Request::Clocks(limit_kb_s.saturating_mul(1000)).head(),
            reads_for,
            stream: None,
            opens: Some(now),
            stalls: None,
            readings: Readings::default(),
            tally: Tally::default(),
            each_second: EachSecond::new(now, SteadyBy::Delay, steady_max),
            stepped: now,
            is_asked: false,
            is_over: false,
            chunk: Vec::new(),
        }
    }

    fn has_stalled(&self, now: Instant) -> bool {
        self.stalls.is_some_and(|stalls| stalls <= now)
    }

    /// Reads what has come.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> Result<(), Failed> {
        let is_stalled = self.has_stalled(now);
        let Some(stream) = self.stream.as_mut().filter(|_| !is_stalled) else { return Ok(()) };
        self.chunk.clear();
        let len = stream.go_on(now, lines, &mut self.chunk)?;
        if let (Some(opened), Some(reads_for)) = (stream.opened, self.reads_for) {
            self.stalls.get_or_insert(opened + reads_for);
        }
        self.tally.bytes += len as u64;
        if let Some(reading_ns) = self.readings.push(&self.chunk) {
            self.tally.delays_ms += ms_between(reading_ns, now.as_nanos());
            self.tally.delays += 1;
        }
        Ok(())
    }
}

impl Program for Bulk {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        self.stepped = now;
        if self.opens.is_some_and(|opens| opens <= now) && !self.is_asked {
            self.opens = None;
            self.readings = Readings::default();
            self.stream = Some(Conversation::begin(now, lines, self.way, &self.request, OPEN_MAX));
        }
        if let Err(failed) = self.go_on(now, lines) {
            journal.failed(now, &failed);
            if let Some(stream) = self.stream.take() {
                lines.close(now, stream.line);
            }
            (self.opens, self.stalls) = (Some(now + REOPEN), None);
        }
        let mut found = || std::mem::take(&mut self.tally).found();
        self.each_second.tell(now, journal, &mut found);
        if self.is_asked {
            self.each_second.end(now, journal, found);
            if let Some(stream) = self.stream.take() {
                lines.close(now, stream.line);
            }
            self.is_over = true;
        }
    }

    fn wakes(&self) -> Option<Instant> {
        let tick = self.each_second.next();
        let stalled = self.stalls.filter(|stalls| *stalls > self.stepped);
        let reading = self.stream.as_ref().filter(|_| self.stalls.is_none());
        [Some(tick), self.opens, stalled, reading.map(Conversation::gives_up)].into_iter().flatten().min()
    }

    fn stream(&self) -> Option<&Conversation> {
        self.stream.as_ref()
    }

    fn stop(&mut self, _: Instant) {
        self.is_asked = true;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_steady(&self) -> bool {
        self.each_second.seconds.is_measuring()
    }
}
