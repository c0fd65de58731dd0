//! What controllers make of a wire: throughput, the queue they leave, and how they share.

use crate::bench::MS;
use crate::loads::{Load, Share, jain, quic as shared, run};
use crate::matrix::{marks_shorten_the_queue, slow_codel, slow_drop_tail, wire_10mbit};
use heddle_netem::{DirectionOptions, Jitter, Loss};

pub fn lossy(probability: f64) -> DirectionOptions {
    DirectionOptions { loss: Loss::Bernoulli { probability }, ..wire_10mbit() }
}

/// The round trip of a wire that nobody else uses, about.
const IDLE_RTT_MS: f64 = 101.0;

fn alone(there: &DirectionOptions, load: Load) -> Share {
    run(there, &[load], 25, 7)[0]
}

pub fn reordering(mean_ms: u64) -> DirectionOptions {
    let jitter = Jitter::Exponential { mean_ns: mean_ms * MS };
    DirectionOptions { jitter, jitter_reorders: true, ..wire_10mbit() }
}

#[test]
fn losses_and_reordering_cost_six_circuits_next_to_nothing() {
    let clean = alone(&wire_10mbit(), shared(6)).bits_per_s;
    assert!(clean >= 9.2e6, "{clean}");
    for there in [lossy(0.001), reordering(5)] {
        let share = alone(&there, shared(6));
        assert!(share.bits_per_s >= 0.95 * clean, "{share:?} of {clean}");
    }
    let share = alone(&lossy(0.01), shared(6));
    assert!(share.bits_per_s >= 0.8 * clean, "{share:?} of {clean}");
}

#[test]
fn packets_that_are_late_are_not_taken_for_lost() {
    // One packet in twenty is late by so much that quinn-proto sends it again, and takes its part of the wire. The
    // controller needs some seconds to know: hence 40 of them.
    for (circuits, least) in [(1, 7.0e6), (6, 8.0e6)] {
        let share = run(&reordering(10), &[shared(circuits)], 40, 7)[0];
        assert!(share.bits_per_s >= least && share.lost > 0.03, "{circuits} circuits: {share:?}");
    }
}

#[test]
fn the_queue_of_a_wire_stays_short() {
    for circuits in [1, 6] {
        let share = alone(&wire_10mbit(), shared(circuits));
        assert!(share.bits_per_s >= 9.2e6, "{share:?}");
        assert!(share.rtt_mean_ms <= IDLE_RTT_MS + 25.0, "{share:?}");
        assert!(share.rtt_max_ms <= IDLE_RTT_MS + 50.0, "{share:?}");
    }
}

/// As in the lab's plan `bottleneck-position`: a download, and pages now and then.
#[test]
fn codel_leaves_a_wire_busy() {
    let load = Load { fetches: true, ..shared(2) };
    let bits_per_s = |there: DirectionOptions| -> f64 {
        (1..=3).map(|seed| run(&there, &[load], 40, seed)[0].bits_per_s).sum()
    };
    let (codel, drop_tail) = (bits_per_s(slow_codel()), bits_per_s(slow_drop_tail()));
    assert!(codel >= 0.97 * drop_tail, "{codel} of {drop_tail}");
}

#[test]
fn marks_of_a_router_shorten_the_queue() {
    marks_shorten_the_queue(shared);
}

#[test]
fn circuits_share_a_wire_whichever_connection_they_are_on() {
    let loads = [shared(1), shared(6)];
    let shares = run(&wire_10mbit(), &loads, 40, 7);
    assert!(jain(&loads, &shares) >= 0.95, "{shares:?}");
}
