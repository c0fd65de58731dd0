//! What a shard did and holds, sockets and endpoints included.

use super::Relay;
use crate::memory::InUse;
use crate::stats::RelayStats;

impl Relay {
    /// Cells that wait in this shard.
    pub fn queued_cells(&self) -> u32 {
        self.core.queued_cells()
    }

    /// What this shard holds, counted afresh; it takes a look at every circuit.
    pub fn in_use(&self) -> InUse {
        let flow_bytes = self.ports.buffered_bytes();
        InUse { channels: self.carriers.len(), flow_bytes, ..self.core.in_use() }
    }

    /// What this shard has done and what waits in it. It takes a look at every circuit.
    pub fn stats(&self) -> RelayStats {
        let (flow_bytes, flow_state_bytes) =
            (self.ports.buffered_bytes() as u64, self.ports.state_bytes() as u64);
        let mut stats = RelayStats { flow_bytes, flow_state_bytes, ..self.core.stats() };
        // Channels come first.
        for (transport, refused) in stats.transports.iter_mut().skip(1).zip(self.ports.refused_datagrams()) {
            transport.refused = refused;
        }
        stats
    }

    /// Circuits of this shard, those that cross to another counted in both.
    pub fn circuits(&self) -> usize {
        self.core.circuits_len()
    }
}
