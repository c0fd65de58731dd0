//! Which of a link's circuits sends its next cell, and which link is served next. A scheduler of circuits is one file
//! here, a line in [`Scheduler`] and one in each match of [`LinkScheduler`]; how links are chosen is said by
//! [`Scheduler::chooses_links`].

mod ewma;
mod round_robin;
mod runs;
mod turn;

use ewma::Ewma;
use heddle_seam::time::{Duration, Instant};
use round_robin::RoundRobin;
pub(super) use runs::Runs;
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
    /// The same across links: of all that have something to send and may send it now, the one is served first whose
    /// quietest lane sent least of late. This is what KIST adds to EWMA (Jansen and others, "Never Been KIST", USENIX
    /// Security 2014): the choice is made late, when cells can leave, and not when they come; stock makes it for each
    /// cell, and here it holds for eight. Its other half, that no
    /// more is written than the kernel sends soon, holds for every scheduler here
    /// (`heddle_proto::channel::Channel::handle_window`), and without its tick.
    ///
    /// With an `interval` that is not zero channels send in runs that are so far apart, as stock's do
    /// (`KISTSchedRunInterval`), which no transport but TLS has: a model of stock, for experiments.
    Kist { half_life: Duration, interval: Duration },
}

impl Scheduler {
    /// Whether links are served by what their lanes sent, or in the order in which they came.
    pub(super) fn chooses_links(self) -> bool {
        matches!(self, Scheduler::Kist { .. })
    }

    /// When channels may send.
    pub(super) fn runs(self) -> Runs {
        Runs::new(match self {
            Scheduler::Kist { interval, .. } => interval,
            Scheduler::RoundRobin | Scheduler::Ewma { .. } => Duration::ZERO,
        })
    }

    /// Cells that a channel sends before links are chosen among again.
    pub(super) fn cells_of_choice(self) -> usize {
        const OF_CHOICE: usize = 8;
        if self.chooses_links() { OF_CHOICE } else { usize::MAX }
    }
}

/// The scheduler of one link. It is no trait object, because round robin costs less than a call.
#[derive(Debug)]
pub(super) enum LinkScheduler {
    RoundRobin(RoundRobin),
    Ewma(Ewma),
}

impl LinkScheduler {
    pub fn new(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::RoundRobin => LinkScheduler::RoundRobin(RoundRobin::default()),
            Scheduler::Ewma { half_life } | Scheduler::Kist { half_life, .. } => {
                LinkScheduler::Ewma(Ewma::new(half_life))
            }
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

    fn first_cells(&self, now: Instant) -> f64 {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.first_cells(now),
            LinkScheduler::Ewma(scheduler) => scheduler.first_cells(now),
        }
    }

    fn len(&self) -> usize {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.len(),
            LinkScheduler::Ewma(scheduler) => scheduler.len(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.capacity(),
            LinkScheduler::Ewma(scheduler) => scheduler.capacity(),
        }
    }

    fn shrink(&mut self) {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.shrink(),
            LinkScheduler::Ewma(scheduler) => scheduler.shrink(),
        }
    }

    fn retain(&mut self, keep: &dyn Fn(&Turn) -> bool) {
        match self {
            LinkScheduler::RoundRobin(scheduler) => scheduler.retain(keep),
            LinkScheduler::Ewma(scheduler) => scheduler.retain(keep),
        }
    }
}
