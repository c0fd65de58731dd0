//! What passes between sockets and links: the operator's rates for it, and counts.
//!
//! Directions are those of sockets; all of it is relayed traffic.

use super::Core;
use crate::keys::LinkKey;
use core::net::IpAddr;
use heddle_proto::bucket::{Direction, Traffic};

/// Rates.
impl Core {
    /// Takes from the same rates as another shard of the same relay from now on, and knows the same clients.
    pub fn share_with(&mut self, with: &Core) {
        self.rates.share_buckets(&with.rates);
        self.dos.share_clients(&with.dos);
    }

    /// Whether the operator's rates hold for a neighbour at this address.
    pub fn is_limited(&self, addr: IpAddr) -> bool {
        self.config.count_private_bandwidth || !heddle_proto::policy::is_internal(addr)
    }

    /// Bytes that may pass now. When that is nothing, the shard wakes up once it is more.
    pub fn allowance(&mut self, direction: Direction) -> usize {
        self.rates.allowance(self.now, direction, Traffic::Relayed)
    }

    /// Bytes that one socket may pass before it is the others' turn.
    pub fn share(&mut self, direction: Direction) -> usize {
        self.rates.share(self.now, direction, Traffic::Relayed)
    }

    /// So many bytes passed.
    pub fn on_passed(&mut self, direction: Direction, bytes: usize) {
        self.rates.take(direction, Traffic::Relayed, bytes);
    }

    /// Wakes the shard up when a few cells may pass again.
    pub fn wait_for_rate(&mut self, direction: Direction) {
        self.rates.wait(self.now, direction, Traffic::Relayed);
    }

    /// A link has something to do once a rate allows more.
    pub fn hold_link(&mut self, link: LinkKey, direction: Direction) {
        self.rates.hold_link(link, direction);
    }

    /// Whoever waited for the rates looks again, if it is time. Whether it is.
    pub fn on_rates(&mut self) -> bool {
        let (table, now) = (&self.table, self.now);
        let rank = |link: &LinkKey| table.rank(*link, now);
        let rank: Option<&dyn Fn(&LinkKey) -> f64> = match self.config.scheduler.chooses_links() {
            true => Some(&rank),
            false => None,
        };
        let Some((links, sockets)) = self.rates.take_due(now, rank) else { return false };
        links.into_iter().for_each(|link| self.table.list(link));
        sockets.into_iter().for_each(|socket| self.list_stream(socket));
        true
    }
}

/// Counts, by the number of the transport.
impl Core {
    /// Datagrams came.
    pub fn count_received(&mut self, transport: usize, bytes: usize) {
        self.meter.on_received(transport, bytes as u64);
    }

    /// Datagrams left.
    pub fn count_sent(&mut self, transport: usize, bytes: usize) {
        self.meter.on_sent(transport, bytes as u64);
    }

    /// Cells came in.
    pub fn count_cells_in(&mut self, transport: usize, cells: usize) {
        self.meter.on_cells_in(transport, cells as u64);
    }

    /// Cells went out.
    pub fn count_cells_out(&mut self, transport: usize, cells: usize) {
        self.meter.on_cells_out(transport, cells as u64);
    }

    /// A cell of a connection was worked off. Whether the operator's rates hold for that.
    pub fn count_flow_cell_in(&mut self, link: LinkKey) -> bool {
        self.links.count_in(link)
    }

    /// Cells went out on a connection.
    pub fn count_flow_cells_out(&mut self, link: LinkKey, cells: usize) {
        if let Some(transport) = self.links.count_out(link, cells) {
            self.meter.on_cells_out(transport, cells as u64);
        }
    }

    /// A pair goes back to TLS, or stays there.
    pub fn count_fallback(&mut self, reason: &'static str) {
        self.meter.on_fallback(reason);
    }
}
