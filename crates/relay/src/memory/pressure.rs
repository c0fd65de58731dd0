//! What ends when the memory for cells is used up (`MaxMemInQueues`): that of the pool, what flows keep in endpoints,
//! what connections and flows take there themselves, and what waits in sockets' buffers.
//!
//! - *Bytes*: as in stock Tor, whoever holds the oldest cell goes first, and not whoever holds the most: cells of those
//!   who read move on, cells of a hoard grow old, however many circuits it is spread over (Jansen and others, "The
//!   Sniper Attack", NDSS 2014).
//! - *Buffers* of sockets, when they take more than a quarter of the memory: no circuit's end frees them, so those
//!   channels and connections end whose bytes are oldest, until they take less.
//! - *State* of circuits, connections and flows, when it takes more than half of the memory: bytes of a circuit that
//!   carries nothing do not grow old, so who has more than its [share](crate::memory::shares) loses circuits and flows,
//!   those first that have been idle longest.

use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::destroy;
use crate::message::Event;
use crate::shard::Ports;
use crate::shard::Relay;
use crate::table::Circuit;
use core::cmp::Reverse;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::crypto::RelayLayer;
use heddle_proto::endpoint::{Backlog, ConnId};
use heddle_proto::pool::{SLOT_LEN, SlotId};
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

/// Of memory that was full, one part in so many is free afterwards, as in stock Tor. So the search for the oldest,
/// which looks at every circuit, is paid for by many cells.
const FREED_PART: u32 = 10;
/// Of memory one part in so many is for sockets' buffers before any socket ends for them: honest peers that stall for a
/// moment are few and have little.
const BUFFERS_PART: usize = 4;

/// What a circuit takes beside its place among the circuits: its layer, the two ciphers of that, which the C library's
/// heap has, its places in two links' tables, and what admission knows of it. With 50,000 circuits a process has no
/// more than this says (`transport`'s tests of whole relays, `quic/hostile/relay.rs` and `dtls/hostile/relay.rs`).
const CIRCUIT_PARTS: usize = size_of::<RelayLayer>() + CIPHERS + 2 * LANE + ADMISSION;
/// Twice a context of AWS-LC with the round keys of AES-128.
const CIPHERS: usize = 2 * 480;
const LANE: usize = 60;
/// An entry of a tree by the circuit's key, and its place among those of its neighbour by age.
const ADMISSION: usize = 400;

/// Who holds cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Circuit(CircuitKey),
    /// A connection that is owed data by a stream that is over.
    Connection(SocketId),
    /// A flow, by its port: of a circuit, or of none if its first cell has not come.
    Flow(usize, ConnId, CircId),
}

/// Since when, how much, and who. The first in order is the first to end.
type Holding<H> = (Instant, Reverse<usize>, H);

impl Core {
    /// What one circuit takes itself.
    pub const CIRCUIT_BYTES: usize = size_of::<Circuit>() + CIRCUIT_PARTS;

    /// A slot of the pool. A full pool costs others their lives: see [above](self). `None` when even that freed
    /// nothing.
    pub fn take_slot(&mut self, command: Command) -> Option<SlotId> {
        if let Some(slot) = self.pool.take(command) {
            return Some(slot);
        }
        self.relieve_pressure();
        self.pool.take(command)
    }

    fn relieve_pressure(&mut self) {
        let (used, max) = (self.pool.used(), self.pool.max());
        let enough = max - (max / FREED_PART).max(1);
        let is_enough = |core: &Core| core.pool.used() <= enough;
        end_in_order(self, self.holders(), is_enough, |core, holder| match holder {
            Holder::Circuit(key) => core.end_with_streams(key),
            Holder::Connection(socket) => core.abort_leftover(socket),
            Holder::Flow(..) => {}
        });
        self.event(Event::MemoryPressure { freed_cells: used - self.pool.used() });
    }

