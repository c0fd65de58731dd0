//! What the shard did and holds, gathered from its parts.

use super::Core;
use crate::memory::InUse;
use crate::stats::RelayStats;

impl Core {
    /// What the shard did and holds; it takes a look at every circuit and link.
    pub fn stats(&self) -> RelayStats {
        let mut stats = RelayStats {
            queue_delay: self.table.waits().clone(),
            pool_slots: self.pool.used().into(),
            pool_slots_used_max: self.pool.used_max().into(),
            pool_slots_max: self.pool.max().into(),
            buffer_bytes: self.buffers.bytes() as u64,
            circuit_state_bytes: self.circuits_bytes() as u64,
            channel_state_bytes: (self.channels_bytes() + self.handshakes_bytes()) as u64,
            circuits: self.table.len() as u64,
            granted: self.admission.granted(),
            refused: self.admission.refused().clone(),
            ..self.meter.stats()
        };
        let lanes = self.table.iter().flat_map(|(_, circuit)| circuit.lanes());
        for cells in lanes.map(|lane| u64::from(lane.queued_cells())) {
            stats.queue_cells += cells;
            stats.queue_cells_longest = stats.queue_cells_longest.max(cells);
        }
        for (key, link) in self.links.iter() {
            let open = link.channel().is_none_or(|channel| channel.is_open());
            if let Some(transport) = link.transport().filter(|_| open) {
                stats.transports[transport].links += 1;
                stats.transports[transport].lanes += self.table.ids_len(key) as u64;
            }
        }
        stats
    }

    /// Channels and bytes of flows, which only the shard can tell, are left at zero.
    pub fn in_use(&self) -> InUse {
        let (circ_ids, turns) = self.table.totals();
        InUse {
            slots: self.pool.used(),
            circuit_cells: self.table.iter().map(|(_, circuit)| circuit.queued_cells()).sum(),
            leftover_cells: self.streams.owed().map(|(_, queue)| queue.len()).sum(),
            flow_bytes: 0,
            buffer_bytes: self.buffers.bytes(),
            circuits: self.table.len(),
            channels: 0,
            flow_links: self.links.iter().filter_map(|(_, link)| link.flows()).count(),
            circ_ids,
            turns,
            dials: self.dials.count(),
            connections: self.streams.connections(),
            questions: self.streams.questions(),
            onionskins: self.jobs.len(),
            granted: self.admission.granted(),
            wakes: self.streams.wakes(),
            directory: self.crossings.directory_len(),
        }
    }
}
