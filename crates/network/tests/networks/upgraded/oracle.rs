//! An exit that sends beyond its windows and watches what becomes of the circuit: can it tell whether the guard, which
//! it does not know, is upgraded?

use super::{MB, Transport, find_each_other};
use heddle_network::{Net, Plan, download};
use heddle_proto::params::NetworkParams;
use heddle_relay::Control;
use heddle_seam::time::Duration;
use heddle_sim::Wire;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cells that a relay lets wait in one queue: more than two flows' windows take (4,200), less than the exit sends
/// (10,000).
const QUEUE_CELLS_MAX: i32 = 6_000;
const SEEDS: u64 = 20;

/// What the exit sees of its own: how many cells the middle relay took, whether the circuit was ended, and after how
/// many tenths of a second the last of these happened.
type Seen = (u64, bool, u32);

/// The exit floods a circuit whose client is behind a slow wire.
fn flood(seed: u64, is_guard_upgraded: bool, hop_by_hop: i32) -> Seen {
    let upgraded: &[usize] = if is_guard_upgraded { &[0, 1, 2] } else { &[1, 2] };
    let names =
        [("circ_max_cell_queue_size", QUEUE_CELLS_MAX), ("heddle_hop_by_hop_flow_control", hop_by_hop)];
    let params: BTreeMap<_, _> = names.map(|(name, value)| (name.to_owned(), value)).into();
    let wire = Wire { jitter: Duration::from_millis(4), ..Wire::default() };
    let plan = Plan { seed, wire, params: NetworkParams(params.clone()), ..Plan::default() };
    let mut net = Net::new(&Transport::named("quic").among(upgraded, &plan));
    // The exit's windows are what it likes.
    let mut hostile = params;
    hostile.insert("cc_cwnd_init".to_owned(), 10_000);
    let (guard, exit, client) = (net.relays[0].host, net.relays[2].host, net.client);
    net.sim.control(exit, 0, Control::Params(Arc::new(NetworkParams(hostile))));
    find_each_other(&mut net, &[0, 1, 2]);
    let circuit = net.build(&[0, 1, 2], true);
    net.sim.set_wire(guard, client, Wire { rate_bytes_per_s: Some(20_000), ..wire });
    let before = net.cells_out_over(2, "quic");
    net.begin(circuit, download(1000 * MB));
    let mut seen = (0, false, 0);
    for tenths in 1..=20 {
        net.sim.run_for(Duration::from_millis(100));
        let now = (net.cells_out_over(2, "quic") - before, net.circuits(2, 0) == 0);
        if now != (seen.0, seen.1) {
            seen = (now.0, now.1, tenths);
        }
    }
    seen
}

/// The best that a threshold on `of` does in telling `a` from `b`: right guesses of all.
fn best_guesses<T: PartialOrd + Copy>(a: &[Seen], b: &[Seen], of: impl Fn(&Seen) -> T) -> usize {
    let right = |limit: T| {
        let below = |seen: &&Seen| of(seen) < limit;
        let ones = a.iter().filter(below).count() + b.len() - b.iter().filter(below).count();
        ones.max(a.len() + b.len() - ones)
    };
    a.iter().chain(b).map(|seen| right(of(seen))).max().unwrap_or(0)
}

#[test]
fn an_exit_that_floods_learns_nothing_of_the_guard() {
    let run = |is_guard_upgraded| -> Vec<Seen> {
        (0..SEEDS).map(|seed| flood(seed, is_guard_upgraded, 0)).collect()
    };
    let (pairs, stock) = (run(true), run(false));
    // In one run of twenty the exit's own congestion control stops it first.
    for seen in [&pairs, &stock] {
        assert!(seen.iter().filter(|seen| seen.1).count() >= 17, "the guard ends circuits: {seen:?}");
    }
    let cells = best_guesses(&pairs, &stock, |seen| seen.0);
    let time = best_guesses(&pairs, &stock, |seen| seen.2);
    println!("right by cells {cells}, by time {time}, of {}", 2 * SEEDS);
    // Of 40 guesses, a threshold that is chosen afterwards gets 30 right by chance in one of a hundred cases
    // (Kolmogorov and Smirnov: with 20 on each side, distribution functions that are half apart; p = 0.012).
    assert!(cells <= 30, "{cells} of 40 right by counts of cells: {pairs:?} {stock:?}");
    assert!(time <= 30, "{time} of 40 right by times: {pairs:?} {stock:?}");
}

/// The same exit, where flow control goes from hop to hop: it is never wrong.
#[test]
fn hop_by_hop_flow_control_tells_the_exit_of_the_guard() {
    let ended = |is_guard_upgraded| (0..3).filter(|seed| flood(*seed, is_guard_upgraded, 1).1).count();
    assert_eq!((ended(true), ended(false)), (0, 3));
}
