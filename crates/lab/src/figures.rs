//! From samples to figures: what a run measured and how sure it is.
//!
//! Quantiles interpolate linearly between order statistics (Hyndman and Fan's type 7). The 95 %
//! interval of a mean is Student's t over the samples of one figure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

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
    /// Their mean.
    pub mean: f64,
    /// Bounds of the mean's 95 % interval; absent for a single sample.
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
    /// A figure from samples, or `None` when there are none.
    pub fn of(name: &str, labels: Labels, unit: &str, samples: &[f64]) -> Option<Figure> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Figure {
            name: name.to_owned(),
            labels,
            unit: unit.to_owned(),
            n: sorted.len(),
            mean: mean(&sorted)?,
            ci95: ci95(&sorted),
            p50: quantile(&sorted, 0.5)?,
            p90: quantile(&sorted, 0.9)?,
            p99: quantile(&sorted, 0.99)?,
        })
    }
}

/// The arithmetic mean, or `None` of nothing.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// The probability that a sample of `a` is greater than one of `b`, where equal ones count half (the statistic of Mann and
/// Whitney over the number of pairs). Not a number without samples.
pub fn auc(a: &[f64], b: &[f64]) -> f64 {
    let mut sorted = b.to_vec();
    sorted.sort_by(f64::total_cmp);
    let wins = |x: &f64| {
        let (below, to) = (sorted.partition_point(|y| y < x), sorted.partition_point(|y| y <= x));
        (below + to) as f64 / 2.0
    };
    a.iter().map(wins).sum::<f64>() / (a.len() * b.len()) as f64
}

/// The 95 % interval of the mean by Student's t, or `None` of fewer than two samples.
pub fn ci95(samples: &[f64]) -> Option<[f64; 2]> {
    let mean = mean(samples)?;
    let n = samples.len();
    if n < 2 {
        return None;
    }
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    let half = t_975(n - 1) * (squares / (n - 1) as f64 / n as f64).sqrt();
    Some([mean - half, mean + half])
}

/// The quantile `q` (0 to 1) of samples in ascending order, or `None` of nothing.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q * last as f64;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64))
}

/// The 97.5 % quantile of Student's t with `df` degrees of freedom.
///
/// A table where few samples make it matter; beyond, the Cornish-Fisher expansion about the normal
/// quantile (Abramowitz and Stegun 26.7.5), which is within 0.0001 there.
fn t_975(df: usize) -> f64 {
    const TABLE: [f64; 10] =
        [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281];
    if let Some(t) = df.checked_sub(1).and_then(|row| TABLE.get(row)) {
        return *t;
    }
    let z: f64 = 1.959_964;
    let v = df as f64;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / v + g2 / v.powi(2) + g3 / v.powi(3)
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
    /// What was measured.
    pub figures: Vec<Figure>,
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
    fn quantiles_interpolate() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&sorted, 0.0), Some(1.0));
        assert_eq!(quantile(&sorted, 0.5), Some(2.5));
        assert_eq!(quantile(&sorted, 1.0), Some(4.0));
        assert!((quantile(&sorted, 0.9).unwrap() - 3.7).abs() < 1e-12);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn students_t_matches_the_published_table() {
        for (df, t) in
            [(1, 12.706), (5, 2.571), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (120, 1.980)]
        {
            assert!((t_975(df) - t).abs() < 0.0006, "{df}: {} is not {t}", t_975(df));
        }
    }

    #[test]
    fn the_interval_of_a_known_sample() {
        // R: t.test(c(9, 10, 11, 12, 13)) gives 9.036757 and 12.963243.
        let [low, high] = ci95(&[9.0, 10.0, 11.0, 12.0, 13.0]).unwrap();
        assert!((low - 9.036757).abs() < 1e-3 && (high - 12.963243).abs() < 1e-3);
        assert_eq!(ci95(&[1.0]), None);
    }

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
        let figure = Figure::of("first_byte_ms", labels([("relays", "stock")]), "ms", &[1.0, 3.0]);
        let summary = Summary { commit: "c".into(), figures: vec![figure.unwrap()] };
        summary.write(&path).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["commit"], "c");
        let figure = &json["figures"][0];
        assert_eq!(figure["labels"]["relays"], "stock");
        assert_eq!((&figure["n"], &figure["mean"], &figure["p50"]), (&2.into(), &2.0.into(), &2.0.into()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
