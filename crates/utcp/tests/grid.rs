//! The cells of the plan `utcp-fidelity` in virtual time: what `utcp` sends over each of them.
//!
//! `cargo test --release -p heddle-utcp --test grid -- --ignored --nocapture` prints a table.

mod pair;

use heddle_netem::{DirectionOptions, Loss, Reorder, Seed};
use heddle_utcp::{Algorithm, Instant, Options};
use pair::{MS, Pair, S, wire};

const RTTS_MS: [u64; 4] = [10, 50, 100, 300];
const RATES_MBIT: [u64; 4] = [1, 10, 50, 200];
const LOSSES_PCT: [f64; 4] = [0.0, 0.1, 1.0, 2.0];
const QUEUES_BDP: [f64; 3] = [0.5, 1.0, 4.0];
const CELLS: usize = 60;

#[derive(Clone, Copy, Debug)]
struct Cell {
    rtt_ms: u64,
    mbit: u64,
    loss_pct: f64,
    reorders: bool,
    queue_bdp: f64,
}

/// As `heddle-lab` draws them.
fn drawn() -> Vec<Cell> {
    let mut all: Vec<usize> = (0..384).collect();
    let mut rng = Seed::from_number(1).rng();
    for place in 0..CELLS {
        let other = place + rng.below((all.len() - place) as u64) as usize;
        all.swap(place, other);
    }
    let mut numbers = all[..CELLS].to_vec();
    numbers.sort_unstable();
    let cell = |number: usize| Cell {
        rtt_ms: RTTS_MS[number / 96],
        mbit: RATES_MBIT[number / 24 % 4],
        loss_pct: LOSSES_PCT[number / 6 % 4],
        reorders: number / 3 % 2 == 1,
        queue_bdp: QUEUES_BDP[number % 3],
    };
    numbers.into_iter().map(cell).collect()
}

/// Mbit/s of a minute without its first five seconds.
fn goodput(cell: &Cell, options: &Options, seed: u64) -> f64 {
    const SECONDS: u64 = 60;
    const WARM_UP: u64 = 5;
    let bits_per_s = cell.mbit * 1_000_000;
    let bdp_bytes = (bits_per_s / 8 * cell.rtt_ms / 1000) as f64;
    let queue_bytes = ((bdp_bytes * cell.queue_bdp) as u64).max(4500);
    let plain = wire(cell.rtt_ms / 2, bits_per_s, queue_bytes);
    let there = DirectionOptions {
        loss: if cell.loss_pct > 0.0 {
            Loss::Bernoulli { probability: cell.loss_pct / 100.0 }
        } else {
            Loss::None
        },
        reorder: cell.reorders.then_some(Reorder { probability: 0.01, hold_ns: 5 * MS }),
        ..plain.clone()
    };
    let mut pair = Pair::new([there, plain], [options.clone(), options.clone()], seed);
    pair.ends[0].to_write = u64::MAX / 2;
    pair.ends[1].shuts_down = false;
    pair.run_until(Instant::from_nanos((1 + WARM_UP) * S));
    let before = pair.ends[1].read;
    pair.run_until(Instant::from_nanos((1 + SECONDS) * S));
    (pair.ends[1].read - before) as f64 * 8e-6 / (SECONDS - WARM_UP) as f64
}

/// Mbit/s that the algorithm's response function gives, or the wire: Reno's (Mathis and others, 1997, with each packet
/// acknowledged) and CUBIC's, which is Reno's where that is more (RFC 9438, section 5.1).
fn expected(cell: &Cell, algorithm: Algorithm) -> f64 {
    const SEGMENT_BYTES: f64 = 1448.0;
    let wire = cell.mbit as f64 * SEGMENT_BYTES / 1500.0;
    if cell.loss_pct == 0.0 {
        return wire;
    }
    let (rtt_s, loss) = (cell.rtt_ms as f64 / 1e3, cell.loss_pct / 100.0);
    let reno = (1.5 / loss).sqrt();
    let window = match algorithm {
        Algorithm::Cubic => reno.max(1.054 * (rtt_s / loss).powf(0.75)),
        _ => reno,
    };
    wire.min(window * SEGMENT_BYTES * 8e-6 / rtt_s)
}

#[test]
#[ignore = "minutes in release"]
fn the_cells_in_virtual_time() {
    for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
        let options = Options {
            algorithm,
            send_buffer_max_bytes: 64 << 20,
            receive_buffer_max_bytes: 64 << 20,
            ..Options::default()
        };
        for (number, cell) in drawn().into_iter().enumerate() {
            // Without chance one run is as good as many.
            let runs = if cell.loss_pct == 0.0 && !cell.reorders { 1 } else { 6 };
            let rates: Vec<f64> = (0..runs).map(|seed| goodput(&cell, &options, seed)).collect();
            let mean = rates.iter().sum::<f64>() / runs as f64;
            let of_expected = mean / expected(&cell, algorithm);
            println!(
                "{algorithm:?} {number:2} {cell:?}: {mean:.3} Mbit/s of {rates:.3?}, {of_expected:.2} of expected"
            );
            // A minute is short on a long wire, where the start still counts: up to half more.
            assert!((0.65..1.6).contains(&of_expected), "{algorithm:?} {cell:?}: {rates:?}");
        }
    }
}
