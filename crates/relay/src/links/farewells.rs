//! DESTROY cells that wait to be sent. They are no circuits, and still take an id and memory of a channel until its
//! peer reads.
//!
//! 1. A circuit ends, or is refused: DESTROY joins the others of its link, before all cells.
//! 2. A few of each channel are counted by nobody. What is beyond that counts as circuits of who is to read it: a
//!    circuit that is broken makes room for another only when its DESTROY has left.
//! 3. A channel that had more than these few for a minute is ended, however much of the others its peer reads.
//!
//! Connections with flows need no such count: their endpoints take each DESTROY at once, whatever else they can send.

use super::link::Link;
use crate::core::Core;
use crate::keys::LinkKey;
use heddle_proto::channel::ChannelError;
use heddle_seam::time::Duration;

/// DESTROY cells of a channel that nobody counts: 256 × 33 bytes for each of a shard's 16,000 channels are 135 MB. A
/// stranger that leaves as many unread gets no circuits and no answers.
pub(crate) const UNCOUNTED_MAX: usize = 256;
/// A peer that reads has them all within a round trip.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

impl Core {
    /// A DESTROY joined a link's, or left.
    pub fn count_farewells(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.get_mut(link_key).filter(|link| link.channel().is_some()) else { return };
        let counted = self.table.farewells_len(link_key).saturating_sub(UNCOUNTED_MAX);
        let before = core::mem::replace(&mut link.farewells_counted, counted);
        if before == 0 {
            link.farewells_since = self.now;
        }
        if before != counted {
            self.admission.farewells_wait(self.now, link_key, link.party, counted);
        }
    }

    /// Whether the peer of a channel leaves DESTROY cells unread.
    pub fn leaves_farewells(&self, link_key: LinkKey) -> bool {
        let for_long = |link: &Link| self.now.since(link.farewells_since) >= UNREAD_TIMEOUT;
        self.links.get(link_key).is_some_and(|link| link.farewells_counted > 0 && for_long(link))
    }

    /// A channel is to end, since DESTROY cells that wait there keep others from circuits.
    pub fn end_for_farewells(&mut self, link_key: LinkKey) {
        if let Some(channel) = self.links.get(link_key).and_then(Link::channel) {
            self.dials.end_soon(channel.socket, ChannelError::Crowded);
        }
    }
}
