//! What the core does about late answers.

use super::CREATE_PATIENCE;
use crate::core::Core;
use crate::keys::CircuitKey;
use crate::links::Link;
use crate::links::answers::ANSWER_PATIENCE;
use crate::table::Next;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

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
