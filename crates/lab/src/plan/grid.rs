//! A grid of wires: kernel TCP and `utcp` send over the same ones, alternately.
//!
//! A plan lists the cells of its grid in batches. An arm with `grid` runs the cells of one batch at the same time, each
//! over wires of its own, with one sender. Here its cells become cases ([`expand`]), and at the end cells become figures
//! of the whole grid ([`whole_grid`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_netem::{DirectionOptions, Loss, QueueOptions, Rate, Reorder};
use serde::Deserialize;
use toml::Spanned;

use super::{Arm, Bulk, Case, Plan, RunSamples, Series, Tcp, parse};
use crate::figures::{self, Figure, Labels, labels};

/// No queue is shorter than so many packets of 1500 bytes, or bursts of two would be lost on slow wires.
const QUEUE_BYTES_MIN: u64 = 3 * 1500;
/// The figure of a cell that whole grids are judged by.
const RATIO: &str = "goodput_over_linux";
/// From here on, a ratio is within 10 % or better.
const WITHIN: f64 = 0.9;
/// No cell ought to be below.
const FLOOR: f64 = 0.75;

/// The wires of a plan. In each run, arms go through them batch by batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// What a wire that reorders does, in the direction of the data.
    pub reorder: Reorder,
    /// How many runs a batch has at least. From then on it is left out, for each congestion control, while the intervals of
    /// all its cells tell on which side of the bounds they are. Default: it is never left out.
    #[serde(default)]
    pub enough_runs: Option<usize>,
    /// Cells that are run at the same time.
    #[serde(rename = "batch")]
    pub list: Vec<Batch>,
}

/// Cells that are run at the same time: together they must not outrun the emulator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Its name.
    pub name: String,
    /// How long each connection sends.
    #[serde(deserialize_with = "parse::duration")]
    pub duration: Duration,
    /// What of it does not count. Default: 0 s.
    #[serde(default, deserialize_with = "parse::duration")]
    pub warm_up: Duration,
    /// Its wires.
    pub cells: Vec<Cell>,
}

/// A wire.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The round trip without queues, in milliseconds: half of it each way.
    pub rtt_ms: u64,
    /// The rate of both directions, in Mbit/s.
    pub mbit: u64,
    /// How many percent of the packets the direction of the data loses.
    pub loss_pct: f64,
    /// Whether that direction reorders.
    pub reorder: bool,
    /// The queue of each direction, in round trips at its rate; at least three packets.
    pub queue_bdp: f64,
    /// How many connections there are at the same time, each over such a wire of its own. Default: 1.
    #[serde(default = "super::one_flow")]
    pub copies: usize,
}

/// An arm that sends over the cells of a batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridArm {
    /// The batch.
    pub batch: String,
    /// Who sends.
    pub sender: Tcp,
    /// Its congestion control, by the kernel's name.
    pub congestion_control: String,
}

impl Grid {
    fn find(&self, batch: &str) -> Option<&Batch> {
        self.list.iter().find(|known| known.name == batch)
    }
}

impl Cell {
    /// The wire towards the receiver and the wire back.
    pub(super) fn wires(&self, reorder: &Reorder) -> [DirectionOptions; 2] {
        let bdp_bytes = (self.mbit * 125 * self.rtt_ms) as f64;
        let bytes_max = ((bdp_bytes * self.queue_bdp) as u64).max(QUEUE_BYTES_MIN);
        let back = DirectionOptions {
            rate: Rate::BitsPerS(self.mbit * 1_000_000),
            delay_ns: self.rtt_ms * 500_000,
            queue: QueueOptions { packets_max: 1_000_000, bytes_max, codel: None },
            ..DirectionOptions::default()
        };
        let mut there = back.clone();
        if self.loss_pct > 0.0 {
            there.loss = Loss::Bernoulli { probability: self.loss_pct / 100.0 };
        }
        there.reorder = self.reorder.then(|| reorder.clone());
        [there, back]
    }

    fn labels(&self) -> Labels {
        labels([
            ("rtt_ms", &self.rtt_ms.to_string()),
            ("mbit", &self.mbit.to_string()),
            ("loss_pct", &self.loss_pct.to_string()),
            ("reorder", if self.reorder { "yes" } else { "no" }),
            ("queue_bdp", &self.queue_bdp.to_string()),
        ])
    }
}

/// Gives arms with `grid` their cases. What is wrong comes with its place.
pub(super) fn expand(plan: &mut Plan) -> Result<(), (usize, String)> {
    let Some(grid) = &plan.grid else {
        let without = plan.arms.iter().find(|arm| arm.as_ref().grid.is_some());
        return without.map_or(Ok(()), |arm| Err((arm.span().start, "the plan has no [grid]".into())));
    };
    let grid = grid.as_ref();
    for arm in &mut plan.arms {
        let span = arm.span();
        let Some(options) = arm.as_ref().grid.clone() else { continue };
        let fault = |what: String| (span.start, what);
        let batch = grid.find(&options.batch);
        let batch = batch.ok_or_else(|| fault(format!("there is no batch {:?}", options.batch)))?;
        let cases =
            batch.cells.iter().map(|cell| Spanned::new(span.clone(), case(cell, batch, &options, grid)));
        let cases = cases.collect();
        let arm = arm.as_mut();
        if !arm.cases.is_empty() {
            return Err(fault("an arm with `grid` has no cases of its own".into()));
        }
        arm.cases = cases;
        // Arms of one batch meet the same fates.
        arm.wires_as.get_or_insert_with(|| format!("grid-{}", batch.name));
    }
    Ok(())
}

