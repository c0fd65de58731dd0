//! Experiments as files: a plan says what is measured, a run measures it, a report shows it.
//!
//! 1. [`Plan::load`] reads a plan that ships ([`shipped`]) or a TOML file of the same form, and puts the values of
//!    `--set` into it.
//! 2. [`run`] makes the plan's runs: in each, every arm once, all under that run's seed, in an order that rotates from
//!    run to run.
//! 3. What was measured goes to `summary.json`, `samples.json` and `plan.toml` in the output directory, also when the
//!    run was interrupted or turned out invalid; [`crate::report`] draws them.
//!
//! Commented plans to copy are `plans/calibrate.toml`, for what flows over single wires, and `plans/thesis-exp11.toml`,
//! for private Tor networks.

mod bulk;
mod cases;
mod grid;
mod parse;
mod resume;
mod run;
mod samples;
mod summary;
mod tor;
mod utcp;
mod wires;

#[cfg(test)]
mod tests;

use std::time::Duration;

use heddle_netem::DirectionOptions;
use serde::Deserialize;
use toml::Spanned;

use crate::emulator::KernelOptions;
use crate::figures::Labels;

pub use grid::{Batch, Cell, Grid, GridArm};
pub use parse::{Loaded, Shipped, shipped};
pub use run::{RunOptions, estimate, run};
pub use samples::{RunSamples, Series};
pub(crate) use summary::write_whole;
pub use summary::{Check, Judgement, Outcome, Summary};
pub use tor::{
    Bottleneck, Change, Client, Flow, Phase, Relay, Tor, TorArm, Traffic, Transport, Way, WireGroup, WirePair,
};
pub(crate) use wires::{Conduct, conduct};

/// An experiment. Durations and rates are texts with units, such as `"50 ms"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name in lists and results: letters, digits and hyphens.
    pub name: String,
    /// One line.
    pub title: String,
    /// What is measured and how, for the report's first page.
    pub about: String,
    /// Where the experiment comes from: a paper and its section. Default: nowhere.
    #[serde(default)]
    pub source: Option<String>,
    /// The time that [`runs`](Self::runs) runs may take. More runs get more in proportion.
    #[serde(deserialize_with = "parse::duration")]
    pub budget: Duration,
    /// How many runs are made unless the command line says otherwise.
    pub runs: usize,
    /// The seed of the first run; each further run's is one higher. Default: 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// What `--set` may change, with the values it has otherwise. `${key}` anywhere in the plan stands for the value.
    #[serde(default)]
    pub set: std::collections::BTreeMap<String, String>,
    /// What the kernels of hosts without Tor are set to. Default: as in the emulator.
    #[serde(default)]
    pub kernel: KernelOptions,
    /// The wires that arms with `grid` go through. Default: none.
    #[serde(default)]
    pub grid: Option<Spanned<Grid>>,
    /// The private Tor network that arms with `tor` run. Default: none.
    #[serde(default)]
    pub tor: Option<Spanned<Tor>>,
    /// What is measured in each run.
    #[serde(rename = "arm")]
    pub arms: Vec<Spanned<Arm>>,
    /// Values from elsewhere that stand beside ours. Default: none.
    #[serde(default, rename = "known")]
    pub known: Vec<Spanned<Known>>,
    /// What the figures ought to be. Default: nothing.
    #[serde(default, rename = "target")]
    pub targets: Vec<Spanned<Target>>,
    /// Figures made of two others, paired by run. Default: none.
    #[serde(default, rename = "compare")]
    pub compare: Vec<Spanned<Compare>>,
    /// Plots for the report, besides the intervals of every figure. Default: none.
    #[serde(default, rename = "plot")]
    pub plots: Vec<Spanned<Plot>>,
}

