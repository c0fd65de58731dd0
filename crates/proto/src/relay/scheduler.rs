//! Which of a link's circuits sends its next cell. A scheduler is one file here, and a line in [`Scheduler`].

mod ewma;
mod round_robin;

use super::link::Turn;
use crate::time::{Duration, Instant};
use core::fmt;
use ewma::Ewma;
use round_robin::RoundRobin;

/// The schedulers, by name in torrc and plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// One cell of each lane in turn.
    #[default]
    RoundRobin,
    /// First the lane that sent least of late: cells count half after this time (stock Tor: 30 s,
    /// `CircuitPriorityHalflifeMsec`). Not zero.
    Ewma { half_life: Duration },
}

/// What a scheduler remembers of a lane between its turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    cells: f64,
    /// When `cells` was right, in ticks of the scheduler.
    tick: u64,
}

/// Orders the lanes of a link that have something to send. A lane is in at most once, but turns of lanes that are over
/// stay until they are swept out.
pub(super) trait CircuitScheduler: fmt::Debug + Send {
    /// A lane waits for its turn from now on.
    fn push(&mut self, now: Instant, turn: Turn, activity: Activity);

    /// The lane whose turn it is; it waits no longer.
    fn pop(&mut self, now: Instant) -> Option<Turn>;

    /// A lane that was popped has sent a cell.
    fn charge(&mut self, now: Instant, activity: &mut Activity);

    /// Turns, also those of lanes that are over.
    fn len(&self) -> usize;

    /// Sweeps out turns.
    fn retain(&mut self, keep: &dyn Fn(&Turn) -> bool);
}

pub(super) fn new(scheduler: Scheduler) -> Box<dyn CircuitScheduler> {
    match scheduler {
        Scheduler::RoundRobin => Box::<RoundRobin>::default(),
        Scheduler::Ewma { half_life } => Box::new(Ewma::new(half_life)),
    }
}
