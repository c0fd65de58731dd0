//! Congestion control: one file per algorithm behind one trait.
//!
//! A controller owns the congestion window and the slow start threshold, both in bytes. The connection tells it what
//! was acknowledged and what was lost; while a loss is being repaired, proportional rate reduction sets the pace
//! towards the window that the controller chose, and the controller hears of no acknowledgements.
//!
//! To add one: a file here, an implementation of [`CongestionController`], a variant of
//! [`Algorithm`], a line in [`make`].

mod cubic;
mod granted;
mod hystart;
mod reno;

pub use cubic::Cubic;
pub use granted::{AckWait, Granted, SessionAck, SessionController};
pub use reno::Reno;

use crate::options::Algorithm;
use crate::time::Instant;
use core::fmt;

/// What an acknowledgement tells a controller.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// The time.
    pub now: Instant,
    /// Bytes that were newly acknowledged or SACKed: growth by bytes is what makes divided acknowledgements useless.
    pub delivered_bytes: u64,
    /// The round trip that this acknowledgement measured, if it did.
    pub round_trip_ns: Option<u64>,
    /// The smoothed round trip; zero before the first sample.
    pub smoothed_ns: u64,
    /// The lowest sequence number that is not acknowledged.
    pub una: u64,
    /// The next sequence number to be sent.
    pub next: u64,
    /// Whether the window, and not the application or the peer, is what limited sending.
    pub is_window_limited: bool,
}

/// Why a window shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Segments were found lost by acknowledgements, or a router marked one.
    Signal,
    /// The retransmission timer expired.
    Timeout,
    /// It expired in an episode that the window was reduced for already: only the threshold stays.
    TimeoutAgain,
}

/// A congestion control algorithm.
pub trait CongestionController: fmt::Debug + Send + Sync {
    /// The congestion window, in bytes.
    fn window_bytes(&self) -> u64;

    /// The slow start threshold, in bytes; `u64::MAX` before the first congestion.
    fn threshold_bytes(&self) -> u64;

    /// Whether the window grows exponentially.
    fn is_in_slow_start(&self) -> bool {
        self.window_bytes() < self.threshold_bytes()
    }

    /// Grows the window.
    fn on_ack(&mut self, sample: &AckSample);

    /// Shrinks the window, once for each episode, and remembers what it was.
    fn on_congestion(&mut self, now: Instant, cause: Congestion);

    /// The last congestion was none: takes the window back.
    fn on_undo(&mut self);

    /// Nothing was sent for one or more time-outs: the window is at most `window_bytes` again (RFC 5681, section 4.1).
    fn on_idle(&mut self, window_bytes: u64);
}

/// A controller with a window of `window_bytes`. `is_paced` lets slow start take long acknowledgements at once.
pub fn make(
    algorithm: Algorithm,
    mss_bytes: u64,
    window_bytes: u64,
    is_paced: bool,
) -> Box<dyn CongestionController> {
    match algorithm {
        Algorithm::Cubic => Box::new(Cubic::new(mss_bytes, window_bytes, is_paced)),
        Algorithm::Reno => Box::new(Reno::new(mss_bytes, window_bytes)),
        Algorithm::Granted => Box::new(Granted),
    }
}
