//! Cells over flows: that they arrive, whole and in order, and how flows begin and end.

use crate::bench::{Bench, End, MS, S, awaited, body, delay, dialled, options};
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::{ConnId, ConnectionEvent, Endpoint, FlowState};
use heddle_proto::time::Instant;

/// Sends numbered cells on circuits as capacity and flows allow: CREATE2 first on those that we open.
struct Source {
    end: usize,
    conn: ConnId,
    circuits: Vec<Circuit>,
    cells: u32,
    seen: usize,
    turn: usize,
}

struct Circuit {
    id: CircId,
    next: u32,
    blocked: bool,
}

impl Source {
    fn new(end: usize, conn: ConnId, circuits: &[CircId], cells: u32) -> Self {
        let circuits = circuits.iter().map(|id| Circuit { id: *id, next: 0, blocked: false }).collect();
        Source { end, conn, circuits, cells, seen: 0, turn: 0 }
    }

    fn step(&mut self, now: Instant, ends: &mut [End]) {
        let end = &mut ends[self.end];
        for (_, event) in &end.events[self.seen..] {
            if let ConnectionEvent::Writable(id) = event
                && let Some(circuit) = self.circuits.iter_mut().find(|circuit| circuit.id == *id)
            {
                assert!(circuit.blocked);
                circuit.blocked = false;
            }
        }
        self.seen = end.events.len();
        while end.quic.capacity(self.conn) > 0 {
            let count = self.circuits.len();
            let order = (0..count).map(|index| (self.turn + index) % count);
            let ready = order.clone().find(|index| {
                let circuit = &self.circuits[*index];
                !circuit.blocked && circuit.next < self.cells
            });
            let Some(index) = ready else {
                return;
            };
            self.turn = index + 1;
            let circuit = &mut self.circuits[index];
            let command = if circuit.next == 0 { Command::CREATE2 } else { Command::RELAY };
            let state = end.quic.send(now, self.conn, circuit.id, command, &body(circuit.next));
            circuit.blocked = state == FlowState::Blocked;
            circuit.next += 1;
        }
    }
}

fn numbers(end: &End, circ_id: CircId) -> Vec<u32> {
    end.cells.iter().filter(|got| got.circ_id == circ_id).map(|got| got.number).collect()
}

#[test]
fn cells_arrive_in_order_on_flows_of_both_sides() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, b) = bench.open_ready();
    let mut there = Source::new(0, a, &[dialled(7), dialled(9)], 3000);
    let mut back = Source::new(1, b, &[awaited(70)], 3000);
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| {
        there.step(now, ends);
        back.step(now, ends);
    });
    let all: Vec<u32> = (0..3000).collect();
    for name in [dialled(1), dialled(2)] {
        assert_eq!(numbers(&bench.ends[1], name), all);
    }
    assert_eq!(numbers(&bench.ends[0], awaited(1)), all);
    let first = |end: &End, name| end.cells.iter().find(|got| got.circ_id == name).expect("a cell").command;
    assert_eq!(first(&bench.ends[1], dialled(1)), Command::CREATE2);
    assert_eq!(first(&bench.ends[0], awaited(1)), Command::CREATE2);
}
