//! One-cell questions about the server's clock, each over a stream of its own; see [`crate::traffic::timing`].

use std::time::Duration;

use heddle_seam::time::Instant;

use super::Program;
use crate::backend::OPEN_MAX;
use crate::backend::sim::conversation::{Conversation, Failed, Journal};
use crate::backend::sim::lines::{Lines, Way};
use crate::traffic::clock::{READING_BYTES, ms_between};
use crate::traffic::request::Request;
use crate::traffic::timing::Pauses;
use crate::traffic::{Event, Identity};

/// A program that asks them.
pub(super) struct Probe {
    way: Way,
    pauses: Pauses,
    stream: Option<Conversation>,
    /// When it asks next; `None` while it waits for an answer.
    asks: Option<Instant>,
    answer: Vec<u8>,
    has_begun: bool,
    is_over: bool,
    is_asked: bool,
}

impl Probe {
    pub(super) fn new(now: Instant, way: Way, identity: &Identity, pause: Duration) -> Probe {
        let mut pauses = Pauses::new(identity, pause);
        let asks = Some(now + pauses.next_pause());
        Probe {
            way,
            pauses,
            stream: None,
            asks,
            answer: Vec::new(),
            has_begun: false,
            is_over: false,
            is_asked: false,
        }
    }

    /// Reads as much of the answer as has come, and gives what it tells once all has.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> Result<Option<(f64, f64, f64)>, Failed> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        stream.go_on(now, lines, &mut self.answer)?;
        let reading = self.answer.first_chunk::<READING_BYTES>().copied().map(u64::from_be_bytes);
        let (Some(reading_ns), Some(opened)) = (reading, stream.opened) else { return Ok(None) };
        let open_ms = opened.since(stream.asked).as_secs_f64() * 1e3;
        let latency_ms = ms_between(reading_ns, now.as_nanos());
        Ok(Some((open_ms, latency_ms, now.since(opened).as_secs_f64() * 1e3)))
    }

    fn end_stream(&mut self, now: Instant, lines: &mut dyn Lines) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
        self.asks = Some(now + self.pauses.next_pause());
    }
}

impl Program for Probe {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if !self.has_begun {
            self.has_begun = true;
            let t_s = journal.t_s(now);
            journal.say(now, Event::Measuring { t_s, steady: true });
        }
        if self.is_asked {
            self.end_stream(now, lines);
            self.is_over = true;
            return;
        }
        if self.asks.is_some_and(|asks| asks <= now) {
            self.asks = None;
            self.answer.clear();
            self.stream = Some(Conversation::begin(now, lines, self.way, &Request::Clock.head(), OPEN_MAX));
        }
        match self.go_on(now, lines) {
            Ok(None) => {}
            Ok(Some((open_ms, latency_ms, echo_ms))) => {
                self.end_stream(now, lines);
                let t_s = journal.t_s(now);
                journal.say(now, Event::Probe { t_s, measured: true, open_ms, latency_ms, echo_ms });
            }
            Err(failed) => {
                self.end_stream(now, lines);
                journal.failed(now, &failed);
            }
        }
    }

    fn wakes(&self) -> Option<Instant> {
        self.asks.or(self.stream.as_ref().map(Conversation::gives_up))
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
}
