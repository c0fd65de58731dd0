//! What became of a plan's targets.

use serde::{Deserialize, Serialize};

use super::samples::{RunSamples, Series};
use crate::figures::{Figure, Labels};
use crate::plan::{Plan, Target};

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
    /// Some of it does, or there is only one run, or there are runs without the figure or fewer than wanted, or the
    /// result is not valid.
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

/// What became of every target of the plan, for each figure that it is about, where so many runs were wanted. Of a
/// result that must not be trusted none is met.
pub(crate) fn judgements(plan: &Plan, samples: &RunSamples, runs: usize, is_valid: bool) -> Vec<Judgement> {
    let mut judgements = Vec::new();
    for target in plan.targets.iter().map(|target| target.as_ref()) {
        let is_judged = |series: &&Series| series.name == target.figure && series.has(&target.labels);
        let mut found = samples.all().iter().filter(is_judged).peekable();
        if found.peek().is_none() {
            judgements.push(target.judge(None, runs));
        }
        judgements.extend(found.map(|series| target.judge(Some(series), runs)));
    }
    for judgement in judgements.iter_mut().filter(|judgement| !is_valid && judgement.outcome == Outcome::Met)
    {
        judgement.outcome = Outcome::Open;
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

    /// What becomes of it by one figure. Where figures must not be trusted none is met.
    pub(crate) fn outcome(&self, figure: &Figure, is_valid: bool) -> Outcome {
        match self.judge_mean(Some(figure.clone())).2 {
            Outcome::Met if !is_valid => Outcome::Open,
            outcome => outcome,
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
