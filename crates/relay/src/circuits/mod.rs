//! What happens to circuits: they begin, grow, pass cells on, and end when nobody uses them.

mod create;
mod extend;
mod hop;
mod idle;
mod jobs;
mod probe;

pub(crate) use idle::IdleRound;
pub(crate) use jobs::Jobs;
pub(crate) use probe::Probe;
