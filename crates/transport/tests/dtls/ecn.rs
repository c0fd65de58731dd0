//! Marks of routers, and paths that make nonsense of them.

use crate::bench::{Bench, End, MS, S, Sent, delay, dialled, options};
use crate::loads::{Control, Load, dtls, outcome, quic, run, tcp};
use crate::matrix::{marking_codel, marks_shorten_the_queue};
use crate::source::Source;
use heddle_netem::DirectionOptions;
use heddle_seam::time::Instant;
use heddle_transport::tcp_dtls::{CongestionControl, DtlsOptions, SessionOptions};

const MARKED: u8 = 3;

#[test]
fn marks_of_a_router_shorten_the_queue() {
    marks_shorten_the_queue(dtls);
}

#[test]
fn the_queue_is_as_short_as_over_quic() {
    for circuits in [1, 6, 20] {
        let share = |load: Load| run(&marking_codel(true), &[load], 25, 7)[0];
        let (ours, quic) = (share(dtls(circuits)), share(quic(circuits)));
        assert_eq!(ours.lost, 0.0);
        assert!(ours.rtt_mean_ms <= quic.rtt_mean_ms + 2.0, "{circuits}: {ours:?}, {quic:?}");
        assert!(ours.bits_per_s >= 0.95 * quic.bits_per_s, "{circuits}: {ours:?}, {quic:?}");
    }
}

#[test]
fn windows_of_flows_heed_marks_as_well() {
    for congestion in [CongestionControl::Cubic, CongestionControl::Reno] {
        let load = Load { control: Some(Control::Dtls(congestion)), ..dtls(4) };
        let share = |ecn| run(&marking_codel(ecn), &[load], 25, 7)[0];
        let (marked, dropped) = (share(true), share(false));
        assert_eq!(marked.lost, 0.0);
        assert!(marked.rtt_mean_ms <= dropped.rtt_mean_ms + 5.0, "{marked:?} where {dropped:?}");
        assert!(marked.bits_per_s >= 0.85 * dropped.bits_per_s, "{marked:?} where {dropped:?}");
    }
}

#[test]
fn tcp_keeps_beside_it_what_it_keeps_beside_quic() {
    let beside = |load: Load| outcome(&marking_codel(true), &[load, tcp(), tcp(), tcp(), tcp()], 1, 60, 7);
    let (ours, quic) = (beside(dtls(4)), beside(quic(4)));
    assert!(ours.beside >= 0.95 * quic.beside, "{ours:?}, {quic:?}");
}

/// Bulk over a path that does this with datagrams. Gives the cells that came from the tenth second to the twentieth,
/// and what was sent then.
fn bulk_altered(options: &DtlsOptions, alter: fn(&mut Sent) -> bool) -> (usize, Vec<Sent>) {
    let there = DirectionOptions { rate: heddle_netem::Rate::BitsPerS(10_000_000), ..delay(20 * MS) };
    let mut bench = Bench::pair(there, options);
    bench.alter = Some(alter);
    let (a, _) = bench.open_ready();
    let mut source = Source::new(0, a, &[1, 2, 3].map(dialled), u32::MAX);
    let mut step = |now: Instant, ends: &mut [End]| source.step(now, ends);
    bench.run_for(10 * S, &mut step);
    bench.record = Some(Vec::new());
    let before = bench.ends[1].cells.len();
    bench.run_for(10 * S, &mut step);
    (bench.ends[1].cells.len() - before, bench.record.take().expect("it was recorded"))
}

fn bleaches(sent: &mut Sent) -> bool {
    sent.ecn = 0;
    true
}

fn marks_all(sent: &mut Sent) -> bool {
    sent.ecn = if sent.ecn == 0 { 0 } else { MARKED };
    true
}

fn drops_what_can_be_marked(sent: &mut Sent) -> bool {
    sent.ecn == 0
}

/// Takes the codepoint for bits of its own.
fn sets_others(sent: &mut Sent) -> bool {
    sent.ecn = 1;
    true
}

#[test]
fn a_path_that_makes_nonsense_of_marks_gets_none_and_carries_as_much() {
    let (whole, sent) = bulk_altered(&options(), |_| true);
    assert!(whole > 20_000, "{whole}");
    assert!(sent.iter().any(|sent| sent.ecn != 0));
    for alter in [bleaches, marks_all, drops_what_can_be_marked, sets_others] {
        let (cells, sent) = bulk_altered(&options(), alter);
        assert!(cells as f64 >= 0.9 * whole as f64, "{cells} of {whole}");
        assert!(sent.iter().all(|sent| sent.ecn == 0));
    }
}

#[test]
fn where_the_system_sends_plain_datagrams_none_can_be_marked() {
    let plain = DtlsOptions { session: SessionOptions::plain(crate::bench::anchor()), ..options() };
    let (cells, sent) = bulk_altered(&plain, |_| true);
    assert!(cells > 20_000, "{cells}");
    assert!(sent.iter().all(|sent| sent.ecn == 0));
}
