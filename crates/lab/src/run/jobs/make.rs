//! Makes one job.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::directory::{Job, Jobs};
use super::given::Given;
use crate::backend::Backend;
use crate::error::Result;
use crate::machine::conditions::{Conditions, LoadReading};
use crate::machine::files::write_json_among_others;
use crate::machine::interrupt;
use crate::plan::estimate;
use crate::run::experiment::WITHOUT_BUDGET;
use crate::run::measure::{ArmOfRun, Measured, Measuring};
use crate::run::progress::Screen;

/// A job that was made, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDone {
    /// What it is.
    pub job: String,
    /// What it gave.
    pub file: PathBuf,
    /// Whether somebody had made it before.
    pub was_there: bool,
}

/// Makes the job of this number, unless what it gave is there. Nothing is written before it is over, and then all of it
/// at once; whoever makes it at the same time writes the same.
///
/// # Errors
///
/// [`Error::Interrupted`](crate::error::Error::Interrupted) by Ctrl-C, one sentence about a directory that is not
/// right, and those of measuring.
pub fn make_job(dir: &Path, number: usize) -> Result<JobDone> {
    interrupt::install()?;
    let jobs = Jobs::read(dir)?;
    let job = jobs.find(number)?;
    let file = jobs.file_of(job);
    let was_there = jobs.given(job).is_ok();
    if !was_there {
        write_json_among_others(&file, &measured(&jobs, job)?)?;
    }
    Ok(JobDone { job: job.told(jobs.order.runs), file, was_there })
}

fn measured(jobs: &Jobs, job: &Job) -> Result<Given> {
    let plan = jobs.plan.with_arms(std::slice::from_ref(&job.arm))?;
    let mut backend = jobs.order.backend();
    let (begun, quiet) = (Instant::now(), LoadReading::now());
    let screen = Screen::new(begun, estimate(&plan), backend.clock());
    let mut measuring = Measuring::new(&plan, &mut backend, begun + WITHOUT_BUDGET, screen);
    // It is the only one that was chosen.
    let arm = plan.arms[0].as_ref();
    let wanted = ArmOfRun { arm, run: job.run, runs: jobs.order.runs, seed: job.seed };
    let mut measured = Measured::default();
    let made = measuring.measure(wanted, &mut measured);
    measuring.end();
    made?;
    Ok(Given {
        order: jobs.order.clone(),
        job: job.clone(),
        conditions: Conditions::now(),
        noise: quiet.until_now(),
        seconds: begun.elapsed().as_secs_f64(),
        measured,
    })
}
