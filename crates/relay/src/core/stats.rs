//! What the shard did and holds, gathered from its parts.

use super::Core;
use crate::stats::RelayStats;

impl Core {
    /// What the shard did and holds; it takes a look at every circuit and link.
    pub fn stats(&self) -> RelayStats {
        let mut stats = RelayStats {
            transports: self.meter.transports.clone(),
            fallbacks: self.meter.fallbacks.clone(),
            queue_delay: self.table.waits().clone(),
            queue_cells_max: self.meter.queue_cells_max.into(),
            held_queue_cells_max: self.meter.held_queue_cells_max.into(),
            pool_slots: self.pool.used().into(),
            pool_slots_used_max: self.pool.used_max().into(),
            pool_slots_max: self.pool.max().into(),
            buffer_bytes: self.buffers.bytes() as u64,
            circuits: self.table.len() as u64,
            granted: self.admission.granted(),
            refused: self.admission.refused().clone(),
            addresses_held_off: self.meter.addresses_held_off,
            addresses_held_off_for_queues: self.meter.addresses_held_off_for_queues,
            ..RelayStats::default()
        };
        let lanes = self.table.iter().flat_map(|(_, circuit)| circuit.lanes());
        for cells in lanes.map(|lane| u64::from(lane.queued_cells())) {
            stats.queue_cells += cells;
            stats.queue_cells_longest = stats.queue_cells_longest.max(cells);
        }
        for (key, link) in &self.links {
            let open = link.channel().is_none_or(|channel| channel.open);
            if let Some(transport) = link.transport().filter(|_| open) {
                stats.transports[transport].links += 1;
                stats.transports[transport].lanes += self.table.ids_len(key) as u64;
            }
        }
        stats
    }
}
