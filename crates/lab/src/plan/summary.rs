//! What a run leaves behind as `summary.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Known, Plan, RunSamples, Series, Statistic, Target, grid};
use crate::error::{Error, Result};
use crate::figures::{self, Figure, Labels};
use crate::machine::conditions::{Conditions, Noise};

/// The bounds of a normal distribution's middle 99.9 %, in standard deviations.
const Z_999: f64 = 3.290_527;

/// The result of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The plan's name.
    pub plan: String,
    /// What `--set` changed in it.
    pub set: BTreeMap<String, String>,
    /// The names of the arms that were measured.
    #[serde(default)]
    pub arms: Vec<String>,
    /// The names of the phases that were chosen; none means all.
    #[serde(default)]
    pub phases: Vec<String>,
    /// What the hosts and wires were made of.
    pub backend: String,
    /// The commit that was checked out (see [`figures::commit`]).
    pub commit: String,
    /// The command that made it, as typed.
    pub command: String,
    /// On what machine.
    pub conditions: Conditions,
    /// The seeds of the runs that are in the figures.
    pub seeds: Vec<u64>,
    /// How many runs there should have been.
    pub runs_wanted: usize,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How quiet the machine was.
    pub noise: Noise,
    /// What the backend says about itself, by arm: the worst of all runs.
    pub backend_noise: BTreeMap<String, BTreeMap<String, f64>>,
    /// What the hosts were set to, by arm: congestion controls, socket memory in bytes (least, first and most), and what
    /// the machine did not allow.
    pub settings: BTreeMap<String, BTreeSet<String>>,
    /// Whether the figures may be trusted.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// What was measured once more because the emulator was late, and why; the first time is in no figure.
    #[serde(default)]
    pub repeated: Vec<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Ours beside what was known.
    pub checks: Vec<Check>,
    /// Which targets were met.
    #[serde(default)]
    pub targets: Vec<Judgement>,
}

/// What became of a target, for one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The figure's name.
    pub figure: String,
    /// Its labels, or the target's if there is no such figure.
    pub labels: Labels,
    /// Its unit.
    pub unit: String,
    /// The most that it ought to be.
    pub at_most: Option<f64>,
    /// The least.
    pub at_least: Option<f64>,
    /// Where the bound comes from.
    pub source: String,
    /// The figure's mean, or of a limit for every sample the one nearest to it; absent when it was not measured.
    pub ours: Option<f64>,
    /// The mean's 95 % interval; absent for one run, and where every sample counts.
    pub ci95: Option<[f64; 2]>,
    /// In how many runs it was measured.
    #[serde(default)]
    pub runs: usize,
    /// In how many it ought to have been.
    #[serde(default)]
    pub runs_due: usize,
    /// The judgement.
    pub outcome: Outcome,
}

/// What became of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval keeps the bound.
    Met,
    /// None of the interval does.
    Missed,
    /// Some of it does, or there is only one run, or there are runs without the figure.
    Open,
    /// There is no such figure.
    NotMeasured,
}

impl Outcome {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            Outcome::Open => "open",
            Outcome::NotMeasured => "not measured",
        }
    }
}

/// A value known from elsewhere and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The figure's name.
    pub figure: String,
    /// Its labels.
    pub labels: Labels,
    /// Which of its numbers.
    pub statistic: Statistic,
    /// The unit of both values.
    pub unit: String,
    /// The known value.
    pub known: f64,
    /// Who says so.
    pub source: String,
    /// Ours; absent when it was not measured.
    pub ours: Option<f64>,
    /// The bounds in which ours had to be; absent when nothing was demanded.
    pub bounds: Option<[f64; 2]>,
    /// Whether it was; absent when nothing was demanded.
    pub holds: Option<bool>,
}

impl Statistic {
    /// The number of a figure that this is.
    pub fn of(self, figure: &Figure) -> f64 {
        match self {
            Statistic::Mean => figure.mean,
            Statistic::P50 => figure.p50,
            Statistic::P90 => figure.p90,
            Statistic::P99 => figure.p99,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P50 => "p50",
            Statistic::P90 => "p90",
            Statistic::P99 => "p99",
        }
    }
}

/// Every known value of the plan beside ours.
pub(super) fn checks(plan: &Plan, samples: &RunSamples) -> Vec<Check> {
    let check = |known: &Known| {
        let series = samples.series(&known.figure, &known.labels);
        let figure = series.and_then(Series::figure);
        let ours = figure.as_ref().map(|figure| known.statistic.of(figure));
        let bounds = bounds(known, series);
        let demanded = known.within_interval || known.within.is_some() || known.within_pct.is_some();
        let holds = || ours.zip(bounds).is_some_and(|(ours, [low, high])| low <= ours && ours <= high);
        Check {
            figure: known.figure.clone(),
            labels: known.labels.clone(),
            statistic: known.statistic,
            unit: figure.map(|figure| figure.unit).unwrap_or_default(),
            known: known.value,
            source: known.source.clone(),
            ours,
            bounds,
            holds: demanded.then(holds),
        }
    };
    plan.known.iter().map(|known| check(known.as_ref())).collect()
}

