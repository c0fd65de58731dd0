//! The stream of the server's clock without end: opened, read, and opened again when it breaks.

use std::time::Duration;

use heddle_seam::time::Instant;

use super::BulkStream;
use crate::traffic::clock::{Readings, ms_between};
use crate::traffic::conversation::{Conversation, Patience};
use crate::traffic::lines::{LineId, Lines, WayId};
use crate::traffic::program::{Failed, Journal};
use crate::traffic::request::Request;
use crate::traffic::seconds::Found;

/// How long the client waits before it opens a broken stream again.
const REOPEN: Duration = Duration::from_secs(1);

/// Such a stream, and what it brought since that was asked last.
pub(super) struct ReadingStream {
    way: WayId,
    bulk: BulkStream,
    timeout: Duration,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// When it is not read any more.
    stalls: Option<Instant>,
    readings: Readings,
    bytes: u64,
    delays_ms: f64,
    delays: u64,
    chunk: Vec<u8>,
}

impl ReadingStream {
    pub(super) fn new(now: Instant, way: WayId, bulk: BulkStream, timeout: Duration) -> ReadingStream {
        ReadingStream {
            way,
            bulk,
            timeout,
            stream: None,
            opens: Some(now),
            stalls: None,
            readings: Readings::default(),
            bytes: 0,
            delays_ms: 0.0,
            delays: 0,
            chunk: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.opens.is_some_and(|opens| opens <= now) {
            let request = Request::Clocks(self.bulk.limit_b_s).head();
            let patience = Patience::Silence(self.timeout);
            self.stream = Some(Conversation::begin(now, lines, self.way, &request, patience));
            (self.opens, self.readings) = (None, Readings::default());
        }
        if let Err(failed) = self.go_on(now, lines) {
            journal.failed(now, &failed);
            self.close(now, lines);
            (self.opens, self.stalls) = (Some(now + REOPEN), None);
        }
    }

    /// Reads what has come.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> Result<(), Failed> {
        let has_stalled = self.stalls.is_some_and(|stalls| stalls <= now);
        let Some(stream) = self.stream.as_mut().filter(|_| !has_stalled) else { return Ok(()) };
        self.chunk.clear();
        let len = stream.go_on(now, lines, &mut self.chunk)?;
        if let (Some(opened), Some(reads_for)) = (stream.opened, self.bulk.reads_for) {
            self.stalls.get_or_insert(opened + reads_for);
        }
        self.bytes += len as u64;
        if let Some(reading_ns) = self.readings.push(&self.chunk) {
            self.delays_ms += ms_between(reading_ns, now.as_nanos());
            self.delays += 1;
        }
        Ok(())
    }

    /// What came since this was asked last.
    pub(super) fn take_found(&mut self) -> Found {
        let delay_ms = (self.delays > 0).then(|| self.delays_ms / self.delays as f64);
        let found = Found { bytes: self.bytes, delay_ms, latency_ms: None };
        (self.bytes, self.delays_ms, self.delays) = (0, 0.0, 0);
        found
    }

    pub(super) fn close(&mut self, now: Instant, lines: &mut dyn Lines) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
    }

    /// When it has something to do by itself. A client that stops reading has no patience to lose.
    pub(super) fn wakes(&self) -> Option<Instant> {
        let read = self.stream.as_ref().filter(|_| self.stalls.is_none());
        self.opens.into_iter().chain(read.map(Conversation::gives_up)).min()
    }

    pub(super) fn line(&self) -> Option<LineId> {
        self.stream.as_ref().map(|stream| stream.line)
    }
}
