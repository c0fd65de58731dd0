//! What ends when the memory for cells is used up (`MaxMemInQueues`): that of the pool, and what flows keep in endpoints.
//!
//! As in stock Tor, whoever holds the oldest cell goes first, and not whoever holds the most: cells of those who read
//! move on, cells of a hoard grow old, however many circuits it is spread over (Jansen and others, "The Sniper Attack",
//! NDSS 2014).

use super::circuit::{CircuitKey, Credit, Side};
use super::core::Core;
use super::link::LinkKey;
use super::message::Event;
use super::ports::{Ports, destroy};
use crate::cell::create::DestroyReason;
use crate::cell::{CircId, Command};
use crate::endpoint::{Backlog, ConnId};
use crate::node::SocketId;
use crate::pool::{SLOT_LEN, SlotId};
use crate::time::Instant;
use core::cmp::Reverse;

/// Of memory that was full, one part in so many is free afterwards, as in stock Tor. So the search for the oldest, which
/// looks at every circuit, is paid for by many cells.
const FREED_PART: u32 = 10;

/// Who holds cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Circuit(CircuitKey),
    /// A connection that is owed data by a stream that is over.
    Connection(SocketId),
    /// A flow, by its port: of a circuit, or of none if its first cell has not come.
    Flow(usize, ConnId, CircId),
}

/// Since when, and how much. The first in order is the first to end.
type Holding = (Instant, Reverse<usize>, Holder);

impl Core {
    /// A slot of the pool. A full pool costs others their lives: see [above](self). `None` when even that freed nothing.
    pub fn take_slot(&mut self, command: Command) -> Option<SlotId> {
        if let Some(slot) = self.pool.take(command) {
            return Some(slot);
        }
        self.relieve_pressure();
        self.pool.take(command)
    }

    fn relieve_pressure(&mut self) {
        let mut holders = self.holders();
        holders.sort_unstable();
        let (used, max) = (self.pool.used(), self.pool.max());
        let enough = max - (max / FREED_PART).max(1);
        for (_, _, holder) in holders {
            if self.pool.used() <= enough {
                break;
            }
            match holder {
                Holder::Circuit(key) => self.end_with_streams(key),
                Holder::Connection(socket) => self.abort_leftover(socket),
                Holder::Flow(..) => {}
            }
        }
        self.event(Event::MemoryPressure { freed_cells: used - self.pool.used() });
    }

    /// All that hold cells of the pool.
    fn holders(&self) -> Vec<Holding> {
        let circuits = self.circuits.iter().filter_map(|(key, circuit)| {
            let queues = circuit.queues();
            let oldest = queues.filter_map(|queue| self.pool.oldest(queue)).min()?;
            Some((oldest, Reverse(circuit.queued_cells() as usize * SLOT_LEN), Holder::Circuit(key)))
        });
        let connections = self.streams.leftovers.iter().filter_map(|(socket, leftover)| {
            let oldest = self.pool.oldest(&leftover.queue)?;
            Some((oldest, Reverse(leftover.queue.len() as usize * SLOT_LEN), Holder::Connection(*socket)))
        });
        circuits.chain(connections).collect()
    }

    /// All cells of the circuit are freed: what it owes its connections is not left over.
    fn end_with_streams(&mut self, key: CircuitKey) {
        let end = self.circuits.get_mut(key).and_then(|circuit| circuit.end.take());
        end.into_iter().for_each(|end| self.abort_streams(*end));
        self.close_circuit(key, DestroyReason::RESOURCELIMIT);
    }

    /// The flows that a circuit has open, and under what names.
    fn open_flows(&self, key: CircuitKey) -> Vec<(LinkKey, usize, ConnId, CircId)> {
        let Some(circuit) = self.circuits.get(key) else { return Vec::new() };
        let lanes = [Some(&circuit.prev), circuit.lane(Side::Next)].into_iter().flatten();
        let open = lanes.filter(|lane| matches!(lane.credit, Credit::Flow { begun: true, .. }));
        let flow = |(link, circ_id)| {
            let flows = self.links.get(link)?.flows()?;
            Some((link, flows.port, flows.conn, circ_id))
        };
        open.filter_map(|lane| flow((lane.link, lane.circ_id))).collect()
    }
}

impl Ports {
    /// Bytes that flows keep in endpoints, at most.
    pub fn held_bytes(&self) -> usize {
        self.list.iter().map(|port| port.endpoint.held_bytes()).sum()
    }

    /// After each input: what flows keep in endpoints counts beside what waits in the pool.
    pub fn relieve_pressure(&mut self, core: &mut Core, now: Instant) {
        let used = self.used_bytes(core);
        let max = core.config.max_queue_bytes;
        // The pool sees to its own bound.
        if used <= max.max(self.in_vain_above) || self.held_bytes() == 0 {
            return;
        }
        let mut holders = core.holders();
        for (index, port) in self.list.iter().enumerate() {
            port.endpoint.backlogs(&mut |Backlog { conn, circ_id, bytes, since }| {
                holders.push((since, Reverse(bytes), Holder::Flow(index, conn, circ_id)));
            });
        }
        holders.sort_unstable();
        let part = max / FREED_PART as usize;
        for (_, _, holder) in holders {
            if self.used_bytes(core) <= max - part {
                break;
            }
            match holder {
                Holder::Circuit(key) => self.end_with_flows(core, now, key),
                Holder::Connection(socket) => core.abort_leftover(socket),
                Holder::Flow(port, conn, circ_id) => self.end_flow(core, now, (port, conn, circ_id)),
            }
        }
        let left = self.used_bytes(core);
        // What nobody could be ended for is not looked for again until it is more.
        self.in_vain_above = if left > max { left + part } else { 0 };
        let freed_cells = u32::try_from(used.saturating_sub(left) / SLOT_LEN).unwrap_or(u32::MAX);
        core.event(Event::MemoryPressure { freed_cells });
    }

    fn used_bytes(&self, core: &Core) -> usize {
        core.pool.used() as usize * SLOT_LEN + self.held_bytes()
    }

    fn end_flow(&mut self, core: &mut Core, now: Instant, (port, conn, circ_id): (usize, ConnId, CircId)) {
        let known = self.link(port, conn).and_then(|link| core.find(link, circ_id));
        match known {
            Some((key, _)) => self.end_with_flows(core, now, key),
            None => self.reset(now, port, conn, circ_id),
        }
    }

    /// All memory of the circuit is free at once: nothing waits for its last word to be sent.
    fn end_with_flows(&mut self, core: &mut Core, now: Instant, key: CircuitKey) {
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
