//! One-cell questions about the server's clock, each over a stream of its own.

use std::time::Duration;

use heddle_netem::{Rng, Seed};
use heddle_seam::time::Instant;

use crate::traffic::clock::{READING_BYTES, ms_between};
use crate::traffic::conversation::{Conversation, Patience};
use crate::traffic::lines::{LineId, Lines, WayId};
use crate::traffic::program::{Failed, Journal, ms};
use crate::traffic::report::Identity;
use crate::traffic::request::Request;

/// What a probe found.
pub(super) struct Probed {
    pub(super) begun: Instant,
    pub(super) open_ms: f64,
    pub(super) latency_ms: f64,
    pub(super) echo_ms: f64,
}

/// Probes, one at a time.
pub(super) struct Probes {
    way: WayId,
    pauses: Pauses,
    timeout: Duration,
    stream: Option<Conversation>,
    /// When the next one asks; `None` while one waits for its answer.
    asks: Option<Instant>,
    answer: Vec<u8>,
}

impl Probes {
    pub(super) fn new(
        now: Instant,
        way: WayId,
        identity: &Identity,
        pause: Duration,
        timeout: Duration,
    ) -> Probes {
        let mut pauses = Pauses::new(identity, pause);
        let asks = Some(now + pauses.next_pause());
        Probes { way, pauses, timeout, stream: None, asks, answer: Vec::new() }
    }

    /// Does what is to be done, and gives what a probe found that has ended.
    pub(super) fn step(
        &mut self,
        now: Instant,
        lines: &mut dyn Lines,
        journal: &mut Journal,
    ) -> Option<Probed> {
        if self.asks.is_some_and(|asks| asks <= now) {
            self.asks = None;
            self.answer.clear();
            let patience = Patience::Transfer(self.timeout);
            self.stream = Some(Conversation::begin(now, lines, self.way, &Request::Clock.head(), patience));
        }
        let ended = match self.go_on(now, lines) {
            Ok(None) => return None,
            Ok(Some(probed)) => Some(probed),
            Err(failed) => {
                journal.failed(now, &failed);
                None
            }
        };
        self.close(now, lines);
        self.asks = Some(now + self.pauses.next_pause());
        ended
    }

    /// Reads as much of the answer as has come, and gives what it tells once all has.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> Result<Option<Probed>, Failed> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        stream.go_on(now, lines, &mut self.answer)?;
        let reading = self.answer.first_chunk::<READING_BYTES>().copied().map(u64::from_be_bytes);
        let (Some(reading_ns), Some(opened)) = (reading, stream.opened) else { return Ok(None) };
        let latency_ms = ms_between(reading_ns, now.as_nanos());
        let (begun, open_ms) = (stream.asked, ms(stream.asked, opened));
        Ok(Some(Probed { begun, open_ms, latency_ms, echo_ms: ms(opened, now) }))
    }

    pub(super) fn close(&mut self, now: Instant, lines: &mut dyn Lines) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
    }

    /// When they have something to do by themselves.
    pub(super) fn wakes(&self) -> Option<Instant> {
        self.asks.or(self.stream.as_ref().map(Conversation::gives_up))
    }

    pub(super) fn line(&self) -> Option<LineId> {
        self.stream.as_ref().map(|stream| stream.line)
    }
}

/// The pauses between probes, which are exponential.
struct Pauses {
    mean: Duration,
    rng: Rng,
}

impl Pauses {
    /// Those of a client.
    fn new(identity: &Identity, mean: Duration) -> Pauses {
        let Identity { label, seed, .. } = identity;
        Pauses { mean, rng: Seed::from_number(*seed).child(&["traffic", "probes", label]).rng() }
    }

    /// From the end of a probe to the beginning of the next.
    fn next_pause(&mut self) -> Duration {
        // 1 - unit() is never zero.
        self.mean.mul_f64(-libm::log(1.0 - self.rng.unit()))
    }
}
