//! What a shard remembers of circuits beside the table: onionskins that wait, when each is looked at, and the probe.

mod idle;
mod jobs;
mod probe;

pub(crate) use idle::IdleRound;
pub(crate) use jobs::{Jobs, Purpose};
pub(crate) use probe::{Probe, Progress};
