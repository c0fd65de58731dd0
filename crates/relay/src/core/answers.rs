//! What is noted of links, for pairs and for idle closing: lanes that come and go, and CREATE2 cells that are answered
//! or are not.

use super::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::{ANSWER_PATIENCE, Answer, Link};
use crate::table::Next;
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::RsaId;

impl Core {
    /// A lane was taken or given up on a link.
    pub(super) fn touch(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.get(link_key) else { return };
        if link.flows().is_some_and(|flows| flows.knows_occupied(self.table.is_idle(link_key))) {
            self.flows.touch(link_key);
        }
    }

    /// Notes when a link's last circuit leaves, for idle closing.
    pub(super) fn note_if_idle(&mut self, link_key: LinkKey) {
        if !self.table.is_idle(link_key) {
            return;
        }
        match self.links.get_mut(link_key).and_then(Link::channel_mut) {
            Some(channel) => channel.note_used(self.now),
            None => self.touch(link_key),
        }
    }

    /// What became of a CREATE2 that was sent on `link`.
    pub(super) fn note_answer(&mut self, link: LinkKey, answered: bool) {
        let link = self.links.get(link);
        self.flows.note_answer(|| {
            let flow = link?.flows().map(|flows| flows.connection());
            let flow = flow.map(|connection| (connection.port, connection.conn));
            Some(Answer { peer: link?.peer()?, flow, answered })
        });
    }

    /// Whether CREATE2 was sent for a circuit's next hop and not answered; returns the link.
    pub(super) fn unanswered(&self, key: CircuitKey) -> Option<LinkKey> {
        self.table.get(key)?.unanswered_on()
    }

    /// A circuit ends whose next hop may not have answered. If that is not the peer's doing, it counts as the peer's
    /// failure only after [`ANSWER_PATIENCE`]: clients that give up at once say nothing about it.
    pub(super) fn note_no_answer(&mut self, key: CircuitKey) {
        let Some(link) = self.unanswered(key) else { return };
        let Some(Next::Creating { since, .. }) = self.table.get(key).map(|circuit| circuit.next()) else {
            return;
        };
        if self.now.since(*since) >= ANSWER_PATIENCE {
            self.note_answer(link, false);
        }
    }

    /// A CREATE2 that went out on a link was answered, or never will be.
    pub(super) fn give_unanswered(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.get_mut(link_key) else { return };
        if link.unanswered_mut().give() {
            self.table.list(link_key);
        }
    }

    /// From now on circuits to a relay prefer this connection of an endpoint, or none of it.
    pub fn use_flows(&mut self, rsa: &RsaId, port: usize, in_use: Option<ConnId>) {
        for key in self.flows.links_to(rsa) {
            let flows = self.links.get_mut(*key).and_then(Link::flows_mut);
            if let Some(flows) = flows.filter(|flows| flows.connection().port == port) {
                flows.prefer(in_use == Some(flows.connection().conn));
            }
        }
    }
}
