//! A stream of the server's clock without end; see [`crate::traffic::timing`].

use std::time::Duration;

use heddle_seam::time::Instant;

use super::{Program, second};
use crate::backend::OPEN_MAX;
use crate::backend::sim::conversation::{Conversation, Failed, Journal};
use crate::backend::sim::lines::{LineId, Lines, Way};
use crate::traffic::clock::{Readings, ms_between};
use crate::traffic::request::Request;
use crate::traffic::seconds::{Found, Seconds, SteadyBy};
use crate::traffic::timing::REOPEN;

/// A program that reads such a stream.
pub(super) struct Bulk {
    way: Way,
    request: String,
    reads_for: Option<Duration>,
    begun: Instant,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// When it stops reading for good.
    stalls: Option<Instant>,
    readings: Readings,
    tally: Tally,
    seconds: Seconds,
    /// How many seconds were told, and when the last one ended.
    ticks: u32,
    ticked: Instant,
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
            begun: now,
            stream: None,
            opens: Some(now),
            stalls: None,
            readings: Readings::default(),
            tally: Tally::default(),
            seconds: Seconds::new(SteadyBy::Delay, steady_max),
            ticks: 0,
            ticked: now,
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

    fn tick(&mut self, now: Instant, is_whole: bool, journal: &mut Journal) {
        let found = std::mem::take(&mut self.tally).found();
        let (ended, length) = (now.since(self.begun), now.since(self.ticked));
        let (told, measuring) = self.seconds.push(found, ended, length, is_whole);
        self.ticked = now;
        journal.say(now, told);
        if let Some(measuring) = measuring {
            journal.say(now, measuring);
        }
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
        while second(self.begun, self.ticks + 1) <= now {
            self.ticks += 1;
            self.tick(now, true, journal);
        }
        if self.is_asked {
            // Of a second that has just begun nothing is left.
            if now > self.ticked {
                self.tick(now, false, journal);
            }
            if let Some(stream) = self.stream.take() {
                lines.close(now, stream.line);
            }
            self.is_over = true;
        }
    }

    fn wakes(&self) -> Option<Instant> {
        let tick = second(self.begun, self.ticks + 1);
        let stalled = self.stalls.filter(|stalls| *stalls > self.stepped);
        let reading = self.stream.as_ref().filter(|_| self.stalls.is_none());
        [Some(tick), self.opens, stalled, reading.map(Conversation::gives_up)].into_iter().flatten().min()
    }

    fn line(&self) -> Option<LineId> {
        self.stream.as_ref().map(|stream| stream.line)
    }

    fn is_blocked(&self) -> bool {
        self.stream.as_ref().is_some_and(Conversation::is_blocked)
    }

    fn stop(&mut self, _: Instant) {
        self.is_asked = true;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_steady(&self) -> bool {
        self.seconds.is_measuring()
    }
}
