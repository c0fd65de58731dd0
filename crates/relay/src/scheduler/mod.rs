//! Which of a link's circuits sends its next cell. A scheduler is one file here, a line in [`Scheduler`] and
//! one in each match of [`LinkScheduler`].

mod ewma;
mod round_robin;
mod turn;

use ewma::Ewma;
use heddle_seam::time::{Duration, Instant};
use round_robin::RoundRobin;
pub(super) use turn::{Activity, CircuitScheduler, Turn};

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

/// The scheduler of one link. It is no trait object, since round robin costs less than a call.
#[derive(Debug)]
pub(super) enum LinkScheduler {
    RoundRobin(RoundRobin),
    Ewma(Ewma),
}

impl LinkScheduler {
    pub fn new(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::RoundRobin => LinkScheduler::RoundRobin(RoundRobin::default()),
            Scheduler::Ewma { half_life } => LinkScheduler::Ewma(Ewma::new(half_life)),
        }
    }
}

impl CircuitScheduler for LinkScheduler {
    #[inline]
    fn push(&mut self, now: Instant, turn: Turn, activity: Activity) {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.push(now, turn, activity),
            LinkScheduler::Ewma(scheduler) => scheduler.push(now, turn, activity),
        }
    }

    #[inline]
    fn pop(&mut self, now: Instant) -> Option<Turn> {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.pop(now),
            LinkScheduler::Ewma(scheduler) => scheduler.pop(now),
        }
    }

    #[inline]
    fn charge(&mut self, now: Instant, activity: &mut Activity) {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.charge(now, activity),
            LinkScheduler::Ewma(scheduler) => scheduler.charge(now, activity),
        }
    }

    fn len(&self) -> usize {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.len(),
            LinkScheduler::Ewma(scheduler) => scheduler.len(),
        }
    }

    fn retain(&mut self, keep: &dyn Fn(&Turn) -> bool) {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.retain(keep),
            LinkScheduler::Ewma(scheduler) => scheduler.retain(keep),
        }
    }
}
