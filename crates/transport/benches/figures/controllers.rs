//! What controllers make of a wire: throughput, the queue they leave, how they share, and what a change does to them.

use crate::bench::{MS, S};
use crate::congestion::{lossy, reordering};
use crate::loads::{Control, Load, cubic, jain, quic as shared, run};
use crate::matrix::wire_10mbit;
use crate::steps::kept;
use heddle_netem::{CodelOptions, DirectionOptions, Loss, QueueOptions, Rate};
use heddle_transport::quic::CongestionControl;

/// What docs/notes/quic.md tells of late packets and of marks.
pub fn late_and_marked() {
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

/// The controllers of QUIC, alone and beside each other.
pub fn congestion() {
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

/// What is left of the rate after steps of the round trip.
pub fn steps() {
    println!("Mbit/s  circuits  before the step, s  20 to 60 ms  60 to 20 ms");
    for (mbit, circuits) in [(10, 1), (10, 20), (10, 100), (50, 1), (50, 20), (50, 100)] {
        for longer_s in [4, 15, 16, 17, 40, 41] {
            let [long, short] = kept(mbit, circuits, [longer_s, longer_s + 5]);
            println!("{mbit:>6} {circuits:>9} {longer_s:>19} {long:>12.2} {short:>12.2}");
        }
    }
}
