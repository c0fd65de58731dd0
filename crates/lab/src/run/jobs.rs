//! Runs of a plan as jobs for many machines: an arm of a run, under the run's seed, is a job by itself.
//!
//! 1. [`write_jobs`] makes a directory that says what is to be measured, and how HyperQueue, Slurm, PBS or a shell have
//!    it done.
//! 2. [`make_job`] measures one of them, as a run does, on whatever machine sees the directory, and writes all that it
//!    gave into a file of its own.
//! 3. [`collect()`] goes through the runs with these files in the place of a backend.
//!
//! Jobs are of virtual time alone: emulated wires are a machine's own, and what else the machine does shows in what
//! they measure.

mod collect;
mod directory;
mod given;
mod make;
mod scripts;

#[cfg(test)]
mod tests;

pub use collect::{CollectOptions, collect};
pub use directory::{Job, write_jobs};
pub use make::{JobDone, make_job};
