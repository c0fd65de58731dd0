//! XON and XOFF: how the two ends of a stream hold each other back on a circuit with congestion
//! control (proposal 324, section 4.1; numbers as in stock tor 0.4.9).
//!
//! * [`DrainWatch`] stands where data leaves the circuit for an edge (at an exit: for the TCP
//!   connection) and decides what to signal: XOFF when the edge's queue has grown too long, XON
//!   with the rate of the edge once the queue is empty, and XON again when that rate has changed.
//! * [`ReadLimit`] stands where data enters the circuit from an edge and obeys the far end's
//!   signals: it says how many bytes may be read from the edge now.

#[cfg(test)]
mod tests;

use super::{Violation, consensus_param, ewma};
use crate::bucket::TokenBucket;
use crate::cell::Malformed;
use crate::cell::flow_control::{Xoff, Xon};
use crate::cell::relay::RelayCommand;
use core::num::NonZeroU32;
use heddle_seam::time::{Duration, Instant};

/// Bytes of data in a full DATA cell (`RELAY_PAYLOAD_SIZE`).
const DATA_LEN: u64 = 498;
/// Cells that may gather in an edge's queue between two turns of an event loop. A longer queue
/// means that the edge is slower than the circuit.
const BURST_CELLS: u64 = 32;
/// The largest rate that is sent, in 1000 bytes per second.
const RATE_MAX_KBPS: u64 = i32::MAX as u64;
/// A queue that is gone after less is none. Stock clients send what a rate allows every 100 ms: an edge that is done
/// with it in half the time could take twice as much.
const QUEUE_LASTS: Duration = Duration::from_millis(50);
/// An edge that took nothing for so long, while the far end waited, is as fast as it is from then on. Stock counts the
/// time that it stood still, and a client whose server paused goes on at next to nothing.
const STANDSTILL: Duration = Duration::from_secs(2);

/// A signal about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Send nothing more on this stream.
    Xoff,
    /// Send on this stream, but no faster than this.
    Xon {
        /// In 1000 bytes per second, as on the wire; zero means without limit.
        kbps_ewma: u32,
    },
}

impl Signal {
    /// Reads the data of an XON or XOFF message, whichever `command` says.
    pub fn parse(command: RelayCommand, data: &[u8]) -> Result<Self, Malformed> {
        match command {
            RelayCommand::XOFF => Xoff::parse(data).map(|_| Signal::Xoff),
            _ => {
                let xon = Xon::parse(data)?;
                Ok(Signal::Xon { kbps_ewma: xon.kbytes_per_s.map_or(0, NonZeroU32::get) })
            }
        }
    }

    /// The command of the message that carries it, whose data is appended to `out`: at most 5 bytes.
    pub fn encode(self, out: &mut Vec<u8>) -> RelayCommand {
        match self {
            Signal::Xoff => {
                Xoff.encode(out);
                RelayCommand::XOFF
            }
            Signal::Xon { kbps_ewma } => {
                Xon { kbytes_per_s: NonZeroU32::new(kbps_ewma) }.encode(out);
                RelayCommand::XON
            }
        }
    }
}

/// Which end of a stream this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The exit, which trusts its client to signal as it likes.
    Exit,
    /// The origin, which counts the exit's signals, because a guard could read a message from them
    /// (DropMark attacks; proposal 324, section 4.1.4).
    Origin,
}

/// The parameters of XON and XOFF. Each names the consensus parameter it comes from; those that
/// the consensus counts in cells are full cells' bytes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XonXoffParams {
    /// `cc_xoff_client`: the queue above which an origin sends XOFF.
    pub xoff_client_bytes: u64,
    /// `cc_xoff_exit`: the queue above which an exit sends XOFF.
    pub xoff_exit_bytes: u64,
    /// `cc_xon_rate`: bytes that must drain between two updates of the rate, and so between two
    /// XON that only tell a changed rate.
    pub xon_rate_bytes: u64,
    /// `cc_xon_change_pct`: how much the rate must have changed to be told.
    pub xon_change_pct: u32,
    /// `cc_xon_ewma_cnt`: over how many updates the rate is smoothed.
    pub xon_ewma_count: u32,
}

