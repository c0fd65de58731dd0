//! Cells leave: a link's next one is taken for whatever carries it ([`Outlet`]).

use super::Core;
use crate::keys::{LinkKey, Side};
use crate::links::{Crossing, HELD_QUEUE_LOW_CELLS, Link, Outlet};
use crate::message::ShardMessage;
use crate::table::{CreditWord, Departure, Farewell, Popped};
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::FlowState;
use heddle_seam::node::SocketId;

impl Core {
    /// A link has output, or may have.
    pub fn list(&mut self, link: LinkKey) {
        self.table.list(link);
    }

    /// Cells that a channel sends before it is another link's turn: none between two runs of the scheduler.
    pub fn cells_of_choice(&self) -> usize {
        if self.runs.is_on(self.now) { self.config.scheduler.cells_of_choice() } else { 0 }
    }

    /// The channel sent what it might, and may have more. Whether that waits for the next run of the scheduler.
    pub fn waits_for_run(&mut self, link: LinkKey, cells: usize) -> bool {
        if cells > 0 {
            self.runs.begin(self.now).for_each(|link| self.table.list(link));
        }
        let waits = !self.runs.is_on(self.now) && self.has_output(link);
        if waits {
            self.runs.wait(link);
        }
        waits
    }

    /// Channels whose cells waited for a run send them, if it is time.
    pub(super) fn list_for_run(&mut self) {
        self.runs.take_due(self.now).for_each(|link| self.table.list(link));
    }

    pub fn has_output(&self, link: LinkKey) -> bool {
        self.table.has_output(link)
    }

    /// The next link with output, after circuits that waited for their turn there went on.
    pub fn next_listed(&mut self) -> Option<LinkKey> {
        let link = self.table.next_listed(self.now)?;
        self.extend_queued(link);
        self.table.unlist(link);
        Some(link)
    }

    /// A connection that may have to be written to.
    pub fn next_stream_to_flush(&mut self) -> Option<SocketId> {
        self.streams.next_to_flush()
    }

    /// A flow takes cells again.
    pub fn on_flow_writable(&mut self, link: LinkKey, circ_id: CircId) {
        self.table.set_blocked(self.now, link, circ_id, false);
    }

    /// Gives an outlet what waits on its link, `cells_max` cells at most. Returns how many it took.
    pub fn fill<O: Outlet + ?Sized>(&mut self, link: LinkKey, outlet: &mut O, cells_max: usize) -> usize {
        let room_beside = |outlet: &O, cells: usize| match cells_max - cells {
            0 => 0,
            left => outlet.capacity().min(left),
        };
        let mut cells = 0;
        let mut room = room_beside(outlet, cells);
        while room > 0 || (!O::ENDS_WAIT && self.table.farewells_len(link) > 0) {
            match self.pop(link, room > 0) {
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
                Some(Popped::Credit(CreditWord { circ_id, message })) => {
                    outlet.tell(self.now, circ_id, message);
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

    /// What `link` sends next, which is DESTROY where it has no room for cells. The caller frees the slot.
    fn pop(&mut self, link: LinkKey, has_room: bool) -> Option<Popped> {
        let popped = match has_room {
            true => self.table.pop(&mut self.pool, self.now, link)?,
            false => self.table.pop_farewell(link)?,
        };
        match &popped {
            Popped::Farewell(Farewell { circ_id, reason }) => {
                self.log_destroy_out(link, *circ_id, *reason);
                self.count_farewells(link);
                self.note_if_idle(link);
            }
            Popped::Credit(word) => self.log_credit_out(link, *word),
            Popped::Cell(departure) => {
                self.note_left(departure);
                self.log_cell_out(link, departure);
                self.on_departed(departure);
            }
        }
        Some(popped)
    }

    /// A cell left a lane: whoever supplies the lane may supply more.
    fn on_departed(&mut self, &Departure { circuit: key, side, left, waited, .. }: &Departure) {
        let supply = side.opposite();
        self.table.pass_on(self.now, (key, supply), 1, waited);
        if left <= HELD_QUEUE_LOW_CELLS && self.table.is_held(key, supply) {
            self.release_supply(key, supply);
        }
        if side == Side::Prev {
            self.on_backward_queue(key);
            self.sessions.mark(key);
        }
    }

    /// A cell went to its lane.
    fn on_sent(&mut self, link: LinkKey, circ_id: CircId, command: Command, state: FlowState) {
        if command == Command::CREATE2 {
            self.table.create_leaves(self.now, link, circ_id);
            self.on_flow_begun(link, circ_id);
        }
        if state == FlowState::Blocked {
            self.table.set_blocked(self.now, link, circ_id, true);
        }
    }

    /// CREATE2 left, so that the flow exists.
    fn on_flow_begun(&mut self, link_key: LinkKey, circ_id: CircId) {
        self.links.on_flow_begun(link_key);
        self.table.begin_flow(link_key, circ_id);
    }

    /// Sends what waits on the link to another shard.
    pub fn flush_crossing(&mut self, link_key: LinkKey) {
        let Some(shard) = self.links.get(link_key).and_then(Link::shard) else { return };
        let mut crossing = Crossing::default();
        self.fill(link_key, &mut crossing, usize::MAX);
        for crossed in crossing.into_messages() {
            self.send_shard(shard, ShardMessage::Crossed(crossed));
        }
    }
}
