//! What came of a plan's grid: which batches are decided, and the figures of whole grids.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;

use super::samples::{RunSamples, Series};
use crate::figures::{self, Figure, labels};
use crate::plan::{Arm, Plan};

/// The figure of a cell that whole grids are judged by.
const RATIO: &str = "goodput_over_linux";
/// From here on, a ratio is within 10 % or better.
const WITHIN: f64 = 0.9;
/// No cell ought to be below.
const FLOOR: f64 = 0.75;

/// Whether nothing is left to be found out about an arm: its batch had enough runs with its congestion control, and the
/// interval of each cell is on one side of either bound. False for arms without a grid.
pub(crate) fn is_settled(plan: &Plan, samples: &RunSamples, arm: &Arm) -> bool {
    let Some((grid, options)) = plan.grid.as_ref().map(Spanned::as_ref).zip(arm.grid.as_ref()) else {
        return false;
    };
    let Some((enough_runs, batch)) = grid.enough_runs.zip(grid.find(&options.batch)) else { return false };
    batch.cells.iter().all(|cell| {
        let mut labels = cell.labels();
        labels.insert("congestion_control".to_owned(), options.congestion_control.clone());
        let is_ours = |series: &&Series| series.name == RATIO && series.has(&labels);
        let Some(series) = samples.all().iter().find(is_ours) else { return false };
        let interval = series.figure().and_then(|ratio| ratio.ci95);
        let is_aside =
            |[low, high]: [f64; 2]| [FLOOR, WITHIN].iter().all(|bound| low >= *bound || high < *bound);
        series.runs.len() >= enough_runs && interval.is_some_and(is_aside)
    })
}

/// In how many of so many runs a figure was to be measured: in all, but for a cell's in those that its batch was not left
/// out of.
pub(crate) fn runs_due(plan: &Plan, samples: &RunSamples, series: &Series, runs: usize) -> usize {
    let grid = plan.grid.as_ref().map(Spanned::as_ref).filter(|grid| grid.enough_runs.is_some());
    let mut cells = grid.into_iter().flat_map(|grid| &grid.list).flat_map(|batch| &batch.cells);
    let Some(cell) = cells.find(|cell| series.has(&cell.labels())) else { return runs };
    let mut labels = cell.labels();
    let control = series.labels.get_key_value("congestion_control");
    labels.extend(control.map(|(name, value)| (name.clone(), value.clone())));
    let of_cell = samples.all().iter().filter(|series| series.has(&labels));
    let measured: BTreeSet<usize> = of_cell.flat_map(|series| series.runs.keys().copied()).collect();
    measured.len().min(runs)
}

/// The figures of whole grids, one of each for each congestion control: how many percent of the cells are within 10 % of
/// Linux or better, by the mean of their runs and by the lower bound of its interval; the lowest cell, likewise; and the
/// mean of all cells, whose interval is over the runs.
pub(crate) fn whole_grid(samples: &RunSamples) -> Vec<Figure> {
    let mut cells: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
    for series in samples.all().iter().filter(|series| series.name == RATIO) {
        if let Some(control) = series.labels.get("congestion_control") {
            cells.entry(control).or_default().push(series);
        }
    }
    let mut made = Vec::new();
    for (control, cells) in cells {
        let ratios: Vec<Figure> = cells.iter().filter_map(|series| series.figure()).collect();
        let means: Vec<f64> = ratios.iter().map(|cell| cell.mean).collect();
        let bounds: Vec<f64> = ratios.iter().filter_map(|cell| Some(cell.ci95?[0])).collect();
        let share = |values: &[f64]| {
            100.0 * values.iter().filter(|value| **value >= WITHIN).count() as f64 / values.len() as f64
        };
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut add = |name: &str, unit: &str, value: f64| {
            let own = labels([("congestion_control", control)]);
            made.extend(Figure::of(name, own, unit, &[value]));
        };
        add("grid_cells", "cells", ratios.len() as f64);
        add("grid_within_10pct", "%", share(&means));
        add("grid_min", "1", least(&means));
        if bounds.len() == ratios.len() {
            add("grid_within_10pct_bound", "%", share(&bounds));
            add("grid_min_bound", "1", least(&bounds));
            let half = |cell: &Figure| cell.ci95.map(|[low, high]| 50.0 * (high - low) / cell.mean);
            let mut halves: Vec<f64> = ratios.iter().filter_map(half).collect();
            halves.sort_by(f64::total_cmp);
            let own = labels([("congestion_control", control)]);
            made.extend(Figure::of("grid_interval_half_pct", own, "%", &halves));
        }
        made.extend(mean_of_cells(control, &cells));
    }
    made
}

