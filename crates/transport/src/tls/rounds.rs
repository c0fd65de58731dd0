//! Turns that are fair between sources, by virtual time as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM
//! 1996): a turn starts a round after the one before it of the same source, or now, and the earliest start comes first.

use std::collections::{BTreeMap, BTreeSet};

/// Virtual time in which each source that waits has one turn.
const ROUND: u64 = 1 << 20;

/// Who comes first: the start of the turn in virtual time, then the order of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    start: u64,
    number: u64,
}

pub(super) struct Rounds<Source> {
    waiting: BTreeSet<Place>,
    /// How many turns each source waits for, and where one more would start.
    sources: BTreeMap<Source, (usize, u64)>,
    /// Virtual time.
    now: u64,
    /// Turns that were ever asked for.
    number: u64,
}

impl<Source> Default for Rounds<Source> {
    fn default() -> Self {
        Rounds { waiting: BTreeSet::new(), sources: BTreeMap::new(), now: 0, number: 0 }
    }
}

impl<Source: Ord> Rounds<Source> {
    pub(super) fn join(&mut self, source: Source) -> Place {
        let (turns, next) = self.sources.entry(source).or_default();
        let start = self.now.max(*next);
        *next = start + ROUND;
        *turns += 1;
        self.number += 1;
        let place = Place { start, number: self.number };
        self.waiting.insert(place);
        place
    }

    /// How many come before.
    pub(super) fn ahead(&self, place: Place) -> usize {
        self.waiting.range(..place).count()
    }

    /// The turn is had.
    pub(super) fn serve(&mut self, source: Source, place: Place) {
        self.now += ROUND / self.sources.len().max(1) as u64;
        self.leave(source, place);
    }

    /// False if it had left already.
    pub(super) fn leave(&mut self, source: Source, place: Place) -> bool {
        if !self.waiting.remove(&place) {
            return false;
        }
        if let Some((turns, _)) = self.sources.get_mut(&source) {
            *turns -= 1;
            if *turns == 0 {
                self.sources.remove(&source);
            }
        }
        true
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sources.is_empty()
    }
}
