//! 168 cells, each with several seeds, and the bounds that are missed.
//!
//! `SEEDS=5 ONLY="Waits(5)" cargo test --release -p heddle-transport --test quic -- --ignored --nocapture
//! evaluation::table` prints the cells whose names contain `ONLY`, with five seeds from `SEED` on. All connections of a
//! run begin within a second, when its seed says. The controller's constants were chosen by seeds 1 to 5, so that 6 and
//! beyond are fresh ones. A figure is its mean over seeds with the 95 % interval by Student's t; of a ratio it is the
//! geometric mean. What the mean misses is missed, and beyond doubt where the whole interval does.

use super::{Excess, outcome_beside, wire};
use crate::loads::{Load, Outcome, quic, tcp};
use crate::matrix::chosen;
use core::fmt;
use heddle_proto::endpoint::CongestionParams;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

const SECONDS: u64 = 40;
const SEED: u64 = 6;
const SEEDS: usize = 5;
const SEEDS_MAX: usize = T_975.len() + 1;

/// The bounds: TCP keeps so much at least of what it has beside as many TCPs as the pair stands for; so much is lost at
/// most, and no more than beside [`CAP`] TCPs.
const KEPT_MIN: f64 = 0.8;
const LOST_MAX_PCT: f64 = 5.0;
const CAP: usize = CongestionParams::TCPS_MAX as usize;

/// The 97.5 % quantiles of Student's t with one degree of freedom, two, and so on.
const T_975: [f64; 9] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622];

#[derive(Clone, Copy, Debug)]
struct Cell {
    mbit: u64,
    rtt_ms: u64,
    excess: Excess,
    circuits: u32,
    tcps: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { mbit, rtt_ms, excess, circuits, tcps } = self;
        let excess = format!("{excess:?}");
        write!(f, "{mbit:>3} Mbit/s {rtt_ms:>4} ms  {excess:<22} {circuits:>3} circuits {tcps} TCP")
    }
}

impl Cell {
    fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for (mbit, rtt_ms) in [(10, 20), (10, 100), (50, 100), (10, 300)] {
            let waits = [5, rtt_ms / 2, rtt_ms, 4 * rtt_ms].map(Excess::Waits);
            let codel = [false, true].map(|marks| Excess::Codel { marks });
            for excess in waits.into_iter().chain(codel).chain([Excess::Policed(rtt_ms)]) {
                for (circuits, tcps) in [(1, 1), (4, 1), (20, 2), (100, 2), (300, 2), (300, 0)] {
                    cells.push(Cell { mbit, rtt_ms, excess, circuits, tcps });
                }
            }
        }
        cells
    }

    /// What these make of the cell's wire, with its TCPs beside.
    fn outcome(&self, ours: &[Load], seed: u64) -> Outcome {
        outcome_beside(&wire(self.mbit, self.rtt_ms, self.excess), ours, self.tcps, SECONDS, seed)
    }

    fn run(&self, seed: u64) -> Run {
        let tcps = CAP.min(self.circuits as usize);
        let as_cap = self.outcome(&[tcp(); CAP], seed);
        Run {
            ours: self.outcome(&[quic(self.circuits)], seed),
            theirs: if tcps == CAP { as_cap } else { self.outcome(&vec![tcp(); tcps], seed) },
            as_cap,
        }
    }
}

/// What came of a cell with one seed: with circuits, with as many TCPs as these stand for, and with as many as that is
/// at most.
#[derive(Clone, Copy, Debug)]
struct Run {
    ours: Outcome,
    theirs: Outcome,
    as_cap: Outcome,
}

/// A figure as all seeds tell it: the mean, and the bounds of its interval.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    mean: f64,
    low: f64,
    high: f64,
}

impl Estimate {
    fn of(samples: impl Iterator<Item = f64> + Clone) -> Self {
        let count = samples.clone().count();
        let mean = samples.clone().sum::<f64>() / count as f64;
        let squares = samples.map(|sample| (sample - mean).powi(2)).sum::<f64>();
        let half = match count.checked_sub(2).and_then(|place| T_975.get(place)) {
            Some(t_975) => t_975 * (squares / ((count - 1) * count) as f64).sqrt(),
            None => f64::INFINITY,
        };
        Estimate { mean, low: mean - half, high: mean + half }
    }

    fn of_ratios(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        let Estimate { mean, low, high } = Estimate::of(ratios.map(f64::ln));
        Estimate { mean: mean.exp(), low: low.exp(), high: high.exp() }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = format!("({:.2} to {:.2})", self.low, self.high);
        write!(f, "{:>6.2} {interval:<17}", self.mean)
    }
}

/// Whether a bound is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Kept,
    Missed,
    MissedBeyondDoubt,
}

impl Verdict {
    fn at_most(bound: f64, of: Estimate) -> Self {
        match of.mean > bound {
            false => Verdict::Kept,
            true if of.low > bound => Verdict::MissedBeyondDoubt,
            true => Verdict::Missed,
        }
    }

    fn at_least(bound: f64, of: Estimate) -> Self {
        Verdict::at_most(-bound, Estimate { mean: -of.mean, low: -of.high, high: -of.low })
    }
}

/// What all seeds tell of a cell.
struct Row {
    cell: Cell,
    runs: Vec<Run>,
}

