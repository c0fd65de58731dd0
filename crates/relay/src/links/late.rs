//! CREATE2 cells on flows that are not answered for long, though the path is not silent: one flow may lose all it sends
//! again while others are answered, so suspicion (`pairs`) does not come for it.
//!
//! 1. CREATE2 is to go out on a flow: the circuit is listed.
//! 2. It is not answered for [`CREATE_PATIENCE`]: it goes over a channel, with the same handshake. The flow ends, so
//!    what it still answers reaches nobody.
//! 3. After [`ANSWER_PATIENCE`] the connection is still in use: the path was not silent, so it counts as the peer's
//!    failure.
//!
//! The lists hold what was begun in the last few seconds, since each entry leaves by its time whatever became of the
//! circuit.

use super::answers::ANSWER_PATIENCE;
use super::link::Link;
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::table::Next;
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

/// The first of a list, if it has waited for so long.
fn pop_late<T>(list: &mut VecDeque<(Instant, T)>, now: Instant, patience: Duration) -> Option<(Instant, T)> {
    let is_late = list.front().is_some_and(|(since, _)| now.since(*since) >= patience);
    if is_late { list.pop_front() } else { None }
}

impl Core {
    /// CREATE2 is to go out on a flow.
    pub fn watch_create(&mut self, key: CircuitKey) {
        self.flows.late.creating.push_back((self.now, key));
    }

    /// Once a second: who waits for too long does so no more.
    pub fn end_late_creates(&mut self) {
        while let Some((began_at, key)) = pop_late(&mut self.flows.late.creating, self.now, CREATE_PATIENCE) {
            let next = self.table.get(key).map(|circuit| circuit.next());
            let waits =
                matches!(next, Some(Next::Creating { again: Some(_), since, .. }) if *since == began_at);
            if waits {
                if let Some(link) = self.unanswered(key) {
                    self.flows.late.owed.push_back((began_at, link));
                }
                self.extend_again(key);
            }
        }
        while let Some((_, link)) = pop_late(&mut self.flows.late.owed, self.now, ANSWER_PATIENCE) {
            if self.links.get(link).and_then(Link::flows).is_some_and(|flows| !flows.draining) {
                self.note_answer(link, false);
            }
        }
    }
}