fn case(cell: &Cell, batch: &Batch, arm: &GridArm, grid: &Grid) -> Case {
    let [wire, back] = cell.wires(&grid.reorder);
    let mut labels = cell.labels();
    labels.insert("sender".to_owned(), arm.sender.name().to_owned());
    labels.insert("congestion_control".to_owned(), arm.congestion_control.clone());
    let bulk = Bulk {
        congestion_control: arm.congestion_control.clone(),
        sender: arm.sender,
        duration: batch.duration,
        warm_up: batch.warm_up,
    };
    Case { labels, copies: cell.copies, wire, back: Some(back), bulk: Some(bulk), probe: None, share: None }
}

/// Whether nothing is left to be found out about an arm: its batch had enough runs with its congestion control, and the
/// interval of each cell is on one side of either bound. False for arms without a grid.
pub(super) fn is_settled(plan: &Plan, samples: &RunSamples, arm: &Arm) -> bool {
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
pub(super) fn runs_due(plan: &Plan, samples: &RunSamples, series: &Series, runs: usize) -> usize {
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
pub(super) fn whole_grid(samples: &RunSamples) -> Vec<Figure> {
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

    use heddle_netem::Seed;

    use super::*;

    const RTTS_MS: [u64; 4] = [10, 50, 100, 300];
    const RATES_MBIT: [u64; 4] = [1, 10, 50, 200];
    const LOSSES_PCT: [f64; 4] = [0.0, 0.1, 1.0, 2.0];
    const QUEUES_BDP: [f64; 3] = [0.5, 1.0, 4.0];

    /// The cells that seed 1 draws, by their numbers in the grid.
    fn drawn() -> Vec<usize> {
        let mut all: Vec<usize> = (0..384).collect();
        let mut rng = Seed::from_number(1).rng();
        for place in 0..60 {
            let other = place + rng.below((all.len() - place) as u64) as usize;
            all.swap(place, other);
        }
        let mut numbers = all[..60].to_vec();
        numbers.sort_unstable();
        numbers
    }

    fn number(cell: &Cell) -> Option<usize> {
        let rtt = RTTS_MS.iter().position(|rtt_ms| *rtt_ms == cell.rtt_ms)?;
        let rate = RATES_MBIT.iter().position(|mbit| *mbit == cell.mbit)?;
        let loss = LOSSES_PCT.iter().position(|loss_pct| *loss_pct == cell.loss_pct)?;
        let queue = QUEUES_BDP.iter().position(|queue_bdp| *queue_bdp == cell.queue_bdp)?;
        Some((((rtt * 4 + rate) * 4 + loss) * 2 + usize::from(cell.reorder)) * 3 + queue)
    }

    fn fidelity() -> Plan {
        Plan::load("utcp-fidelity", &BTreeMap::new()).unwrap().plan
    }

    #[test]
    fn the_plan_has_the_cells_that_were_drawn() {
        let plan = fidelity();
        let batches = &plan.grid.as_ref().unwrap().as_ref().list;
        let mut numbers: Vec<usize> =
            batches.iter().flat_map(|batch| &batch.cells).map(|cell| number(cell).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, drawn());
    }

    #[test]
    fn arms_of_a_batch_differ_in_the_sender_alone() {
        let plan = fidelity();
        let is_slow = |arm: &&Arm| arm.grid.as_ref().is_some_and(|options| options.batch == "slow");
        let arms: Vec<&Arm> = plan.arms.iter().map(Spanned::as_ref).filter(is_slow).collect();
        assert_eq!(arms.len(), 4);
        for arm in &arms {
            assert_eq!(arm.wires_as.as_deref(), Some("grid-slow"));
            for (case, first) in arm.cases.iter().zip(&arms[0].cases) {
                let (case, first) = (case.as_ref(), first.as_ref());
                assert_eq!((&case.wire, &case.back, case.copies), (&first.wire, &first.back, first.copies));
            }
        }
    }

    #[test]
    fn a_batch_that_is_not_there_is_named() {
        let text =
            super::super::shipped().iter().find(|shipped| shipped.name == "utcp-fidelity").unwrap().text;
        let text = text.replacen("grid = { batch = \"slow\"", "grid = { batch = \"medium\"", 1);
        let error = parse::parse("plan.toml", &text, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("there is no batch \"medium\""), "{error}");
    }

    #[test]
    fn a_queue_holds_at_least_three_packets() {
        let cell = Cell { rtt_ms: 10, mbit: 1, loss_pct: 2.0, reorder: true, queue_bdp: 0.5, copies: 1 };
        let reorder = Reorder { probability: 0.01, hold_ns: 5_000_000 };
        let [there, back] = cell.wires(&reorder);
        assert_eq!((there.queue.bytes_max, there.delay_ns), (4500, 5_000_000));
        assert_eq!(
            (there.loss, &there.reorder),
            (Loss::Bernoulli { probability: 0.02 }, &Some(reorder.clone()))
        );
        assert_eq!((back.loss, back.reorder), (Loss::None, None));
        let [there, _] = Cell { rtt_ms: 300, mbit: 200, queue_bdp: 4.0, ..cell }.wires(&reorder);
        assert_eq!(there.queue.bytes_max, 30_000_000);
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
