//! The timers of a connection as a table: what it may wait for, and until when. The times are those that its state has
//! anyway, so none is kept twice, and one place says of all of them when they are due.

use heddle_seam::time::Instant;

/// What waits for several things at once.
pub(crate) trait Timed {
    type Timer: Copy + 'static;

    /// All timers that there may be, in the order in which they are looked after.
    const TIMERS: &'static [Self::Timer];

    /// When a timer is due; `None` while it does not run.
    fn due_at(&self, timer: Self::Timer) -> Option<Instant>;

    /// When the next one is due.
    fn next_due(&self) -> Option<Instant> {
        Self::TIMERS.iter().filter_map(|timer| self.due_at(*timer)).min()
    }

    /// Has `act` done for each that is due. What is done for one may end others.
    fn for_each_due(&mut self, now: Instant, mut act: impl FnMut(&mut Self, Self::Timer)) {
        for timer in Self::TIMERS {
            if self.due_at(*timer).is_some_and(|at| at <= now) {
                act(self, *timer);
            }
        }
    }
}
