//! What a relay is told and tells beside bytes.

use crate::job::Job;
use crate::message::{Control, Event, ShardMessage};
use heddle_seam::language::Language;
use heddle_seam::node;

/// The language of a relay's shards.
#[derive(Debug)]
pub enum RelayLanguage {}

impl Language for RelayLanguage {
    type Control = Control;
    type Event = Event;
    type Message = ShardMessage;
    type Job = Job;
}

/// What a driver tells a shard.
pub type Input = node::Input<RelayLanguage>;

/// What a shard wants of its driver.
pub type Output = node::Output<RelayLanguage>;
