//! What was lost, by time (RFC 8985, section 6): a fragment that left a while before another that came.

use super::window::Window;
use heddle_seam::time::{Duration, Instant};

/// So many times a quarter of the shortest round trip may pass at most.
const STEPS_MAX: u32 = 16;
/// A wider window lasts for so many losses.
const STEPS_LAST: u32 = 16;

/// A fragment that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivered {
    pub(super) sent_at: Instant,
    pub(super) tsn: u64,
    pub(super) times: u32,
    /// One with a higher TSN came before, and it was sent once: the path reorders.
    pub(super) is_late: bool,
}

#[derive(Debug, Default)]
pub(super) struct Rack {
    /// What left last of all that came, and how long that took.
    newest: Option<(Instant, u64)>,
    took: Duration,
    reorders: bool,
    /// How often fragments were sent again needlessly, and for how many losses that counts.
    steps: u32,
    steps_left: u32,
    is_repairing: bool,
    timer: Option<Instant>,
}

impl Rack {
    /// A SACK begins, which may tell that something came twice.
    pub(super) fn begin(&mut self, has_duplicates: bool) {
        if has_duplicates {
            self.reorders = true;
            self.steps = (self.steps + 1).min(STEPS_MAX);
            self.steps_left = STEPS_LAST;
        }
    }

    pub(super) fn on_delivered(&mut self, now: Instant, delivered: &Delivered, min_ns: Option<u64>) {
        let took = now.since(delivered.sent_at);
        // The answer is to an earlier sending.
        if delivered.times > 1 && min_ns.is_some_and(|min_ns| took < Duration::from_nanos(min_ns)) {
            return;
        }
        self.reorders |= delivered.is_late;
        let at = (delivered.sent_at, delivered.tsn);
        if self.newest.is_none_or(|newest| at > newest) {
            (self.newest, self.took) = (Some(at), took);
        }
    }

    /// How much later than its successors a fragment may come.
    pub(super) fn window(&self, sacked_bytes: u64, mss: u64, window: &Window) -> Duration {
        let is_plain = !self.reorders && (self.is_repairing || sacked_bytes > 2 * mss);
        if is_plain {
            return Duration::ZERO;
        }
        let quarter = Duration::from_nanos(window.min_ns().unwrap_or(0)) / 4;
        let smoothed = window.round_trip().map_or(Duration::ZERO, |(smoothed, _)| smoothed);
        (quarter * (1 + self.steps)).min(smoothed)
    }

    /// When something that left then is lost unless it comes; `None` while nothing came that left after it.
    pub(super) fn judge(&self, sent_at: Instant, tsn: u64, window: Duration) -> Option<Instant> {
        self.newest.filter(|newest| (sent_at, tsn) < *newest)?;
        Some(sent_at + self.took + window)
    }

    /// Something was found lost.
    pub(super) fn on_loss(&mut self) {
        self.steps_left = self.steps_left.saturating_sub(1);
        if self.steps_left == 0 {
            self.steps = 0;
        }
        self.is_repairing = true;
    }

    pub(super) fn set_timer(&mut self, at: Instant) {
        self.timer = Some(at);
    }

    pub(super) fn forget_timer(&mut self) {
        self.timer = None;
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// All that was lost has come.
    pub(super) fn on_repaired(&mut self) {
        self.is_repairing = false;
    }
}