impl Default for XonXoffParams {
    fn default() -> Self {
        XonXoffParams::from_consensus(&|_| None)
    }
}

impl XonXoffParams {
    /// The parameters of a consensus; see [`VegasParams`](super::VegasParams) about `lookup`.
    pub fn from_consensus(lookup: &dyn Fn(&str) -> Option<i32>) -> Self {
        let cells = |name: &str, max| u64::from(consensus_param(lookup, name, 500, 1..=max)) * DATA_LEN;
        XonXoffParams {
            xoff_client_bytes: cells("cc_xoff_client", 10_000),
            xoff_exit_bytes: cells("cc_xoff_exit", 10_000),
            xon_rate_bytes: cells("cc_xon_rate", 5_000),
            xon_change_pct: consensus_param(lookup, "cc_xon_change_pct", 25, 1..=99),
            xon_ewma_count: consensus_param(lookup, "cc_xon_ewma_cnt", 2, 2..=100),
        }
    }

    fn xoff_bytes(&self, sender: Role) -> u64 {
        match sender {
            Role::Exit => self.xoff_exit_bytes,
            Role::Origin => self.xoff_client_bytes,
        }
    }
}

/// Watches the queue in front of an edge and decides what to signal to the far end.
#[derive(Clone, Debug)]
pub struct DrainWatch {
    params: XonXoffParams,
    xoff_bytes: u64,
    xoff_sent: bool,
    /// When the current measurement began; only while there is a queue.
    started: Option<Instant>,
    /// What has drained in it.
    drained_bytes: u64,
    /// When something drained last.
    drained_at: Option<Instant>,
    /// What has passed without a queue that lasted since the rate was last measured or doubled.
    passed_bytes: u64,
    /// What had drained at the end of the measurement before, or zero.
    drained_before_bytes: u64,
    /// The smoothed rate in 1000 bytes per second; zero while it is unknown.
    rate_kbps: u64,
    told_kbps: u64,
}

impl DrainWatch {
    /// A watch for a new stream, of which this is the `role` end.
    pub fn new(role: Role, params: XonXoffParams) -> Self {
        DrainWatch {
            params,
            xoff_bytes: params.xoff_bytes(role),
            xoff_sent: false,
            started: None,
            drained_bytes: 0,
            drained_at: None,
            passed_bytes: 0,
            drained_before_bytes: 0,
            rate_kbps: 0,
            told_kbps: 0,
        }
    }

    /// To be called when data has come for the edge, with the length of the queue it is now in.
    /// What is returned must be sent.
    ///
    /// The queue itself goes on growing for at least a round-trip time, and for ever if the far
    /// end does not obey: closing such a stream is up to whoever owns the memory.
    pub fn on_queued(&mut self, now: Instant, queue_bytes: u64) -> Option<Signal> {
        let too_long = queue_bytes > self.xoff_bytes && !self.xoff_sent;
        if too_long {
            self.xoff_sent = true;
            // A rate that led to this was wrong.
            self.rate_kbps = 0;
        }
        let mut xon = None;
        if queue_bytes > BURST_CELLS * DATA_LEN {
            // An edge that is stuck reports nothing drained, yet the time it takes must count.
            xon = self.on_drained(now, 0, queue_bytes);
        }
        // After an XOFF there is no XON before the queue is empty.
        too_long.then_some(Signal::Xoff).or(xon)
    }

