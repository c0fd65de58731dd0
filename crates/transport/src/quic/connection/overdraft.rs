//! What leaves beyond a full window: acknowledgements that the peer waits for, and probes.
//!
//! quinn-proto sends no acknowledgement while data waits for the window: two peers that both send would wait for each
//! other's, and each take the other's patience for the path's. And its own probes are as far apart as the path was
//! silent, where one each second tells soon that a path is back. So one datagram leaves beyond the window, in one of
//! two ways:
//!
//! | we | the peer | what leaves |
//! |---|---|---|
//! | owe an acknowledgement | has answered lately | the next that waits, as long as any |
//! | owe an acknowledgement | owes an answer itself, for a probe time-out | a probe of quinn-proto's before its time |
//! | ask whether the path is there | | the next that waits: one more early probe each second would be two datagrams more, and losses in a flood add up |
//!
//! Such a probe has no more than every path carries. Anything else with data would be lost, with its acknowledgement,
//! on a path that carries less than it did, and would put off quinn-proto's own probes, which wait from what left last.

use super::super::options::ACK_DELAY;
use super::Connection;
use heddle_seam::time::{Duration, Instant};

/// How long the peer waits for an acknowledgement at most that the window holds back: this, or so many round trips.
const OWED_MIN: Duration = ACK_DELAY;
const OWED_RTTS: u32 = 8;

/// Timers of quinn-proto's that may be due before that of its probes. They may as well be early.
const TIMERS_MAX: usize = 4;

impl Connection {
    /// When an acknowledgement that the window holds back is overdue.
    pub(super) fn owed_at(&self) -> Option<Instant> {
        let since = self.owed_since.filter(|_| self.is_window_full)?;
        Some(since + (self.quinn.rtt() / OWED_RTTS).max(OWED_MIN))
    }

    /// Sends one datagram more than the window permits, if a probe is to leave or an acknowledgement is overdue. There
    /// are eight such datagrams in a round trip at most, each for one that came.
    pub(super) fn overdraw(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<quinn_proto::Transmit> {
        let owes = self.owed_at().is_some_and(|at| at <= now);
        if !owes && !self.is_probe_unsent {
            return None;
        }
        self.owed_since = None;
        if owes && self.due().is_some_and(|due| due.since + due.probe_timeout <= now) {
            return self.probe_early(now, out);
        }
        self.gauge.overdraw(2 * self.datagram_bytes() as u64);
        let transmit = self.make_datagrams(now, 1, out);
        self.gauge.overdraw(0);
        self.gauge.take_hindrance();
        transmit
    }

    /// Has quinn-proto send a probe before it would. It takes what it has to acknowledge along.
    fn probe_early(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<quinn_proto::Transmit> {
        for _ in 0..TIMERS_MAX {
            let at = self.quinn.poll_timeout()?;
            self.quinn.handle_timeout(at);
            self.may_probe = true;
            let transmit = self.make_datagrams(now, 1, out);
            self.gauge.take_hindrance();
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }
}
