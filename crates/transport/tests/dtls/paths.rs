//! What paths do to it: losses, reordering beyond DTLS' window, narrow tunnels, keys that grow old, and many circuits.

use crate::bench::{Bench, End, MS, S, delay, dialled, options};
use crate::circuits::{is_found_out, shrinking_path};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Jitter, Loss, QueueOptions, Rate};
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::Instant;
use heddle_transport::tcp_dtls::{CongestionControl, DtlsOptions};

/// What some circuits got.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub bits_per_s: f64,
    #[allow(dead_code, reason = "of use to the figures alone")]
    pub rtt_ms: f64,
    /// Datagrams that the wire delivered and DTLS dropped, of those sent.
    pub dropped: f64,
    /// Segments that were sent again, of the datagrams sent.
    #[allow(dead_code, reason = "of use to the figures alone")]
    pub again: f64,
}

/// Bulk on so many circuits over a wire with `mbit` Mbit/s; what came from the tenth second on counts.
fn bulk(there: &DirectionOptions, circuits: u32, seconds: u64) -> Share {
    bulk_by(CongestionControl::Shared, there, circuits, seconds)
}

pub fn bulk_by(
    congestion: CongestionControl,
    there: &DirectionOptions,
    circuits: u32,
    seconds: u64,
) -> Share {
    const WARM_S: u64 = 10;
    let back = DirectionOptions { rate: Rate::Unlimited, loss: Loss::None, ..there.clone() };
    let options = DtlsOptions { congestion, ..options() };
    let mut bench = Bench::pair_of(there.clone(), Some(back), &options, 7);
    let (a, _) = bench.open(0, 1);
    bench.run_for(2 * S, &mut ());
    let names: Vec<CircId> = (1..=circuits).map(dialled).collect();
    let mut source = Source::new(0, a, &names, u32::MAX);
    let mut cells = 0;
    for until_s in [WARM_S, WARM_S + seconds] {
        cells = 0;
        bench.run_until(Instant::from_nanos(until_s * S), &mut |now: Instant, ends: &mut [End]| {
            source.step(now, ends);
            cells += ends[1].cells.len();
            ends[1].cells.clear();
        });
    }
    let stats = bench.ends[0].endpoint.stats(a);
    let sent = stats.sent_packets as f64;
    Share {
        bits_per_s: cells as f64 * 510.0 * 8.0 / seconds as f64,
        rtt_ms: stats.rtt_ns as f64 / MS as f64,
        dropped: bench.ends[1].endpoint.refused_datagrams().peers as f64 / sent,
        again: stats.lost_packets as f64 / sent,
    }
}

/// So many Mbit/s, 50 ms one way, and a queue of one bandwidth-delay product.
pub fn wire(mbit: u64) -> DirectionOptions {
    DirectionOptions {
        rate: Rate::BitsPerS(mbit * 1_000_000),
        delay_ns: 50 * MS,
        queue: QueueOptions { packets_max: 100_000, bytes_max: mbit * 12_500, codel: None },
        ..DirectionOptions::default()
    }
}

pub fn reordering(mbit: u64) -> DirectionOptions {
    let jitter = Jitter::Exponential { mean_ns: 5 * MS };
    DirectionOptions { jitter, jitter_reorders: true, ..wire(mbit) }
}

pub fn lossy(mbit: u64, probability: f64) -> DirectionOptions {
    DirectionOptions { loss: Loss::Bernoulli { probability }, ..wire(mbit) }
}

#[test]
fn losses_cost_six_circuits_little() {
    let clean = bulk(&wire(10), 6, 30);
    assert!(clean.bits_per_s >= 9.0e6, "{clean:?}");
    assert_eq!(clean.dropped, 0.0);
    let share = bulk(&lossy(10, 0.001), 6, 30);
    assert!(share.bits_per_s >= 0.95 * clean.bits_per_s, "{share:?} of {clean:?}");
}

/// At 10 Mbit/s some four datagrams leave in 5 ms, so that none comes 64 too late.
#[test]
fn reordering_within_the_window_loses_nothing() {
    let share = bulk(&reordering(10), 6, 20);
    assert_eq!(share.dropped, 0.0, "{share:?}");
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
    let mut back = Source::new(1, b, &[crate::bench::awaited(1)], 4000);
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
    for congestion in [CongestionControl::Shared, CongestionControl::Cubic] {
        let options = DtlsOptions { congestion, ..options() };
        let mut bench = Bench::pair(DirectionOptions { delay_ns: 20 * MS, ..wire(10) }, &options);
        let cells = shrinking_path(&mut bench, true);
        is_found_out(&cells, 0);
        // What bulk both ways makes of the way back, before the change as well, is another matter.
        assert!(cells[6..].iter().all(|[_, back]| *back >= 300), "{cells:?}");
    }
}

/// Opens circuits, at most `in_flight` unanswered at a time, and answers them.
pub fn open_circuits(count: u32) -> (Bench, f64) {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, heddle_proto::channel::Role::Responder);
    let here = bench.connection(0, 1, heddle_proto::channel::Role::Initiator);
    let more = |options| heddle_proto::endpoint::ConnectionOptions { flows_max: count, ..options };
    bench.ends[1].endpoint.open(bench.now, more(there));
    let a = bench.ends[0].endpoint.open(bench.now, more(here));
    bench.run_for(S, &mut ());
    assert!(bench.ends[0].events.contains(&(a, ConnectionEvent::FlowRoom(count))));
    let names: Vec<CircId> = (1..=count).map(dialled).collect();
    let begun = bench.now;
    let mut source = Source::new(0, a, &names, 1);
    let mut done = None;
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| {
        source.step(now, ends);
        if done.is_none() && ends[1].cells.len() == count as usize {
            done = Some(now);
        }
    });
    let took = done.expect("all were opened").since(begun);
    (bench, f64::from(count) / took.as_secs_f64())
}

#[test]
fn a_thousand_circuits_open_at_once() {
    let (bench, per_s) = open_circuits(1000);
    assert!(per_s >= 2000.0, "{per_s}");
    assert_eq!(bench.ends[1].cells.len(), 1000);
}
