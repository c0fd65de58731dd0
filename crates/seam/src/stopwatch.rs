//! Where the time of datagrams, cells and turns goes, for whoever wants to know.
//!
//! The core has no clock. A driver may lend it one, with somebody who takes the times down; usually it lends none, and
//! then a stopwatch costs a branch each time that it would be looked at. What it shows never decides anything.

use core::fmt;
use std::sync::Arc;

/// A part of what is done: with datagrams, as experiment 10 of J. Reardon's thesis has them (section 7.1), with a cell
/// (experiment 3), and by an event loop (experiment 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Whose a datagram is.
    Demultiplex,
    /// Decryption, and what the connection and its flows make of what was in it.
    Inject,
    /// The making of one datagram, encryption included.
    Emit,
    /// What is done when a connection's time has come.
    Timer,
    /// The system call that sends datagrams; each has its part of it.
    Send,
    /// From before the receive until all is sent that followed from it. Each of the datagrams that came together takes
    /// as long as all.
    Datapath,
    /// What a relay does with one cell that a channel or a flow lends, until it is queued or acted on.
    Cell,
    /// An event loop's wait for news.
    Wait,
    /// An event loop's turn, from the news until all is sent that followed from it.
    Turn,
}

impl Step {
    /// All of them, each at the place of its number.
    pub const ALL: [Step; 9] = [
        Step::Demultiplex,
        Step::Inject,
        Step::Emit,
        Step::Timer,
        Step::Send,
        Step::Datapath,
        Step::Cell,
        Step::Wait,
        Step::Turn,
    ];

    /// Its name in metrics and figures.
    pub fn name(self) -> &'static str {
        match self {
            Step::Demultiplex => "demultiplex",
            Step::Inject => "inject",
            Step::Emit => "emit",
            Step::Timer => "timer",
            Step::Send => "send",
            Step::Datapath => "datapath",
            Step::Cell => "cell",
            Step::Wait => "wait",
            Step::Turn => "turn",
        }
    }
}

/// Has a clock, and takes times down.
pub trait Timekeeper: Send + Sync {
    /// Whether it takes any times down now. While it does not, nobody looks at the clock.
    fn is_on(&self) -> bool;

    /// Nanoseconds since some moment; never less than before.
    fn now_ns(&self) -> u64;

    /// `times` things of a step took `ns` each.
    fn took(&self, step: Step, ns: u64, times: u64);
}

/// Begins and ends laps, if somebody takes them down.
#[derive(Clone, Default)]
pub struct Stopwatch(Option<Arc<dyn Timekeeper>>);

/// When something began, if somebody took times down then.
#[derive(Clone, Copy, Debug)]
pub struct Lap(Option<u64>);

impl Stopwatch {
    /// One whose times `timekeeper` takes down.
    pub fn new(timekeeper: Arc<dyn Timekeeper>) -> Self {
        Stopwatch(Some(timekeeper))
    }

    /// Something begins.
    pub fn begin(&self) -> Lap {
        let timekeeper = self.0.as_ref().filter(|timekeeper| timekeeper.is_on());
        Lap(timekeeper.map(|timekeeper| timekeeper.now_ns()))
    }

    /// It has ended.
    pub fn end(&self, lap: Lap, step: Step) {
        self.end_for_each(lap, step, 1);
    }

    /// It has ended for so many, each of which took as long as all.
    pub fn end_for_each(&self, lap: Lap, step: Step, times: u64) {
        if let (Some(timekeeper), Lap(Some(begun))) = (&self.0, lap) {
            timekeeper.took(step, timekeeper.now_ns().saturating_sub(begun), times);
        }
    }

    /// It has ended, and so many share evenly what it took.
    pub fn end_shared(&self, lap: Lap, step: Step, times: u64) {
        if let (Some(timekeeper), Lap(Some(begun))) = (&self.0, lap) {
            let ns = timekeeper.now_ns().saturating_sub(begun);
            timekeeper.took(step, ns / times.max(1), times);
        }
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stopwatch(on)" } else { "Stopwatch(off)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[derive(Default)]
    struct Ticking {
        is_off: AtomicBool,
        now_ns: AtomicU64,
        taken: Mutex<Vec<(Step, u64, u64)>>,
    }

    impl Timekeeper for Ticking {
        fn is_on(&self) -> bool {
            !self.is_off.load(Ordering::Relaxed)
        }

        fn now_ns(&self) -> u64 {
            self.now_ns.fetch_add(100, Ordering::Relaxed)
        }

        fn took(&self, step: Step, ns: u64, times: u64) {
            self.taken.lock().unwrap().push((step, ns, times));
        }
    }

    #[test]
    fn times_are_each_ones_or_shared() {
        let steps = Arc::new(Ticking::default());
        let watch = Stopwatch::new(steps.clone());
        watch.end(watch.begin(), Step::Inject);
        watch.end_for_each(watch.begin(), Step::Datapath, 4);
        watch.end_shared(watch.begin(), Step::Send, 4);
        let expected = [(Step::Inject, 100, 1), (Step::Datapath, 100, 4), (Step::Send, 25, 4)];
        assert_eq!(*steps.taken.lock().unwrap(), expected);
        steps.is_off.store(true, Ordering::Relaxed);
        let early = watch.begin();
        steps.is_off.store(false, Ordering::Relaxed);
        watch.end(early, Step::Cell);
        assert_eq!(*steps.taken.lock().unwrap(), expected, "what began while it was off is passed over");
        let off = Stopwatch::default();
        off.end_shared(off.begin(), Step::Emit, 0);
        assert!(Step::ALL.iter().enumerate().all(|(place, step)| *step as usize == place));
    }
}
