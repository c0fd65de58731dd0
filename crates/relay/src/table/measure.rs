//! What a circuit's client has us count of its lanes, where it asked for that.

use super::Table;
use crate::keys::{CircuitKey, Side};
use heddle_proto::cell::measure::LaneMeasured;
use heddle_seam::time::Duration;

impl Table {
    /// Counts a lane's cells from now on. Returns what was counted so far, if it was.
    pub fn measure(&mut self, key: CircuitKey, side: Side) -> Option<LaneMeasured> {
        let lane = self.lane_mut(key, side)?;
        let measured = lane.measured.get_or_insert_default();
        let so_far = core::mem::take(&mut **measured);
        measured.queue_max_cells = lane.queue.len();
        Some(so_far)
    }
}

/// So many cells wait.
pub(super) fn on_queue(measured: &mut LaneMeasured, cells: u32) {
    measured.queue_max_cells = measured.queue_max_cells.max(cells);
}

/// A cell left that waited so long.
pub(super) fn on_left(measured: &mut LaneMeasured, waited: Duration) {
    let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
    measured.cells = measured.cells.saturating_add(1);
    measured.waited_us = measured.waited_us.saturating_add(waited_us);
    measured.waited_max_us = measured.waited_max_us.max(u32::try_from(waited_us).unwrap_or(u32::MAX));
}
