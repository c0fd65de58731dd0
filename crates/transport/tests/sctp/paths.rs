//! What paths do to it: losses, reordering, narrow tunnels, marks of routers, keys that grow old, and many circuits.

use crate::bench::{Bench, End, MS, S, awaited, delay, dialled, options};
use crate::circuits::{is_found_out, shrinking_path};
use crate::loads::sctp;
use crate::matrix::{marks_shorten_the_queue, wire_10mbit};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Jitter, Loss, Rate};
use heddle_proto::cell::CircId;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionEvent, ConnectionOptions};
use heddle_seam::time::Instant;
use heddle_transport::sctp_dtls::{CongestionControl, SctpOptions};

/// Bits per second of bulk on six circuits, from the tenth second to the thirtieth, and datagrams that DTLS dropped.
fn bulk(there: &DirectionOptions) -> (f64, u64) {
    let back = DirectionOptions { rate: Rate::Unlimited, loss: Loss::None, ..there.clone() };
    let mut bench = Bench::pair_of(there.clone(), Some(back), &options(), 7);
    let (a, _) = bench.open(0, 1);
    bench.run_for(2 * S, &mut ());
    let names: Vec<CircId> = (1..=6).map(dialled).collect();
    let mut source = Source::new(0, a, &names, u32::MAX);
    let mut cells = 0;
    for until_s in [10, 30] {
        cells = 0;
        bench.run_until(Instant::from_nanos(until_s * S), &mut |now: Instant, ends: &mut [End]| {
            source.step(now, ends);
            cells += ends[1].cells.len();
            ends[1].cells.clear();
        });
    }
    (cells as f64 * 510.0 * 8.0 / 20.0, bench.ends[1].endpoint.refused_datagrams().peers)
}

#[test]
fn losses_cost_six_circuits_little() {
    let (clean, dropped) = bulk(&wire_10mbit());
    assert!(clean >= 8.8e6 && dropped == 0, "{clean} {dropped}");
    let loss = Loss::Bernoulli { probability: 0.001 };
    let (lossy, _) = bulk(&DirectionOptions { loss, ..wire_10mbit() });
    println!("{clean} without losses, {lossy} with one in a thousand");
    assert!(lossy >= 0.95 * clean, "{lossy} of {clean}");
}

#[test]
fn reordering_within_dtls_window_costs_little() {
    let jitter = Jitter::Exponential { mean_ns: 5 * MS };
    let (share, dropped) = bulk(&DirectionOptions { jitter, jitter_reorders: true, ..wire_10mbit() });
    println!("{share} where packets are 5 ms late in the mean");
    assert!(share >= 8.0e6 && dropped == 0, "{share} {dropped}");
}

#[test]
fn marks_of_a_router_shorten_the_queue() {
    marks_shorten_the_queue(sctp);
}

#[test]
fn keys_grow_old_and_are_changed() {
    let mut options = options();
    options.session.key_records_max = 100;
    let there = DirectionOptions { loss: Loss::Bernoulli { probability: 0.02 }, ..delay(10 * MS) };
    let mut bench = Bench::pair(there, &options);
    let (a, b) = bench.open(0, 1);
    bench.run_for(5 * S, &mut ());
    let mut there = Source::new(0, a, &[dialled(1)], 4000);
    let mut back = Source::new(1, b, &[awaited(1)], 4000);
    bench.run_for(60 * S, &mut |now: Instant, ends: &mut [End]| {
        there.step(now, ends);
        back.step(now, ends);
    });
    for end in &bench.ends {
        assert_eq!(end.cells.len(), 4000, "{:?}", end.events.last());
    }
    assert!(bench.ends[0].endpoint.stats(a).sent_packets > 10 * 100);
}

#[test]
fn a_tunnel_that_carries_less_is_found_out() {
    // A tunnel drops what is longer than so many bytes, headers included.
    for (mtu, longest) in [(9000, 1452), (1400, 1350), (1280, 1200)] {
        let there = DirectionOptions { mtu_bytes: mtu, ..delay(10 * MS) };
        let mut bench = Bench::pair(there, &options());
        let (a, _) = bench.open(0, 1);
        bench.run_for(6 * S, &mut ());
        bench.record = Some(Vec::new());
        let mut source = Source::new(0, a, &[dialled(1)], 500);
        bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
        assert_eq!(bench.ends[1].cells.len(), 500, "{mtu}");
        let lens = bench.record.take().into_iter().flatten().map(|sent| sent.data.len());
        let most = lens.max().expect("something was sent");
        assert!((longest - 200..=longest).contains(&most), "{most} of {longest}");
    }
}

#[test]
fn a_path_that_carries_less_from_now_on_is_found_out_by_both_ends() {
    let cells = |congestion| {
        let options = SctpOptions { congestion, ..options() };
        let mut bench = Bench::pair(DirectionOptions { delay_ns: 20 * MS, ..wire_10mbit() }, &options);
        shrinking_path(&mut bench, true)
    };
    is_found_out(&cells(CongestionControl::Shared), 0);
    // Reno grows by a packet in each round trip from next to nothing.
    let reno = cells(CongestionControl::Reno);
    assert!(reno[11..].iter().all(|[there, _]| 5 * there >= 4 * reno[4][0]), "{reno:?}");
}

#[test]
fn a_thousand_circuits_open_at_once() {
    const COUNT: u32 = 1000;
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, Role::Responder);
    let here = bench.connection(0, 1, Role::Initiator);
    let more = |options| ConnectionOptions { flows_max: COUNT, ..options };
    bench.ends[1].endpoint.open(bench.now, more(there));
    let a = bench.ends[0].endpoint.open(bench.now, more(here));
    bench.run_for(S, &mut ());
    assert!(bench.ends[0].events.contains(&(a, ConnectionEvent::FlowRoom(COUNT))));
    let names: Vec<CircId> = (1..=COUNT).map(dialled).collect();
    let mut source = Source::new(0, a, &names, 1);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), COUNT as usize);
}
