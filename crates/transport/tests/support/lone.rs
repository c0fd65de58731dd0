//! A circuit that sends little beside those that send as much as they may.

use crate::bench::{Bench, End, MS, Options, S, body, dialled};
use crate::source::Source;
use heddle_netem::DirectionOptions;
use heddle_proto::cell::Command;
use heddle_seam::time::Instant;

/// How late cells of a circuit are that sends one now and then, beside six that send as much as they may, once these
/// have done so for a while: the ninth of ten, in milliseconds.
pub fn lone_cells_ms(there: DirectionOptions, options: &impl Options) -> f64 {
    const EVERY_NS: u64 = 100 * MS;
    let mut bench = Bench::pair(there, options);
    let (a, _) = bench.open_ready();
    let bulk: Vec<_> = (1..=6).map(dialled).collect();
    let mut source = Source::new(0, a, &bulk, u32::MAX);
    let (mut sent, mut late): (Vec<Instant>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut theirs = None;
    let mut due = bench.now;
    let (warm, end) = (bench.now.plus_ns(15 * S), bench.now.plus_ns(45 * S));
    bench.run_until(end, &mut |now: Instant, ends: &mut [End]| {
        if now >= due && ends[0].endpoint.capacity(a) > 0 {
            let command = if sent.is_empty() { Command::CREATE2 } else { Command::RELAY };
            ends[0].endpoint.send(now, a, dialled(7), command, &body(7_000_000 + sent.len() as u32));
            sent.push(now);
            due = now.plus_ns(EVERY_NS);
        }
        source.step(now, ends);
        for got in ends[1].cells.drain(..) {
            if got.command == Command::CREATE2 && got.number == 7_000_000 {
                theirs = Some(got.circ_id);
            }
            if Some(got.circ_id) == theirs && now >= warm {
                let begun = sent[(got.number - 7_000_000) as usize];
                late.push(now.since(begun).as_secs_f64() * 1e3);
            }
        }
    });
    assert!(late.len() > 200, "{}", late.len());
    late.sort_by(f64::total_cmp);
    late[late.len() * 9 / 10]
}
