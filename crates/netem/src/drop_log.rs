//! Which packets were dropped, for a driver that wants to know them one by one.

use crate::stats::{DropReason, Drops};
use crate::transit::{HostId, Transit};
use heddle_seam::time::Instant;

/// A packet that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// When it was dropped.
    pub at: Instant,
    /// When it was sent.
    pub sent: Instant,
    pub from: HostId,
    pub to: HostId,
    pub reason: DropReason,
    pub packet: P,
}

/// The dropped packets that the driver has not taken yet. What does not fit is only counted, as everything is while
/// nobody wants to know.
#[derive(Debug)]
pub(crate) struct DropLog<P> {
    dropped: Vec<Dropped<P>>,
    packets_max: usize,
    /// Packets that did not fit.
    pub missed: u64,
}

impl<P> DropLog<P> {
    pub(crate) fn new(packets_max: usize) -> Self {
        DropLog { dropped: Vec::new(), packets_max, missed: 0 }
    }

    /// Counts a packet as dropped, and keeps it.
    pub(crate) fn bury(&mut self, at: Instant, transit: Transit<P>, reason: DropReason, drops: &mut Drops) {
        drops.count(reason);
        if self.dropped.len() < self.packets_max {
            let Transit { packet, sent, from, to, .. } = transit;
            self.dropped.push(Dropped { at, sent, from, to, reason, packet });
        } else if self.packets_max > 0 {
            self.missed += 1;
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Dropped<P>> {
        std::mem::take(&mut self.dropped)
    }
}
