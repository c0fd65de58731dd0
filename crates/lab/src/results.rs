//! What experiments gave: samples run by run, figures made of them, and what they say about targets and known values.

pub(crate) mod check;
pub(crate) mod grid;
pub(crate) mod judgement;
mod samples;
mod stored;
mod summary;

#[cfg(test)]
mod tests;

pub use check::Check;
pub use judgement::{Judgement, Outcome};
pub use samples::{RunSamples, Series};
pub use stored::{Results, Stored};
pub use summary::{Invocation, Measurement, Repetition, Summary, Try};
pub(crate) use summary::{NOT_COMPLETED, OUT_OF_TIME, was_extended};
