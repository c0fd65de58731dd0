//! A circuit that waits for a link finds one: at first, when its turn comes, and when what it had leads nowhere.

use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::Link;
use crate::table::{Circuit, Next};
use heddle_proto::cell::create::DestroyReason;

impl Core {
    /// Finds a link for a circuit that waits for one.
    pub(in crate::core) fn find_channel(&mut self, key: CircuitKey) {
        let Some(wanted) = self.table.get(key).and_then(Circuit::wanted) else { return };
        match self.link_to(wanted) {
            Some(link) => self.extend_over(key, link),
            None if self.config.shards > 1 => self.ask_directory(key),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }

    /// Lets circuits go on that are queued on a link, as many as may.
    pub(in crate::core) fn extend_queued(&mut self, link_key: LinkKey) {
        let max = self.config.limits.creates_unanswered;
        while let Some(key) = self.links.next_create(link_key, max) {
            self.extend_next(key, link_key);
        }
    }

    /// A link ended: circuits that were queued on it look for another.
    pub(in crate::core) fn leave_queue(&mut self, link_key: LinkKey, mut link: Link) {
        while let Some(key) = link.unanswered_mut().pop() {
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

    /// The flow broke, or did not answer CREATE2 for long, or the path is silent: a channel is asked, with the same
    /// handshake. False when that was not so, or was done already.
    pub(in crate::core) fn extend_again(&mut self, key: CircuitKey) -> bool {
        let Some(lane) = self.table.create_again(key) else { return false };
        self.drop_lane(lane, Some(DestroyReason::FINISHED));
        self.find_channel(key);
        true
    }

    /// Circuits whose CREATE2 this link has not answered go over channels.
    pub fn leave_flows(&mut self, link_key: LinkKey) {
        for key in self.table.led_on_by(link_key) {
            self.extend_again(key);
        }
    }

    /// Once a second: who waits for too long does so no more.
    pub(in crate::core) fn end_late_creates(&mut self) {
        while let Some((began_at, key)) = self.links.pop_late_create(self.now) {
            let next = self.table.get(key).map(|circuit| circuit.next());
            let waits =
                matches!(next, Some(Next::Creating { again: Some(_), since, .. }) if *since == began_at);
            if waits {
                let left_at = self.table.get(key).and_then(Circuit::create_left_at);
                if let Some((link, left_at)) = self.table.unanswered_on(key).zip(left_at) {
                    self.links.ask_again(self.now, key, link, left_at);
                }
                self.extend_again(key);
            }
        }
        self.links.forget_late_creates(self.now);
        while let Some(link) = self.links.pop_late_link(self.now) {
            self.links.note_answer(link, false);
        }
    }
}
