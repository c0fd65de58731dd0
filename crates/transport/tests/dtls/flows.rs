//! How flows find room.

use crate::bench::{Bench, End, MS, S, body, delay, dialled, options};
use crate::circuits::{destroy_body, one_circuit};
use crate::source::Source;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::Instant;

#[test]
fn flows_that_end_make_room() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b) = bench.open(0, 1);
    bench.run_for(S, &mut ());
    let room = |end: &End| {
        let mut rooms = end.events.iter().filter_map(|(_, event)| match event {
            ConnectionEvent::FlowRoom(room) => Some(*room),
            _ => None,
        });
        rooms.next_back()
    };
    assert_eq!((room(&bench.ends[0]), room(&bench.ends[1])), (Some(1000), Some(1000)));
    let circuits: Vec<CircId> = (1..=60).map(dialled).collect();
    let mut source = Source::new(0, a, &circuits, 1);
    bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    assert_eq!(bench.ends[1].cells.len(), 60);
    let now = bench.now;
    for name in (1..=50).map(dialled) {
        bench.ends[1].endpoint.send(now, b, name, Command::DESTROY, &destroy_body(DestroyReason::NONE));
    }
    bench.run_for(5 * S, &mut ());
    assert_eq!(room(&bench.ends[0]), Some(990));
}

/// No window holds datagrams, and still flows have their turns beside them.
#[test]
fn datagrams_leave_and_come_in_turns_with_flows() {
    const DATAGRAMS: u32 = 400;
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, _, _) = one_circuit(&mut bench);
    let (now, circ_id) = (bench.now, dialled(5));
    let endpoint = &mut bench.ends[0].endpoint;
    for number in 0..DATAGRAMS {
        endpoint.send(now, a, circ_id, Command::DATAGRAM, &body(number));
    }
    for number in 1..=6 {
        endpoint.send(now, a, circ_id, Command::RELAY, &body(number));
    }
    bench.run_for(S, &mut ());
    let came: Vec<_> = bench.ends[1].cells.iter().map(|got| (got.command, got.number)).collect();
    let place = |cell| came.iter().position(|came| *came == cell).expect("it came");
    assert_eq!(came.len() as u32, DATAGRAMS + 6);
    assert!(place((Command::RELAY, 6)) < 30, "{} cells came before", place((Command::RELAY, 6)));
}
