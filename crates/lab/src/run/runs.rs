//! Goes through a plan's runs, arm by arm, and keeps what they gave.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::measure::{ArmOfRun, Measured};
use super::remarks::Remarks;
use crate::error::Result;
use crate::plan::Plan;
use crate::results::RunSamples;
use crate::turns::order;

/// Has what an arm of a run gave, and of one that fails what it gave before: it measures that, or somebody else has.
pub(super) type Source<'a> = &'a mut dyn FnMut(ArmOfRun<'_>, &mut Measured) -> Result<()>;

/// A plan's runs.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    plan: &'a Plan,
    samples: RunSamples,
    remarks: Remarks,
    /// Those about the run under way.
    of_run: Remarks,
}

impl<'a> Runs<'a> {
    /// Those of a plan, after such as are there.
    pub(super) fn after(plan: &'a Plan, samples: RunSamples, remarks: Remarks) -> Runs<'a> {
        Runs { plan, samples, remarks, of_run: Remarks::default() }
    }

    /// Whether none has given anything.
    pub(super) fn are_empty(&self) -> bool {
        self.samples.all().is_empty()
    }

    /// What they gave.
    pub(super) fn into_parts(self) -> (RunSamples, Remarks) {
        (self.samples, self.remarks)
    }

    /// Makes these of the runs, the very first of which has this seed, and of the others none that would not be over by
    /// `end`. Returns how many are complete then, and why not all when that was not for want of time.
    pub(super) fn make(
        &mut self,
        numbers: Range<usize>,
        seed: u64,
        end: Instant,
        source: Source<'_>,
    ) -> (usize, Result<()>) {
        let mut longest = Duration::ZERO;
        for run in numbers.clone() {
            let start = Instant::now();
            // A run that would not be finished in time is not begun; one is needed in any case.
            if run > numbers.start && start + longest > end {
                return (run, Ok(()));
            }
            let made = self.one_run(run, numbers.end, seed + run as u64, source);
            let remarks = std::mem::take(&mut self.of_run);
            // Half a run has no pairs; but of the very first, half is better than nothing.
            if made.is_err() && run > 0 {
                self.samples.forget_run(run);
            } else {
                self.remarks.add(remarks);
            }
            if let Err(error) = made {
                return (run, Err(error));
            }
            longest = longest.max(start.elapsed());
        }
        (numbers.end, Ok(()))
    }

    fn one_run(&mut self, run: usize, runs: usize, seed: u64, source: Source<'_>) -> Result<()> {
        for place in order(self.plan.arms.len(), run) {
            let arm = self.plan.arms[place].as_ref();
            let mut measured = Measured::default();
            let made = source(ArmOfRun { arm, run, runs, seed }, &mut measured);
            let Measured { samples, remarks } = measured;
            samples.into_iter().for_each(|sampled| sampled.add_to(&mut self.samples, arm, run));
            self.of_run.add(remarks);
            made?;
        }
        self.samples.compare(self.plan, run);
        Ok(())
    }
}
