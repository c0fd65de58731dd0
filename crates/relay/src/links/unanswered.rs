//! CREATE2 cells that the next relay has not answered: a few at a time on each link, by turns of who wants them.
//!
//! The next relay gives us a share of its work as one neighbour, and what is over that it refuses. So whoever extends
//! many circuits through us would take the others' part of our share, if all went on as they come. What is over a bound
//! stays here instead, and takes turns as onionskins do ([`crate::circuits::jobs`]): relays and strangers, in each
//! class the neighbours, and the links of each. Below the bound nothing waits.
//!
//! 1. A circuit is to go on over a link that has its number of unanswered CREATE2 cells: it is *queued*.
//! 2. CREATED2 or DESTROY comes, or such a circuit ends: the link is listed to be flushed, and who is next goes on
//!    first.
//! 3. The link ends: who is queued looks for another.

use crate::admission::{Class, Key, Party};
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::turns::{Turns, Waiting};
use std::collections::VecDeque;

/// Circuits that are over are swept out of the turns when there are this many, and twice what was left the last time.
const SWEEP_LEN_MIN: usize = 64;

type OfParty = Turns<LinkKey, VecDeque<CircuitKey>>;

/// What a link owes answers for, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    count: usize,
    /// At most twice as many as are queued, and [`SWEEP_LEN_MIN`].
    queued: Turns<Class, Turns<Key, OfParty>>,
    queued_len: usize,
    sweep_len: usize,
}

impl Unanswered {
    /// Whether one more CREATE2 may go out at once.
    pub fn has_room(&self, max: usize) -> bool {
        self.count < max && self.queued_len == 0
    }

    /// A CREATE2 goes out.
    pub fn take(&mut self) {
        self.count += 1;
    }

    fn push(&mut self, party: Party, prev: LinkKey, circuit: CircuitKey) {
        self.queued.queue(party.class()).queue(party.key()).queue(prev).push_back(circuit);
        self.queued_len += 1;
    }

    fn pop(&mut self) -> Option<CircuitKey> {
        let circuit = self.queued.take()?;
        self.queued_len -= 1;
        Some(circuit)
    }

    fn sweep(&mut self, is_queued: &dyn Fn(&CircuitKey) -> bool) {
        if self.queued_len < self.sweep_len.max(SWEEP_LEN_MIN) {
            return;
        }
        self.queued_len = self.queued.retain(is_queued);
        self.sweep_len = 2 * self.queued_len;
    }
}

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
