//! What a circuit's client has us count of its lanes, where it asked for that.

use super::Table;
use crate::keys::{CircuitKey, Side};
use heddle_proto::cell::measure::LaneMeasured;
use heddle_seam::time::{Duration, Instant};

/// What a lane did since it was asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneCount {
    since: Instant,
    so_far: LaneMeasured,
}

impl Table {
    /// What a circuit's counts take.
    pub const COUNTS_BYTES: usize = 2 * size_of::<LaneCount>();

    /// Counts a lane's cells anew from now on. Returns what was counted so far, and in which time, if it was.
    pub fn measure(&mut self, now: Instant, key: CircuitKey, side: Side) -> Option<(Duration, LaneMeasured)> {
        let lane = self.lane_mut(key, side)?;
        let mut count = LaneCount { since: now, so_far: LaneMeasured::default() };
        count.on_queue(lane.queue.len());
        let before = lane.measured.replace(Box::new(count))?;
        Some((now.since(before.since), before.so_far))
    }
}

impl LaneCount {
    /// So many cells wait.
    pub(super) fn on_queue(&mut self, cells: u32) {
        self.so_far.queue_max_cells = self.so_far.queue_max_cells.max(cells);
    }

    /// A cell left that waited so long.
    pub(super) fn on_left(&mut self, waited: Duration) {
        let of = &mut self.so_far;
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        of.cells = of.cells.saturating_add(1);
        of.waited_us = of.waited_us.saturating_add(waited_us);
        of.waited_max_us = of.waited_max_us.max(u32::try_from(waited_us).unwrap_or(u32::MAX));
    }
}
