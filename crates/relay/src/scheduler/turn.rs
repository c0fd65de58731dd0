//! What a scheduler orders, and what it is asked.

use crate::keys::{CircuitKey, Side};
use core::fmt;
use heddle_proto::cell::CircId;
use heddle_seam::time::Instant;

/// A lane's turn to send a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub circuit: CircuitKey,
    pub side: Side,
    /// The lane's id, because a circuit that was truncated may have another lane by now.
    pub circ_id: CircId,
}

/// What a scheduler remembers of a lane between its turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    pub(super) cells: f64,
    /// When `cells` was right, in ticks of the scheduler.
    pub(super) tick: u64,
}

/// Orders the lanes of a link that have something to send. A lane is in at most once, but turns of lanes that are over
/// stay until they are swept out.
pub(crate) trait CircuitScheduler: fmt::Debug + Send {
    /// A lane waits for its turn from now on.
    fn push(&mut self, now: Instant, turn: Turn, activity: Activity);

    /// The lane whose turn it is; it waits no longer.
    fn pop(&mut self, now: Instant) -> Option<Turn>;

    /// A lane that was popped has sent a cell.
    fn charge(&mut self, now: Instant, activity: &mut Activity);

    /// Cells of late of the lane whose turn is next, where they are counted: links with fewer go first.
    fn first_cells(&self, _now: Instant) -> f64 {
        0.0
    }

    /// Turns, also those of lanes that are over.
    fn len(&self) -> usize;

    /// Turns that there is room for.
    fn capacity(&self) -> usize;

    /// Gives most of the room back that no turn has.
    fn shrink(&mut self);

    /// Sweeps out turns.
    fn retain(&mut self, keep: &dyn Fn(&Turn) -> bool);
}
