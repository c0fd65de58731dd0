//! Somebody on a wire between two relays: what a plan says about what he sees.

use std::time::Duration;

use serde::Deserialize;

use super::units;

/// The shortest time from one beginning of a circuit to the next: a quarter of it should be longer than its building.
pub(super) const EVERY_MIN: Duration = Duration::from_millis(400);
/// The most circuits that are idle.
pub(super) const IDLE_MAX: usize = 100;

/// What somebody on a wire sees while everything counts, who reads whole packets and has no keys. Meanwhile circuits of
/// a client begin and end, so that it can be told whether that shows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The two relays whose wire it is.
    pub wire: [String; 2],
    /// The client whose circuits begin and end. It need not be among the phase's clients.
    pub visitor: String,
    /// The time from one beginning to the next; a circuit ends half of that after it began. Each time counts with the
    /// quarter that follows, and the other quarters are those in which nothing began or ended. Default: 1 s.
    #[serde(default = "one_second", deserialize_with = "units::duration")]
    pub every: Duration,
    /// How many more circuits of that client are there all the time, and idle. Default: none.
    #[serde(default)]
    pub idle: usize,
}

impl View {
    /// For how long each beginning and end counts.
    pub(crate) fn quarter(&self) -> Duration {
        self.every / 4
    }
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}
