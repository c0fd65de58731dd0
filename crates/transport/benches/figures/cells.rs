//! 168 cells, each with several seeds, and the bounds that are missed.
//!
//! `SEEDS=5 ONLY="Waits(5)" cargo bench -p heddle-transport --bench figures -- evaluation` prints the cells whose names
//! contain `ONLY`, with five seeds from `SEED` on. All connections of a run begin within a second, when its seed says.
//! The controller's constants were chosen by seeds 1 to 5, so that 6 and beyond are fresh ones.

use crate::estimate::{Estimate, SEEDS_MAX, Verdict};
use crate::evaluation::{Excess, outcome_beside, wire};
use crate::loads::{Load, Outcome, quic, tcp};
use crate::matrices::chosen;
use core::fmt;
use heddle_proto::endpoint::CongestionParams;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

const SECONDS: u64 = 40;
const SEED: u64 = 6;
const SEEDS: usize = 5;

/// The bounds: TCP keeps so much at least of what it has beside as many TCPs as the pair stands for; so much is lost at
/// most, and no more than beside [`CAP`] TCPs.
const KEPT_MIN: f64 = 0.8;
const LOST_MAX_PCT: f64 = 5.0;
const CAP: usize = CongestionParams::TCPS_MAX as usize;

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

pub fn table() {
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
