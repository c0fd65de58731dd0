//! The circuits of a shard, their lanes on links, and the cells that wait there.
//!
//! Nobody else changes these. Three things hold after every call:
//!
//! - A lane's id is taken on its link as long as the lane is there, and leads to it.
//! - A link's scheduler holds a turn of each lane that has cells and may send them.
//! - A slot that was pushed is in one queue, until it is popped or its lane ends.
//!
//! Links are somebody else's; the table knows their keys. So is the pool of slots, of which streams have some too.

mod circuit;
mod credit;
mod flows;
mod ids;
mod lane;
mod ledger;
mod measure;
mod next;
#[cfg(test)]
mod tests;

use crate::keys::{CircuitKey, LinkKey, Side};
use crate::scheduler::{CircuitScheduler, LinkScheduler, Scheduler, Turn};
use crate::stats::DelayHistogram;
pub(crate) use circuit::{Circuit, Next};
pub(crate) use credit::CreditWord;
use heddle_proto::cell::CircId;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::pool::{CellPool, SlotId};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};

pub(crate) use ids::Farewell;
use ids::LinkIds;
pub(crate) use lane::{Lane, LaneFlow};
use slotmap::{SecondaryMap, SlotMap};
use std::collections::VecDeque;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Table {
    /// Each has memory of its own, which is free when it ends: a map never gives back what it once had.
    circuits: SlotMap<CircuitKey, Box<Circuit>>,
    links: SecondaryMap<LinkKey, LinkIds>,
    /// Links with output since they were last flushed; each once, as its `is_listed` says.
    to_flush: VecDeque<LinkKey>,
    /// Whether the one of them comes first whose lanes sent least of late, and not who came first.
    chooses_links: bool,
    /// Cells that may wait on one lane, towards the client and away from it: whoever queues more ends the circuit.
    cells_max: u32,
    cells_out_max: u32,
    /// Lanes whose neighbour's credit was used up when this was last looked at, and some that are over.
    starved: Vec<(CircuitKey, Side)>,
    /// Lanes whose neighbour counts.
    ledgers: usize,
    /// How long cells waited in lanes.
    waits: DelayHistogram,
}

/// Among so many links one is chosen, of those that came first: each choice looks at them all.
const CHOICES_MAX: usize = 64;

/// What became of a cell that was to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// So many wait in its lane now.
    Queued(u32),
    /// There is no such lane any more, and the slot is free.
    Gone,
}

/// What a link sends next. Whoever gets a slot frees it.
#[derive(Debug)]
pub(crate) enum Popped {
    Farewell(Farewell),
    Credit(CreditWord),
    Cell(Departure),
}

/// A cell that leaves a lane.
#[derive(Debug)]
pub(crate) struct Departure {
    pub circ_id: CircId,
    pub slot: SlotId,
    pub circuit: CircuitKey,
    pub side: Side,
    /// Cells that are left in the lane.
    pub left: u32,
    /// How long it waited there.
    pub waited: Duration,
}

/// Circuits.
impl Table {
    /// Lanes are served so, and so many cells may wait on one.
    pub fn new(scheduler: Scheduler, cells_max: u32) -> Self {
        let chooses_links = scheduler.chooses_links();
        Table { chooses_links, cells_max, cells_out_max: cells_max, ..Table::default() }
    }

    /// A circuit begins; its lane towards the client takes its id.
    pub fn insert(&mut self, circuit: Circuit) -> CircuitKey {
        let (link, circ_id) = (circuit.prev.link, circuit.prev.circ_id);
        self.ledgers += usize::from(circuit.prev.ledger.is_some());
        let key = self.circuits.insert(Box::new(circuit));
        if let Some(ids) = self.links.get_mut(link) {
            ids.take(circ_id, (key, Side::Prev));
        }
        key
    }

