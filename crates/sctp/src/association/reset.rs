//! Streams that begin anew (RFC 6525): ours by request, the peer's by its own.
//!
//! A request is sent when nothing of its streams is under way, and with the TSN up to which all is acknowledged as the
//! last one: more there is not to wait for. The last one that was assigned, which RFC 6525 names, is of whichever
//! stream, and would have the peer wait for all others.

use super::{Association, Event};
use crate::wire::reconfig::{self, Reconfig, result};
use crate::wire::{Chunk, Malformed};
use heddle_seam::time::Instant;
use heddle_utcp::allowance::Allowance;
use std::collections::VecDeque;

/// Streams of one request at most.
const STREAMS_MAX: usize = 256;
/// A request is sent so often, at last 32 times as rarely as at first.
const TRIES_MAX: u32 = 24;
const DOUBLINGS_MAX: u32 = 5;
/// Streams of the peer's that begin anew at once and in each second: as many as there are, and more than two relays
/// make circuits, because each time costs a lane and maybe a circuit. What is more waits, and an honest peer asks
/// again.
const AT_ONCE: u64 = 1 << 16;
const PER_S: u64 = 5_000;
/// Answers that wait, and answers that are repeated: a chunk has two requests at most.
const ANSWERS: usize = 2;

#[derive(Debug)]
pub(super) struct Resets {
    /// The number of our next request, and the streams of the one that is not answered.
    next: u32,
    asked: Vec<u16>,
    tries: u32,
    is_due: bool,
    timer: Option<Instant>,
    /// The number of the peer's next request.
    expected: Option<u32>,
    /// What its last ones were answered, the last one first, and what is to be answered now.
    last_results: [u32; ANSWERS],
    answers: VecDeque<(u32, u32)>,
    /// How many more streams of the peer's may begin anew.
    allowance: Allowance,
    /// Whether the packet that is worked off had a request that was performed: one is enough of work.
    has_performed: bool,
}

impl Resets {
    pub(super) fn new(first: u32) -> Self {
        Resets {
            next: first,
            asked: Vec::new(),
            tries: 0,
            is_due: false,
            timer: None,
            expected: None,
            last_results: [result::PERFORMED; ANSWERS],
            answers: VecDeque::new(),
            allowance: Allowance::new(AT_ONCE, PER_S),
            has_performed: false,
        }
    }

    pub(super) fn begin_packet(&mut self) {
        self.has_performed = false;
    }

    pub(super) fn begin(&mut self, peers_first: u32) {
        self.expected = Some(peers_first);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.asked.capacity() * size_of::<u16>()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// Whether the peer is there and answers no request.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.timer.is_some_and(|at| at <= now) {
            (self.timer, self.is_due) = (None, true);
        }
        self.is_due && self.tries >= TRIES_MAX
    }
}

impl Association {
    /// The answer and the request that are to leave in a packet with so many bytes left, and whether there is a
    /// request.
    pub(super) fn poll_reconfig(&mut self, now: Instant, room: usize) -> Option<(Vec<u8>, bool)> {
        let mut value = Vec::new();
        if room < reconfig::ANSWER_LEN {
            return None;
        }
        // With two parameters a chunk is full.
        let answers = self.resets.answers.len();
        for (number, result) in self.resets.answers.drain(..).take(ANSWERS) {
            reconfig::write_answer(number, result, &mut value);
        }
        if self.resets.asked.is_empty() && self.sender.streams.has_settled() {
            self.resets.asked = self.sender.streams.take_settled(STREAMS_MAX);
            self.resets.is_due = true;
        }
        let request_len = reconfig::REQUEST_LEN + 2 * self.resets.asked.len() + 2;
        let mut asks = false;
        if self.resets.is_due && answers < ANSWERS && value.len() + request_len <= room {
            let answered = self.resets.expected.map_or(0, |expected| expected.wrapping_sub(1));
            let (number, last_tsn) = (self.resets.next, self.sender.acknowledged());
            reconfig::write_request(number, answered, last_tsn, &self.resets.asked, &mut value);
            let wait = self.sender.timeout() * (1 << self.resets.tries.min(DOUBLINGS_MAX));
            self.resets.tries += 1;
            (self.resets.is_due, self.resets.timer) = (false, Some(now + wait.min(self.options.rto_max)));
            asks = true;
        }
        (!value.is_empty()).then_some((value, asks))
    }

