//! Channel padding: PADDING cells on an idle channel, so that a router's flow records do not tell
//! when a client was active (padding-spec, "Connection-level padding").

use heddle_proto::cell::Command;
use heddle_proto::cell::link::PaddingNegotiate;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};

/// What the consensus and the operator say about padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddingOptions {
    /// `nf_ito_low`: the least idle time before a padding cell, in milliseconds.
    pub idle_low_ms: u32,
    /// `nf_ito_high`: the most. When both are zero, nothing is padded.
    pub idle_high_ms: u32,
    /// `nf_pad_before_usage`: pad as soon as a circuit of several hops exists, not only once it
    /// carries data.
    pub before_usage: bool,
    /// `nf_pad_relays`: pad channels between relays too.
    pub relays: bool,
    /// `KeepalivePeriod`: a padding cell is sent on any channel that sent nothing for so long, in
    /// milliseconds, so that middleboxes keep it.
    pub keepalive_ms: u32,
}

impl Default for PaddingOptions {
    fn default() -> Self {
        PaddingOptions {
            idle_low_ms: 1500,
            idle_high_ms: 9500,
            before_usage: true,
            relays: false,
            keepalive_ms: 300_000,
        }
    }
}

/// How far a channel's use has gone, as padding cares: one that only fetches directories is not
/// padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Usage {
    Unused,
    /// It extends circuits: RELAY_EARLY was seen.
    FullCircuits,
    /// And such a circuit carried data: RELAY was seen after it.
    UserTraffic,
}

/// The padding timer of one open channel.
#[derive(Debug)]
pub(crate) struct Padding {
    options: PaddingOptions,
    rng: Rng,
    enabled: bool,
    usage: Usage,
    last_sent: Instant,
    /// Bounds of the idle time now in force.
    low_ms: u32,
    high_ms: u32,
    /// The idle time drawn for the current pause.
    idle: Duration,
}

impl Padding {
    /// `enabled` says whether this channel is padded at all until its client asks otherwise.
    pub(crate) fn new(options: PaddingOptions, enabled: bool, now: Instant, rng: Rng) -> Self {
        let (low_ms, high_ms) = (options.idle_low_ms, options.idle_high_ms);
        let idle = Duration::ZERO;
        let mut padding =
            Padding { options, rng, enabled, usage: Usage::Unused, last_sent: now, low_ms, high_ms, idle };
        padding.draw();
        padding
    }

    /// A cell of a circuit came or goes.
    pub(crate) fn on_circuit_cell(&mut self, command: Command) {
        match (command, self.usage) {
            (Command::RELAY_EARLY, Usage::Unused) => self.usage = Usage::FullCircuits,
            (Command::RELAY, Usage::FullCircuits) => self.usage = Usage::UserTraffic,
            _ => {}
        }
    }

    /// "If another cell is sent for any reason before this timer expires, the timer is reset to a
    /// new random value."
    pub(crate) fn on_sent(&mut self, now: Instant) {
        // Cells of one moment share a draw.
        if now != self.last_sent {
            self.last_sent = now;
            self.draw();
        }
    }

    /// What a client wants of us, within what the consensus allows.
    pub(crate) fn on_negotiate(&mut self, wanted: PaddingNegotiate) {
        match wanted {
            PaddingNegotiate::Stop => self.enabled = false,
            PaddingNegotiate::Start { low_ms, high_ms } => {
                self.enabled = true;
                self.low_ms = self.options.idle_low_ms.max(low_ms.into());
                self.high_ms = self.options.idle_high_ms.max(high_ms.into()).max(self.low_ms);
                self.draw();
            }
        }
    }

    /// When a padding cell is due unless another is sent before.
    pub(crate) fn deadline(&self) -> Instant {
        let keepalive = Duration::from_millis(self.options.keepalive_ms.into());
        self.last_sent + if self.is_padding() { self.idle.min(keepalive) } else { keepalive }
    }

