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

/// A destroyed circuit's last word on a link. Its id stays taken until the word is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Farewell {
    pub circ_id: CircId,
    pub reason: DestroyReason,
}

#[derive(Debug)]
pub(super) struct LinkIds {
    /// At most `Limits::circuits_per_channel` entries, and on a link to another shard as many as both shards have
    /// circuits. Each has at most one place in `farewells`; then its circuit is the null key. Never iterated in an
    /// order that matters.
    pub taken: HashMap<CircId, (CircuitKey, Side), FixedState>,
    /// Lanes with queued cells and credit. Turns of lanes that are over are skipped, and swept out before they are
    /// many.
    pub ready: LinkScheduler,
    /// DESTROY cells, which overtake all others.
    pub farewells: VecDeque<Farewell>,
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
            words: VecDeque::new(),
            is_listed: false,
        }
    }

    /// Whether something waits to leave here.
    pub fn has_output(&self) -> bool {
        self.ready.len() > 0 || !self.farewells.is_empty() || !self.words.is_empty()
    }

    /// From now on the id leads nowhere, until the farewell has left.
    pub fn say_farewell(&mut self, circ_id: CircId, reason: DestroyReason) {
        self.taken.insert(circ_id, (CircuitKey::default(), Side::Prev));
        self.farewells.push_back(Farewell { circ_id, reason });
    }

    /// The same for an id that nobody has; false if somebody has.
    pub fn refuse(&mut self, circ_id: CircId, reason: DestroyReason) -> bool {
        let Entry::Vacant(vacant) = self.taken.entry(circ_id) else { return false };
        vacant.insert((CircuitKey::default(), Side::Prev));
        self.farewells.push_back(Farewell { circ_id, reason });
        true
    }

    pub fn pop_farewell(&mut self) -> Option<Farewell> {
        let farewell = self.farewells.pop_front()?;
        self.taken.remove(&farewell.circ_id);
        Some(farewell)
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
