//! Flows that nobody reads, over transports where each has a window of its own.

use crate::bench::{Bench, End, MS, S, delay, dialled, with_flow_window};
use crate::circuits::numbers;
use crate::source::Source;
use heddle_seam::time::Instant;

#[test]
fn a_held_flow_stops_at_its_window_and_no_other_notices() {
    let mut bench = Bench::pair(delay(10 * MS), &with_flow_window(64 * 1024));
    let (a, b) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(1), dialled(2)], 2000);
    let mut held = false;
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| {
        if !held && ends[1].cells.iter().any(|got| got.circ_id == dialled(1)) {
            ends[1].endpoint.hold(b, dialled(1), true);
            held = true;
        }
        source.step(now, ends);
    });
    let window_cells = 64 * 1024 / 510;
    let read = numbers(&bench.ends[1], dialled(1)).len() as u32;
    assert_eq!(numbers(&bench.ends[1], dialled(2)).len(), 2000);
    assert!(source.circuits[0].blocked);
    let sent = source.circuits[0].next;
    // The window, the rest of one packet that was read already, and the one cell that its sender keeps.
    assert!(sent - read <= window_cells + 4, "{sent} {read}");

    bench.ends[1].endpoint.hold(b, dialled(1), false);
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(numbers(&bench.ends[1], dialled(1)), (0..2000).collect::<Vec<u32>>());
}
