//! Cells over flows of any transport: that they arrive, whole and in order, and how a flow ends.

use crate::bench::{Bench, End, MS, S, awaited, body, delay, dialled, options};
use crate::circuits::{destroy_body, numbers, one_circuit, only_destroy};
use crate::source::Source;
use heddle_netem::{DirectionOptions, Jitter, Loss};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_seam::time::Instant;

#[test]
fn cells_survive_loss_and_reordering() {
    let there = DirectionOptions {
        loss: Loss::Bernoulli { probability: 0.03 },
        jitter: Jitter::Uniform { spread_ns: 10 * MS },
        jitter_reorders: true,
        ..delay(20 * MS)
    };
    let mut bench = Bench::pair(there, &options());
    let (a, b) = bench.open(0, 1);
    bench.run_for(10 * S, &mut ());
    let circuits: Vec<CircId> = (1..=5).map(dialled).collect();
    let mut there = Source::new(0, a, &circuits, 400);
    let mut back = Source::new(1, b, &[awaited(3)], 400);
    bench.run_for(120 * S, &mut |now: Instant, ends: &mut [End]| {
        there.step(now, ends);
        back.step(now, ends);
    });
    // Windows are so small here that each side would often wait for the other one's acknowledgement.
    let rtt_ns = bench.ends[0].endpoint.stats(a).rtt_ns;
    assert!(rtt_ns <= 100 * MS, "{rtt_ns}");
    let all: Vec<u32> = (0..400).collect();
    for name in &circuits {
        assert_eq!(numbers(&bench.ends[1], *name), all);
    }
    assert_eq!(numbers(&bench.ends[0], awaited(1)), all);
    assert!(bench.ends[0].endpoint.stats(a).lost_packets > 0);
}

#[test]
fn destroy_resets_a_flow_and_overtakes_what_nobody_reads() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b, theirs) = one_circuit(&mut bench);
    bench.ends[1].endpoint.hold(b, theirs, true);
    for number in 0..20 {
        let now = bench.now;
        bench.ends[0].endpoint.send(now, a, dialled(5), Command::RELAY, &body(number));
    }
    bench.run_for(S, &mut ());
    assert_eq!(bench.ends[1].cells, []);
    let now = bench.now;
    let body = destroy_body(DestroyReason::FINISHED);
    bench.ends[0].endpoint.send(now, a, dialled(5), Command::DESTROY, &body);
    bench.run_for(S, &mut ());
    assert_eq!(only_destroy(&mut bench.ends[1], theirs), DestroyReason::FINISHED);
    assert_eq!(bench.ends[0].cells, []);

    // Its name is free on the side that ended it, and the circuit of the same name is another one.
    let mut again = Source::new(0, a, &[dialled(5)], 2);
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| again.step(now, ends));
    let commands: Vec<Command> = bench.ends[1].cells.iter().map(|got| got.command).collect();
    assert_eq!(commands, [Command::CREATE2, Command::RELAY]);
    assert_ne!(bench.ends[1].cells[0].circ_id, theirs);
}
