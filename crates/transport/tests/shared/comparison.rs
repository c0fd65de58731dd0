//! What circuits share, beside `tcp-dtls`, on which they share nothing but a session.

use crate::bench::{Bench, End, MS, S, Torchestra, awaited, delay, dialled, with_connections};
use crate::circuits::numbers;
use crate::lone::lone_cells_ms;
use crate::source::Source;
use heddle_netem::{DirectionOptions, Loss, QueueOptions, Rate};
use heddle_seam::time::Instant;
use heddle_transport::tcp_dtls::{CongestionControl, DtlsOptions};

/// 10 Mbit/s and 50 ms, which lose so much.
fn wire(probability: f64) -> DirectionOptions {
    DirectionOptions {
        rate: Rate::BitsPerS(10_000_000),
        queue: QueueOptions { bytes_max: 125_000, ..QueueOptions::default() },
        loss: Loss::Bernoulli { probability },
        ..delay(50 * MS)
    }
}

/// On one connection every lost packet holds back all circuits, on one of its own none but its own.
#[test]
fn the_fewer_share_a_connection_the_sooner_a_lone_cell_comes() {
    let dtls =
        DtlsOptions { congestion: CongestionControl::Cubic, ..DtlsOptions::new(crate::bench::anchor()) };
    let [one, sixteen] = [1, 16].map(|connections| lone_cells_ms(wire(0.01), &with_connections(connections)));
    let own = lone_cells_ms(wire(0.01), &dtls);
    println!(
        "ninth of ten lone cells: on one connection {one:.0} ms, on sixteen {sixteen:.0}, on its own {own:.0}"
    );
    assert!(sixteen < 0.8 * one && own < 0.8 * one);
}

/// Bulk and little on Torchestra's two connections, which circuits change: all cells come, in order.
#[test]
fn circuits_that_change_connections_lose_nothing() {
    let mut bench = Bench::pair(wire(0.001), &Torchestra);
    let (a, b) = bench.open_ready();
    let mut bulk = Source::new(0, a, &[1, 2].map(dialled), 8000);
    let mut little = Source::new(0, a, &[3, 4, 5].map(dialled), 100);
    let mut back = Source::new(1, b, &[awaited(1)], 3000);
    bench.run_for(120 * S, &mut |now: Instant, ends: &mut [End]| {
        bulk.step(now, ends);
        little.step(now, ends);
        back.step(now, ends);
    });
    for (end, name, cells) in [(1, 1, 8000), (1, 2, 8000), (1, 3, 100), (1, 4, 100), (1, 5, 100)] {
        let came = numbers(&bench.ends[end], dialled(name));
        assert_eq!(came, (0..cells).collect::<Vec<u32>>(), "circuit {name}");
    }
    assert_eq!(numbers(&bench.ends[0], awaited(1)), (0..3000).collect::<Vec<u32>>());
}

#[test]
fn losses_slow_a_single_connection_more_than_many() {
    let cells = |connections: usize| {
        let mut bench = Bench::pair(wire(0.01), &with_connections(connections));
        let (a, _) = bench.open_ready();
        let mut source = Source::new(0, a, &[1, 2, 3, 4, 5, 6, 7, 8].map(dialled), u32::MAX);
        bench.run_for(30 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
        bench.ends[1].cells.len()
    };
    let (one, eight) = (cells(1), cells(8));
    println!("cells in 30 s: {one} on one connection, {eight} on eight");
    assert!(eight > 2 * one, "{eight} {one}");
}
