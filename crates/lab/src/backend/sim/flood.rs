//! A connection that sends as fast as it can, whoever keeps up.

use heddle_seam::time::Instant;

use crate::backend::OPEN_MAX;
use crate::traffic::conversation::{Conversation, Patience};
use crate::traffic::lines::{LineId, Lines, WayId};
use crate::traffic::program::{Journal, Program, STREAMS_MAX};
use crate::traffic::request::Request;
use crate::traffic::upload::CHUNK;

/// A program that floods.
pub(super) struct Flood {
    way: WayId,
    request: String,
    stream: Option<Conversation>,
    is_over: bool,
    begun: Instant,
}

impl Flood {
    /// Begins now. The server counts what comes by this number.
    pub(super) fn new(now: Instant, way: WayId, number: usize) -> Flood {
        let request = Request::Sink(number).head();
        Flood { way, request, stream: None, is_over: false, begun: now }
    }
}

impl Program for Flood {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        let patience = Patience::Silence(OPEN_MAX);
        let begin =
            |lines: &mut dyn Lines| Conversation::begin(now, lines, self.way, &self.request, patience);
        let stream = self.stream.get_or_insert_with(|| begin(lines));
        if let Err(failed) = stream.go_on(now, lines, &mut Vec::new()) {
            journal.failed(now, &failed);
            lines.close(now, stream.line);
            self.is_over = true;
            return;
        }
        while stream.opened.is_some() && stream.write(now, lines, &CHUNK) == CHUNK.len() {}
    }

    fn wakes(&self) -> Option<Instant> {
        Some(self.stream.as_ref().map_or(self.begun, Conversation::gives_up))
    }

    fn lines(&self) -> [Option<LineId>; STREAMS_MAX] {
        [self.stream.as_ref().map(|stream| stream.line), None]
    }

    fn stop(&mut self, _: Instant) {
        self.is_over = true;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn opened(&self) -> Option<Instant> {
        self.stream.as_ref()?.opened
    }
}
