//! CREATE2 cells on flows that are not answered for long, though the path is not silent: one flow may lose all it sends
//! again while others are answered, so suspicion (`pairs`) does not come for it.
//!
//! 1. CREATE2 is to go out on a flow: the circuit is listed.
//! 2. It is not answered for [`CREATE_PATIENCE`]: it goes over a channel, with the same handshake. The flow ends, so
//!    what it still answers reaches nobody.
//! 3. After `ANSWER_PATIENCE` the connection is still in use: the path was not silent, so it counts as the peer's
//!    failure.
//!
//! The lists hold what was begun in the last few seconds, because each entry leaves by its time whatever became of the
//! circuit.

use super::answers::ANSWER_PATIENCE;
use crate::keys::{CircuitKey, LinkKey};
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

/// How long CREATE2 waits on a flow. A peer has at most a thousand onionskins to work off before it, which is less than
/// a second's work, so what takes longer was lost more than once; and clients give circuits up after some seconds.
const CREATE_PATIENCE: Duration = Duration::from_secs(3);

/// Since when which circuit waits, and since when a connection owes an answer that is waited for no more; each in that
/// order.
#[derive(Debug, Default)]
pub(crate) struct Late {
    creating: VecDeque<(Instant, CircuitKey)>,
    owed: VecDeque<(Instant, LinkKey)>,
}

impl Late {
    /// CREATE2 is to go out on a flow.
    pub fn watch(&mut self, now: Instant, circuit: CircuitKey) {
        self.creating.push_back((now, circuit));
    }

    /// A circuit that has waited long enough, if it still does, and since when.
    pub fn pop_circuit(&mut self, now: Instant) -> Option<(Instant, CircuitKey)> {
        pop_late(&mut self.creating, now, CREATE_PATIENCE)
    }

    /// A connection owes an answer since then.
    pub fn owe(&mut self, since: Instant, link: LinkKey) {
        self.owed.push_back((since, link));
    }

    /// A connection that has owed an answer for too long.
    pub fn pop_link(&mut self, now: Instant) -> Option<LinkKey> {
        pop_late(&mut self.owed, now, ANSWER_PATIENCE).map(|(_, link)| link)
    }
}

/// The first of a list, if it has waited for so long.
fn pop_late<T>(list: &mut VecDeque<(Instant, T)>, now: Instant, patience: Duration) -> Option<(Instant, T)> {
    let is_late = list.front().is_some_and(|(since, _)| now.since(*since) >= patience);
    if is_late { list.pop_front() } else { None }
}
