//! XON and XOFF: how the two ends of a stream hold each other back on a circuit with congestion
//! control (proposal 324, section 4.1; numbers as in stock tor 0.4.9).
//!
//! * [`DrainWatch`] stands where data leaves the circuit for an edge (at an exit: for the TCP
//!   connection) and decides what to signal: XOFF when the edge's queue has grown too long, XON
//!   with the rate of the edge once the queue is empty, and XON again when that rate has changed.
//! * [`ReadLimit`] stands where data enters the circuit from an edge and obeys the far end's
//!   signals: it says how many bytes may be read from the edge now.

use super::{Violation, consensus_param, ewma};
use crate::bucket::TokenBucket;
use crate::time::Instant;

/// Bytes of data in a full DATA cell (`RELAY_PAYLOAD_SIZE`).
const DATA_LEN: u64 = 498;
/// Cells that may gather in an edge's queue between two turns of an event loop. A longer queue
/// means that the edge is slower than the circuit.
const BURST_CELLS: u64 = 32;
/// The largest rate that is sent, in 1000 bytes per second.
const RATE_MAX_KBPS: u64 = i32::MAX as u64;

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

/// Which end of a stream this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The exit, which trusts its client to signal as it likes.
    Exit,
    /// The origin, which counts the exit's signals, since a guard could read a message from them
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
        let cells =
            |name: &str, max| u64::from(consensus_param(lookup, name, 500, 1..=max)) * DATA_LEN;
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
    drained_bytes: u64,
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
            self.speed_up();
        }
        let kbps_ewma = u32::try_from(self.told_kbps).unwrap_or(u32::MAX);
        due.then_some(Signal::Xon { kbps_ewma })
    }

    /// Whether an XOFF was sent and no XON since.
    pub fn xoff_sent(&self) -> bool {
        self.xoff_sent
    }

    fn measure(&mut self, now: Instant, bytes: u64, queue_bytes: u64) {
        self.drained_bytes = self.drained_bytes.saturating_add(bytes);
        if self.started.is_none() && queue_bytes > 0 {
            self.started = Some(now);
            self.drained_bytes = 0;
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
        let kbps = u64::try_from(kbps)
            .unwrap_or(u64::MAX)
            .clamp(1, RATE_MAX_KBPS);
        self.rate_kbps = ewma(kbps, self.rate_kbps, self.params.xon_ewma_count);
        self.drained_before_bytes = self.drained_bytes;
        self.drained_bytes = 0;
        self.started = None;
    }

    fn rate_has_changed(&self) -> bool {
        let change_pct = u64::from(self.params.xon_change_pct);
        let higher = self.told_kbps * (100 + change_pct) / 100;
        let lower = self.told_kbps * (100 - change_pct) / 100;
        self.told_kbps != 0 && (self.rate_kbps > higher || self.rate_kbps < lower)
    }

    /// With the queue empty, the far end may be slower than the edge only because it was told to
    /// be: let it double its rate each time enough bytes have passed without a queue.
    fn speed_up(&mut self) {
        self.started = None;
        if self.drained_bytes >= self.params.xon_rate_bytes && self.told_kbps != 0 {
            self.rate_kbps = (2 * self.rate_kbps).min(RATE_MAX_KBPS);
            self.drained_before_bytes = self.drained_bytes;
            self.drained_bytes = 0;
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
        let count = if xoff {
            &mut self.xoffs
        } else {
            &mut self.xons
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;
    use crate::time::Duration;
    use proptest::prelude::*;

    const XOFF_BYTES: u64 = 500 * 498;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn watch() -> DrainWatch {
        DrainWatch::new(Role::Exit, XonXoffParams::default())
    }

    #[test]
    fn parameters_count_full_cells() {
        let lookup = |name: &str| (name == "cc_xoff_client").then_some(20_000);
        let params = XonXoffParams::from_consensus(&lookup);
        assert_eq!(params.xoff_exit_bytes, XOFF_BYTES);
        assert_eq!(params.xoff_client_bytes, 10_000 * 498);
        assert_eq!((params.xon_change_pct, params.xon_ewma_count), (25, 2));
    }

    #[test]
    fn xoff_goes_out_once_and_xon_when_the_queue_is_empty() {
        let mut watch = watch();
        assert_eq!(watch.on_queued(at_ms(0), XOFF_BYTES), None);
        assert_eq!(
            watch.on_queued(at_ms(0), XOFF_BYTES + 1),
            Some(Signal::Xoff)
        );
        assert_eq!(watch.on_queued(at_ms(1), 2 * XOFF_BYTES), None);
        assert!(watch.xoff_sent());
        // The whole queue leaves at 500 bytes in a millisecond, in steps of 10 ms.
        let (mut left, mut ms) = (2 * XOFF_BYTES, 1);
        let signal = loop {
            ms += 10;
            let step = left.min(5_000);
            left -= step;
            if let Some(signal) = watch.on_drained(at_ms(ms), step, left) {
                break signal;
            }
        };
        assert_eq!(left, 0);
        let Signal::Xon { kbps_ewma } = signal else {
            panic!("not {signal:?}")
        };
        assert!((490..=510).contains(&kbps_ewma), "{kbps_ewma}");
        assert_eq!(
            watch.on_queued(at_ms(ms), XOFF_BYTES + 1),
            Some(Signal::Xoff)
        );
    }

    #[test]
    fn a_queue_that_empties_before_a_rate_is_known_asks_for_no_limit() {
        let params = XonXoffParams {
            xoff_exit_bytes: 1_000,
            ..XonXoffParams::default()
        };
        let mut watch = DrainWatch::new(Role::Exit, params);
        assert_eq!(watch.on_queued(at_ms(0), 1_001), Some(Signal::Xoff));
        let xon = Signal::Xon { kbps_ewma: 0 };
        assert_eq!(watch.on_drained(at_ms(9), 1_001, 0), Some(xon));
    }

    /// A watch that has told a rate of about 1000 kB/s.
    fn told_1000() -> DrainWatch {
        let mut watch = watch();
        watch.on_queued(at_ms(0), XOFF_BYTES + 1);
        let signal = watch.on_drained(at_ms(249), XOFF_BYTES + 1, 0);
        assert_eq!(signal, Some(Signal::Xon { kbps_ewma: 1_000 }));
        watch
    }

    #[test]
    fn a_slower_edge_is_told_only_when_the_change_is_large() {
        let mut watch = told_1000();
        assert_eq!(watch.on_queued(at_ms(300), XOFF_BYTES), None);
        // 249 kB in 280 ms: 11 % slower.
        assert_eq!(watch.on_drained(at_ms(580), XOFF_BYTES + 1, 1), None);
        assert_eq!(watch.on_queued(at_ms(600), XOFF_BYTES), None);
        // 249 kB in a second: the smoothed rate falls by half.
        let signal = watch.on_drained(at_ms(1_600), XOFF_BYTES + 1, 1);
        assert!(
            matches!(
                signal,
                Some(Signal::Xon {
                    kbps_ewma: 400..=500
                })
            ),
            "{signal:?}"
        );
    }

    #[test]
    fn an_edge_without_a_queue_is_offered_twice_the_rate() {
        let mut watch = told_1000();
        let mut told = Vec::new();
        for ms in 300..1_100 {
            if let Some(Signal::Xon { kbps_ewma }) = watch.on_drained(at_ms(ms), 1_000, 0) {
                told.push(kbps_ewma);
            }
        }
        assert_eq!(told, [2_000, 4_000, 8_000]);
    }

    #[test]
    fn a_stuck_edge_is_noticed_from_what_queues_up() {
        let mut watch = told_1000();
        assert_eq!(watch.on_queued(at_ms(300), 20_000), None);
        assert_eq!(watch.on_queued(at_ms(5_000), 240_000), None);
        // The 5 seconds it stood still count as part of the time these bytes took.
        let signal = watch.on_drained(at_ms(5_300), XOFF_BYTES + 1, 1);
        assert!(
            matches!(
                signal,
                Some(Signal::Xon {
                    kbps_ewma: 300..=400
                })
            ),
            "{signal:?}"
        );
    }

    #[test]
    fn xoff_stops_reading_and_xon_limits_it() {
        let mut limit = ReadLimit::new(Role::Exit, XonXoffParams::default());
        assert_eq!(limit.may_read(at_ms(0)), u64::MAX);
        assert_eq!(limit.on_signal(at_ms(0), Signal::Xoff), Ok(()));
        assert_eq!(limit.may_read(at_ms(99)), 0);
        assert_eq!(limit.next_read(at_ms(99), 1), None);
        assert_eq!(
            limit.on_signal(at_ms(99), Signal::Xoff),
            Err(Violation::XoffTwice)
        );
        assert_eq!(
            limit.on_signal(at_ms(100), Signal::Xon { kbps_ewma: 10 }),
            Ok(())
        );
        assert_eq!(limit.may_read(at_ms(100)), 10_000);
        limit.on_read(10_000);
        assert_eq!(limit.may_read(at_ms(100)), 0);
        assert_eq!(limit.next_read(at_ms(100), 500), Some(at_ms(150)));
        assert_eq!(limit.may_read(at_ms(150)), 500);
        assert_eq!(
            limit.on_signal(at_ms(150), Signal::Xon { kbps_ewma: 0 }),
            Ok(())
        );
        assert_eq!(limit.may_read(at_ms(150)), u64::MAX);
        assert_eq!(limit.next_read(at_ms(150), 500), Some(at_ms(150)));
    }

    #[test]
    fn the_rate_of_an_xon_is_kept_over_time() {
        let mut rng = Seed::from_number(3).rng();
        let mut limit = ReadLimit::new(Role::Exit, XonXoffParams::default());
        limit
            .on_signal(at_ms(0), Signal::Xon { kbps_ewma: 123 })
            .expect("an XON is welcome");
        let (mut now, mut read) = (at_ms(0), 0);
        while now < at_ms(60_000) {
            let bytes = limit.may_read(now).min(rng.below(4_000));
            limit.on_read(bytes);
            read += bytes;
            now += Duration::from_micros(rng.below(20_000));
        }
        let expected = 123_000 * 61;
        assert!(
            (expected * 98 / 100..=expected * 102 / 100).contains(&read),
            "{read}"
        );
    }

    #[test]
    fn an_origin_refuses_signals_that_its_data_cannot_explain() {
        let origin = || ReadLimit::new(Role::Origin, XonXoffParams::default());
        let xon = Signal::Xon { kbps_ewma: 0 };
        for signal in [Signal::Xoff, xon] {
            let mut limit = origin();
            limit.on_read(XOFF_BYTES - 1);
            assert_eq!(
                limit.on_signal(at_ms(0), signal),
                Err(Violation::TooManySignals)
            );
            let mut limit = origin();
            limit.on_read(XOFF_BYTES);
            assert_eq!(limit.on_signal(at_ms(0), signal), Ok(()));
        }
        let mut limit = origin();
        limit.on_read(XOFF_BYTES);
        assert_eq!(limit.on_signal(at_ms(0), Signal::Xoff), Ok(()));
        assert_eq!(limit.on_signal(at_ms(0), xon), Ok(()));
        assert_eq!(
            limit.on_signal(at_ms(1), Signal::Xoff),
            Err(Violation::TooManySignals)
        );
        // It is obeyed all the same.
        assert_eq!(limit.may_read(at_ms(1)), 0);
    }

    /// An exit's watch must never signal more than an origin accepts, whatever the edge does.
    #[test]
    fn an_origin_accepts_every_signal_of_our_own_exit() {
        for seed in 0..20 {
            let mut rng = Seed::from_number(seed).rng();
            let mut exit = watch();
            let mut origin = ReadLimit::new(Role::Origin, XonXoffParams::default());
            let (mut queue, mut now, mut signals) = (0_u64, at_ms(0), 0);
            let mut edge_bytes = 0;
            for turn in 0..40_000 {
                if turn % 2_000 == 0 {
                    edge_bytes = rng.below(4_000);
                }
                now += Duration::from_micros(1 + rng.below(2_000));
                let sent = origin.may_read(now).min(498 * rng.below(8));
                origin.on_read(sent);
                queue += sent;
                let queued = exit.on_queued(now, queue);
                let drained = queue.min(rng.below(2 * edge_bytes + 1));
                queue -= drained;
                let told = exit.on_drained(now, drained, queue);
                for signal in [queued, told].into_iter().flatten() {
                    signals += 1;
                    assert_eq!(
                        origin.on_signal(now, signal),
                        Ok(()),
                        "turn {turn}, seed {seed}"
                    );
                }
                assert!(queue <= XOFF_BYTES + 498 * 8);
            }
            assert!(signals > 0);
        }
    }

    proptest! {
        #[test]
        fn nothing_a_peer_or_an_edge_can_do_panics(
            calls in prop::collection::vec((0..6, any::<u64>(), any::<u64>(), any::<u32>()), 1..200),
        ) {
            let mut watch = DrainWatch::new(Role::Origin, XonXoffParams::default());
            let mut limit = ReadLimit::new(Role::Origin, XonXoffParams::default());
            for (call, ns, bytes, number) in calls {
                let now = Instant::from_nanos(ns);
                match call {
                    0 => drop(watch.on_queued(now, bytes)),
                    1 => drop(watch.on_drained(now, bytes, u64::from(number % 3))),
                    2 => limit.on_read(bytes),
                    3 => drop(limit.on_signal(now, Signal::Xoff)),
                    4 => drop(limit.on_signal(now, Signal::Xon { kbps_ewma: number })),
                    _ => drop((limit.may_read(now), limit.next_read(now, bytes))),
                }
            }
        }
    }
}
