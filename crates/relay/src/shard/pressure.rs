//! What ends in a whole shard when its memory is used up: in endpoints, in sockets' buffers and in the core
//! ([`crate::memory`]).

use super::Relay;
use crate::memory::{BUFFERS_PART, FREED_PART, Holder, end_in_order};
use crate::message::Event;
use core::cmp::Reverse;
use heddle_proto::endpoint::Backlog;
use heddle_proto::pool::SLOT_LEN;
use heddle_seam::time::Instant;

impl Relay {
    /// After each input: what endpoints and sockets keep counts beside what waits in the pool.
    pub(super) fn relieve_pressure(&mut self, now: Instant) {
        let used = self.used_bytes();
        let max = self.core.bytes_max();
        let part = max / FREED_PART as usize;
        // It follows the use down, because what grows from there on may be somebody's who can be ended.
        self.in_vain_above = if used <= max { 0 } else { self.in_vain_above.min(used + part) };
        if used <= max.max(self.in_vain_above) {
            return;
        }
        let waiting = self.waiting_bytes_but(0);
        // What has ended already costs nobody's life.
        self.ports.forget_ended(now);
        self.core.give_up_left_questions();
        if self.used_bytes() <= max - part {
            return;
        }
        if self.core.buffers().bytes() > max / BUFFERS_PART {
            self.relieve_buffers(now, max / BUFFERS_PART - part);
        }
        let mut state_max = usize::MAX;
        if self.all_state_bytes() > max / 2 {
            state_max = max / 2 - part;
            self.relieve_state(now, state_max);
        }
        self.relieve_bytes(now, (max - part, state_max));
        self.ports.forget_ended(now);
        let left = self.used_bytes();
        // What nobody could be ended for is not looked for again until it is more.
        self.in_vain_above = if left > max { left + part } else { 0 };
        let freed_bytes = waiting.saturating_sub(self.waiting_bytes_but(0));
        let freed_cells = u32::try_from(freed_bytes / SLOT_LEN).unwrap_or(u32::MAX);
        self.core.event(Event::MemoryPressure { freed_cells });
    }

    /// Those sockets end first whose bytes are oldest, until they take `max` together.
    fn relieve_buffers(&mut self, now: Instant, max: usize) {
        let is_enough = |relay: &Relay| relay.core.buffers().bytes() <= max;
        end_in_order(self, self.core.buffers().holders(), is_enough, |relay, socket| {
            relay.abort_socket(now, socket);
        });
    }

    /// Those end first whose bytes are oldest. What state will be left of flows that have just ended counts as gone:
    /// the last of it goes when the peer has answered.
    fn relieve_bytes(&mut self, now: Instant, (enough, state_max): (usize, usize)) {
        let mut holders = self.core.holders();
        let holding = self.ports.backlogs().into_iter().filter(|(_, flow)| flow.bytes > 0);
        holders.extend(holding.map(|(port, Backlog { conn, circ_id, bytes, since, .. })| {
            (since, Reverse(bytes), Holder::Flow(port, conn, circ_id))
        }));
        // Cells of many circuits lie in one block. What those leave free in it that end now is free for the next cells.
        let [_, spare_before] = self.core.cells_bytes();
        let is_enough = |relay: &Relay| {
            let waiting = relay.waiting_bytes_but(spare_before) + relay.core.handshakes_bytes();
            waiting + relay.all_state_bytes().min(state_max) <= enough
        };
        end_in_order(self, holders, is_enough, |relay, holder| match holder {
            Holder::Circuit(key) => relay.end_with_flows(now, key),
            Holder::Connection(socket) => relay.core.abort_leftover(socket),
            Holder::Flow(port, conn, circ_id) => relay.end_flow(now, (port, conn, circ_id)),
        });
    }

    /// Cells that wait with the blocks that they keep, what sessions and flows hold, and what waits in sockets'
    /// buffers.
    fn waiting_bytes(&self) -> usize {
        self.waiting_bytes_but(usize::MAX)
    }

    /// The same, with so much at most of what cells keep beside them.
    fn waiting_bytes_but(&self, spare_max: usize) -> usize {
        let [used, spare] = self.core.cells_bytes();
        let cells_bytes = used + spare.min(spare_max);
        cells_bytes + self.core.sessions_bytes() + self.ports.buffered_bytes() + self.core.buffers().bytes()
    }

    /// What counts against [`RelayConfig::max_queue_bytes`](crate::RelayConfig::max_queue_bytes). After an input it is
    /// no more than that, unless it was more before and nobody could be ended for it.
    pub fn used_bytes(&self) -> usize {
        self.waiting_bytes() + self.all_state_bytes() + self.core.handshakes_bytes()
    }
}
