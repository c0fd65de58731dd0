//! Values known from elsewhere beside ours.

use serde::{Deserialize, Serialize};

use super::samples::{RunSamples, Series};
use crate::figures::{Figure, Labels};
use crate::plan::{Known, Plan, Statistic};
use crate::statistics::half_interval_999;

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
pub(crate) fn checks(plan: &Plan, samples: &RunSamples) -> Vec<Check> {
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

/// The bounds in which our value must be: the narrowest of those demanded.
fn bounds(known: &Known, series: Option<&Series>) -> Option<[f64; 2]> {
    let percent = known.within_pct.map(|percent| known.value.abs() * percent / 100.0);
    let interval =
        series.filter(|_| known.within_interval).and_then(|series| half_interval_999(&series.all()));
    let half = [percent, known.within, interval].into_iter().flatten().reduce(f64::min)?;
    Some([known.value - half, known.value + half])
}

impl Check {
    /// The reason for which it makes a run invalid, if it does.
    pub(crate) fn complaint(&self) -> Option<String> {
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
