//! What controllers make of a wire: throughput, the queue they leave, and how they share.
//!
//! `figures` prints more than is asserted: `cargo test -p heddle-transport --test quic -- --ignored --nocapture
//! figures`.

use crate::bench::{MS, S};
use crate::loads::{Control, Load, Share, cubic, jain, quic as shared, run};
use crate::matrix::{marks_shorten_the_queue, slow_codel, slow_drop_tail, wire_10mbit};
use heddle_netem::{CodelOptions, DirectionOptions, Jitter, Loss, QueueOptions, Rate};
use heddle_transport::quic::CongestionControl;

fn lossy(probability: f64) -> DirectionOptions {
    DirectionOptions { loss: Loss::Bernoulli { probability }, ..wire_10mbit() }
}

/// The round trip of a wire that nobody else uses, about.
const IDLE_RTT_MS: f64 = 101.0;

fn alone(there: &DirectionOptions, load: Load) -> Share {
    run(there, &[load], 25, 7)[0]
}

fn reordering(mean_ms: u64) -> DirectionOptions {
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

/// What docs/notes/quic.md tells of late packets and of marks.
#[test]
#[ignore = "prints figures"]
fn late_and_marked_figures() {
    let show = |name: &str, there: &DirectionOptions, circuits| {
        let shares = [1, 2, 3].map(|seed| run(there, &[shared(circuits)], 40, seed)[0]);
        let mbit = shares.map(|share| share.bits_per_s / 1e6);
        let lost_pct = shares.map(|share| 100.0 * share.lost);
        let rtt_ms = shares.map(|share| share.rtt_mean_ms);
        println!("{name}, {circuits} circuits: {mbit:.2?} Mbit/s, {lost_pct:.1?} % lost, {rtt_ms:.0?} ms");
    };
    for circuits in [1, 6] {
        for mean_ms in [5, 7, 10, 20] {
            show(&format!("late by {mean_ms} ms"), &reordering(mean_ms), circuits);
        }
    }
    for (name, ecn) in [("CoDel that marks", true), ("CoDel that drops", false)] {
        let codel = Some(CodelOptions { ecn, ..CodelOptions::default() });
        let queue = QueueOptions { packets_max: 1000, bytes_max: 500_000, codel };
        for circuits in [1, 20] {
            show(name, &DirectionOptions { queue: queue.clone(), ..wire_10mbit() }, circuits);
        }
    }
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    let show = |name: &str, there: &DirectionOptions, loads: &[Load]| {
        let shares = run(there, loads, 60, 7);
        println!("{name}: jain {:.3}", jain(loads, &shares));
        for (load, share) in loads.iter().zip(&shares) {
            println!(
                "    {:?} x{:<3} {:>7.2} Mbit/s  rtt mean {:>5.1} max {:>5.1} ms  lost {:.4}",
                load.control,
                load.circuits,
                share.bits_per_s / 1e6,
                share.rtt_mean_ms,
                share.rtt_max_ms,
                share.lost
            );
        }
    };
    let one =
        |control| Load { control: Some(Control::Quic(control)), circuits: 6, from_ns: 0, fetches: false };
    for control in [CongestionControl::Cubic, CongestionControl::Bbr, CongestionControl::Shared] {
        show("six circuits, no loss", &wire_10mbit(), &[one(control)]);
        show("six circuits, 0.1 %", &lossy(0.001), &[one(control)]);
        show("six circuits, 1 %", &lossy(0.01), &[one(control)]);
        for mean_ms in [5, 7, 10, 20] {
            show(&format!("six circuits, late by {mean_ms} ms"), &reordering(mean_ms), &[one(control)]);
        }
    }
    let four = DirectionOptions {
        rate: Rate::BitsPerS(100_000_000),
        delay_ns: 37 * MS,
        queue: QueueOptions { packets_max: 10_000, bytes_max: 1_000_000, codel: None },
        ..DirectionOptions::default()
    };
    show("one circuit, 0.1 %", &lossy(0.001), &[shared(1)]);
    for mean_ms in [5, 7, 10, 20] {
        show(&format!("one circuit, late by {mean_ms} ms"), &reordering(mean_ms), &[shared(1)]);
    }
    show("100 Mbit/s, four circuits", &four, &[shared(4)]);
    for probability in [0.001, 0.01] {
        let four = DirectionOptions { loss: Loss::Bernoulli { probability }, ..four.clone() };
        show("100 Mbit/s, four circuits, loss", &four, &[shared(4)]);
    }
    let six_cubic = [cubic(); 6];
    show("six cubic", &wire_10mbit(), &six_cubic);
    show("six cubic 1 %", &lossy(0.01), &six_cubic);
    show("one and one cubic", &wire_10mbit(), &[shared(1), cubic()]);
    show("one and four cubic", &wire_10mbit(), &[shared(1), cubic(), cubic(), cubic(), cubic()]);
    show("four and four cubic", &wire_10mbit(), &[shared(4), cubic(), cubic(), cubic(), cubic()]);
    show("six and one cubic", &wire_10mbit(), &[shared(6), cubic()]);
    show("late cubic", &wire_10mbit(), &[shared(2), Load { from_ns: 5 * S, ..cubic() }]);
    show("late ours", &wire_10mbit(), &[Load { from_ns: 5 * S, ..shared(2) }, cubic()]);
    show("1 and 60", &wire_10mbit(), &[shared(1), shared(60)]);
    show("1 and 1", &wire_10mbit(), &[shared(1), shared(1)]);
    show("1 and 6", &wire_10mbit(), &[shared(1), shared(6)]);
    let codel = CodelOptions::default();
    let queue = QueueOptions { packets_max: 1000, bytes_max: 250_000, codel: Some(codel) };
    let codel = DirectionOptions { queue, ..wire_10mbit() };
    show("codel six", &codel, &[shared(6)]);
    show("codel six cubic", &codel, &six_cubic);
    show("codel four and four cubic", &codel, &[shared(4), cubic(), cubic(), cubic(), cubic()]);
    let queue = QueueOptions { packets_max: 1000, bytes_max: 25_000, codel: None };
    let shallow = DirectionOptions { queue, ..wire_10mbit() };
    show("shallow six", &shallow, &[shared(6)]);
    show("shallow four and four cubic", &shallow, &[shared(4), cubic(), cubic(), cubic(), cubic()]);
}
