//! Echoes over one stream: messages of one cell that the server sends back; see [`crate::traffic::echo`].

use std::collections::VecDeque;
use std::time::Duration;

use heddle_seam::time::Instant;

use super::Program;
use crate::backend::OPEN_MAX;
use crate::backend::sim::conversation::{Conversation, Failed, Journal};
use crate::backend::sim::lines::{Lines, Way};
use crate::traffic::Event;
use crate::traffic::echo::{DRAIN_MAX, MESSAGE_BYTES, REOPEN};
use crate::traffic::request::Request;

/// A program that sends them.
pub(super) struct Echo {
    way: Way,
    every: Duration,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// When the next message leaves, once there is a stream.
    sends: Option<Instant>,
    /// When the messages left that have not come back, the oldest first.
    under_way: VecDeque<Instant>,
    /// What has come of messages that are not whole.
    come: Vec<u8>,
    /// When it was asked to end.
    asked: Option<Instant>,
    is_over: bool,
}

impl Echo {
    pub(super) fn new(now: Instant, way: Way, every: Duration) -> Echo {
        Echo {
            way,
            every,
            stream: None,
            opens: Some(now),
            sends: None,
            under_way: VecDeque::new(),
            come: Vec::new(),
            asked: None,
            is_over: false,
        }
    }

    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) -> Result<(), Failed> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let came = stream.go_on(now, lines, &mut self.come);
        while self.come.len() >= MESSAGE_BYTES {
            self.come.drain(..MESSAGE_BYTES);
            if let Some(left) = self.under_way.pop_front() {
                let (t_s, echo_ms) = (journal.t_s(now), now.since(left).as_secs_f64() * 1e3);
                journal.say(now, Event::Echo { t_s, echo_ms });
            }
        }
        came.map(drop)
    }

    /// Hands messages over at their moments. Those that pass while the stream takes nothing are left out.
    fn send(&mut self, now: Instant, lines: &mut dyn Lines) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.opened.is_some()) else { return };
        stream.flush(now, lines);
        let sends = *self.sends.get_or_insert(now);
        if self.asked.is_none() && sends <= now && !stream.is_blocked() {
            self.under_way.push_back(now);
            stream.say(now, lines, &[0; MESSAGE_BYTES]);
            self.sends = Some((sends + self.every).max(now));
        }
    }

    /// What is under way now does not come back.
    fn lose(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
        for left in std::mem::take(&mut self.under_way) {
            let (t_s, age_ms) = (journal.t_s(now), now.since(left).as_secs_f64() * 1e3);
            journal.say(now, Event::EchoLost { t_s, age_ms });
        }
        (self.sends, self.opens) = (None, Some(now + REOPEN));
        self.come.clear();
    }
}

impl Program for Echo {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if self.opens.is_some_and(|opens| opens <= now) && self.asked.is_none() {
            self.opens = None;
            self.stream = Some(Conversation::begin(now, lines, self.way, &Request::Echo.head(), OPEN_MAX));
        }
        if let Err(failed) = self.go_on(now, lines, journal) {
            self.lose(now, lines, journal);
            if self.asked.is_none() {
                journal.failed(now, &failed);
            }
        }
        self.send(now, lines);
        let drained = self.asked.is_some_and(|asked| now >= asked + DRAIN_MAX);
        if self.asked.is_some() && (drained || self.under_way.is_empty()) {
            self.lose(now, lines, journal);
            self.is_over = true;
        }
    }

    fn wakes(&self) -> Option<Instant> {
        if let Some(asked) = self.asked {
            return Some(asked + DRAIN_MAX);
        }
        let stream = self.stream.as_ref();
        let sends = self.sends.filter(|_| stream.is_some_and(|stream| !stream.is_blocked()));
        [self.opens, sends, stream.map(Conversation::gives_up)].into_iter().flatten().min()
    }

    fn stream(&self) -> Option<&Conversation> {
        self.stream.as_ref()
    }

    fn stop(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
