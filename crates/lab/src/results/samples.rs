//! What the runs measured, kept run by run, because a run is the unit of statistics.
//!
//! Samples of one run depend on each other: they met the same queue. So a figure's mean is the mean of the runs' means,
//! its interval is Student's t over those (see [`statistics`](crate::statistics)), and only its quantiles are over all
//! samples.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::figures::{Figure, Labels, Quantity, TIMES, quantity};
use crate::machine::files::{read_json, write_json};
use crate::plan::{Compare, Comparison, Plan};
use crate::statistics::{Scale, auc, estimate, estimate_pairs, mean};

/// The samples of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The figure's name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its unit.
    pub unit: String,
    /// What values it can have.
    #[serde(default, skip_serializing_if = "is_any")]
    pub scale: Scale,
    /// Its samples in the order they came, by the number of the run, from 0.
    pub runs: BTreeMap<usize, Vec<f64>>,
    /// When each of them was, in seconds from some moment of the run, where somebody looked again and again. Records of
    /// earlier commits have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times_s: BTreeMap<usize, Vec<f64>>,
    /// Of a comparison by ratio the two means that were compared, by the number of the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pairs: BTreeMap<usize, [f64; 2]>,
}

fn is_any(scale: &Scale) -> bool {
    *scale == Scale::Any
}

/// The samples of a whole experiment, ordered by figure and labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunSamples {
    series: Vec<Series>,
}

impl Series {
    /// Whether it has these labels, and maybe others.
    pub(super) fn has(&self, labels: &Labels) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }

    /// All samples, run after run.
    pub fn all(&self) -> Vec<f64> {
        self.runs.values().flatten().copied().collect()
    }

    /// The samples of the first run by their times in seconds, from the first of them on. Where they have none, one
    /// came so many seconds after another.
    pub(crate) fn course(&self, step_s: f64) -> Option<Vec<(f64, f64)>> {
        let (run, values) = self.runs.first_key_value()?;
        let times_s = self.times_s.get(run).filter(|times_s| times_s.len() == values.len());
        let time_s = |number: usize| match times_s {
            Some(times_s) => times_s[number] - times_s[0],
            None => number as f64 * step_s,
        };
        Some(values.iter().enumerate().map(|(number, value)| (time_s(number), *value)).collect())
    }

    /// The mean of each run.
    pub(crate) fn run_means(&self) -> Vec<f64> {
        self.runs.values().filter_map(|run| mean(run)).collect()
    }

    /// The figure, or `None` without a sample.
    pub fn figure(&self) -> Option<Figure> {
        let pairs: Vec<[f64; 2]> = self.pairs.values().copied().collect();
        let estimate = match pairs.is_empty() {
            true => estimate(&self.run_means(), self.scale),
            false => estimate_pairs(&pairs, self.scale),
        };
        Figure::from(&self.name, self.labels.clone(), &self.unit, &self.all(), estimate?)
    }
}

impl RunSamples {
    /// Adds samples of a run. The unit is that of the figure's first samples, and what values it can have is as the
    /// table of quantities has it, if it is there. What is not finite is left out, because no figure can be made of it.
    pub fn add(&mut self, run: usize, name: &str, labels: &Labels, unit: &str, samples: &[f64]) {
        let scale = quantity(name).map_or(Scale::Any, |quantity| quantity.scale);
        self.add_scaled(run, name, labels, (unit, scale), samples);
    }

    /// Adds samples of a quantity under a name that a plan gives it, each with its time if they have any.
    pub(crate) fn add_of(
        &mut self,
        run: usize,
        name: &str,
        of: &Quantity,
        labels: &Labels,
        (samples, times_s): (&[f64], &[f64]),
    ) {
        let series = self.add_scaled(run, name, labels, (of.unit, of.scale), samples);
        let finite = times_s.iter().zip(samples).filter(|(_, sample)| sample.is_finite());
        let mut finite = finite.map(|(time_s, _)| *time_s).peekable();
        if finite.peek().is_some() {
            series.times_s.entry(run).or_default().extend(finite);
        }
    }

    /// Adds a ratio of a run by the two values that it compares.
    pub(crate) fn add_ratio(&mut self, run: usize, name: &str, labels: &Labels, [a, b]: [f64; 2]) {
        let ratio = a / b;
        let series = self.add_scaled(run, name, labels, (TIMES, Scale::Ratio), &[ratio]);
        if ratio.is_finite() {
            series.pairs.insert(run, [a, b]);
        }
    }