    /// All that hold cells of the pool.
    fn holders(&self) -> Vec<Holding<Holder>> {
        let circuits = self.table.iter().filter_map(|(key, circuit)| {
            let queues = circuit.queues();
            let oldest = queues.filter_map(|queue| self.pool.oldest(queue)).min()?;
            Some((oldest, Reverse(circuit.queued_cells() as usize * SLOT_LEN), Holder::Circuit(key)))
        });
        let connections = self.streams.owed().filter_map(|(socket, queue)| {
            let oldest = self.pool.oldest(queue)?;
            Some((oldest, Reverse(queue.len() as usize * SLOT_LEN), Holder::Connection(socket)))
        });
        circuits.chain(connections).collect()
    }

    /// What circuits take themselves.
    pub fn state_bytes(&self) -> usize {
        self.table.capacity() * size_of::<(Box<Circuit>, u32)>()
            + self.table.len() * Core::CIRCUIT_BYTES
            + self.idle_round.bytes()
    }

    /// All cells of the circuit are freed: what it owes its connections is not left over.
    fn end_with_streams(&mut self, key: CircuitKey) {
        let end = self.table.get_mut(key).and_then(|circuit| circuit.end.take());
        end.into_iter().for_each(|end| self.abort_streams(*end));
        self.close_circuit(key, DestroyReason::RESOURCELIMIT);
    }

    /// The flows that a circuit has open, and under what names.
    fn open_flows(&self, key: CircuitKey) -> Vec<(LinkKey, usize, ConnId, CircId)> {
        let Some(circuit) = self.table.get(key) else { return Vec::new() };
        let flow = |(link, circ_id)| {
            let flows = self.links.get(link)?.flows()?;
            Some((link, flows.port, flows.conn, circ_id))
        };
        circuit.open_flows().filter_map(flow).collect()
    }
}

impl Relay {
    /// After each input: what endpoints and sockets keep counts beside what waits in the pool.
    pub(crate) fn relieve_pressure(&mut self, now: Instant) {
        let used = self.ports.used_bytes(&self.core);
        let max = self.core.config.max_queue_bytes;
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
        if self.ports.used_bytes(&self.core) <= max - part {
            return;
        }
        if self.core.buffers.bytes() > max / BUFFERS_PART {
            self.relieve_buffers(now, max / BUFFERS_PART - part);
        }
        let mut state_max = usize::MAX;
        if self.ports.all_state_bytes(&self.core) > max / 2 {
            state_max = max / 2 - part;
            self.ports.relieve_state(&mut self.core, now, state_max);
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
        let is_enough = |relay: &Relay| relay.core.buffers.bytes() <= max;
        end_in_order(self, self.core.buffers.holders(), is_enough, |relay, socket| {
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
            ports.waiting_bytes(core) + ports.all_state_bytes(core).min(state_max) <= enough
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

    /// The same with what circuits take.
    pub fn all_state_bytes(&self, core: &Core) -> usize {
        self.state_bytes() + core.state_bytes()
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
        core.pool.used() as usize * SLOT_LEN + self.held_bytes() + core.buffers.bytes()
    }

    fn used_bytes(&self, core: &Core) -> usize {
        self.waiting_bytes(core) + self.all_state_bytes(core)
    }

    pub fn end_flow(
        &mut self,
        core: &mut Core,
        now: Instant,
        (port, conn, circ_id): (usize, ConnId, CircId),
    ) {
        let known = self.link(port, conn).and_then(|link| core.table.find(link, circ_id));
        match known {
            Some((key, _)) => self.end_with_flows(core, now, key),
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

/// Ends those that come first, until it is enough.
fn end_in_order<T, H: Ord>(
    on: &mut T,
    mut holders: Vec<Holding<H>>,
    is_enough: impl Fn(&T) -> bool,
    end: impl Fn(&mut T, H),
) {
    holders.sort_unstable();
    for (_, _, holder) in holders {
        if is_enough(on) {
            break;
        }
        end(on, holder);
    }
}