    /// A circuit ends; its lanes are the caller's to drop.
    pub fn remove(&mut self, key: CircuitKey) -> Option<Box<Circuit>> {
        self.circuits.remove(key)
    }

    pub fn get(&self, key: CircuitKey) -> Option<&Circuit> {
        self.circuits.get(key).map(|circuit| &**circuit)
    }

    pub fn get_mut(&mut self, key: CircuitKey) -> Option<&mut Circuit> {
        self.circuits.get_mut(key).map(|circuit| &mut **circuit)
    }

    pub fn contains(&self, key: CircuitKey) -> bool {
        self.circuits.contains_key(key)
    }

    /// The circuit that `circ_id` names on `link`, and which of its lanes that is.
    pub fn find(&self, link: LinkKey, circ_id: CircId) -> Option<(CircuitKey, Side)> {
        let found = *self.links.get(link)?.taken.get(&circ_id)?;
        self.circuits.contains_key(found.0).then_some(found)
    }

    /// The link on which CREATE2 was sent for a circuit's next hop and not answered.
    pub fn unanswered_on(&self, key: CircuitKey) -> Option<LinkKey> {
        self.get(key)?.unanswered_on()
    }

    pub fn iter(&self) -> impl Iterator<Item = (CircuitKey, &Circuit)> {
        self.circuits.iter().map(|(key, circuit)| (key, &**circuit))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (CircuitKey, &mut Circuit)> {
        self.circuits.iter_mut().map(|(key, circuit)| (key, &mut **circuit))
    }

    pub fn len(&self) -> usize {
        self.circuits.len()
    }

    /// Circuits that there is a place for without more memory.
    pub fn capacity(&self) -> usize {
        self.circuits.capacity()
    }

    fn lane_mut(&mut self, key: CircuitKey, side: Side) -> Option<&mut Lane> {
        self.circuits.get_mut(key)?.lane_mut(side)
    }
}

/// Cells.
impl Table {
    /// Queues a cell on a lane, which does not have its turn by that: see [`Table::mark_ready`].
    pub fn push(
        &mut self,
        pool: &mut CellPool,
        now: Instant,
        (key, side): (CircuitKey, Side),
        slot: SlotId,
    ) -> Pushed {
        let Some(lane) = self.lane_mut(key, side) else {
            pool.free(slot);
            return Pushed::Gone;
        };
        pool.push(&mut lane.queue, slot, now);
        if let Some(measured) = &mut lane.measured {
            measured.on_queue(lane.queue.len());
        }
        Pushed::Queued(lane.queue.len())
    }

    /// Cells that may wait on a lane.
    pub fn cells_max(&self, side: Side) -> u32 {
        match side {
            Side::Prev => self.cells_max,
            Side::Next => self.cells_out_max,
        }
    }

    /// Others may wait from now on, towards the client and away from it.
    pub fn set_cells_max(&mut self, cells_max: u32, cells_out_max: u32) {
        (self.cells_max, self.cells_out_max) = (cells_max, cells_out_max);
    }

    /// Puts a lane that can send at the end of its link's round, unless it is in it.
    pub fn mark_ready(&mut self, now: Instant, key: CircuitKey, side: Side) {
        let Some(lane) = self.circuits.get_mut(key).and_then(|circuit| circuit.lane_mut(side)) else {
            return;
        };
        if lane.ready || lane.queue.is_empty() || !lane.may_send() {
            return;
        }
        lane.ready = true;
        if let Some(ids) = self.links.get_mut(lane.link) {
            ids.ready.push(now, Turn { circuit: key, side, circ_id: lane.circ_id }, lane.activity);
            list(ids, lane.link, &mut self.to_flush);
        }
    }

