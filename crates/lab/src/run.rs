//! Does what a plan says, on a backend, and writes down what was measured.
//!
//! In each run every arm is measured once, from nothing to nothing, all under that run's seed and in an order that
//! rotates from run to run. Results are written also when the experiment was interrupted or turned out invalid.

mod conclude;
mod experiment;
mod flows;
mod measure;
mod progress;
mod remarks;
mod resume;
mod runs;
mod sampled;
mod tor;

#[cfg(test)]
mod tests;

pub use experiment::{BackendKind, RunOptions, run};