    /// To be called when the edge has taken `bytes`, with what is left in the queue. What is
    /// returned must be sent.
    pub fn on_drained(&mut self, now: Instant, bytes: u64, queue_bytes: u64) -> Option<Signal> {
        self.measure(now, bytes, queue_bytes);
        let due = match self.xoff_sent {
            true => queue_bytes == 0,
            false => self.rate_has_changed(),
        };
        if due {
            self.xoff_sent = false;
            self.told_kbps = self.rate_kbps;
        }
        if queue_bytes == 0 {
            self.speed_up(now);
        }
        let kbps_ewma = u32::try_from(self.told_kbps).unwrap_or(u32::MAX);
        due.then_some(Signal::Xon { kbps_ewma })
    }

    fn measure(&mut self, now: Instant, bytes: u64, queue_bytes: u64) {
        self.drained_bytes = self.drained_bytes.saturating_add(bytes);
        self.passed_bytes = self.passed_bytes.saturating_add(bytes);
        let goes_on = bytes > 0 && self.has_stood_still(now);
        if self.started.is_none() && queue_bytes > 0 || goes_on {
            self.started = Some(now);
            self.drained_bytes = 0;
        }
        if bytes > 0 {
            self.drained_at = Some(now);
        }
        let Some(started) = self.started else { return };
        let elapsed_ns = now.as_nanos().saturating_sub(started.as_nanos());
        if self.drained_bytes <= self.params.xon_rate_bytes || elapsed_ns == 0 {
            return;
        }
        // What an edge takes at the end of a measurement is not through the kernel yet, but what
        // it had taken by the end of the one before is, so that is what this time has carried.
        let carried_bytes = match self.drained_before_bytes {
            0 => self.drained_bytes,
            before => before,
        };
        let kbps = u128::from(carried_bytes) * 1_000_000 / u128::from(elapsed_ns);
        let kbps = u64::try_from(kbps).unwrap_or(u64::MAX).clamp(1, RATE_MAX_KBPS);
        self.rate_kbps = ewma(kbps, self.rate_kbps, self.params.xon_ewma_count);
        self.drained_before_bytes = self.drained_bytes;
        (self.drained_bytes, self.passed_bytes) = (0, 0);
        self.started = None;
    }

    /// Whether nothing has drained for long, although something waits that the far end was told to stop for.
    fn has_stood_still(&self, now: Instant) -> bool {
        let since = self.drained_at.or(self.started).filter(|_| self.xoff_sent);
        since.is_some_and(|since| now.since(since) >= STANDSTILL)
    }

    fn rate_has_changed(&self) -> bool {
        let change_pct = u64::from(self.params.xon_change_pct);
        let higher = self.told_kbps * (100 + change_pct) / 100;
        let lower = self.told_kbps * (100 - change_pct) / 100;
        self.told_kbps != 0 && (self.rate_kbps > higher || self.rate_kbps < lower)
    }

    /// With the queue empty, the far end may be slower than the edge only because it was told to
    /// be: let it double its rate each time enough bytes have passed without a queue.
    fn speed_up(&mut self, now: Instant) {
        if self.started.take().is_some_and(|started| now.since(started) >= QUEUE_LASTS) {
            self.passed_bytes = 0;
        }
        if self.passed_bytes >= self.params.xon_rate_bytes && self.told_kbps != 0 {
            self.rate_kbps = (2 * self.rate_kbps).min(RATE_MAX_KBPS);
            self.drained_before_bytes = self.passed_bytes;
            self.passed_bytes = 0;
        }
    }
}

/// Obeys the far end's signals: how many bytes may be read from the edge.
#[derive(Clone, Debug)]
pub struct ReadLimit {
    xoff_received: bool,
    /// The rate of the last XON, unless that was without limit.
    bucket: Option<TokenBucket>,
    counts: Option<SignalCounts>,
}

impl ReadLimit {
    /// No limit, for a new stream of which this is the `role` end.
    pub fn new(role: Role, params: XonXoffParams) -> Self {
        ReadLimit {
            xoff_received: false,
            bucket: None,
            counts: match role {
                Role::Exit => None,
                Role::Origin => Some(SignalCounts::new(&params)),
            },
        }
    }