/// What has the emulated network for itself: its flows run at the same time, arms one after the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Unique in the plan.
    pub name: String,
    /// Labels of all its figures. Default: none.
    #[serde(default)]
    pub labels: Labels,
    /// Whether it is measured only where `--arms` names it. Default: no.
    #[serde(default)]
    pub by_choice: bool,
    /// Makes each run twice under one seed and compares what became of every probe: gives the figures
    /// `repeated_loss_differences` (probes that only one of the two lost) and `repeated_delay_difference_ms`.
    /// Default: no.
    #[serde(default)]
    pub repeat: bool,
    /// Arms with the same name here have wires with the same chances: under one seed, the same sequence of packets meets
    /// the same fates. Default: the arm's own name.
    #[serde(default)]
    pub wires_as: Option<String>,
    /// Sends over the cells of a batch of the plan's grid, instead of cases. Default: does not.
    #[serde(default)]
    pub grid: Option<GridArm>,
    /// What flows, each over a wire of its own between two hosts of its own. Default: nothing.
    #[serde(default, rename = "case")]
    pub cases: Vec<Spanned<Case>>,
    /// Runs the plan's network with a transport of the arm's choice, instead of cases. Default: does not.
    #[serde(default)]
    pub tor: Option<TorArm>,
}

/// Something that flows over one wire. Exactly one of `bulk`, `share` and `probe` is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Labels of its figures, besides those of its arm; together unique in the plan.
    pub labels: Labels,
    /// How many such flows there are at the same time, each over a wire of its own: the samples are those of all. What
    /// chance makes vary needs several. Default: 1.
    #[serde(default = "one_flow")]
    pub copies: usize,
    /// The wire from the sending host.
    pub wire: DirectionOptions,
    /// The wire back. Default: like `wire`.
    #[serde(default)]
    pub back: Option<DirectionOptions>,
    /// TCP as fast as it goes.
    #[serde(default)]
    pub bulk: Option<Bulk>,
    /// Two of it.
    #[serde(default)]
    pub share: Option<Share>,
    /// Single datagrams.
    #[serde(default)]
    pub probe: Option<Probe>,
}

/// One TCP connection that sends all the time. Gives `goodput_mbit_s`, one sample a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// The kernel's name of the sender's congestion control.
    pub congestion_control: String,
    /// Whose TCP sends; it is always the kernel's that receives. Default: `linux`.
    #[serde(default)]
    pub sender: Tcp,
    /// From the connection's opening to the end.
    #[serde(deserialize_with = "parse::duration")]
    pub duration: Duration,
    /// What of it does not count, because the connection is still speeding up. Default: 0 s.
    #[serde(default, deserialize_with = "parse::duration")]
    pub warm_up: Duration,
}

/// Two TCP connections that send all the time, from one host to another over one wire. Gives `share_beside_linux`, what
/// the one of `utcp` gets of all that both get (or the second one, where neither is), and `together_mbit_s`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The kernel's name of both senders' congestion control.
    pub congestion_control: String,
    /// Whose TCP sends first.
    pub first: Tcp,
    /// Whose TCP sends second. Both may be the kernel's, but not both `utcp`.
    pub second: Tcp,
    /// How much later the second one begins.
    #[serde(deserialize_with = "parse::duration")]
    pub apart: Duration,
    /// From then to the end.
    #[serde(deserialize_with = "parse::duration")]
    pub duration: Duration,
    /// What of it does not count. Default: 0 s.
    #[serde(default, deserialize_with = "parse::duration")]
    pub warm_up: Duration,
}

/// Whose TCP it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tcp {
    /// The host's kernel's.
    #[default]
    Linux,
    /// The crate `utcp`, in place of the kernel.
    Utcp,
}

/// Numbered datagrams one way. Gives `delay_ms`, a sample for each that arrived, and `loss_pct`, a sample for each
/// thousand that were sent (fewer at the end do not count).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// How many, at most a million.
    pub count: usize,
    /// From one to the next, at least 100 µs.
    #[serde(deserialize_with = "parse::duration")]
    pub interval: Duration,
    /// Length of an IP packet, from 44 to 1500.
    #[serde(default = "probe_bytes")]
    pub bytes: usize,
}

