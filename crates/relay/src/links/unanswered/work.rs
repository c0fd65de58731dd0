//! What the core does with circuits that wait for their turn on a link.

use super::Unanswered;
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};

impl Core {
    /// Lets a circuit wait for its turn on a link.
    pub fn queue_extend(&mut self, key: CircuitKey, link_key: LinkKey) {
        self.table.queue_on(key, link_key);
        let Some(circuit) = self.table.get(key) else { return };
        let Some(link) = self.links.get_mut(link_key) else { return };
        link.unanswered.push(circuit.party, circuit.prev().link(), key);
        link.unanswered.sweep(&|key| self.table.is_queued_on(*key, link_key));
    }

    /// A CREATE2 that went out on a link was answered, or never will be.
    pub fn give_unanswered(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.get_mut(link_key) else { return };
        link.unanswered.count -= 1;
        if link.unanswered.queued_len > 0 {
            self.table.list(link_key);
        }
    }

    /// Lets circuits go on that are queued on a link, as many as may.
    pub fn extend_queued(&mut self, link_key: LinkKey) {
        let max = self.config.limits.creates_unanswered;
        while let Some(link) = self.links.get_mut(link_key).filter(|link| link.unanswered.count < max) {
            let Some(key) = link.unanswered.pop() else { return };
            self.extend_next(key, link_key);
        }
    }

    /// A link ended: circuits that were queued on it look for another.
    pub fn leave_queue(&mut self, link_key: LinkKey, mut unanswered: Unanswered) {
        while let Some(key) = unanswered.pop() {
            self.extend_next(key, link_key);
        }
    }

    /// A circuit's turn has come, if it still is queued on this link.
    fn extend_next(&mut self, key: CircuitKey, link_key: LinkKey) {
        if !self.table.leave_queue(key, link_key) {
            return;
        }
        match self.link_for(key) {
            // It is this one's turn, so it does not wait for others.
            Some(found) if found == link_key => self.send_create(key, link_key),
            _ => self.find_channel(key),
        }
    }
}