    /// Bytes that may be read from the edge now: zero after an XOFF, otherwise what the rate of
    /// the last XON allows, a second's worth at once.
    pub fn may_read(&mut self, now: Instant) -> u64 {
        if self.xoff_received {
            return 0;
        }
        self.bucket.as_mut().map_or(u64::MAX, |bucket| {
            bucket.refill(now);
            bucket.available()
        })
    }

    /// Counts what was read from the edge.
    pub fn on_read(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes);
        }
        if let Some(counts) = &mut self.counts {
            counts.on_data(bytes);
        }
    }

    /// When `want` bytes may be read at once, or as many as ever may: `now` when they already
    /// may, `None` after an XOFF, which only an XON ends.
    pub fn next_read(&self, now: Instant, want: u64) -> Option<Instant> {
        if self.xoff_received {
            return None;
        }
        let bucket = self.bucket.as_ref();
        bucket.map_or(Some(now), |bucket| bucket.next_available(now, want))
    }

    /// Obeys a signal of the far end.
    ///
    /// A violation has been obeyed as well as it can be. Stock relays ignore it; for an origin it
    /// is a reason to close the circuit (proposal 324, section 4.1.4).
    pub fn on_signal(&mut self, now: Instant, signal: Signal) -> Result<(), Violation> {
        let plausible = match &mut self.counts {
            Some(counts) => counts.on_signal(signal),
            None => Ok(()),
        };
        match signal {
            Signal::Xoff if self.xoff_received => return Err(Violation::XoffTwice),
            Signal::Xoff => self.xoff_received = true,
            Signal::Xon { kbps_ewma } => {
                self.xoff_received = false;
                self.set_rate(now, kbps_ewma);
            }
        }
        plausible
    }

    fn set_rate(&mut self, now: Instant, kbps: u32) {
        let rate = u64::from(kbps) * 1_000;
        match &mut self.bucket {
            _ if kbps == 0 => self.bucket = None,
            Some(bucket) => bucket.set_limits(now, rate, rate),
            None => self.bucket = Some(TokenBucket::new(now, rate, rate)),
        }
    }
}

/// What an origin counts to tell whether an exit sends more signals than its data can explain.
#[derive(Clone, Debug)]
struct SignalCounts {
    xoff_bytes: u64,
    xon_bytes: u64,
    sent_bytes: u64,
    xoffs: u64,
    xons: u64,
}

/// Counts are halved when so many signals or bytes have come, so that a long quiet stream does
/// not save up permission for a burst of signals.
const SIGNALS_MAX: u64 = 200;
const SENT_BYTES_MAX: u64 = 10 << 20;

impl SignalCounts {
    fn new(params: &XonXoffParams) -> Self {
        let xoff_bytes = params.xoff_bytes(Role::Exit);
        SignalCounts {
            xoff_bytes,
            xon_bytes: xoff_bytes.min(params.xon_rate_bytes),
            sent_bytes: 0,
            xoffs: 0,
            xons: 0,
        }
    }

    fn on_data(&mut self, bytes: u64) {
        if self.sent_bytes.saturating_add(bytes) >= SENT_BYTES_MAX {
            self.halve();
        }
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
    }

    fn on_signal(&mut self, signal: Signal) -> Result<(), Violation> {
        let xoff = signal == Signal::Xoff;
        let (count, bytes) = match xoff {
            true => (self.xoffs, self.xoff_bytes),
            false => (self.xons, self.xon_bytes),
        };
        if count >= SIGNALS_MAX {
            self.halve();
        }
        let count = if xoff { &mut self.xoffs } else { &mut self.xons };
        *count += 1;
        match self.sent_bytes < bytes * *count {
            true => Err(Violation::TooManySignals),
            false => Ok(()),
        }
    }

    fn halve(&mut self) {
        self.sent_bytes /= 2;
        self.xoffs /= 2;
        self.xons /= 2;
    }
}
