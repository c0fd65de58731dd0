//! Who makes traffic, and what traffic.

use std::time::Duration;

use heddle_netem::InterfaceOptions;
use serde::Deserialize;

use super::topology::Place;
use super::units;
use crate::figures::Labels;

/// An onion proxy on a host of its own, and what it is used for; or a group of such.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Its host's name.
    pub name: String,
    /// How many there are; their hosts are called by this name with a number behind it, from 1 on. Default: one,
    /// by this name.
    #[serde(default)]
    pub count: Option<usize>,
    /// The part of `count` that this group has, rounded and at least one, so that several groups divide one number.
    /// Default: all.
    #[serde(default)]
    pub share: Option<f64>,
    /// Where it is, in a network with a topology. Default: nowhere.
    #[serde(default)]
    pub place: Option<Place>,
    /// The relays of its circuits, guard first. Default: three, which each chooses by the seed as clients do, by
    /// relays' rates and flags, and keeps for the run.
    #[serde(default)]
    pub path: Vec<String>,
    /// What all that its host sends passes first. Default: no limit.
    #[serde(default)]
    pub up: InterfaceOptions,
    /// What all that its host receives passes last. Default: no limit.
    #[serde(default)]
    pub down: InterfaceOptions,
    /// How many circuits it has, at most 300: the program runs on each of them. Default: 1.
    #[serde(default = "one")]
    pub circuits: usize,
    /// What it does.
    pub program: Traffic,
    /// Labels of its figures: clients with the same ones share their figures. Default: none.
    #[serde(default)]
    pub labels: Labels,
}

/// Kernel TCP between two hosts of the network, over the same wire as what Tor sends between them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// A name that no client has.
    pub name: String,
    /// The host that asks.
    pub from: String,
    /// The host whose server answers.
    pub to: String,
    /// How many connections there are, at most 300: the program runs over each of them. Default: 1.
    #[serde(default = "one")]
    pub connections: usize,
    /// What it does.
    pub program: Traffic,
    /// Labels of its figures, as those of clients. Default: none.
    #[serde(default)]
    pub labels: Labels,
    /// The kernel's congestion control with which the server sends. Default: that of the hosts, which is CUBIC.
    #[serde(default)]
    pub congestion_control: Option<String>,
    /// Whether it runs in place of clients, in arms with `stand_ins` and in no other. Default: in all.
    #[serde(default)]
    pub stands_in: bool,
}

/// A client's traffic program. In TOML `{ probe = { pause = "200 ms" } }`, `{ bulk = {} }` and so on.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Traffic {
    /// One-cell questions about the server's clock, each over a stream of its own.
    Probe {
        /// The mean of the exponential pause from one to the next.
        #[serde(deserialize_with = "units::duration")]
        pause: Duration,
    },
    /// Short messages that come back, one cell each way, all over one stream. They keep their times, whether or not
    /// those before them have come back.
    Echo {
        /// The time from one to the next.
        #[serde(deserialize_with = "units::duration")]
        every: Duration,
    },
    /// A stream from the server without end.
    Bulk {
        /// The most that the server sends, in 1000 bytes per second, lest a stream outrun the emulator; 0 is no limit.
        /// Default: 0.
        #[serde(default)]
        limit_kb_s: u64,
        /// How long the client reads from the stream's opening on; then it stops for good and leaves the stream open.
        /// Zero is to the end. Default: 0 s.
        #[serde(default, deserialize_with = "units::duration")]
        reads_for: Duration,
    },
    /// A stream to the server without end. What counts is what reached the server.
    Upload {},
    /// Downloads with pauses between them. Both are uniform between their bounds.
    Fetch {
        /// Least and greatest size.
        #[serde(deserialize_with = "units::sizes_bytes")]
        size: [u64; 2],
        /// Shortest and longest pause from the end of one to the beginning of the next.
        #[serde(deserialize_with = "units::durations")]
        pause: [Duration; 2],
    },
}

impl Traffic {
    /// Whether it has the one stream without end that must be steady before anything counts.
    pub(crate) fn streams(&self) -> bool {
        matches!(self, Traffic::Bulk { .. } | Traffic::Upload {})
    }

    /// Whether it stops reading at some time: that it gets nothing is then no fault.
    pub(crate) fn stalls(&self) -> bool {
        matches!(self, Traffic::Bulk { reads_for, .. } if !reads_for.is_zero())
    }
}

fn one() -> usize {
    1
}
