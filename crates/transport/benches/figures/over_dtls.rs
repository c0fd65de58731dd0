//! What paths do to circuits over `tcp-dtls`, and what opening many of them takes.

use crate::bench::anchor;
use crate::paths::{Share, bulk_by, lossy, open_circuits, reordering, wire};
use heddle_transport::tcp_dtls::CongestionControl;

/// Resident memory of this process, in bytes.
#[allow(clippy::disallowed_methods, reason = "only the system knows")]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

pub fn figures() {
    let before = resident_bytes();
    let begun = anchor();
    let (bench, per_s) = open_circuits(10_000);
    let spent = anchor().duration_since(begun).as_secs_f64();
    let more = resident_bytes().saturating_sub(before) as f64 / 1e6;
    println!(
        "10,000 circuits: {per_s:.0} a second of virtual time, {spent:.2} s of CPU, {more:.1} MB for both ends"
    );
    drop(bench);
    let show = |name: &str, share: Share| {
        println!(
            "{name:<32} {:>7.2} Mbit/s  rtt {:>6.1} ms  dropped by DTLS {:.5}  sent again {:.5}",
            share.bits_per_s / 1e6,
            share.rtt_ms,
            share.dropped,
            share.again
        );
    };
    for control in [CongestionControl::Shared, CongestionControl::Cubic] {
        for (mbit, circuits) in [10, 50, 100].into_iter().flat_map(|mbit| [(mbit, 1), (mbit, 6)]) {
            let name = format!("{control:?} {mbit} Mbit/s x{circuits}");
            show(&name, bulk_by(control, &wire(mbit), circuits, 30));
            show(&format!("{name} reordered"), bulk_by(control, &reordering(mbit), circuits, 30));
            show(&format!("{name} 0.1 %"), bulk_by(control, &lossy(mbit, 0.001), circuits, 30));
            show(&format!("{name} 1 %"), bulk_by(control, &lossy(mbit, 0.01), circuits, 30));
        }
    }
}