/// What became of every target of the plan, for each figure that it is about, after so many complete runs.
pub(super) fn judgements(plan: &Plan, samples: &RunSamples, runs: usize) -> Vec<Judgement> {
    let mut judgements = Vec::new();
    for target in plan.targets.iter().map(|target| target.as_ref()) {
        let is_judged = |series: &&Series| series.name == target.figure && series.has(&target.labels);
        let mut found = samples.all().iter().filter(is_judged).peekable();
        if found.peek().is_none() {
            judgements.push(target.judge(None, runs));
        }
        let due = |series| grid::runs_due(plan, samples, series, runs);
        judgements.extend(found.map(|series| target.judge(Some(series), due(series))));
    }
    judgements
}

impl Target {
    fn keeps(&self, value: f64) -> bool {
        self.at_most.is_none_or(|most| value <= most) && self.at_least.is_none_or(|least| value >= least)
    }

    /// Judges a figure that was to be measured in so many runs.
    fn judge(&self, series: Option<&Series>, runs_due: usize) -> Judgement {
        let (ours, ci95, outcome) = match self.always {
            true => self.judge_samples(&series.map(Series::all).unwrap_or_default()),
            false => self.judge_mean(series.and_then(Series::figure)),
        };
        let runs = series.map_or(0, |series| series.run_means().len());
        // A run without the figure may be the one that does not keep the bound. What passed a limit has passed it.
        let is_decided = (1..=runs).contains(&runs_due) || (self.always && outcome == Outcome::Missed);
        let outcome = match outcome {
            Outcome::Met | Outcome::Missed if !is_decided => Outcome::Open,
            outcome => outcome,
        };
        Judgement {
            figure: self.figure.clone(),
            labels: series.map_or(&self.labels, |series| &series.labels).clone(),
            unit: series.map(|series| series.unit.clone()).unwrap_or_default(),
            at_most: self.at_most,
            at_least: self.at_least,
            source: self.source.clone(),
            ours,
            ci95,
            runs,
            runs_due,
            outcome,
        }
    }

    fn judge_mean(&self, figure: Option<Figure>) -> (Option<f64>, Option<[f64; 2]>, Outcome) {
        let Some(figure) = figure else { return (None, None, Outcome::NotMeasured) };
        let beyond = |[low, high]: [f64; 2]| {
            self.at_most.is_some_and(|most| low > most) || self.at_least.is_some_and(|least| high < least)
        };
        let outcome = match figure.ci95 {
            Some([low, high]) if self.keeps(low) && self.keeps(high) => Outcome::Met,
            Some(interval) if beyond(interval) => Outcome::Missed,
            _ => Outcome::Open,
        };
        (Some(figure.mean), figure.ci95, outcome)
    }

    /// The sample that is nearest to the limit, or beyond it by the most.
    fn judge_samples(&self, samples: &[f64]) -> (Option<f64>, Option<[f64; 2]>, Outcome) {
        let room = |value: f64| {
            let below = self.at_most.map_or(f64::INFINITY, |most| most - value);
            below.min(self.at_least.map_or(f64::INFINITY, |least| value - least))
        };
        let nearest = samples.iter().copied().min_by(|a, b| room(*a).total_cmp(&room(*b)));
        let outcome = match nearest {
            None => Outcome::NotMeasured,
            Some(value) if self.keeps(value) => Outcome::Met,
            Some(_) => Outcome::Missed,
        };
        (nearest, None, outcome)
    }
}

/// The bounds in which our value must be: the narrowest of those demanded.
fn bounds(known: &Known, series: Option<&Series>) -> Option<[f64; 2]> {
    let percent = known.within_pct.map(|percent| known.value.abs() * percent / 100.0);
    let interval = series.filter(|_| known.within_interval).and_then(half_interval);
    let half = [percent, known.within, interval].into_iter().flatten().reduce(f64::min)?;
    Some([known.value - half, known.value + half])
}

/// Half of the 99.9 % interval of the mean of independent samples.
fn half_interval(series: &Series) -> Option<f64> {
    let samples = series.all();
    let mean = figures::mean(&samples)?;
    let n = samples.len() as f64;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (n > 1.0).then(|| Z_999 * (squares / (n - 1.0) / n).sqrt())
}

impl Check {
    /// The reason for which it makes a run invalid, if it does.
    pub(super) fn complaint(&self) -> Option<String> {
        if self.holds != Some(false) {
            return None;
        }
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let what = format!("{} of {} ({})", self.statistic.name(), self.figure, labels.join(", "));
        Some(match (self.ours, self.bounds) {
            (Some(ours), Some([low, high])) => {
                format!("the {what} is {ours:.4} {}, not from {low:.4} to {high:.4}", self.unit)
            }
            _ => format!("the {what} was not measured"),
        })
    }
}

impl Summary {
    /// Reads `summary.json` of a run's directory.
    pub fn read(dir: &Path) -> Result<Summary> {
        read_json(&dir.join("summary.json"))
    }
}

impl RunSamples {
    /// Reads `samples.json` of a run's directory.
    pub fn read(dir: &Path) -> Result<RunSamples> {
        read_json(&dir.join("samples.json"))
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
    serde_json::from_slice(&text).map_err(|error| Error::Options(format!("{}: {error}", path.display())))
}

/// Writes a file that appears whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    written.map_err(Error::io(format!("writing {}", path.display())))
}

/// Writes a value as JSON, for people to read when it is small.
pub(super) fn write_json(path: &Path, value: &impl Serialize, pretty: bool) -> Result<()> {
    let json = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    let mut json = json.map_err(|error| Error::Options(format!("{}: {error}", path.display())))?;
    json.push(b'\n');
    write_whole(path, &json)
}
