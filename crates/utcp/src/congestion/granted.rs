//! A connection whose window is somebody else's: that of the session it belongs to.
//!
//! One window for all flows between two hosts is what RFC 3124 calls a congestion manager. Each flow keeps its own
//! order, acknowledgements, repairs and timers, and reports what became of its bytes; the session decides how many more
//! may be under way, and grants them one flow after the other.

use super::{AckSample, Congestion, CongestionController};
use crate::time::Instant;
use core::fmt;
use core::time::Duration;

/// What acknowledgements tell a session's controller.
#[derive(Clone, Copy, Debug)]
pub struct SessionAck {
    /// The time.
    pub now: Instant,
    /// When the newest of the acknowledged segments left that were sent only once, if there is one.
    pub newest_sent: Option<Instant>,
    /// Bytes newly acknowledged or SACKed.
    pub bytes: u64,
    /// How much round trips differ from one another: `rttvar` of RFC 6298, over all flows.
    pub deviation_ns: u64,
}

/// What an acknowledgement waited on its way back, and before the peer sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckWait {
    /// What is known of it. It may have waited longer.
    pub waited: Duration,
    /// What it waited at most. Where a round trip is longer than the path's even without this, there was a queue on the
    /// way there.
    pub at_most: Duration,
    /// Whether the peer has lately said when it sends, as it does while cells wait.
    pub is_peer_stamping: bool,
}

/// Sets the window that the flows of a session share.
pub trait SessionController: fmt::Debug + Send + Sync {
    /// What all flows may have in flight, in bytes.
    fn window_bytes(&self) -> u64;

    /// How fast to send, in percent of the window in each round trip.
    fn pacing_percent(&self) -> u64;

    /// From now on segments have so many bytes at most.
    fn set_mss_bytes(&mut self, mss_bytes: u16);

    /// How many flows have a real part in what is sent, where the session's owner counts them.
    fn set_busy_flows(&mut self, flows: f64);

    /// So many bytes leave.
    fn on_sent(&mut self, now: Instant, bytes: u64);

    /// Another datagram comes, and what it acknowledges waited so long on its way back. What was acknowledged before
    /// was one acknowledgement.
    fn set_ack_wait(&mut self, wait: AckWait);

    /// Bytes were delivered.
    fn on_ack(&mut self, ack: &SessionAck);

    /// Bytes were found lost, of which the newest left at `sent`.
    fn on_loss(&mut self, now: Instant, sent: Instant, bytes: u64);

    /// So many bytes were found lost, also those that are not told as a loss.
    fn on_gone(&mut self, bytes: u64);

    /// Routers marked datagrams in the place of dropping them, of which the newest left at `sent` (RFC 3168).
    fn on_marked(&mut self, now: Instant, sent: Instant);

    /// So many bytes of all flows are in flight after acknowledgements and losses.
    fn set_in_flight(&mut self, bytes: u64);

    /// Something that is no flow's, and waits for no window, was answered after so long.
    fn on_probe(&mut self, now: Instant, round_trip_ns: u64);

    /// Nothing was delivered on any flow for a whole time-out of one of them (RFC 5681, section 3.1, equation 4). What
    /// is found lost until something arrives, and what left before that, is not told as a loss.
    fn on_stall(&mut self, now: Instant);

    /// That was a mistake: what was sent before arrived late (RFC 3522; RFC 5682).
    fn on_stall_undone(&mut self, now: Instant);
}

/// What a flow's own controller is then: one that never limits.
#[derive(Clone, Copy, Debug)]
pub struct Granted;

impl CongestionController for Granted {
    fn window_bytes(&self) -> u64 {
        u64::MAX >> 8
    }

    fn threshold_bytes(&self) -> u64 {
        0
    }

    fn on_ack(&mut self, _sample: &AckSample) {}

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

    fn on_undo(&mut self) {}

    fn on_idle(&mut self, _window_bytes: u64) {}
}
