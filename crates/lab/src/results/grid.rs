//! The figures of whole grids.

use std::collections::BTreeMap;

use super::samples::{RunSamples, Series};
use crate::figures::{Figure, TIMES, labels};
use crate::statistics::mean;

/// The figure of a wire that whole grids are judged by.
const RATIO: &str = "goodput_over_linux";
/// From here on, a ratio is within 10 % or better.
const WITHIN: f64 = 0.9;

/// The figures of whole grids, one of each for each congestion control: how many percent of the wires are within 10 %
/// of Linux or better, by the mean of their runs and by the lower bound of its interval; the lowest wire, likewise; and
/// the mean of all, whose interval is over the runs.
pub(crate) fn whole_grid(samples: &RunSamples) -> Vec<Figure> {
    let mut wires: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
    for series in samples.all().iter().filter(|series| series.name == RATIO) {
        if let Some(control) = series.labels.get("congestion_control") {
            wires.entry(control).or_default().push(series);
        }
    }
    let mut made = Vec::new();
    for (control, wires) in wires {
        let ratios: Vec<Figure> = wires.iter().filter_map(|series| series.figure()).collect();
        let means: Vec<f64> = ratios.iter().map(|wire| wire.mean).collect();
        let bounds: Vec<f64> = ratios.iter().filter_map(|wire| Some(wire.ci95?[0])).collect();
        let share = |values: &[f64]| {
            100.0 * values.iter().filter(|value| **value >= WITHIN).count() as f64 / values.len() as f64
        };
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut add = |name: &str, unit: &str, value: f64| {
            let own = labels([("congestion_control", control)]);
            made.extend(Figure::of(name, own, unit, &[value]));
        };
        add("grid_wires", "wires", ratios.len() as f64);
        add("grid_within_10pct", "%", share(&means));
        add("grid_min", TIMES, least(&means));
        if bounds.len() == ratios.len() {
            add("grid_within_10pct_bound", "%", share(&bounds));
            add("grid_min_bound", TIMES, least(&bounds));
            let half = |wire: &Figure| wire.ci95.map(|[low, high]| 50.0 * (high - low) / wire.mean);
            let mut halves: Vec<f64> = ratios.iter().filter_map(half).collect();
            halves.sort_by(f64::total_cmp);
            let own = labels([("congestion_control", control)]);
            made.extend(Figure::of("grid_interval_half_pct", own, "%", &halves));
        }
        made.extend(mean_of_wires(control, &wires));
    }
    made
}

/// The geometric mean of all wires of each run that has them all.
fn mean_of_wires(control: &str, wires: &[&Series]) -> Option<Figure> {
    let runs = wires.first()?.runs.keys();
    let of_run = |run: &usize| {
        let logs: Option<Vec<f64>> = wires.iter().map(|wire| Some(mean(wire.runs.get(run)?)?.ln())).collect();
        mean(&logs?).map(f64::exp)
    };
    let means: Vec<f64> = runs.filter_map(of_run).collect();
    Figure::of("grid_mean", labels([("congestion_control", control)]), TIMES, &means)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_grids_are_judged_by_means_and_by_bounds() {
        let mut samples = RunSamples::default();
        for (rtt_ms, ratios) in
            [("10", [1.0, 1.0, 1.0]), ("50", [0.91, 0.95, 0.90]), ("100", [0.7, 0.8, 0.9])]
        {
            for (run, ratio) in ratios.into_iter().enumerate() {
                let labels = labels([("congestion_control", "cubic"), ("rtt_ms", rtt_ms)]);
                samples.add(run, RATIO, &labels, "1", &[ratio]);
            }
        }
        let figures = whole_grid(&samples);
        let mean = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().mean;
        assert!(
            (mean("grid_within_10pct") - 200.0 / 3.0).abs() < 1e-9 && (mean("grid_min") - 0.8).abs() < 1e-9
        );
        // t is 4.30, so the second wire's bound is 0.92 − 0.066 and the third's 0.8 − 0.25.
        assert!((mean("grid_within_10pct_bound") - 100.0 / 3.0).abs() < 1e-9);
        assert!((mean("grid_min_bound") - 0.5516).abs() < 1e-3, "{}", mean("grid_min_bound"));
        let all = figures.iter().find(|figure| figure.name == "grid_mean").unwrap();
        // The geometric mean of 0.8604, 0.9126 and 0.9322.
        assert!((all.n, (all.mean - 0.9012).abs() < 1e-3) == (3, true), "{all:?}");
        assert!(whole_grid(&RunSamples::default()).is_empty());
    }
}
