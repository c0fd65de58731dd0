//! Flow control between the ends of a circuit: how many DATA cells may be packaged, and which
//! cells are answered by a SENDME (tor-spec, "Flow control"; proposal 324).
//!
//! Everything here is policy: it holds numbers and times, never a cell. The circuit asks
//! [`FlowControl::room`] before it packages, reports every DATA cell it sends or receives, and
//! keeps the digests of the cells that await a SENDME in [`Digests`].
//!
//! 1. DATA goes out: `room() > 0`, as long as [`ShortCells`] allows, then `on_sent`; if it says so, `Digests::expect`.
//! 2. A circuit SENDME comes in: `Digests::check`, then `on_sendme`.
//! 3. DATA comes in: `on_received`; if it says so, a SENDME with that cell's digest goes out at
//!    once, before the data reaches a stream (proposal 324, section 4.1).
//! 4. Streams are held back by [`StreamWindow`], or by XON and XOFF ([`DrainWatch`] and
//!    [`ReadLimit`]), whichever [`FlowControl::stream_control`] names.

mod choice;
mod digests;
mod dynamic;
mod fixed;
mod short_cells;
mod vegas;
mod xon_xoff;

pub use choice::FlowChoice;
pub use digests::{Digests, Tag};
pub use dynamic::Dynamic;
pub use fixed::{Fixed, StreamWindow};
pub use short_cells::ShortCells;
use vegas::congestion_control_enabled;
pub use vegas::{Path, Vegas, VegasParams, sendme_inc_acceptable};
pub use xon_xoff::{DrainWatch, ReadLimit, Role, Signal, XonXoffParams};

use heddle_seam::time::{Duration, Instant};

/// One end of a circuit-level controlled segment (an exit's end, or an origin's end).
///
/// No call fails for the far end's fault but [`on_sendme`](Self::on_sendme), and none panics.
pub trait FlowControl {
    /// Cells that may be packaged now; zero means blocked until a SENDME.
    fn room(&self) -> u32;

    /// Counts a DATA cell that was packaged, which is only right while [`room`](Self::room) is
    /// not zero. True when the far end answers this very cell with a SENDME, so that its digest
    /// must be remembered.
    fn on_sent(&mut self, now: Instant) -> bool;

    /// Counts a circuit SENDME, already authenticated by [`Digests::check`].
    fn on_sendme(&mut self, now: Instant, input: SendmeContext) -> Result<(), Violation>;

    /// Counts a DATA cell that was delivered to us. True when a SENDME must be sent now.
    fn on_received(&mut self) -> bool;

    /// The most SENDMEs that can be outstanding at once, which bounds the digests to remember.
    fn pending_max(&self) -> usize;

    /// How the streams of this circuit are held back.
    fn stream_control(&self) -> StreamControl;

    /// What the policy believes at the moment, for metrics and for the choice of a conflux leg.
    fn snapshot(&self) -> Snapshot;
}

/// What a policy hears about the circuit's own queue when a SENDME arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendmeContext {
    /// Whether so many cells of this circuit wait for the channel that its streams are not read.
    /// Stock relays say so from 256 cells on (`cellq_high`) until only 10 are left (`cellq_low`).
    /// A few cells that wait are no sign of congestion, and saying so would keep the window small.
    pub channel_blocked: bool,
    /// Cells of this circuit that wait for the channel it packages to.
    pub queued_cells: u32,
}

/// How the streams of a circuit are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamControl {
    /// Windows of 500 cells, answered by stream SENDMEs.
    Windows,
    /// XON and XOFF; a stream SENDME is a protocol violation.
    XonXoff,
}

/// The state of a policy at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Cells that may be in flight.
    pub window_cells: u32,
    /// Cells sent and not acknowledged.
    pub inflight_cells: u32,
    /// Cells that one SENDME acknowledges.
    pub sendme_cells: u32,
    /// The smoothed round-trip time, when it is measured.
    pub rtt: Option<Duration>,
    /// The smallest smoothed round-trip time, when it is measured.
    pub rtt_min: Option<Duration>,
    /// Whether the window still grows by slow start.
    pub slow_start: bool,
}

/// What the far end did against the rules. Stock relays close the circuit for each of them with
/// `TORPROTOCOL`, except where a variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A SENDME came though no cell awaits one.
    UnexpectedSendme,
    /// A SENDME names another cell than the oldest one that awaits an answer.
    WrongDigest,
    /// DATA came beyond the window of its stream.
    WindowExceeded,
    /// A second XOFF without an XON between. Stock relays ignore it.
    XoffTwice,
    /// More XON or XOFF than the data sent can explain. Only origins look; stock ones count the
    /// cell as junk, Arti closes the circuit.
    TooManySignals,
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Violation::UnexpectedSendme => "a SENDME though no cell awaits one",
            Violation::WrongDigest => "a SENDME with the digest of another cell",
            Violation::WindowExceeded => "DATA beyond the stream's window",
            Violation::XoffTwice => "a second XOFF in a row",
            Violation::TooManySignals => "more XON or XOFF than the data can explain",
        })
    }
}

impl core::error::Error for Violation {}

/// Which flow control an end of a circuit runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The old windows: at most this many cells in flight (consensus parameter `circwindow`).
    Fixed(u16),
    /// DefenestraTor's window, which follows the round trip.
    Dynamic,
    /// Proposal 324's Vegas, when the circuit's handshake negotiated congestion control.
    Vegas(VegasParams),
}

/// The policy for one end of one circuit.
pub fn new(algorithm: Algorithm) -> Box<dyn FlowControl + Send> {
    match algorithm {
        Algorithm::Fixed(window_cells) => Box::new(Fixed::new(window_cells)),
        Algorithm::Dynamic => Box::new(Dynamic::default()),
        Algorithm::Vegas(params) => Box::new(Vegas::new(params)),
    }
}

/// A consensus parameter with its default and the range that param-spec allows it. A value
/// outside is moved to the nearer end, as stock relays do.
fn consensus_param(
    lookup: &dyn Fn(&str) -> Option<i32>,
    name: &str,
    default: i32,
    range: core::ops::RangeInclusive<i32>,
) -> u32 {
    let value = lookup(name).unwrap_or(default);
    value.clamp(*range.start(), *range.end()).unsigned_abs()
}

/// Counts down to zero and then starts again at `period`: true once every `period` calls.
fn every(left: &mut u32, period: u32) -> bool {
    *left = left.saturating_sub(1);
    let expired = *left == 0;
    if expired {
        *left = period;
    }
    expired
}

/// The exponentially weighted moving average over `count` values, with weight 2 / (count + 1) for
/// the current one; the first value is taken as it is (proposal 324, section 2.1.2).
fn ewma(current: u64, previous: u64, count: u32) -> u64 {
    if previous == 0 {
        return current;
    }
    let count = u128::from(count.max(1));
    let sum = 2 * u128::from(current) + (count - 1) * u128::from(previous);
    u64::try_from(sum / (count + 1)).unwrap_or(u64::MAX)
}
