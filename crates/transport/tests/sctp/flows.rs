//! How flows find room, and streams are used again.

use crate::bench::{Bench, End, MS, S, body, delay, dialled, options};
use crate::circuits::destroy_body;
use crate::source::Source;
use heddle_netem::{DirectionOptions, Loss};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::Instant;

fn room(end: &End) -> Option<u32> {
    let mut rooms = end.events.iter().filter_map(|(_, event)| match event {
        ConnectionEvent::FlowRoom(room) => Some(*room),
        _ => None,
    });
    rooms.next_back()
}

#[test]
fn flows_that_end_make_room() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b) = bench.open(0, 1);
    bench.run_for(S, &mut ());
    assert_eq!((room(&bench.ends[0]), room(&bench.ends[1])), (Some(1000), Some(1000)));
    let circuits: Vec<CircId> = (1..=60).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1);
    bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 60);
    let names: Vec<CircId> = bench.ends[1].cells.iter().map(|got| got.circ_id).collect();
    let now = bench.now;
    for name in &names[..50] {
        bench.ends[1].endpoint.send(now, b, *name, Command::DESTROY, &destroy_body(DestroyReason::NONE));
    }
    bench.run_for(5 * S, &mut ());
    assert_eq!(room(&bench.ends[0]), Some(990));
}

/// Thrice as many circuits as there are streams, on a wire that loses and with ends from either side: each has its own
/// cells and no others, and nothing is left of them.
#[test]
fn streams_are_used_again_and_no_circuit_has_anothers_cells() {
    let there = DirectionOptions { loss: Loss::Bernoulli { probability: 0.02 }, ..delay(10 * MS) };
    let mut bench = Bench::pair(there, &options());
    let (a, b) = bench.open(0, 1);
    bench.run_for(10 * S, &mut ());
    for batch in 0..100 {
        let names = (1..=40).map(|number| dialled(batch * 40 + number));
        for name in names.clone() {
            let now = bench.now;
            bench.ends[0].endpoint.send(now, a, name, Command::CREATE2, &body(name.get()));
            for number in 1..4 {
                bench.ends[0].endpoint.send(now, a, name, Command::RELAY, &body(name.get() + (number << 16)));
            }
        }
        bench.run_for(2 * S, &mut ());
        let cells = core::mem::take(&mut bench.ends[1].cells);
        assert_eq!(cells.len(), 160, "batch {batch}");
        for theirs in cells.iter().filter(|got| got.command == Command::CREATE2) {
            let of_it = cells.iter().filter(|got| got.circ_id == theirs.circ_id);
            assert!((0..4).map(|number| theirs.number + (number << 16)).eq(of_it.map(|got| got.number)));
            if theirs.number % 2 == 0 {
                let (now, body) = (bench.now, destroy_body(DestroyReason::FINISHED));
                bench.ends[1].endpoint.send(now, b, theirs.circ_id, Command::DESTROY, &body);
            }
        }
        for name in names.filter(|name| name.get() % 2 == 1) {
            let (now, body) = (bench.now, destroy_body(DestroyReason::FINISHED));
            bench.ends[0].endpoint.send(now, a, name, Command::DESTROY, &body);
        }
        bench.run_for(S, &mut ());
        let ended = [0, 1].map(|end| core::mem::take(&mut bench.ends[end].cells));
        assert!(ended.iter().flatten().all(|got| got.command == Command::DESTROY), "{ended:?}");
        assert_eq!(ended.map(|cells| cells.len()), [20, 20], "batch {batch}");
    }
    bench.run_for(10 * S, &mut ());
    assert_eq!(room(&bench.ends[0]), Some(1000));
    for end in &bench.ends {
        assert_eq!(end.endpoint.buffered_bytes(), 0);
        assert!(end.endpoint.state_bytes() < 150_000, "{}", end.endpoint.state_bytes());
    }
}
