//! A source of cells.

use crate::bench::{End, body};
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::{ConnId, ConnectionEvent, FlowState};
use heddle_seam::time::Instant;

/// Sends numbered cells on circuits as capacity and flows allow: CREATE2 first on those that we open.
pub struct Source {
    end: usize,
    conn: ConnId,
    pub circuits: Vec<Circuit>,
    cells: u32,
    seen: usize,
    turn: usize,
}

pub struct Circuit {
    pub id: CircId,
    /// The number of its next cell.
    pub next: u32,
    pub blocked: bool,
}

impl Source {
    pub fn new(end: usize, conn: ConnId, circuits: &[CircId], cells: u32) -> Self {
        let circuits = circuits.iter().map(|id| Circuit { id: *id, next: 0, blocked: false }).collect();
        Source { end, conn, circuits, cells, seen: 0, turn: 0 }
    }

    pub fn step(&mut self, now: Instant, ends: &mut [End]) {
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
        while end.endpoint.capacity(self.conn) > 0 {
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
            let state = end.endpoint.send(now, self.conn, circuit.id, command, &body(circuit.next));
            circuit.blocked = state == FlowState::Blocked;
            circuit.next += 1;
        }
    }
}
