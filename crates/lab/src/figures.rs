//! Figures: what a quantity came to, in one arm and place.

mod quantity;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::{Estimate, Scale, estimate, quantile};

pub use quantity::{Better, Quantity, all, quantity};
pub(crate) use quantity::{TIMES, of_phases};

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

/// Samples of one run as they come in, by figure, in an order that does not depend on when they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    by_figure: BTreeMap<(String, Labels), (String, Vec<f64>)>,
}

impl Samples {
    /// Adds one sample. The unit is that of the figure's first sample.
    pub fn add(&mut self, name: &str, labels: Labels, unit: &str, value: f64) {
        let entry = self.by_figure.entry((name.to_owned(), labels));
        entry.or_insert_with(|| (unit.to_owned(), Vec::new())).1.push(value);
    }

    /// All figures, ordered by name and labels. They have no intervals, because what follows each other in a run is not
    /// independent.
    pub fn figures(&self) -> Vec<Figure> {
        let figures = self.by_figure.iter();
        figures
            .filter_map(|((name, labels), (unit, samples))| Figure::of(name, labels.clone(), unit, samples))
            .map(|figure| Figure { ci95: None, ..figure })
            .collect()
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
        assert!(figures.iter().all(|figure| figure.ci95.is_none()), "one run has no interval");
    }
}
