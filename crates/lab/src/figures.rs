//! Figures: what a quantity came to, in one arm and place.

mod quantity;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::conditions::{self, Conditions, LoadReading, Noise};
use crate::statistics::{Estimate, Scale, estimate, quantile};

pub use quantity::{Better, Quantity, TIMES, all, of_phases, quantity};

/// What distinguishes one figure from another of the same name, such as `relays` = `stock`.
pub type Labels = BTreeMap<String, String>;

/// Labels from pairs, for call sites.
pub fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// One measured quantity. Fields are finite; a figure without samples is not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured; the unit stands last in the name as well.
    pub name: String,
    /// In which arm and place.
    pub labels: Labels,
    /// The unit of the numbers below.
    pub unit: String,
    /// How many samples.
    pub n: usize,
    /// Their mean; of ratios the geometric one.
    pub mean: f64,
    /// Bounds of the mean's 95 % interval (see [`statistics`](crate::statistics)); absent for a single sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Figure {
    /// A figure from independent samples, or `None` when there are none.
    pub fn of(name: &str, labels: Labels, unit: &str, samples: &[f64]) -> Option<Figure> {
        let scale = quantity(name).map_or(Scale::Any, |quantity| quantity.scale);
        Figure::from(name, labels, unit, samples, estimate(samples, scale)?)
    }

    /// A figure from samples, of which so much is known.
    pub(crate) fn from(
        name: &str,
        labels: Labels,
        unit: &str,
        samples: &[f64],
        estimate: Estimate,
    ) -> Option<Figure> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Figure {
            name: name.to_owned(),
            labels,
            unit: unit.to_owned(),
            n: sorted.len(),
            mean: estimate.value,
            ci95: estimate.ci95,
            p50: quantile(&sorted, 0.5)?,
            p90: quantile(&sorted, 0.9)?,
            p99: quantile(&sorted, 0.99)?,
        })
    }
}

/// Samples as they come in, by figure, in an order that does not depend on when they came.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    by_figure: BTreeMap<(String, Labels), (String, Vec<f64>)>,
}

impl Samples {
    /// Adds one sample. The unit is that of the figure's first sample.
    pub fn add(&mut self, name: &str, labels: Labels, unit: &str, value: f64) {
        let entry = self.by_figure.entry((name.to_owned(), labels));
        entry.or_insert_with(|| (unit.to_owned(), Vec::new())).1.push(value);
    }

    /// The samples of one figure in the order they came.
    pub fn of(&self, name: &str, labels: &Labels) -> &[f64] {
        let key = (name.to_owned(), labels.clone());
        self.by_figure.get(&key).map_or(&[], |(_, samples)| samples)
    }

    /// All figures, ordered by name and labels.
    pub fn figures(&self) -> Vec<Figure> {
        let figures = self.by_figure.iter();
        figures
            .filter_map(|((name, labels), (unit, samples))| Figure::of(name, labels.clone(), unit, samples))
            .collect()
    }
}

/// What a run leaves behind as `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The commit that was checked out, with `-dirty` after it when files differed from it, or
    /// `unknown` outside a repository.
    pub commit: String,
    /// On what machine.
    pub conditions: Conditions,
    /// The version of stock Tor.
    pub tor: String,
    /// The congestion control of TCP on loopback, as Linux names it: nobody chooses one there.
    pub congestion_control: String,
    /// How quiet the machine was.
    pub noise: Noise,
    /// What was measured.
    pub figures: Vec<Figure>,
}

/// What is known of a run before it has figures.
#[derive(Clone, Debug)]
pub struct Run {
    commit: String,
    load: LoadReading,
}

impl Run {
    /// Begins a run, in which the checkout may change.
    pub fn begin() -> Run {
        Run { commit: conditions::commit(), load: LoadReading::now() }
    }

    /// What it gave, beside a stock Tor of this version.
    pub fn end(self, samples: &Samples, tor: String) -> Summary {
        Summary {
            commit: self.commit,
            conditions: Conditions::now(),
            tor,
            congestion_control: conditions::congestion_control(),
            noise: self.load.until_now(),
            figures: samples.figures(),
        }
    }
}

impl Summary {
    /// Writes the summary as JSON, creating the directory it lies in. It appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let doing = || format!("writing {}", path.display());
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::io(doing())(std::io::Error::other(error)))?;
        json.push(b'\n');
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(Error::io(doing()))?;
        }
        let draft = path.with_extension("json.part");
        fs::write(&draft, json).map_err(Error::io(doing()))?;
        fs::rename(&draft, path).map_err(Error::io(doing()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_out_in_one_order() {
        let mut samples = Samples::default();
        samples.add("b", labels([("relays", "stock")]), "ms", 2.0);
        samples.add("a", labels([("relays", "stock")]), "ms", 1.0);
        samples.add("b", labels([("relays", "heddle")]), "ms", 3.0);
        samples.add("b", labels([("relays", "stock")]), "ms", 4.0);
        let figures = samples.figures();
        let order: Vec<_> = figures.iter().map(|f| (&*f.name, &*f.labels["relays"], f.n)).collect();
        assert_eq!(order, [("a", "stock", 1), ("b", "heddle", 1), ("b", "stock", 2)]);
    }

    #[test]
    fn the_summary_has_the_promised_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo/summary.json");
        let mut samples = Samples::default();
        for value in [1.0, 3.0] {
            samples.add("first_byte_ms", labels([("relays", "stock")]), "ms", value);
        }
        let summary = Run::begin().end(&samples, "0.4.9.11".into());
        summary.write(&path).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["commit"], *summary.commit);
        assert_eq!(json["tor"], "0.4.9.11");
        assert_eq!(json["conditions"]["kernel"], *Conditions::now().kernel);
        assert_eq!(json["congestion_control"], *conditions::congestion_control());
        assert!(json["noise"]["load_before"].is_f64() && json["noise"]["load_after"].is_f64());
        let figure = &json["figures"][0];
        assert_eq!(figure["labels"]["relays"], "stock");
        assert_eq!((&figure["n"], &figure["mean"], &figure["p50"]), (&2.into(), &2.0.into(), &2.0.into()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