/// The mean of all cells of each run that has them all.
fn mean_of_cells(control: &str, cells: &[&Series]) -> Option<Figure> {
    let runs = cells.first()?.runs.keys();
    let of_run = |run: &usize| {
        let ratios: Option<Vec<f64>> = cells.iter().map(|cell| figures::mean(cell.runs.get(run)?)).collect();
        figures::mean(&ratios?)
    };
    let means: Vec<f64> = runs.filter_map(of_run).collect();
    Figure::of("grid_mean", labels([("congestion_control", control)]), "1", &means)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::figures::Labels;

    fn fidelity() -> Plan {
        Plan::load("utcp-fidelity", &BTreeMap::new()).unwrap().plan
    }

    #[test]
    fn a_batch_is_left_out_when_its_cells_are_decided() {
        let plan = fidelity();
        let arm = |name: &str| plan.arms.iter().find(|arm| arm.as_ref().name == name).unwrap().as_ref();
        let cells = &plan.grid.as_ref().unwrap().as_ref().find("fast-2").unwrap().cells;
        let mut samples = RunSamples::default();
        let mut add = |run: usize, ratios: [f64; 3]| {
            for (cell, ratio) in cells.iter().zip(ratios) {
                let mut labels = cell.labels();
                labels.insert("congestion_control".to_owned(), "cubic".to_owned());
                labels.insert("sender".to_owned(), "utcp".to_owned());
                samples.add(run, RATIO, &labels, "1", &[ratio]);
            }
            is_settled(&plan, &samples, arm("linux-cubic-fast-2"))
        };
        // One run has no interval, and that of the third cell has 0.9 in it until the fifth.
        let ratios = [[1.0, 0.8, 0.9], [1.01, 0.81, 0.93], [1.02, 0.82, 0.92], [1.0, 0.81, 0.92]];
        assert!(ratios.into_iter().enumerate().all(|(run, ratios)| !add(run, ratios)));
        assert!(add(4, [1.0, 0.81, 0.92]));
        assert!(!is_settled(&plan, &samples, arm("utcp-reno-fast-2")));
        assert!(!is_settled(&plan, &samples, arm("share")));
    }

    #[test]
    fn a_cell_is_due_in_the_runs_that_its_batch_was_not_left_out_of() {
        let plan = fidelity();
        let cell = plan.grid.as_ref().unwrap().as_ref().list[0].cells[0];
        let mut samples = RunSamples::default();
        let of = |sender: &str, control: &str| {
            let mut labels = cell.labels();
            labels.extend(labels_of(sender, control));
            labels
        };
        for run in 0..6 {
            for sender in ["linux", "utcp"] {
                samples.add(run, "goodput_mbit_s", &of(sender, "reno"), "Mbit/s", &[1.0]);
                if run < 4 {
                    samples.add(run, "goodput_mbit_s", &of(sender, "cubic"), "Mbit/s", &[1.0]);
                }
            }
            // What Linux brought was nothing once, and the batch of CUBIC was left out from the fifth run on.
            let ratio = if run == 3 { f64::INFINITY } else { 1.0 };
            if run < 4 {
                samples.add(run, RATIO, &of("utcp", "cubic"), "1", &[ratio]);
            }
        }
        let due = |labels: &Labels, name: &str| {
            let series = samples.series(name, labels).unwrap();
            (series.run_means().len(), runs_due(&plan, &samples, series, 6))
        };
        assert_eq!(due(&of("utcp", "cubic"), RATIO), (3, 4));
        assert_eq!(due(&of("utcp", "reno"), "goodput_mbit_s"), (6, 6));
    }

    fn labels_of(sender: &str, control: &str) -> Labels {
        labels([("sender", sender), ("congestion_control", control)])
    }

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
        // t is 4.30, so the second cell's bound is 0.92 − 0.066 and the third's 0.8 − 0.25.
        assert!((mean("grid_within_10pct_bound") - 100.0 / 3.0).abs() < 1e-9);
        assert!((mean("grid_min_bound") - 0.5516).abs() < 1e-3, "{}", mean("grid_min_bound"));
        let all = figures.iter().find(|figure| figure.name == "grid_mean").unwrap();
        assert!((all.n, (all.mean - 0.9067).abs() < 1e-3) == (3, true), "{all:?}");
        assert!(whole_grid(&RunSamples::default()).is_empty());
    }
}