    fn add_scaled(
        &mut self,
        run: usize,
        name: &str,
        labels: &Labels,
        (unit, scale): (&str, Scale),
        samples: &[f64],
    ) -> &mut Series {
        let found =
            self.series.binary_search_by(|series| (&*series.name, &series.labels).cmp(&(name, labels)));
        let at = found.unwrap_or_else(|at| {
            let series = Series {
                name: name.to_owned(),
                labels: labels.clone(),
                unit: unit.to_owned(),
                scale,
                runs: BTreeMap::new(),
                times_s: BTreeMap::new(),
                pairs: BTreeMap::new(),
            };
            self.series.insert(at, series);
            at
        });
        let finite = samples.iter().copied().filter(|sample| sample.is_finite());
        let series = &mut self.series[at];
        series.runs.entry(run).or_default().extend(finite);
        series
    }

    /// The samples of one figure.
    pub(crate) fn series(&self, name: &str, labels: &Labels) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name && series.labels == *labels)
    }

    /// All samples, ordered by figure and labels.
    pub fn all(&self) -> &[Series] {
        &self.series
    }

    /// All figures, in the same order.
    pub fn figures(&self) -> Vec<Figure> {
        self.series.iter().filter_map(Series::figure).collect()
    }

    /// The samples of a run are there whole or not at all: takes out what an interrupted run left.
    pub(crate) fn forget_run(&mut self, run: usize) {
        self.keep(|other| other != run);
    }

    /// The samples of the first runs, so many.
    pub(crate) fn of_runs(mut self, count: usize) -> Self {
        self.keep(|run| run < count);
        self
    }

    fn keep(&mut self, is_kept: impl Fn(usize) -> bool) {
        for series in &mut self.series {
            series.runs.retain(|run, _| is_kept(*run));
            series.times_s.retain(|run, _| is_kept(*run));
            series.pairs.retain(|run, _| is_kept(*run));
        }
        self.series.retain(|series| !series.runs.is_empty());
    }

    /// Adds the plan's paired figures for a run.
    pub(crate) fn compare(&mut self, plan: &Plan, run: usize) {
        for compare in &plan.compare {
            let compare = compare.as_ref();
            let mut paired = Vec::new();
            let is_it = |series: &&Series| series.name == compare.figure && series.has(&compare.only);
            for series in self.series.iter().filter(is_it) {
                let Some((figure, labels)) = base(compare, series) else { continue };
                let of_run = |series: &Series| series.runs.get(&run).cloned();
                let base = self.series(figure, &labels).and_then(of_run);
                let both = of_run(series).zip(base);
                if let Some((ours, bases)) = both
                    && let Some(means) = mean(&ours).zip(mean(&bases))
                {
                    paired.push((series.labels.clone(), series.unit.clone(), Pair { ours, bases, means }));
                }
            }
            for (labels, unit, pair) in paired {
                self.add_pair(run, compare, &labels, &unit, &pair);
            }
        }
    }

    fn add_pair(&mut self, run: usize, compare: &Compare, labels: &Labels, unit: &str, pair: &Pair) {
        let (a, b) = pair.means;
        let (unit, scale, value) = match compare.kind {
            Comparison::Ratio => (TIMES, Scale::Ratio, a / b),
            Comparison::Difference => (unit, Scale::Any, a - b),
            Comparison::LossPct => ("%", Scale::LossPct, 100.0 * (1.0 - a / b)),
            Comparison::Auc => ("1", Scale::Share, auc(&pair.ours, &pair.bases)),
        };
        let series = self.add_scaled(run, &compare.name, labels, (unit, scale), &[value]);
        if matches!(scale, Scale::Ratio | Scale::LossPct) && value.is_finite() {
            series.pairs.insert(run, [a, b]);
        }
    }
}

/// What is compared in a run, and with what.
struct Pair {
    ours: Vec<f64>,
    bases: Vec<f64>,
    means: (f64, f64),
}

impl RunSamples {
    /// Reads `samples.json` of a run's directory.
    pub fn read(dir: &Path) -> Result<RunSamples> {
        read_json(&dir.join("samples.json"))
    }

    /// Writes it.
    pub fn write(&self, dir: &Path) -> Result<()> {
        write_json(&dir.join("samples.json"), self, false)
    }
}

/// The figure and labels with which a series is compared, if it is.
fn base<'a>(compare: &'a Compare, series: &Series) -> Option<(&'a str, Labels)> {
    if let Some(to) = &compare.to {
        return Some((to, series.labels.clone()));
    }
    let (label, base) = (compare.label.as_ref()?, compare.base.as_ref()?);
    let mut labels = series.labels.clone();
    let value = labels.insert(label.clone(), base.clone())?;
    (value != *base).then_some((&compare.figure, labels))
}