impl Row {
    fn mean(&self, of: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    fn lost_pct(&self) -> Estimate {
        Estimate::of(self.runs.iter().map(|run| 100.0 * run.ours.dropped))
    }

    fn lost_beyond_cap_pct(&self) -> Estimate {
        Estimate::of(self.runs.iter().map(|run| 100.0 * (run.ours.dropped - run.as_cap.dropped)))
    }

    fn kept(&self) -> Option<Estimate> {
        let ratios = self.runs.iter().map(|run| run.ours.beside / run.theirs.beside);
        (self.cell.tcps > 0).then(|| Estimate::of_ratios(ratios))
    }

    fn print(&self) {
        let rate = self.cell.mbit as f64 * 1e6;
        let kept = self.kept().map(|kept| kept.to_string()).unwrap_or_default();
        println!(
            "{}  {:.2} {:.2}  {:>5.2} {:>5.2} {:>5.2}  {} {kept:<24} {:.2}",
            self.cell,
            self.mean(|run| run.ours.ours) / rate,
            self.mean(|run| run.ours.ours + run.ours.beside) / rate,
            100.0 * self.mean(|run| run.ours.dropped),
            100.0 * self.mean(|run| run.theirs.dropped),
            100.0 * self.mean(|run| run.as_cap.dropped),
            self.lost_beyond_cap_pct(),
            self.mean(|run| run.ours.ours) / self.mean(|run| run.theirs.ours),
        );
    }
}

/// Names the cells that miss a bound, and those that do so beyond doubt by an asterisk.
fn print_missed(bound: &str, rows: &[Row], figure: impl Fn(&Row) -> Option<(Estimate, Verdict)>) {
    let figures = rows.iter().filter_map(|row| Some((row, figure(row)?)));
    let missed = figures.clone().filter(|(_, (_, verdict))| *verdict != Verdict::Kept);
    let beyond_doubt = figures.clone().filter(|(_, (_, verdict))| *verdict == Verdict::MissedBeyondDoubt);
    let counts = [missed.clone().count(), beyond_doubt.count(), figures.count()];
    println!("\n{bound}: missed by {} of {}, beyond doubt by {} (*)", counts[0], counts[2], counts[1]);
    for (row, (estimate, verdict)) in missed {
        println!("{} {} {estimate}", if verdict == Verdict::Missed { ' ' } else { '*' }, row.cell);
    }
}

/// Runs all cells with so many seeds from the first on, on two threads.
fn rows(cells: &[Cell], first: u64, seeds: usize) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let place = next.fetch_add(1, Relaxed)
            && let Some(cell) = cells.get(place / seeds)
        {
            let run = cell.run(first + (place % seeds) as u64);
            done.lock().expect("no run panics").push((place, run));
        }
    };
    thread::scope(|scope| [&work; 2].map(|work| drop(scope.spawn(work))));
    let mut done = done.into_inner().expect("no run panics");
    done.sort_by_key(|(place, _)| *place);
    let runs = done.chunks(seeds).map(|runs| runs.iter().map(|(_, run)| *run).collect());
    cells.iter().zip(runs).map(|(cell, runs)| Row { cell: *cell, runs }).collect()
}

#[test]
#[ignore = "takes minutes, and prints figures"]
fn table() {
    let seeds = chosen("SEEDS").map_or(SEEDS, |it| it.parse().expect("a number")).clamp(1, SEEDS_MAX);
    let first = chosen("SEED").map_or(SEED, |it| it.parse().expect("a number"));
    let only = chosen("ONLY").unwrap_or_default();
    let mut cells = Cell::all();
    cells.retain(|cell| cell.to_string().contains(&only));
    let rows = rows(&cells, first, seeds);
    println!(
        "{seeds} seeds from {first}; % lost with circuits, as many TCPs, {CAP} TCPs, and points beyond these"
    );
    println!("{:58} ours used   lost  TCPs   cap  {:24} {:24} got", "", "beyond cap", "TCP keeps");
    rows.iter().for_each(Row::print);
    print_missed("Lost no more than with the cap's TCPs, points", &rows, |row| {
        let beyond = row.lost_beyond_cap_pct();
        Some((beyond, Verdict::at_most(0.0, beyond)))
    });
    print_missed("TCP keeps 0.8", &rows, |row| {
        row.kept().map(|kept| (kept, Verdict::at_least(KEPT_MIN, kept)))
    });
    print_missed("At most 5 % lost", &rows, |row| {
        let lost = row.lost_pct();
        Some((lost, Verdict::at_most(LOST_MAX_PCT, lost)))
    });
}

#[test]
fn what_is_missed_is_missed_beyond_doubt_where_the_whole_interval_is() {
    // Half of the interval is 12.7062 · √(0.5² + 0.5²) / √2.
    let estimate = Estimate::of([1.0, 2.0].into_iter());
    assert_eq!((estimate.mean, estimate.high), (1.5, 1.5 + 12.7062 * 0.5));
    let estimate = Estimate { mean: 1.0, low: 0.5, high: 1.5 };
    for (bound, verdict) in [(1.2, Verdict::Kept), (0.7, Verdict::Missed), (0.4, Verdict::MissedBeyondDoubt)]
    {
        assert_eq!(Verdict::at_most(bound, estimate), verdict, "{bound}");
        assert_eq!(Verdict::at_least(2.0 - bound, estimate), verdict, "{bound}");
    }
    assert_eq!(Estimate::of([1.0].into_iter()).low, f64::NEG_INFINITY);
}
