//! Contests: what busy circuits and kernel TCP make of a wire, alone and beside each other, as RFC 9743 wants it known
//! of a new congestion control.
//!
//! A plan lists its contests as rows of a table, `[tor.contests]`. A contest has a wire of its own between two relays,
//! from the first of the plan's path to a guard that is there for it alone, so that no pair of relays comes to it with
//! what it learned in another one. Contests of one part of the table go on at the same time, and other parts are left
//! out: a run of all of them one after the other would take hours. There are two phases: `alone`, and `beside` kernel
//! TCP over the same wires. An arm with `stand_ins` has as many kernel connections in place of a wire's circuits as a
//! pair of relays stands for, and then, in the phases `alone cap` and `beside cap`, as many as it stands for at most,
//! however few circuits there are.

use std::collections::BTreeMap;
use std::time::Duration;

use heddle_netem::{Loss, Reorder};
use serde::Deserialize;

use super::units;
use crate::figures::Labels;

/// The contests of a plan's network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contests {
    /// The relays behind the guard, of which the first sends over the wire.
    pub path: Vec<String>,
    /// As how many TCPs a pair of relays contends at most: so many kernel connections stand in for more circuits.
    pub tcps_max: usize,
    /// The longest wait for streams to be steady, of every phase.
    #[serde(deserialize_with = "units::duration")]
    pub steady_max: Duration,
    /// What does not count then, of every phase.
    #[serde(deserialize_with = "units::duration")]
    pub warm_up: Duration,
    /// How long everything counts where circuits, or who stands in for them, are alone. Wires change after half of it.
    #[serde(deserialize_with = "units::duration")]
    pub alone: Duration,
    /// The same beside TCP, whose sawtooth takes longer.
    #[serde(deserialize_with = "units::duration")]
    pub beside: Duration,
    /// Labels of the phases in which as many connections as `tcps_max` stand in, in place of those of the arm.
    pub cap_labels: Labels,
    /// The part of the list that is measured.
    pub part: usize,
    /// Which figures are kept, as in a phase.
    pub figures: BTreeMap<String, String>,
    /// The rows.
    pub list: Vec<Contest>,
}

/// A row: a wire, and who contends for it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contest {
    /// The label `contest`: letters and digits, at most 14.
    pub name: String,
    /// The part of the list that it is of. Those of one part have 100 Mbit/s together, lest they outrun the emulator:
    /// each cell goes over three wires, and a TCP acknowledges every other packet.
    pub part: usize,
    /// How many circuits are busy.
    pub circuits: usize,
    /// The wire's rate in both directions, in Mbit/s.
    pub mbit: u64,
    /// Its round trip without queues, in milliseconds: half of it each way.
    pub rtt_ms: u64,
    /// What is in front of it towards the guard. Towards the middle it is one round trip, drop-tail.
    pub queue: Queue,
    /// The kernel's congestion control of the TCP beside.
    pub against: String,
    /// How many downloads without end are beside, all of TCP. Default: none.
    #[serde(default)]
    pub tcp: usize,
    /// How many TCP connections fetch page after page beside: 30 to 300 KiB, with pauses of 0.2 to 1 s. Default: none.
    #[serde(default)]
    pub pages: usize,
    /// How many TCP connections send the other way. Default: none.
    #[serde(default)]
    pub uploads: usize,
    /// What the wire loses towards the guard. Default: nothing.
    #[serde(default)]
    pub loss: Loss,
    /// What it holds back towards the guard. Default: nothing.
    #[serde(default)]
    pub reorder: Option<Reorder>,
    /// What the wire becomes while everything counts. Default: it stays.
    #[serde(default)]
    pub becomes: Option<Becomes>,
}

/// What is in front of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Queue {
    /// A drop-tail queue of so many milliseconds at the wire's rate; at least three packets.
    Ms(f64),
    /// The same of so many round trips.
    Bdp(f64),
    /// CoDel (RFC 8289).
    Codel,
    /// CoDel that marks where it can (RFC 3168).
    CodelEcn,
    /// A policer of the wire's rate with a burst of one round trip, and no queue.
    Policer,
}

/// What changes of a wire. What is absent stays.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Becomes {
    /// The round trip, in milliseconds.
    #[serde(default)]
    pub rtt_ms: Option<u64>,
    /// The rate, in Mbit/s.
    #[serde(default)]
    pub mbit: Option<u64>,
}

impl Queue {
    /// Its name in labels.
    pub(super) fn name(self) -> String {
        match self {
            Queue::Ms(ms) => format!("{ms} ms"),
            Queue::Bdp(round_trips) => format!("{round_trips} BDP"),
            Queue::Codel => "CoDel".into(),
            Queue::CodelEcn => "CoDel, ECN".into(),
            Queue::Policer => "policer".into(),
        }
    }
}
