//! What the runs measured, kept run by run, because a run is the unit of statistics.
//!
//! Samples of one run depend on each other: they met the same queue. So a figure's mean is the mean of the runs'
//! means, its interval is Student's t over those, and only its quantiles are over all samples.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::figures::{self, Figure, Labels};
use crate::machine::files::read_json;
use crate::plan::{Compare, Comparison, Plan};

/// The samples of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The figure's name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its unit.
    pub unit: String,
    /// Its samples in the order they came, by the number of the run, from 0.
    pub runs: BTreeMap<usize, Vec<f64>>,
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

    /// The mean of each run.
    pub fn run_means(&self) -> Vec<f64> {
        self.runs.values().filter_map(|run| figures::mean(run)).collect()
    }

    /// The figure, or `None` without a sample.
    pub fn figure(&self) -> Option<Figure> {
        let mut figure = Figure::of(&self.name, self.labels.clone(), &self.unit, &self.all())?;
        let means = self.run_means();
        figure.mean = figures::mean(&means)?;
        figure.ci95 = figures::ci95(&means);
        Some(figure)
    }
}

impl RunSamples {
    /// Adds samples of a run. The unit is that of the figure's first samples. What is not finite is left out, because no
    /// figure can be made of it.
    pub fn add(&mut self, run: usize, name: &str, labels: &Labels, unit: &str, samples: &[f64]) {
        let found =
            self.series.binary_search_by(|series| (&*series.name, &series.labels).cmp(&(name, labels)));
        let at = found.unwrap_or_else(|at| {
            let series = Series {
                name: name.to_owned(),
                labels: labels.clone(),
                unit: unit.to_owned(),
                runs: BTreeMap::new(),
            };
            self.series.insert(at, series);
            at
        });
        let finite = samples.iter().copied().filter(|sample| sample.is_finite());
        self.series[at].runs.entry(run).or_default().extend(finite);
    }

    /// The samples of one figure.
    pub fn series(&self, name: &str, labels: &Labels) -> Option<&Series> {
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
    pub fn forget_run(&mut self, run: usize) {
        for series in &mut self.series {
            series.runs.remove(&run);
        }
        self.series.retain(|series| !series.runs.is_empty());
    }

    /// Adds the plan's paired figures for a run.
    pub fn compare(&mut self, plan: &Plan, run: usize) {
        for compare in &plan.compare {
            let compare = compare.as_ref();
            let mut paired = Vec::new();
            for series in self.series.iter().filter(|series| series.name == compare.figure) {
                let Some((figure, labels)) = base(compare, series) else { continue };
                let of_run = |series: &Series| series.runs.get(&run).cloned();
                let base = self.series(figure, &labels).and_then(of_run);
                let both = of_run(series).zip(base);
                let means = both.as_ref().and_then(|(a, b)| Some((figures::mean(a)?, figures::mean(b)?)));
                if let (Some((ours, bases)), Some((a, b))) = (&both, means) {
                    let (unit, value) = match compare.kind {
                        Comparison::Ratio => ("1", a / b),
                        Comparison::Difference => (&*series.unit, a - b),
                        Comparison::LossPct => ("%", 100.0 * (1.0 - a / b)),
                        Comparison::Auc => ("1", figures::auc(ours, bases)),
                    };
                    paired.push((series.labels.clone(), unit.to_owned(), value));
                }
            }
            for (labels, unit, value) in paired {
                self.add(run, &compare.name, &labels, &unit, &[value]);
            }
        }
    }
}

impl RunSamples {
    /// Reads `samples.json` of a run's directory.
    pub fn read(dir: &Path) -> Result<RunSamples> {
        read_json(&dir.join("samples.json"))
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