    /// What `link` sends next: DESTROY first, then words of credit, then the cell of the lane whose turn it is. After a
    /// DESTROY the others have a turn, as in stock Tor: who has many circuits end at once delays nobody for as long as
    /// that takes.
    pub fn pop(&mut self, pool: &mut CellPool, now: Instant, link: LinkKey) -> Option<Popped> {
        let is_others_turn = self.links.get_mut(link)?.end_farewells_turn();
        let farewell = if is_others_turn { None } else { self.pop_farewell(link) };
        farewell
            .or_else(|| self.pop_word(link).map(Popped::Credit))
            .or_else(|| self.pop_cell(pool, now, link).map(Popped::Cell))
            .or_else(|| self.pop_farewell(link))
    }

    /// The next DESTROY of a link, though there may be no room for cells.
    pub fn pop_farewell(&mut self, link: LinkKey) -> Option<Popped> {
        self.links.get_mut(link)?.pop_farewell().map(Popped::Farewell)
    }

    /// The cell of the lane whose turn it is.
    fn pop_cell(&mut self, pool: &mut CellPool, now: Instant, link: LinkKey) -> Option<Departure> {
        let ids = self.links.get_mut(link)?;
        loop {
            let Turn { circuit, side, circ_id } = ids.ready.pop(now)?;
            let Some(lane) = self.circuits.get_mut(circuit).and_then(|circuit| circuit.lane_mut(side)) else {
                continue;
            };
            // A lane that is over leaves its old turn behind.
            if lane.link != link || lane.circ_id != circ_id {
                continue;
            }
            lane.ready = false;
            lane.moved = true;
            if !lane.may_send() {
                continue;
            }
            let Some(slot) = pool.pop(&mut lane.queue) else {
                continue;
            };
            ids.ready.charge(now, &mut lane.activity);
            if let Some(ledger) = &mut lane.ledger
                && pool.command(&slot).is_relay()
                && ledger.on_sent(now)
            {
                self.starved.push((circuit, side));
            }
            let waited = now.since(pool.queued_at(&slot));
            self.waits.record_us(u32::try_from(waited.as_micros()).unwrap_or(u32::MAX));
            if let Some(measured) = &mut lane.measured {
                measured.on_left(waited);
            }
            let left = lane.queue.len();
            self.mark_ready(now, circuit, side);
            return Some(Departure { circ_id, slot, circuit, side, left, waited });
        }
    }

    /// The next cell towards a client who is ourselves: no link takes it.
    pub fn pop_prev(&mut self, pool: &mut CellPool, key: CircuitKey) -> Option<SlotId> {
        pool.pop(&mut self.circuits.get_mut(key)?.prev.queue)
    }

    /// How long cells waited in lanes.
    pub fn waits(&self) -> &DelayHistogram {
        &self.waits
    }
}

/// Ids and turns on links.
impl Table {
    /// A link is there, without lanes.
    pub fn add_link(&mut self, link: LinkKey, ready: LinkScheduler, hash_seed: u64) {
        self.links.insert(link, LinkIds::new(ready, hash_seed));
    }

    /// A link is gone. Returns the circuits that had lanes there, in the order of their ids.
    pub fn remove_link(&mut self, link: LinkKey) -> Vec<(CircuitKey, Side)> {
        let Some(ids) = self.links.remove(link) else { return Vec::new() };
        let mut lanes: Vec<_> = ids.taken.into_iter().collect();
        lanes.sort_unstable_by_key(|(circ_id, _)| *circ_id);
        lanes.into_iter().map(|(_, lane)| lane).collect()
    }

    /// Circuits whose next hop a link leads to, in the order of their ids.
    pub fn led_on_by(&self, link: LinkKey) -> Vec<CircuitKey> {
        let taken = self.links.get(link).into_iter().flat_map(|ids| &ids.taken);
        let ours = taken.filter(|(_, (_, side))| *side == Side::Next);
        let mut lanes: Vec<_> = ours.map(|(circ_id, (key, _))| (*circ_id, *key)).collect();
        lanes.sort_unstable();
        lanes.into_iter().map(|(_, key)| key).collect()
    }

