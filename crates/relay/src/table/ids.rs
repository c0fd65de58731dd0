//! The lanes of one link: which ids are taken, whose turn it is, and the last words of circuits that are over.

use super::circuit::Circuit;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::scheduler::{CircuitScheduler, LinkScheduler};
use foldhash::fast::FixedState;
use heddle_proto::cell::CircId;
use heddle_proto::cell::create::DestroyReason;
use slotmap::SlotMap;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Turns of lanes that are over may stand in a link's round up to this many, beside two for each
/// lane that the link has; then they are swept out.
const STALE_TURNS_MAX: usize = 64;

/// Tables of a link with more places than this, of which less than an eighth is taken, give most of them back: who
/// opened many circuits once must not keep the memory of them for as long as the channel lasts.
const PLACES_KEPT: usize = 1024;

/// A destroyed circuit's last word on a link. Its id stays taken until the word is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Farewell {
    pub circ_id: CircId,
    pub reason: DestroyReason,
}

#[derive(Debug)]
pub(super) struct LinkIds {
    /// At most `Limits::circuits_per_channel` entries, and on a link to another shard as many as both shards have
    /// circuits. The circuit of one that only waits for its farewell is the null key. Never iterated in an order that
    /// matters.
    pub taken: HashMap<CircId, (CircuitKey, Side), FixedState>,
    /// Lanes with queued cells and credit. Turns of lanes that are over are skipped, and swept out before they are
    /// many.
    pub ready: LinkScheduler,
    /// DESTROY cells, which overtake others. Those whose id is not theirs any more are passed over.
    farewells: VecDeque<Farewell>,
    /// Whether the last that left was one of them, so that it is the turn of the others.
    had_turn: bool,
    /// How many ids wait for their farewell.
    owed: usize,
    /// Lanes that have a word of credit to say, which overtakes cells, beside some that are over. Those are skipped,
    /// and swept out before they are many: a lane that is made anew under an id has a place of its own.
    pub words: VecDeque<(CircuitKey, Side)>,
    /// Whether the list of links to flush holds this one.
    pub is_listed: bool,
}

impl LinkIds {
    pub fn new(ready: LinkScheduler, hash_seed: u64) -> Self {
        LinkIds {
            taken: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            ready,
            farewells: VecDeque::new(),
            had_turn: false,
            owed: 0,
            words: VecDeque::new(),
            is_listed: false,
        }
    }

    /// Whether something waits to leave here.
    pub fn has_output(&self) -> bool {
        self.ready.len() > 0 || self.owed > 0 || !self.words.is_empty()
    }

    /// From now on the id leads nowhere, until the farewell has left.
    pub fn say_farewell(&mut self, circ_id: CircId, reason: DestroyReason) {
        self.take(circ_id, (CircuitKey::default(), Side::Prev));
        self.owe(Farewell { circ_id, reason });
    }

    /// An id is a lane's from now on, or waits for its farewell.
    pub fn take(&mut self, circ_id: CircId, by: (CircuitKey, Side)) {
        let before = self.taken.insert(circ_id, by);
        self.owed -= usize::from(before.as_ref().is_some_and(is_owed));
    }

    fn owe(&mut self, farewell: Farewell) {
        self.farewells.push_back(farewell);
        self.owed += 1;
    }

    /// Farewells that have not left.
    pub fn farewells_len(&self) -> usize {
        self.owed
    }

    /// What was asked for under an id that nobody has is refused: a farewell says so. False if somebody has it.
    pub fn refuse(&mut self, circ_id: CircId, reason: DestroyReason) -> bool {
        let Entry::Vacant(vacant) = self.taken.entry(circ_id) else { return false };
        vacant.insert((CircuitKey::default(), Side::Prev));
        self.owe(Farewell { circ_id, reason });
        true
    }

    pub fn pop_farewell(&mut self) -> Option<Farewell> {
        loop {
            let farewell = self.farewells.pop_front()?;
            if self.taken.get(&farewell.circ_id).is_some_and(is_owed) {
                self.had_turn = true;
                self.free(farewell.circ_id);
                return Some(farewell);
            }
        }
    }

    /// Whether the last that left was a farewell; what leaves next may be one again.
    pub fn end_farewells_turn(&mut self) -> bool {
        core::mem::take(&mut self.had_turn)
    }

    /// An id is nobody's any more, and has no farewell. False if it was nobody's before.
    pub fn free(&mut self, circ_id: CircId) -> bool {
        let taken = self.taken.remove(&circ_id);
        self.owed -= usize::from(taken.as_ref().is_some_and(is_owed));
        let is_loose = |capacity: usize, len: usize| capacity > PLACES_KEPT && len < capacity / 8;
        if is_loose(self.taken.capacity(), self.taken.len()) {
            self.taken.shrink_to(2 * self.taken.len());
        }
        if is_loose(self.farewells.capacity(), self.farewells.len()) {
            self.farewells.shrink_to(2 * self.farewells.len());
        }
        if is_loose(self.words.capacity(), self.words.len()) {
            self.words.shrink_to(2 * self.words.len());
        }
        if is_loose(self.ready.capacity(), self.ready.len()) {
            self.ready.shrink();
        }
        taken.is_some()
    }

    /// Sweeps out turns and words of lanes that are over, when they are many.
    pub fn sweep(&mut self, link: LinkKey, circuits: &SlotMap<CircuitKey, Box<Circuit>>) {
        if self.words.len() > self.taken.len() + STALE_TURNS_MAX {
            self.words.retain(|(circuit, side)| {
                let lane = circuits.get(*circuit).and_then(|circuit| circuit.lane(*side));
                lane.is_some_and(|lane| lane.link == link && lane.has_word())
            });
        }
        if self.ready.len() <= self.taken.len() * 2 + STALE_TURNS_MAX {
            return;
        }
        self.ready.retain(&|turn| {
            let lane = circuits.get(turn.circuit).and_then(|circuit| circuit.lane(turn.side));
            lane.is_some_and(|lane| lane.link == link && lane.circ_id == turn.circ_id)
        });
    }
}

/// Whether an id waits for its farewell alone.
fn is_owed((circuit, _): &(CircuitKey, Side)) -> bool {
    *circuit == CircuitKey::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Activity, Scheduler, Turn};
    use heddle_seam::time::{Duration, Instant};

    #[test]
    fn what_many_circuits_took_is_given_back_when_they_are_gone() {
        const MANY: u32 = 15_000;
        for scheduler in [Scheduler::RoundRobin, Scheduler::Ewma { half_life: Duration::from_secs(30) }] {
            let mut ids = LinkIds::new(LinkScheduler::new(scheduler), 1);
            let capacities = |ids: &LinkIds| {
                [ids.taken.capacity(), ids.farewells.capacity(), ids.words.capacity(), ids.ready.capacity()]
            };
            let of_none = (CircuitKey::default(), Side::Prev);
            for _ in 0..2 {
                for circ_id in (1..=MANY).filter_map(CircId::new) {
                    ids.words.push_back(of_none);
                    let turn = Turn { circuit: of_none.0, side: of_none.1, circ_id };
                    ids.ready.push(Instant::ZERO, turn, Activity::default());
                    ids.say_farewell(circ_id, DestroyReason::NONE);
                }
                assert!(capacities(&ids).iter().all(|capacity| *capacity >= MANY as usize));
                ids.words.clear();
                while ids.ready.pop(Instant::ZERO).is_some() {}
                while ids.pop_farewell().is_some() {}
                assert!(capacities(&ids).iter().all(|capacity| *capacity <= PLACES_KEPT), "{scheduler:?}");
            }
        }
    }
}