    /// Whether to send a padding cell now; if so, the next pause begins.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        if now < self.deadline() {
            return false;
        }
        self.last_sent = now;
        self.draw();
        true
    }

    fn is_padding(&self) -> bool {
        let from = if self.options.before_usage { Usage::FullCircuits } else { Usage::UserTraffic };
        self.enabled && self.usage >= from && self.options.idle_high_ms > 0
    }

    /// The greater of two uniform draws (padding-spec, "Padding Cell Timeout Distribution
    /// Statistics"): with both sides padding, the shorter of two such pauses is about uniform.
    fn draw(&mut self) {
        let range_ms = u64::from(self.high_ms.saturating_sub(self.low_ms));
        let over_ms = self.rng.below(range_ms).max(self.rng.below(range_ms));
        self.idle = Duration::from_millis(u64::from(self.low_ms) + over_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    fn padding(options: PaddingOptions) -> Padding {
        Padding::new(options, true, Instant::ZERO, Seed::from_number(1).rng())
    }

    fn in_use(options: PaddingOptions) -> Padding {
        let mut padding = padding(options);
        padding.on_circuit_cell(Command::RELAY_EARLY);
        padding
    }

    const KEEPALIVE: Duration = Duration::from_millis(300_000);

    #[test]
    fn an_unused_channel_is_only_kept_alive() {
        assert_eq!(padding(PaddingOptions::default()).deadline(), Instant::ZERO + KEEPALIVE);
        let off = PaddingOptions { idle_low_ms: 0, idle_high_ms: 0, ..PaddingOptions::default() };
        assert_eq!(in_use(off).deadline(), Instant::ZERO + KEEPALIVE);
    }

    #[test]
    fn usage_decides_when_padding_begins() {
        let late = PaddingOptions { before_usage: false, ..PaddingOptions::default() };
        let mut padding = in_use(late);
        assert_eq!(padding.deadline(), Instant::ZERO + KEEPALIVE);
        padding.on_circuit_cell(Command::RELAY);
        assert!(padding.deadline() < Instant::ZERO + Duration::from_millis(9500));
    }

    #[test]
    fn pauses_stay_in_their_range_and_lean_to_its_end() {
        let mut padding = in_use(PaddingOptions::default());
        let mut now = Instant::ZERO;
        let mut total_ms = 0;
        for _ in 0..2000 {
            let pause = padding.deadline().since(now);
            assert!((1500..9500).contains(&pause.as_millis()), "{pause:?}");
            total_ms += pause.as_millis();
            assert!(!padding.handle_timeout(padding.deadline() - Duration::from_nanos(1)));
            now = padding.deadline();
            assert!(padding.handle_timeout(now));
        }
        // The table of padding-spec: 5332.8 ms over the low bound for a range of 8000 ms.
        assert!((6700..6960).contains(&(total_ms / 2000)), "{}", total_ms / 2000);
    }

    #[test]
    fn a_cell_that_is_sent_postpones_padding() {
        let mut padding = in_use(PaddingOptions::default());
        let before = padding.deadline();
        padding.on_sent(Instant::from_nanos(1_000_000_000));
        assert!(!padding.handle_timeout(before));
    }

    #[test]
    fn a_client_may_stop_padding_or_make_it_rarer_but_not_more_frequent() {
        let mut padding = in_use(PaddingOptions::default());
        padding.on_negotiate(PaddingNegotiate::Stop);
        assert_eq!(padding.deadline(), Instant::ZERO + KEEPALIVE);
        padding.on_negotiate(PaddingNegotiate::Start { low_ms: 0, high_ms: 0 });
        assert_eq!((padding.low_ms, padding.high_ms), (1500, 9500));
        padding.on_negotiate(PaddingNegotiate::Start { low_ms: 20_000, high_ms: 3 });
        assert_eq!((padding.low_ms, padding.high_ms), (20_000, 20_000));
        assert_eq!(padding.deadline(), Instant::ZERO + Duration::from_secs(20));
    }
}
