//! What ends when the memory for cells is used up (`MaxMemInQueues`).
//!
//! As in stock Tor, whoever holds the oldest cell goes first, and not whoever holds the most: cells of those who read
//! move on, cells of a hoard grow old, however many circuits it is spread over (Jansen and others, "The Sniper Attack",
//! NDSS 2014).

use super::circuit::{CircuitKey, Credit, Lane, Side};
use super::core::Core;
use super::message::Event;
use crate::cell::create::DestroyReason;
use crate::cell::{CELL_LEN, Command};
use crate::node::SocketId;
use crate::pool::{SLOT_LEN, SlotId};
use crate::time::{Duration, Instant};
use core::cmp::Reverse;

/// Of a pool that was full, one slot in so many is free afterwards, as in stock Tor. So the search for the oldest, which
/// looks at every circuit, is paid for by many cells.
const FREED_PART: u32 = 10;
/// A flow that is not read for so long may have filled its window. Until then what it leaves with the endpoint is bounded
/// by what the wires bring.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Who holds cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Circuit(CircuitKey),
    /// A connection that is owed data by a stream that is over.
    Connection(SocketId),
}

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
            }
        }
        self.event(Event::MemoryPressure { freed_cells: used - self.pool.used() });
    }

    /// All that hold cells: since when, and how many. The first in order is the first to end.
    fn holders(&self) -> Vec<(Instant, Reverse<u32>, Holder)> {
        let circuits = self.circuits.iter().filter_map(|(key, circuit)| {
            let queues = circuit.queues();
            let oldest = queues.filter_map(|queue| self.pool.oldest(queue)).min()?;
            Some((oldest, Reverse(circuit.queued_cells()), Holder::Circuit(key)))
        });
        let connections = self.streams.leftovers.iter().filter_map(|(socket, leftover)| {
            let oldest = self.pool.oldest(&leftover.queue)?;
            Some((oldest, Reverse(leftover.queue.len()), Holder::Connection(*socket)))
        });
        circuits.chain(connections).collect()
    }

    /// All cells of the circuit are freed: what it owes its connections is not left over.
    fn end_with_streams(&mut self, key: CircuitKey) {
        let end = self.circuits.get_mut(key).and_then(|circuit| circuit.end.take());
        end.into_iter().for_each(|end| self.abort_streams(*end));
        self.close_circuit(key, DestroyReason::RESOURCELIMIT);
    }

    /// Once a second: what flows that were not read for a while may have left with endpoints counts like queued cells.
    /// Where that is more than the shard may hold, those end whose reader stopped first.
    pub fn end_stuck_flows(&mut self) {
        if self.flows.is_empty() {
            return;
        }
        let mut stuck = Vec::new();
        for (key, circuit) in &self.circuits {
            let lanes = [Some(&circuit.prev), circuit.lane(Side::Next)].into_iter().flatten();
            let since = |lane: &Lane| match lane.credit {
                Credit::Flow { held: Some(since), .. } => Some((since, lane.link)),
                _ => None,
            };
            let held = lanes.filter_map(since).filter(|(since, _)| self.now.since(*since) >= STUCK_AFTER);
            let window = |link| {
                self.links.get(link).and_then(|link| link.flows()).map_or(0, |flows| flows.window_bytes)
            };
            stuck.extend(held.map(|(since, link)| (since, key, window(link))));
        }
        stuck.sort_unstable();
        let queued_bytes = self.pool.used() as usize * SLOT_LEN;
        let mut bytes = queued_bytes + stuck.iter().map(|(_, _, window)| window).sum::<usize>();
        for (_, key, window) in stuck {
            if bytes <= self.config.max_queue_bytes {
                break;
            }
            let queued_cells = self.circuits.get(key).map_or(0, |circuit| circuit.queued_cells());
            bytes = bytes.saturating_sub(window + queued_cells as usize * SLOT_LEN);
            self.close_circuit(key, DestroyReason::RESOURCELIMIT);
            let freed_cells = queued_cells + (window / CELL_LEN) as u32;
            self.event(Event::MemoryPressure { freed_cells });
        }
    }
}
