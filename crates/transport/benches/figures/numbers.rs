//! How well others on the wire can tell how many circuits are busy.

use crate::matrices::chosen;
use crate::weight::{Attacker, Carrier, Measure, NARROW, Scene, WIDE, auc};

const NUMBERS: [u32; 4] = [1, 2, 8, 50];
/// Each with 20 runs of each number: chance alone is within 0.18 of a half in 95 of 100 comparisons.
const PAIRS: [[u32; 2]; 4] = [[1, 2], [1, 8], [2, 8], [8, 50]];
const RUNS: u64 = 20;
const SECONDS: [u64; 4] = [1, 3, 10, 30];

/// Prints what all measures tell in a scene, after each of the times.
fn print_scene(scene: Scene, measures: &[Measure]) {
    let seconds_max = SECONDS[SECONDS.len() - 1];
    let runs = NUMBERS
        .map(|number| -> Vec<_> { (0..RUNS).map(|run| scene.seen(number, run, seconds_max)).collect() });
    for measure in measures {
        let values = |number: u32, seconds: u64| -> Vec<f64> {
            let looks = (seconds * 1000 / scene.on.rtt_ms) as usize;
            let place = NUMBERS.iter().position(|of| *of == number).expect("it is one of them");
            runs[place].iter().map(|seen| measure.of(scene.on, &seen[..looks])).collect()
        };
        let means = NUMBERS.map(|number| values(number, seconds_max).iter().sum::<f64>() / RUNS as f64);
        println!("{scene:?} {measure:?}: means {means:.3?}");
        for [fewer, more] in PAIRS {
            let aucs = SECONDS.map(|seconds| auc(&values(fewer, seconds), &values(more, seconds)));
            println!("  {fewer:>2} or {more:>2}: {aucs:.2?}");
        }
    }
}

/// Over a wire that is narrow; with `ONLY` the carriers whose names contain that.
pub fn table() {
    use Attacker::{Pair, Tcp, Watches};
    use Measure::{Delay, Evenness, OwnRate};
    println!("seeds 1000 N + 0..{RUNS}; AUC after {SECONDS:?} s");
    let only = chosen("ONLY").unwrap_or_default();
    let is_chosen = |carrier: &Carrier| format!("{carrier:?}").contains(&only);
    for carrier in [Carrier::Quic, Carrier::OneTcp, Carrier::TcpEach].into_iter().filter(is_chosen) {
        for (attacker, measures) in
            [(Watches, [Delay, Evenness]), (Pair, [Delay, OwnRate]), (Tcp, [Delay, OwnRate])]
        {
            print_scene(Scene { on: NARROW, carrier, attacker }, &measures);
        }
    }
}

/// Over one that has room for more TCPs than a pair stands for.
pub fn table_of_a_wide_wire() {
    let scene = Scene { on: WIDE, carrier: Carrier::Quic, attacker: Attacker::Tcp };
    print_scene(scene, &[Measure::Delay, Measure::OwnRate]);
}
