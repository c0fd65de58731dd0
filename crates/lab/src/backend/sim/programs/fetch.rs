//! Downloads with pauses between them; see [`crate::traffic::fetch`].

use std::time::Duration;

use heddle_seam::time::Instant;

use super::Program;
use crate::backend::OPEN_MAX;
use crate::backend::sim::conversation::{Conversation, Failed, Journal};
use crate::backend::sim::lines::{Lines, Way};
use crate::error::Error;
use crate::traffic::fetch::{Drawn, Draws, Profile};
use crate::traffic::peer::{HEAD_MAX, content_length, split_head};
use crate::traffic::request::Request;
use crate::traffic::route::Stage;
use crate::traffic::{Event, Identity};

/// What a plan says of downloads.
pub(super) fn profile(size_bytes: [u64; 2], pause: [Duration; 2]) -> Profile {
    Profile { paper: "a plan", size_bytes, pause_ms: pause.map(|pause| pause.as_millis() as u64) }
}

/// A program that makes them.
pub(super) struct Fetch {
    way: Way,
    draws: Draws,
    under_way: Option<Download>,
    /// When the next one begins; `None` while one is under way.
    begins: Option<Instant>,
    /// None begins later.
    ends: Instant,
    is_over: bool,
}

struct Download {
    stream: Conversation,
    drawn: Drawn,
    /// The answer until its head was complete.
    head: Vec<u8>,
    first_byte: Option<Instant>,
    left: u64,
}

impl Fetch {
    pub(super) fn new(
        now: Instant,
        way: Way,
        identity: &Identity,
        profile: &Profile,
        lasts: Duration,
    ) -> Fetch {
        let draws = Draws::new(identity, "fetch", profile);
        Fetch { way, draws, under_way: None, begins: Some(now), ends: now + lasts, is_over: false }
    }

    fn begin(&mut self, now: Instant, lines: &mut dyn Lines) {
        let drawn = self.draws.next_draw();
        let request = Request::Get(drawn.content).head();
        let stream = Conversation::begin(now, lines, self.way, &request, 10 * OPEN_MAX);
        let left = drawn.content.len;
        self.under_way = Some(Download { stream, drawn, head: Vec::new(), first_byte: None, left });
        self.begins = None;
    }

    /// The download is over; the next one begins after the pause, if it is not too late then.
    fn end(&mut self, now: Instant, lines: &mut dyn Lines, pause: Duration) {
        if let Some(download) = self.under_way.take() {
            lines.close(now, download.stream.line);
        }
        let begins = now + pause;
        self.is_over = begins >= self.ends;
        self.begins = Some(begins).filter(|_| !self.is_over);
    }
}

impl Download {
    /// Reads what has come, and says whether that was all.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> Result<bool, Failed> {
        let mut chunk = Vec::new();
        let len = self.stream.go_on(now, lines, &mut chunk)? as u64;
        if self.first_byte.is_some() {
            self.left = self.left.saturating_sub(len);
            return Ok(self.left == 0);
        }
        self.head.append(&mut chunk);
        let malformed = |sent: &str| {
            let sent = sent.to_owned();
            Err((Stage::Transfer, Error::Malformed { by: "the file server", sent }))
        };
        let Some((head, body)) = split_head(&self.head) else {
            return if self.head.len() < HEAD_MAX { Ok(false) } else { malformed("no head") };
        };
        if content_length(&head) != Some(self.drawn.content.len) {
            return malformed(&head);
        }
        self.first_byte = Some(now);
        self.left = self.left.saturating_sub(body.len() as u64);
        Ok(self.left == 0)
    }

    fn told(&self, now: Instant, journal: &Journal) -> Event {
        let since = |then: Option<Instant>| then.unwrap_or(now).since(self.stream.asked).as_secs_f64();
        Event::Fetch {
            t_s: journal.t_s(now),
            bytes: self.drawn.content.len,
            open_ms: since(self.stream.opened) * 1e3,
            first_byte_ms: since(self.first_byte) * 1e3,
            download_s: since(None),
        }
    }
}

impl Program for Fetch {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if self.begins.is_some_and(|begins| begins <= now) {
            self.begin(now, lines);
        }
        let Some(download) = &mut self.under_way else { return };
        match download.go_on(now, lines) {
            Ok(false) => {}
            Ok(true) => {
                let pause = download.drawn.pause;
                let told = download.told(now, journal);
                self.end(now, lines, pause);
                journal.say(now, told);
            }
            Err(failed) => {
                let pause = download.drawn.pause_after_failure;
                self.end(now, lines, pause);
                journal.failed(now, &failed);
            }
        }
    }

    fn wakes(&self) -> Option<Instant> {
        self.begins.or(self.under_way.as_ref().map(|download| download.stream.gives_up()))
    }

    fn stream(&self) -> Option<&Conversation> {
        self.under_way.as_ref().map(|download| &download.stream)
    }

    /// It ends by itself, when what it was told to last is over.
    fn stop(&mut self, _: Instant) {}

    fn is_over(&self) -> bool {
        self.is_over
    }
}