/// A value known from elsewhere. With a bound it is a requirement: a run that misses it is invalid.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The figure's name.
    pub figure: String,
    /// The figure's labels; all of them.
    #[serde(default)]
    pub labels: Labels,
    /// Which of the figure's numbers it is about. Default: the mean.
    #[serde(default)]
    pub statistic: Statistic,
    /// The value, in the figure's unit.
    pub value: f64,
    /// Who says so.
    pub source: String,
    /// The largest difference in percent of the value. Default: no bound.
    #[serde(default)]
    pub within_pct: Option<f64>,
    /// The largest difference in the figure's unit. Default: no bound.
    #[serde(default)]
    pub within: Option<f64>,
    /// Whether the value must lie in the 99.9 % interval of the mean over all samples of all runs (normal
    /// approximation): right where samples are independent draws. Default: no.
    #[serde(default)]
    pub within_interval: bool,
}

/// A bound that a figure ought to keep. It says nothing about whether a result is valid: it is *met* when the figure's
/// whole 95 % interval keeps it, *missed* when none of the interval does, and *open* otherwise. A limit that nothing may
/// pass is met when every sample keeps it and missed when one does not, since what lies beyond a mean's interval says nothing
/// of a maximum. Where a complete run is without the figure, a target is neither met nor, but for such a limit, missed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The figure's name.
    pub figure: String,
    /// Labels that the figure has; each figure of the name that has them, and others, is judged. Default: none.
    #[serde(default)]
    pub labels: Labels,
    /// The most that it ought to be, in its unit. Default: no bound.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The least. Default: no bound.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Whether nothing may pass it, be it once. Default: no.
    #[serde(default)]
    pub always: bool,
    /// Where the bound comes from.
    pub source: String,
}

/// One of a figure's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean of the runs' means.
    #[default]
    Mean,
    /// The median of all samples.
    P50,
    /// The 90th percentile of all samples.
    P90,
    /// The 99th percentile of all samples.
    P99,
}

/// A figure made, run by run, of two others of that run: either of those that differ in a label, or of two with the same
/// labels and different names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The figure that is compared.
    pub figure: String,
    /// The label in which the two differ. Default: none, and then `to` is there.
    #[serde(default)]
    pub label: Option<String>,
    /// The label's value in what the others are compared with.
    #[serde(default)]
    pub base: Option<String>,
    /// The figure with the same labels with which it is compared. Default: none, and then `label` and `base` are there.
    #[serde(default)]
    pub to: Option<String>,
    /// The new figure's name.
    pub name: String,
    /// What it is.
    pub kind: Comparison,
}

/// How two figures of a run become one number: by their means, unless it says otherwise. `a` is what is compared and `b` what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// `a / b`.
    Ratio,
    /// `a - b`, in the figure's unit.
    Difference,
    /// `100 (1 - a / b)`: by how many percent it is less.
    LossPct,
    /// The probability that a sample of `a` is greater than one of `b`, where equal ones count half: the area under the
    /// curve of whoever tells one from the other by a threshold. 0.5 is chance, 0 and 1 are certainty.
    Auc,
}

/// A plot of the distribution of one figure: a curve for each set of labels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What stands above it.
    pub title: String,
    /// The figure.
    pub figure: String,
    /// Labels that a curve must have to be in it. Default: all curves are.
    #[serde(default)]
    pub only: Labels,
}

impl Tcp {
    /// Its name in labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tcp::Linux => "linux",
            Tcp::Utcp => "utcp",
        }
    }
}

impl Arm {
    /// What flows: each case as often as it has copies.
    pub(crate) fn flows(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().map(Spanned::as_ref).flat_map(|case| std::iter::repeat_n(case, case.copies))
    }
}

fn one_flow() -> usize {
    1
}

fn one() -> u64 {
    1
}

fn probe_bytes() -> usize {
    100
}
