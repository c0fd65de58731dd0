//! Uploads without end: of a client, see [`crate::traffic::upload()`], and of a wire's bulk connection.

use std::rc::Rc;
use std::time::Duration;

use heddle_proto::cell::relay::DATA_LEN;
use heddle_seam::time::Instant;

use super::{EachSecond, Program};
use crate::backend::OPEN_MAX;
use crate::backend::sim::conversation::{Conversation, Journal};
use crate::backend::sim::lines::{Lines, Way};
use crate::backend::sim::server::Sunk;
use crate::traffic::request::Request;
use crate::traffic::seconds::{Found, SteadyBy};
use crate::traffic::upload::{LOOK, REOPEN, UNDER_WAY_MAX};

/// What is written at once: as many bytes as fill whole cells.
const CHUNK: [u8; 32 * DATA_LEN] = [0; 32 * DATA_LEN];

/// A client that uploads.
pub(super) struct Upload {
    way: Way,
    sunk: Rc<Sunk>,
    number: usize,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// What was sunk before this stream, and what was written to it.
    sunk_before: u64,
    written: u64,
    /// When it is looked whether more has arrived, where too much is under way.
    looks: Option<Instant>,
    /// What had arrived when it was looked last.
    arrived: u64,
    each_second: EachSecond,
    told: u64,
    is_blocked: bool,
    is_asked: bool,
    is_over: bool,
}

impl Upload {
    pub(super) fn new(now: Instant, way: Way, sunk: Rc<Sunk>, number: usize, steady_max: Duration) -> Upload {
        let before = sunk.of(number);
        Upload {
            way,
            sunk,
            number,
            stream: None,
            opens: Some(now),
            sunk_before: before,
            written: 0,
            looks: None,
            arrived: 0,
            each_second: EachSecond::new(now, SteadyBy::Throughput, steady_max),
            told: before,
            is_blocked: false,
            is_asked: false,
            is_over: false,
        }
    }

    /// Writes as long as the stream takes something and the server keeps up.
    fn write(&mut self, now: Instant, lines: &mut dyn Lines) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.opened.is_some()) else { return };
        stream.flush(now, lines);
        (self.is_blocked, self.looks) = (stream.is_blocked(), None);
        let arrived = self.sunk.of(self.number) - self.sunk_before;
        if arrived > self.arrived {
            self.arrived = arrived;
            stream.has_moved(now);
        }
        while !self.is_blocked {
            if self.written + CHUNK.len() as u64 > arrived + UNDER_WAY_MAX {
                self.looks = Some(now + LOOK);
                return;
            }
            let len = lines.write(now, stream.line, &CHUNK);
            self.written += len as u64;
            if len > 0 {
                stream.has_moved(now);
            }
            self.is_blocked = len < CHUNK.len();
        }
    }

    fn close(&mut self, now: Instant, lines: &mut dyn Lines) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
        (self.is_blocked, self.looks) = (false, None);
    }
}

impl Program for Upload {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if self.opens.is_some_and(|opens| opens <= now) && !self.is_asked {
            self.opens = None;
            (self.sunk_before, self.written, self.arrived) = (self.sunk.of(self.number), 0, 0);
            let request = Request::Sink(self.number).head();
            self.stream = Some(Conversation::begin(now, lines, self.way, &request, OPEN_MAX));
        }
        if let Some(stream) = &mut self.stream
            && let Err(failed) = stream.go_on(now, lines, &mut Vec::new())
        {
            journal.failed(now, &failed);
            self.close(now, lines);
            self.opens = Some(now + REOPEN);
        }
        self.write(now, lines);
        let mut found = || {
            let sunk = self.sunk.of(self.number);
            let before = std::mem::replace(&mut self.told, sunk);
            Found { bytes: sunk - before, ..Found::default() }
        };
        self.each_second.tell(now, journal, &mut found);
        if self.is_asked {
            self.each_second.end(now, journal, found);
            self.close(now, lines);
            self.is_over = true;
        }
    }

    fn wakes(&self) -> Option<Instant> {
        let tick = self.each_second.next();
        let gives_up = self.stream.as_ref().map(Conversation::gives_up);
        [Some(tick), self.opens, self.looks, gives_up].into_iter().flatten().min()
    }

    fn stream(&self) -> Option<&Conversation> {
        self.stream.as_ref()
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked || self.stream.as_ref().is_some_and(Conversation::is_blocked)
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

/// A connection that sends as fast as it can, whoever keeps up.
pub(super) struct Flood {
    way: Way,
    request: String,
    stream: Option<Conversation>,
    is_blocked: bool,
    is_over: bool,
    begun: Instant,
}

impl Flood {
    pub(super) fn new(now: Instant, way: Way, number: usize) -> Flood {
        let request = Request::Sink(number).head();
        Flood { way, request, stream: None, is_blocked: false, is_over: false, begun: now }
    }
}

impl Program for Flood {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        let begin =
            |lines: &mut dyn Lines| Conversation::begin(now, lines, self.way, &self.request, OPEN_MAX);
        let stream = self.stream.get_or_insert_with(|| begin(lines));
        if let Err(failed) = stream.go_on(now, lines, &mut Vec::new()) {
            journal.failed(now, &failed);
            lines.close(now, stream.line);
            self.is_over = true;
            return;
        }
        if stream.opened.is_none() {
            return;
        }
        self.is_blocked = stream.is_blocked();
        while !self.is_blocked {
            let len = lines.write(now, stream.line, &CHUNK);
            if len > 0 {
                stream.has_moved(now);
            }
            self.is_blocked = len < CHUNK.len();
        }
    }

    fn wakes(&self) -> Option<Instant> {
        Some(self.stream.as_ref().map_or(self.begun, Conversation::gives_up))
    }

    fn stream(&self) -> Option<&Conversation> {
        self.stream.as_ref()
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked || self.stream.as_ref().is_some_and(Conversation::is_blocked)
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
