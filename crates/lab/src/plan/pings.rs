//! Pings among the hosts of a network.

use std::time::Duration;

use serde::Deserialize;

use super::case::{Ping, ping_bytes};
use super::units;
use crate::figures::Labels;

/// The most pairs of hosts that ping in one phase, or have pings of one name: over emulated wires each has threads of
/// its own.
pub(super) const PAIRS_MAX: usize = 500;

/// Datagrams from some hosts to others, which send each of them back, in the phases that name them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pings {
    /// The name by which phases have them.
    pub name: String,
    /// The pairs of hosts: the first asks and the second answers. Groups stand for all their members, and between a
    /// group and itself each two of them are one pair.
    pub between: Vec<[String; 2]>,
    /// The time from one to the next. `ping -f` sends one after 10 ms, even where nothing has come back.
    #[serde(deserialize_with = "units::duration")]
    pub every: Duration,
    /// Length of an IP packet, from 44 to 1500. Default: 84, as `ping` of Linux has it.
    #[serde(default = "ping_bytes")]
    pub bytes: usize,
    /// Labels of their figures; all pairs share them. Default: none.
    #[serde(default)]
    pub labels: Labels,
    /// A label of their figures that is the name of the host that answers. Default: there is none.
    #[serde(default)]
    pub answering: Option<String>,
}

impl Pings {
    /// The labels of the figures of a pair whose second host has this name.
    pub(crate) fn labels_of(&self, answering: &str) -> Labels {
        let own = self.answering.iter().map(|label| (label.clone(), answering.to_owned()));
        self.labels.clone().into_iter().chain(own).collect()
    }

    /// Those of one pair in a phase that lasts so long.
    pub(crate) fn lasting(&self, duration: Duration) -> Ping {
        let every_ns = self.every.as_nanos().max(1);
        let count = usize::try_from(duration.as_nanos() / every_ns).unwrap_or(usize::MAX);
        Ping { count, interval: self.every, bytes: self.bytes }
    }
}