    /// Ids that are taken on a link, also those whose DESTROY has not left.
    pub fn ids_len(&self, link: LinkKey) -> usize {
        self.links.get(link).map_or(0, |ids| ids.taken.len())
    }

    /// Whether nobody has an id on a link.
    pub fn is_idle(&self, link: LinkKey) -> bool {
        self.ids_len(link) == 0
    }

    pub fn is_taken(&self, link: LinkKey, circ_id: CircId) -> bool {
        self.links.get(link).is_some_and(|ids| ids.taken.contains_key(&circ_id))
    }

    /// An id that nobody has on a link.
    pub fn free_id(
        &self,
        link: LinkKey,
        rng: &mut Rng,
        candidate: &dyn Fn(&mut Rng) -> CircId,
    ) -> Option<CircId> {
        // Stock Tor tries 64 times as well; with half the ids taken all fail once in 2^64.
        const TRIES: usize = 64;
        let ids = self.links.get(link)?;
        let mut candidates = (0..TRIES).map(|_| candidate(rng));
        candidates.find(|id| !ids.taken.contains_key(id))
    }

    /// All ids that are taken, and all turns, on all links.
    pub fn totals(&self) -> (usize, usize) {
        let each = self.links.values().map(|ids| (ids.taken.len(), ids.ready.len()));
        each.fold((0, 0), |(taken, turns), (more, more_turns)| (taken + more, turns + more_turns))
    }

    /// DESTROY cells that wait on a link.
    pub fn farewells_len(&self, link: LinkKey) -> usize {
        self.links.get(link).map_or(0, LinkIds::farewells_len)
    }

    /// A circuit that was asked for under an id is refused. False, and nothing is said, if the id is taken.
    pub fn refuse(&mut self, link: LinkKey, circ_id: CircId, reason: DestroyReason) -> bool {
        let Some(ids) = self.links.get_mut(link) else { return false };
        let refused = ids.refuse(circ_id, reason);
        if refused {
            list(ids, link, &mut self.to_flush);
        }
        refused
    }

    /// Nobody has an id any more, and what was to be said of it is not said. False if nobody had it.
    pub fn forget_id(&mut self, link: LinkKey, circ_id: CircId) -> bool {
        let Some(ids) = self.links.get_mut(link) else { return false };
        ids.free(circ_id)
    }

    /// Notes that a link has output.
    pub fn list(&mut self, link: LinkKey) {
        if let Some(ids) = self.links.get_mut(link) {
            list(ids, link, &mut self.to_flush);
        }
    }

    /// The next link with output. It is listed no more when [`Table::unlist`] says so: until then what comes is flushed
    /// with the rest.
    pub fn next_listed(&mut self, now: Instant) -> Option<LinkKey> {
        if !self.chooses_links {
            return self.to_flush.pop_front();
        }
        let ranks = self.to_flush.iter().take(CHOICES_MAX).map(|link| self.rank(*link, now)).enumerate();
        let (first, _) = ranks.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        self.to_flush.remove(first)
    }

    /// Which of two links comes first, where that is chosen: the one that ranks lower. Words about circuits do not
    /// count, or whoever has one always would come first with all its cells.
    pub fn rank(&self, link: LinkKey, now: Instant) -> f64 {
        self.links.get(link).map_or(0.0, |ids| ids.ready.first_cells(now))
    }

    pub fn unlist(&mut self, link: LinkKey) {
        if let Some(ids) = self.links.get_mut(link) {
            ids.is_listed = false;
        }
    }

    /// Whether something waits to leave on a link.
    pub fn has_output(&self, link: LinkKey) -> bool {
        self.links.get(link).is_some_and(LinkIds::has_output)
    }
}

fn list(ids: &mut LinkIds, link: LinkKey, to_flush: &mut VecDeque<LinkKey>) {
    if !core::mem::replace(&mut ids.is_listed, true) {
        to_flush.push_back(link);
    }
}
