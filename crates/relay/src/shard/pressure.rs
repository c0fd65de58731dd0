//! What ends in a whole shard when its memory is used up: in endpoints, in sockets' buffers and in the core
//! ([`crate::memory`]).

use super::{Ports, Relay};
use crate::core::Core;
use crate::keys::CircuitKey;
use crate::links::destroy;
use crate::memory::{BUFFERS_PART, FREED_PART, Holder, end_in_order};
use crate::message::Event;
use core::cmp::Reverse;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::endpoint::{Backlog, ConnId};
use heddle_proto::pool::SLOT_LEN;
use heddle_seam::time::Instant;

impl Relay {
    /// After each input: what endpoints and sockets keep counts beside what waits in the pool.
    pub(crate) fn relieve_pressure(&mut self, now: Instant) {
        let used = self.ports.used_bytes(&self.core);
        let max = self.core.bytes_max();
        if used <= max {
            self.ports.in_vain_above = 0;
        }
        if used <= max.max(self.ports.in_vain_above) {
            return;
        }
        let part = max / FREED_PART as usize;
        let waiting = self.ports.waiting_bytes(&self.core);
        // What has ended already costs nobody's life.
        self.ports.forget_ended(now);
        self.core.give_up_left_questions();
        if self.ports.used_bytes(&self.core) <= max - part {
            return;
        }
        if self.core.buffers().bytes() > max / BUFFERS_PART {
            self.relieve_buffers(now, max / BUFFERS_PART - part);
        }
        let mut state_max = usize::MAX;
        if self.ports.all_state_bytes(&self.core) > max / 2 {
            state_max = max / 2 - part;
            self.relieve_state(now, state_max);
        }
        self.relieve_bytes(now, (max - part, state_max));
        self.ports.forget_ended(now);
        let left = self.ports.used_bytes(&self.core);
        // What nobody could be ended for is not looked for again until it is more.
        self.ports.in_vain_above = if left > max { left + part } else { 0 };
        let freed_bytes = waiting.saturating_sub(self.ports.waiting_bytes(&self.core));
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
        let is_enough = |relay: &Relay| {
            let (ports, core) = (&relay.ports, &relay.core);
            let waiting = ports.waiting_bytes(core) + core.handshakes_bytes();
            waiting + ports.all_state_bytes(core).min(state_max) <= enough
        };
        end_in_order(self, holders, is_enough, |relay, holder| {
            let (ports, core) = (&mut relay.ports, &mut relay.core);
            match holder {
                Holder::Circuit(key) => ports.end_with_flows(core, now, key),
                Holder::Connection(socket) => core.abort_leftover(socket),
                Holder::Flow(port, conn, circ_id) => ports.end_flow(core, now, (port, conn, circ_id)),
            }
        });
    }
}

impl Ports {
    /// Bytes that flows keep in endpoints, at most.
    pub fn held_bytes(&self) -> usize {
        self.list.iter().map(|port| port.endpoint.held_bytes()).sum()
    }

    /// Bytes that connections and flows take there themselves.
    pub fn state_bytes(&self) -> usize {
        self.list.iter().map(|port| port.endpoint.state_bytes()).sum()
    }

    /// The same with what circuits and channels take.
    pub fn all_state_bytes(&self, core: &Core) -> usize {
        self.state_bytes() + core.circuits_bytes() + core.channels_bytes()
    }

    /// What is kept of flows that have ended is freed.
    fn forget_ended(&mut self, now: Instant) {
        for port in &mut self.list {
            port.endpoint.forget_ended(now);
            port.stir();
        }
    }

    /// All flows, each with the place of its endpoint.
    pub fn backlogs(&self) -> Vec<(usize, Backlog)> {
        let mut flows = Vec::new();
        for (index, port) in self.list.iter().enumerate() {
            port.endpoint.backlogs(&mut |backlog| flows.push((index, backlog)));
        }
        flows
    }

    /// Cells that wait, what flows keep, and what waits in sockets' buffers.
    fn waiting_bytes(&self, core: &Core) -> usize {
        core.queued_cells() as usize * SLOT_LEN + self.held_bytes() + core.buffers().bytes()
    }

    fn used_bytes(&self, core: &Core) -> usize {
        self.waiting_bytes(core) + self.all_state_bytes(core) + core.handshakes_bytes()
    }

    pub fn end_flow(
        &mut self,
        core: &mut Core,
        now: Instant,
        (port, conn, circ_id): (usize, ConnId, CircId),
    ) {
        let known = self.link(port, conn).and_then(|link| core.circuit_of(link, circ_id));
        match known {
            Some(key) => self.end_with_flows(core, now, key),
            None => self.reset(now, port, conn, circ_id),
        }
    }

    /// All memory of the circuit is free at once: nothing waits for its last word to be sent.
    pub fn end_with_flows(&mut self, core: &mut Core, now: Instant, key: CircuitKey) {
        let flows = core.open_flows(key);
        core.end_with_streams(key);
        for (link, port, conn, circ_id) in flows {
            self.reset(now, port, conn, circ_id);
            core.forget_farewell(link, circ_id);
        }
    }

    fn reset(&mut self, now: Instant, port: usize, conn: ConnId, circ_id: CircId) {
        let port = &mut self.list[port];
        port.endpoint.send(now, conn, circ_id, Command::DESTROY, &destroy(DestroyReason::RESOURCELIMIT));
        port.stir();
    }
}
