//! Memory that was used up, which strangers may bring about as often as they like.

use heddle_seam::time::{Duration, Instant};

/// Between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What the operator has not heard yet.
#[derive(Default)]
pub(crate) struct Pressure {
    freed_cells: u64,
    warned_at: Option<Instant>,
}

impl Pressure {
    pub(crate) fn on_freed(&mut self, now: Instant, freed_cells: u32) {
        self.freed_cells += u64::from(freed_cells);
        if self.warned_at.is_none_or(|at| now.since(at) >= WARN_EVERY) {
            self.warned_at = Some(now);
            log::warn!(
                "MaxMemInQueues is used up; circuits that held {} cells, the oldest, were closed",
                core::mem::take(&mut self.freed_cells)
            );
        }
    }
}
