//! What the core notes of connections and answers.

use super::{ANSWER_PATIENCE, Answer};
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::Link;
use crate::table::Next;
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::RsaId;

impl Core {
    /// A lane was taken or given up on a link.
    pub fn touch(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.get(link_key) else { return };
        if link.flows().is_some_and(|flows| flows.occupied == self.table.is_idle(link_key)) {
            self.flows.notes.touched.push(link_key);
        }
    }

    /// What became of a CREATE2 that was sent on `link`.
    pub fn note_answer(&mut self, link: LinkKey, answered: bool) {
        let Some(link) = self.links.get(link).filter(|_| self.flows.notes.counts_answers) else { return };
        if let Some(peer) = link.peer() {
            let flow = link.flows().map(|flows| (flows.port, flows.conn));
            self.flows.notes.answers.push(Answer { peer, flow, answered });
        }
    }

    /// Whether CREATE2 was sent for a circuit's next hop and not answered; returns the link.
    pub fn unanswered(&self, key: CircuitKey) -> Option<LinkKey> {
        self.table.get(key)?.unanswered_on()
    }

    /// A circuit ends whose next hop may not have answered. If that is not the peer's doing, it counts as the peer's
    /// failure only after [`ANSWER_PATIENCE`]: clients that give up at once say nothing about it.
    pub fn note_no_answer(&mut self, key: CircuitKey) {
        let Some(link) = self.unanswered(key) else { return };
        let Some(Next::Creating { since, .. }) = self.table.get(key).map(|circuit| circuit.next()) else {
            return;
        };
        if self.now.since(*since) >= ANSWER_PATIENCE {
            self.note_answer(link, false);
        }
    }

    /// From now on circuits to a relay prefer this connection of an endpoint, or none of it.
    pub fn use_flows(&mut self, rsa: &RsaId, port: usize, in_use: Option<ConnId>) {
        for key in self.flows.links_to(rsa) {
            let flows = self.links.get_mut(*key).and_then(Link::flows_mut);
            if let Some(flows) = flows.filter(|flows| flows.port == port) {
                flows.draining = in_use != Some(flows.conn);
            }
        }
    }
}
