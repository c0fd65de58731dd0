//! RACK (RFC 8985, section 6): a segment is lost when one that was sent sufficiently later was delivered.
//!
//! How much later is the reordering window: nothing while the wire was never seen to reorder and three segments are
//! SACKed; else a quarter of the lowest round trip, and more of them with each round in which the receiver reported
//! duplicates, up to the smoothed round trip.

use super::rtt::Rtt;
use super::sent::Sent;
use crate::time::{Instant, MS};

/// The number of SACKed segments that stands for a loss without reordering.
const DUPLICATES_MAX: usize = 3;
/// For how many recoveries a widened window lasts (section 6.2, step 4).
const PERSIST_RECOVERIES: u8 = 16;
/// The most quarters of the lowest round trip.
const QUARTERS_MAX: u8 = 255;

/// RACK's state, with the names of section 6.1 where they say enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// The delivered segment that was sent last: its time and its end.
    newest: Option<(Instant, u64)>,
    rtt_ns: u64,
    /// The highest end that was delivered.
    fack: u64,
    /// The highest end that was delivered before the present acknowledgement.
    fack_before: u64,
    reordering_seen: bool,
    quarters: u8,
    persist: u8,
    /// The round in which a needless retransmission was last counted ends here.
    needless_round: Option<u64>,
    /// The present acknowledgement, for judging what it delivers.
    ack: AckContext,
}

/// How a segment was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Sack,
    Acknowledgement,
}

/// What judging a delivered segment needs to know of its acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckContext {
    pub now: Instant,
    pub min_rtt_ns: Option<u64>,
    /// When the segment that the acknowledgement echoes was sent, as far as timestamps tell.
    pub echoed_ms: Option<u32>,
}

impl Rack {
    /// A new acknowledgement is being taken.
    pub(crate) fn begin_ack(&mut self, ack: AckContext) {
        self.ack = ack;
        self.fack_before = self.fack;
    }

    /// A segment was delivered (steps 1 to 3), by a SACK block or by the acknowledgement itself.
    pub(crate) fn on_delivered(&mut self, sent: &Sent, by: By) {
        if sent.end() < self.fack_before && !sent.retransmitted {
            self.reordering_seen = true;
        }
        self.fack = self.fack.max(sent.end());
        if sent.retransmitted && self.is_of_the_original(sent, by) {
            return;
        }
        let key = (sent.at, sent.end());
        if self.newest.is_none_or(|newest| key > newest) {
            self.newest = Some(key);
            self.rtt_ns = self.ack.now.ns_since(sent.at);
        }
    }

    /// Whether the acknowledgement of a retransmission is too early to be one.
    ///
    /// Section 6.2, step 2, would ask the echo about SACKed segments, too. But as long as there is a hole, receivers
    /// echo what came before it (RFC 7323, section 4.3), which is older than any retransmission: none would ever count,
    /// and one that is lost behind a hole would wait for the timer.
    fn is_of_the_original(&self, sent: &Sent, by: By) -> bool {
        let echoed = self.ack.echoed_ms.filter(|_| by == By::Acknowledgement);
        let echoed_before =
            echoed.is_some_and(|echoed_ms| is_before(echoed_ms, stamp_ms(sent.at, sent.lag_ms)));
        let too_fast = self.ack.min_rtt_ns.is_some_and(|min_ns| self.ack.now.ns_since(sent.at) < min_ns);
        echoed_before || too_fast
    }

    /// When a segment counts as lost, if it was sent before the newest delivered one.
    pub(crate) fn deadline(&self, sent: &Sent, window_ns: u64) -> Option<Instant> {
        let newest = self.newest?;
        let key = (sent.at, sent.end());
        (key < newest).then(|| sent.at.plus_ns(self.rtt_ns).plus_ns(window_ns))
    }

    /// The reordering window (step 4).
    pub(crate) fn window_ns(&self, rtt: &Rtt, is_recovering: bool, sacked_segments: usize) -> u64 {
        if !self.reordering_seen && (is_recovering || sacked_segments >= DUPLICATES_MAX) {
            return 0;
        }
        let (Some(min_ns), Some(smoothed_ns)) = (rtt.min_ns(), rtt.smoothed_ns()) else { return 0 };
        (min_ns / 4).saturating_mul(u64::from(self.quarters) + 1).min(smoothed_ns)
    }

    /// How far the timestamp of a segment is behind when it is sent again now.
    ///
    /// Receivers drop what is older than what filled the last hole (PAWS, RFC 7323, section 5.3). Where a wire
    /// reorders, that would be new data that a retransmission overtook: one more loss, for which the window shrinks.
    /// With its timestamp as far behind as segments overtake each other, nothing is older. It never is before the
    /// segment's own last one, so it is not older than what came before the hole either.
    pub(crate) fn lag_ms(&self, now: Instant, sent: &Sent, rtt: &Rtt) -> u16 {
        let lag_ns = if self.reordering_seen { self.window_ns(rtt, true, 0) } else { 0 };
        let since_ms = clock_ms(now).wrapping_sub(stamp_ms(sent.at, sent.lag_ms));
        u16::try_from((lag_ns / MS).min(u64::from(since_ms))).unwrap_or(u16::MAX)
    }

    /// A retransmission was needless: the window was too short. Counts once in a round trip.
    pub(crate) fn on_needless(&mut self, una: u64, next: u64) {
        if self.needless_round.is_none_or(|end| una >= end) {
            self.needless_round = Some(next);
            self.quarters = self.quarters.saturating_add(1).min(QUARTERS_MAX - 1);
            self.persist = PERSIST_RECOVERIES;
            // A needless retransmission means that the original was only late.
            self.reordering_seen = true;
        }
    }

    /// A recovery has ended.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 0;
        }
    }

    /// Whether the wire was seen to reorder.
    pub(crate) fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// When the last delivered segment was sent and how long it took: what was sent a round trip before a time-out.
    pub(crate) fn rtt_ns(&self) -> u64 {
        self.rtt_ns
    }
}

/// The clock of timestamps: milliseconds, of which 32 bits count.
pub(crate) fn clock_ms(at: Instant) -> u32 {
    (at.as_nanos() / MS) as u32
}

/// The timestamp of a segment that is sent now, this far behind the clock.
pub(crate) fn stamp_ms(now: Instant, lag_ms: u16) -> u32 {
    clock_ms(now).wrapping_sub(u32::from(lag_ms))
}

/// Whether one timestamp is before another, in the circle of 32 bits (RFC 7323, section 5.2).
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
