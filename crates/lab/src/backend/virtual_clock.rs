//! Time that is a number, for whoever tells how far an experiment is.

use std::cell::Cell;
use std::time::Duration;

/// How much time has passed in all testbeds of a backend together. Only what has a testbed's time pass changes it.
#[derive(Debug, Default)]
pub(crate) struct VirtualClock(Cell<Duration>);

impl VirtualClock {
    /// How much has passed.
    pub(crate) fn passed(&self) -> Duration {
        self.0.get()
    }

    /// So much more has passed.
    pub(super) fn pass(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}
