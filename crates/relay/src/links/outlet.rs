//! What takes the cells of a link: a channel, a connection with a flow for each lane, or the crossing to another shard.
//!
//! One loop moves cells for all of them, so whatever carries circuits is served alike: as many cells as would leave
//! promptly, in the order of the link's scheduler, and ends of lanes before cells.

use crate::core::Core;
use crate::keys::LinkKey;
use crate::table::{Departure, Farewell, Popped};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::endpoint::FlowState;
use heddle_seam::time::Instant;

/// Whatever carries the cells of a link's lanes.
pub(crate) trait Outlet {
    /// Whether the end of a lane waits for room as cells do, because all lanes share what they are written into. Where
    /// each lane has something of its own, its end overtakes the others' cells.
    const ENDS_WAIT: bool;

    /// How many cells more would leave promptly.
    fn capacity(&self) -> usize;

    /// Takes a cell. Tells whether its lane takes another one.
    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState;

    /// Ends a lane.
    fn end(&mut self, now: Instant, circ_id: CircId, reason: DestroyReason);
}

impl Core {
    /// Gives an outlet what waits on its link, `cells_max` cells at most. Returns how many it took.
    pub fn fill<O: Outlet + ?Sized>(&mut self, link: LinkKey, outlet: &mut O, cells_max: usize) -> usize {
        let room_beside = |outlet: &O, cells: usize| match cells_max - cells {
            0 => 0,
            left => outlet.capacity().min(left),
        };
        let mut cells = 0;
        let mut room = room_beside(outlet, cells);
        while room > 0 || (!O::ENDS_WAIT && self.table.farewells_len(link) > 0) {
            match self.pop(link) {
                Some(Popped::Cell(Departure { circ_id, slot, .. })) => {
                    let command = self.pool.command(&slot);
                    let state = outlet.send(self.now, circ_id, command, self.pool.body(&slot));
                    self.pool.free(slot);
                    self.on_sent(link, circ_id, command, state);
                    cells += 1;
                    room -= 1;
                }
                Some(Popped::Farewell(Farewell { circ_id, reason })) => {
                    outlet.end(self.now, circ_id, reason);
                    room = if O::ENDS_WAIT { 0 } else { room };
                }
                None => break,
            }
            if room == 0 {
                room = room_beside(outlet, cells);
            }
        }
        cells
    }

    /// A cell went to its lane.
    fn on_sent(&mut self, link: LinkKey, circ_id: CircId, command: Command, state: FlowState) {
        if command == Command::CREATE2 {
            self.on_flow_begun(link, circ_id);
        }
        if state == FlowState::Blocked {
            self.table.set_blocked(self.now, link, circ_id, true);
        }
    }
}

/// The body of DESTROY.
pub(crate) fn destroy(reason: DestroyReason) -> Body {
    let mut body = [0; BODY_LEN];
    body[0] = reason.0;
    body
}