    /// Whether there is something for [`Association::poll_reconfig`].
    pub(super) fn has_reconfig(&self) -> bool {
        let resets = &self.resets;
        !resets.answers.is_empty()
            || resets.is_due
            || resets.asked.is_empty() && self.sender.streams.has_settled()
    }

    pub(super) fn on_reconfig(&mut self, now: Instant, chunk: &Chunk<'_>) -> Result<(), Malformed> {
        for parameter in reconfig::parse(chunk) {
            match parameter {
                Reconfig::Answer { number, result } => self.on_reset_answer(number, result)?,
                Reconfig::Outgoing { number, last_tsn, streams } => {
                    // The peer asks again.
                    if !self.resets.has_performed && self.is_news(number) {
                        self.resets.has_performed = true;
                        let result = self.perform(now, last_tsn, streams);
                        self.answer(number, result);
                    }
                }
                Reconfig::Other { number } => {
                    if self.is_news(number) {
                        self.answer(number, result::DENIED);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a request is the peer's next one. The one before is answered again, and others are not right.
    fn is_news(&mut self, number: u32) -> bool {
        let Some(expected) = self.resets.expected else { return false };
        if number == expected {
            return true;
        }
        let before = expected.wrapping_sub(1).wrapping_sub(number) as usize;
        let result = self.resets.last_results.get(before).copied().unwrap_or(result::BAD_NUMBER);
        self.say(number, result);
        false
    }

    fn answer(&mut self, number: u32, result: u32) {
        if result != result::IN_PROGRESS {
            self.resets.expected = Some(number.wrapping_add(1));
            self.resets.last_results = [result, self.resets.last_results[0]];
        }
        self.say(number, result);
    }

    /// Queues an answer; of many the last ones count.
    fn say(&mut self, number: u32, result: u32) {
        let answers = &mut self.resets.answers;
        if answers.len() == ANSWERS {
            answers.pop_front();
        }
        answers.push_back((number, result));
    }

    /// The peer's messages on these streams begin anew, once all came that it had sent, and if it has not had that done
    /// too often.
    fn perform(&mut self, now: Instant, last_tsn: u32, streams: &[u8]) -> u32 {
        if !self.receiver.has_all_to(last_tsn) {
            return result::IN_PROGRESS;
        }
        let mut named: Vec<u16> =
            streams.chunks_exact(2).map(|stream| u16::from_be_bytes([stream[0], stream[1]])).collect();
        named.sort_unstable();
        named.dedup();
        // None is named where all are meant. They are not looked at in vain.
        let count = if named.is_empty() { self.receiver.streams() } else { named.len() };
        if !self.resets.allowance.take(now, count as u64) {
            return result::IN_PROGRESS;
        }
        let all = if named.is_empty() { self.receiver.stream_ids() } else { named };
        for stream in all {
            self.receiver.reset(stream);
            self.events.push_back(Event::PeerReset(stream));
        }
        result::PERFORMED
    }

    fn on_reset_answer(&mut self, number: u32, result: u32) -> Result<(), Malformed> {
        if number != self.resets.next || self.resets.asked.is_empty() {
            return Ok(());
        }
        self.sender.on_answered();
        if result == result::IN_PROGRESS {
            return Ok(());
        }
        self.resets.next = number.wrapping_add(1);
        (self.resets.timer, self.resets.is_due, self.resets.tries) = (None, false, 0);
        let asked = core::mem::take(&mut self.resets.asked);
        // Streams that the peer does not reset would take no more messages, and never be free.
        if result > result::PERFORMED {
            return Err(Malformed("it refuses to reset its end of streams"));
        }
        for stream in asked {
            self.sender.streams.on_reset(stream);
            self.events.push_back(Event::Reset(stream));
        }
        Ok(())
    }
}
