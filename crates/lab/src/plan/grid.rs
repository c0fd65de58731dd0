//! A grid of wires: kernel TCP and `utcp` send over the same ones, alternately.
//!
//! A plan lists the wires of its grid in batches. An arm with `grid` sends over all of one batch at the same time, with
//! one sender.

use std::time::Duration;

use heddle_netem::{DirectionOptions, Loss, QueueOptions, Rate, Reorder};
use serde::Deserialize;

use super::case::Tcp;
use super::units;
use crate::figures::{Labels, labels};

/// No queue is shorter than so many packets of 1500 bytes, or bursts of two would be lost on slow wires.
const QUEUE_BYTES_MIN: u64 = 3 * 1500;
/// The wires of a plan. In each run, arms go through them batch by batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// What a wire that reorders does, in the direction of the data.
    pub reorder: Reorder,
    /// Wires that are sent over at the same time.
    #[serde(rename = "batch")]
    pub list: Vec<Batch>,
}

/// Wires that are sent over at the same time: together they must not outrun the emulator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Its name.
    pub name: String,
    /// How long each connection sends.
    #[serde(deserialize_with = "units::duration")]
    pub duration: Duration,
    /// What of it does not count. Default: 0 s.
    #[serde(default, deserialize_with = "units::duration")]
    pub warm_up: Duration,
    /// Its wires. Plans of earlier commits call them `cells`, and records of them are read as well.
    #[serde(alias = "cells")]
    pub wires: Vec<GridWire>,
}

/// A wire of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridWire {
    /// The round trip without queues, in milliseconds: half of it each way.
    pub rtt_ms: u64,
    /// The rate of both directions, in Mbit/s.
    pub mbit: u64,
    /// How many percent of the packets the direction of the data loses.
    pub loss_pct: f64,
    /// Whether that direction reorders.
    pub reorder: bool,
    /// The queue of each direction, in round trips at its rate; at least three packets.
    pub queue_bdp: f64,
    /// How many connections there are at the same time, each over such a wire of its own. Default: 1.
    #[serde(default = "super::case::one_flow")]
    pub copies: usize,
}

/// An arm that sends over the wires of a batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridArm {
    /// The batch.
    pub batch: String,
    /// Who sends.
    pub sender: Tcp,
    /// Its congestion control, by the kernel's name.
    pub congestion_control: String,
}

/// The bytes of a queue of so many milliseconds at a rate; at least three packets.
pub(super) fn queue_bytes(mbit: u64, ms: f64) -> u64 {
    (((mbit * 125) as f64 * ms) as u64).max(QUEUE_BYTES_MIN)
}

impl Grid {
    pub(crate) fn find(&self, batch: &str) -> Option<&Batch> {
        self.list.iter().find(|known| known.name == batch)
    }
}

impl GridWire {
    /// The wire towards the receiver and the wire back.
    pub(super) fn directions(&self, reorder: &Reorder) -> [DirectionOptions; 2] {
        let bytes_max = queue_bytes(self.mbit, self.rtt_ms as f64 * self.queue_bdp);
        let back = DirectionOptions {
            rate: Rate::BitsPerS(self.mbit * 1_000_000),
            delay_ns: self.rtt_ms * 500_000,
            queue: QueueOptions { packets_max: 1_000_000, bytes_max, codel: None },
            ..DirectionOptions::default()
        };
        let mut there = back.clone();
        if self.loss_pct > 0.0 {
            there.loss = Loss::Bernoulli { probability: self.loss_pct / 100.0 };
        }
        there.reorder = self.reorder.then(|| reorder.clone());
        [there, back]
    }

    pub(crate) fn labels(&self) -> Labels {
        labels([
            ("rtt_ms", &self.rtt_ms.to_string()),
            ("mbit", &self.mbit.to_string()),
            ("loss_pct", &self.loss_pct.to_string()),
            ("reorder", if self.reorder { "yes" } else { "no" }),
            ("queue_bdp", &self.queue_bdp.to_string()),
        ])
    }
}
