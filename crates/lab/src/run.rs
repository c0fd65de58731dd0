//! Does what a plan says, on a backend, and writes down what was measured.
//!
//! In each run every arm is measured once, from nothing to nothing, all under that run's seed and in an order that
//! changes from run to run. Results are written also when the experiment was interrupted or turned out invalid.
//!
//! In virtual time an arm of a run may be a job by itself, for many machines ([`write_jobs`], [`make_job`]). What jobs
//! gave is put together by the code that keeps what was measured here ([`collect`]).

mod conclude;
mod experiment;
mod flows;
mod jobs;
mod measure;
mod pings;
mod progress;
mod remarks;
mod resume;
mod runs;
mod sampled;
mod tor;

#[cfg(test)]
mod tests;

pub use experiment::{BackendKind, RunOptions, run};
pub use jobs::{CollectOptions, Job, JobDone, collect, make_job, write_jobs};
