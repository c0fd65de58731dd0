//! DESTROY cells that wait to be sent count for who is to read them ([`crate::links::Farewells`]).

use super::Core;
use crate::keys::LinkKey;
use crate::links::Link;
use heddle_proto::channel::ChannelError;

impl Core {
    /// A DESTROY joined a link's, or left.
    pub(super) fn count_farewells(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.get_mut(link_key).filter(|link| link.channel().is_some()) else { return };
        if let Some(counted) = link.farewells_mut().count(self.now, self.table.farewells_len(link_key)) {
            self.admission.farewells_wait(self.now, link_key, link.party(), counted);
        }
    }

    /// Whether the peer of a channel leaves DESTROY cells unread.
    pub fn leaves_farewells(&self, link_key: LinkKey) -> bool {
        self.links.get(link_key).is_some_and(|link| link.farewells().are_left_unread(self.now))
    }

    /// A channel is to end, since DESTROY cells that wait there keep others from circuits.
    pub(super) fn end_for_farewells(&mut self, link_key: LinkKey) {
        if let Some(channel) = self.links.get(link_key).and_then(Link::channel) {
            self.dials.end_soon(channel.socket(), ChannelError::Crowded);
        }
    }
}
