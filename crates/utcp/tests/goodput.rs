//! Goodput beside what Linux' CUBIC was measured to have over the same emulated wires.

mod pair;

use heddle_netem::{DirectionOptions, Loss, Reorder};
use heddle_utcp::{Instant, Options};
use pair::{MS, Pair, S, wire};

/// Goodput in Mbit/s over a wire of 100 ms, with a queue of one bandwidth-delay product.
fn goodput(options: &Options, mbit_per_s: u64, loss: f64, seconds: u64, seed: u64) -> f64 {
    let bits_per_s = mbit_per_s * 1_000_000;
    let there = DirectionOptions {
        loss: if loss > 0.0 { Loss::Bernoulli { probability: loss } } else { Loss::None },
        ..wire(50, bits_per_s, bits_per_s / 80)
    };
    let mut pair =
        Pair::new([there, wire(50, bits_per_s, bits_per_s / 80)], [options.clone(), options.clone()], seed);
    pair.ends[0].to_write = u64::MAX / 2;
    pair.ends[1].shuts_down = false;
    pair.run_until(Instant::from_nanos((1 + seconds) * S));
    pair.ends[1].read as f64 * 8e-6 / seconds as f64
}

/// Mbit/s of the wire, loss, and what Linux 6.18 had over it, in Mbit/s: at 0.1 % the mean of the plan `calibrate`,
/// whose eight connections at a time tell more than the single ones of the other values.
const LINUX: [(u64, f64, f64); 8] = [
    (10, 0.0, 9.51),
    (10, 0.001, 5.3),
    (10, 0.01, 1.25),
    (10, 0.02, 0.78),
    (50, 0.0, 45.1),
    (50, 0.001, 5.8),
    (50, 0.01, 1.33),
    (50, 0.02, 0.84),
];

/// Single runs at 0.1 % loss differ by a third.
const RATIO_MIN: f64 = 0.9;

#[test]
fn no_wire_is_much_slower_than_linux() {
    let options = Options::default();
    for (mbit_per_s, loss, linux) in LINUX {
        // Without loss every run is the same, and 50 Mbit/s are many segments; rare losses differ most.
        let (runs, seconds) = if loss == 0.0 { (1, 12) } else { (if loss < 0.01 { 4 } else { 2 }, 60) };
        let sum: f64 = (0..runs).map(|seed| goodput(&options, mbit_per_s, loss, seconds, seed)).sum();
        let mean = sum / runs as f64;
        println!("{mbit_per_s} Mbit/s, loss {loss}: {mean:.2} Mbit/s, of Linux {:.2}", mean / linux);
        assert!(mean >= RATIO_MIN * linux, "{mbit_per_s} Mbit/s, loss {loss}: {mean:.2} of {linux}");
    }
}

#[test]
fn a_wire_that_reorders_costs_little() {
    let there = DirectionOptions {
        reorder: Some(Reorder { probability: 0.01, hold_ns: 10 * MS }),
        ..wire(50, 10_000_000, 125_000)
    };
    let back = wire(50, 10_000_000, 125_000);
    let mut pair = Pair::new([there, back], [Options::default(), Options::default()], 1);
    pair.ends[0].to_write = u64::MAX / 2;
    pair.ends[1].shuts_down = false;
    pair.run_until(Instant::from_nanos(31 * S));
    let mbit_per_s = pair.ends[1].read as f64 * 8e-6 / 30.0;
    let counts = pair.connection(0).stats().counts;
    assert!(mbit_per_s > 9.0, "{mbit_per_s}, {counts:?}");
    // The first segment that is overtaken is taken for lost; then the window for reordering is wide enough.
    assert!(counts.undos <= 3 && counts.timeouts == 0, "{counts:?}");
}
