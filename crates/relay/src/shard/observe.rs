//! What a shard shows to whoever analyses it, sockets and endpoints included.

use super::Relay;
use crate::core::{index_of, shard_fields};
use crate::message::Event;
use crate::observe::{Observed, Observees, Why};
use heddle_seam::time::Instant;
use heddle_spe::Snapshot;

impl Relay {
    /// Looks at all of a family, or at the one of that index, and tells what is seen.
    pub(super) fn observe(&mut self, now: Instant, request: u64, observees: Observees, index: Option<u64>) {
        let mut snapshot = Snapshot::of(observees.family());
        let time_ns = now.as_nanos();
        let is_wanted = |of: u64| index.is_none_or(|index| index == of);
        match observees {
            Observees::Lanes | Observees::Circuits | Observees::Streams => {
                self.core.observe(observees, index, &mut snapshot)
            }
            Observees::Channels => {
                for (link, carrier) in self.carriers.iter().filter(|(link, _)| is_wanted(index_of(*link))) {
                    let fields = self.core.channel_fields(link, carrier.writable());
                    fields.into_iter().for_each(|fields| snapshot.push(time_ns, index_of(link), &fields));
                }
            }
            Observees::Connections => {
                for (port, conn, link) in self.ports.connections().filter(|of| is_wanted(index_of(of.2))) {
                    let (stats, capacity) = self.ports.look_at(port, conn);
                    let Some([circuits, cells_in, cells_out]) = self.core.connection_fields(link) else {
                        continue;
                    };
                    let numbers = [
                        stats.queued_cells,
                        capacity as u64,
                        stats.window_bytes,
                        stats.rtt_ns,
                        circuits as u64,
                        port as u64,
                        stats.sent_bytes,
                        stats.received_bytes,
                        stats.sent_packets,
                        stats.lost_packets,
                        cells_in as u64,
                        cells_out as u64,
                    ];
                    let numbers = numbers.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
                    snapshot.push(time_ns, index_of(link), &numbers);
                }
            }
            Observees::Shards => {
                let shard = u64::from(self.core.shard().0);
                if is_wanted(shard) {
                    snapshot.push(time_ns, shard, &shard_fields(&self.in_use(), self.core.slots_max()));
                }
            }
        }
        self.core.event(Event::Observed(Box::new(Observed { why: Why::Asked(request), snapshot })));
    }
}
