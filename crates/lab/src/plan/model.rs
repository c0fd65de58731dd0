//! What a plan says: values only.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::case::Case;
use super::grid::{Grid, GridArm};
use super::network::{Tor, TorArm};
use super::units;
use crate::emulator::KernelOptions;
use crate::figures::Labels;

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
    #[serde(deserialize_with = "units::duration")]
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
    /// Arms with the same name here have wires with the same chances: under one seed, the same sequence of packets
    /// meets the same fates. Default: the arm's own name.
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
/// whole 95 % interval keeps it, *missed* when none of the interval does, and *open* otherwise. A limit that nothing
/// may pass is met when every sample keeps it and missed when one does not, because what lies beyond a mean's interval
/// says nothing of a maximum. Where a complete run is without the figure, a target is neither met nor, but for such a
/// limit, missed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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

/// A figure made, run by run, of two others of that run: either of those that differ in a label, or of two with the
/// same labels and different names.
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
    /// Labels that what is compared has. Default: whatever has the name.
    #[serde(default)]
    pub only: Labels,
    /// The new figure's name.
    pub name: String,
    /// What it is.
    pub kind: Comparison,
}

/// How two figures of a run become one number: by their means, unless it says otherwise. `a` is what is compared and
/// `b` what it is compared with.
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

/// A plot of one figure, a curve for each set of labels: its distribution, or what it was over time.
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
    /// From one sample to the next, where the plot is of the first run over time; drawn is when each look was, and only
    /// in records without that as if all were so far apart. Default: it is of the distribution in all runs.
    #[serde(default, deserialize_with = "units::some_duration")]
    pub over_time: Option<Duration>,
}

impl Arm {
    /// What flows: each case as often as it has copies.
    pub(crate) fn flows(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().map(Spanned::as_ref).flat_map(|case| std::iter::repeat_n(case, case.copies))
    }

    /// The labels of everything that one of its cases measures.
    pub(crate) fn labels_of(&self, case: &Case) -> Labels {
        self.labels.iter().chain(&case.labels).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn one() -> u64 {
    1
}
