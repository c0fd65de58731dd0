//! CREATE2 cells that the next relay has not answered: a few at a time on each link, by turns of who wants them.
//!
//! The next relay gives us a share of its work as one neighbour, and what is over that it refuses. So whoever extends
//! many circuits through us would take the others' part of our share, if all went on as they come. What is over a bound
//! stays here instead, and takes turns as onionskins do (`circuits::jobs`): relays and strangers, in each
//! class the neighbours, and the links of each. Below the bound nothing waits.
//!
//! 1. A circuit is to go on over a link that has its number of unanswered CREATE2 cells: it is *queued*.
//! 2. CREATED2 or DESTROY comes, or such a circuit ends: the link is listed to be flushed, and who is next goes on
//!    first.
//! 3. The link ends: who is queued looks for another.

use crate::admission::{Class, Key, Party};
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

    /// A CREATE2 was answered, or never will be. Whether somebody waits for its place.
    pub fn give(&mut self) -> bool {
        self.count -= 1;
        self.queued_len > 0
    }

    /// Who is next, if one more CREATE2 may go out.
    pub fn next(&mut self, max: usize) -> Option<CircuitKey> {
        if self.count < max { self.pop() } else { None }
    }

    /// A circuit that came over `prev` waits.
    pub fn push(&mut self, party: Party, prev: LinkKey, circuit: CircuitKey) {
        self.queued.queue(party.class()).queue(party.key()).queue(prev).push_back(circuit);
        self.queued_len += 1;
    }

    /// Who is next, whether or not there is a place.
    pub fn pop(&mut self) -> Option<CircuitKey> {
        let circuit = self.queued.take()?;
        self.queued_len -= 1;
        Some(circuit)
    }

    /// Sweeps out who waits no more, when these may be many.
    pub fn sweep(&mut self, is_queued: &dyn Fn(&CircuitKey) -> bool) {
        if self.queued_len < self.sweep_len.max(SWEEP_LEN_MIN) {
            return;
        }
        self.queued_len = self.queued.retain(is_queued);
        self.sweep_len = 2 * self.queued_len;
    }
}
