//! The circuits of a connection that has a flow for each: whose turn it is, what they are called, and how they begin
//! and end. What a flow is made of is its transport's affair, and so is what the peer hears.
//!
//! ```text
//!             first cell CREATE2              DESTROY from either side
//!   Unborn ────────────────────────▶ Open ────────────────────────────▶ Ended ──▶ (its name is free)
//!     │ nothing for 10 s, any other cell,      a FIN, any cell that no      once the relay was told,
//!     ▼ a reset                                flow carries                 or at once if it asked for it
//!   (reset, the relay hears nothing)
//! ```

use crate::congestion::{Share, Shares};
use crate::connections::state;
use core::hash::Hash;
use foldhash::fast::FixedState;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::pace::{Pace, Rate};
use heddle_seam::time::{Duration, Instant};
use slotmap::SlotMap;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Bytes of a cell on a flow: its command and its body, because the flow says which circuit it is of.
pub(crate) const FLOW_CELL_LEN: usize = 1 + BODY_LEN;

/// Cells that a circuit may lend before it is the next one's turn.
const TURN_CELLS: u32 = 16;

slotmap::new_key_type! {
    pub(crate) struct CircuitKey;
}

/// How many flows of a peer may end before their first cell was read. Of an honest one's it is those that it gives up
/// before that cell left, while it is lost and on its way again, or while the rate for reading is used up: less than a
/// tenth, on a bad path, of the few thousand that it opens a second. So many take a few thousandths of a processor's
/// time.
const STILLBORN: Rate = Rate { per_s: 500, burst: 5000 };

/// What a circuit takes beside what its transport knows of its flow: its place, and those in tables by name and by
/// flow.
pub(crate) const PLACE_BYTES: usize = 128;

/// Where a circuit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer opened its flow and its first cell has not come: the relay knows nothing of it.
    Unborn {
        due: Instant,
    },
    Open,
    /// It is over, and the relay has not been told yet. Its name stays taken so long.
    Ended,
}

/// Of what the relay is told that it is over.
#[derive(Clone, Copy, Debug)]
enum Farewell {
    /// A circuit, unless the relay has ended it meanwhile.
    Of(CircuitKey),
    /// One that it wanted to begin.
    Refused(CircId),
}

/// A circuit whose flow, an `F`, is called `I` by its transport.
pub(crate) struct Circuit<I, F> {
    pub(crate) circ_id: CircId,
    pub(crate) id: I,
    pub(crate) flow: F,
    stage: Stage,
    pub(crate) is_held: bool,
    /// Whether it stands in the queue of readable circuits.
    is_queued: bool,
    /// Cells lent in this turn.
    turn_cells: u32,
    /// Its part in what the connection sends.
    share: Share,
}

impl<I, F> Circuit<I, F> {
    /// Whether a cell of this command may come now.
    pub(crate) fn takes(&self, command: Command) -> bool {
        match self.stage {
            Stage::Unborn { .. } => command == Command::CREATE2,
            _ => command.is_relay() || command == Command::CREATED2,
        }
    }
}

/// All circuits of a connection.
pub(crate) struct Circuits<I, F> {
    role: Role,
    slots: SlotMap<CircuitKey, Circuit<I, F>>,
    by_name: HashMap<CircId, CircuitKey, FixedState>,
    by_id: HashMap<I, CircuitKey, FixedState>,
    /// Circuits that may have cells to lend. Some have ended since they were queued.
    readable: VecDeque<CircuitKey>,
    /// Circuits that ended, and why: DESTROYs that the relay has not seen. Of some it needs to see none any more.
    ended: VecDeque<(Farewell, u8)>,
    /// Circuits that take cells again, which the relay has not heard.
    writable: VecDeque<CircId>,
    /// All that are unborn, by when their first cell is due.
    unborn: BTreeSet<(Instant, CircuitKey)>,
    first_cell_timeout: Duration,
    /// How many ended unborn that were not judged yet, and those before.
    stillborn: u32,
    churn: Pace,
    shares: Shares,
}

impl<I: Copy + Eq + Hash, F> Circuits<I, F> {
    pub(crate) fn new(role: Role, first_cell_timeout: Duration) -> Self {
        Circuits {
            role,
            slots: SlotMap::with_key(),
            by_name: HashMap::with_hasher(FixedState::with_seed(0)),
            by_id: HashMap::with_hasher(FixedState::with_seed(0)),
            readable: VecDeque::new(),
            ended: VecDeque::new(),
            writable: VecDeque::new(),
            unborn: BTreeSet::new(),
            first_cell_timeout,
            stillborn: 0,
            churn: Pace::default(),
            shares: Shares::default(),
        }
    }

    pub(crate) fn by_name(&self, circ_id: CircId) -> Option<CircuitKey> {
        self.by_name.get(&circ_id).copied()
    }

    pub(crate) fn by_id(&self, id: I) -> Option<CircuitKey> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, key: CircuitKey) -> Option<&Circuit<I, F>> {
        self.slots.get(key)
    }

    /// All circuits, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Circuit<I, F>> {
        self.slots.values()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of all this on the heap, without what flows have there themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        // Behind a circuit stands its place's version.
        state::list::<(Circuit<I, F>, u64)>(self.slots.capacity())
            + state::table(self.by_name.capacity(), size_of::<(CircId, CircuitKey)>())
            + state::table(self.by_id.capacity(), size_of::<(I, CircuitKey)>())
            + state::list::<CircuitKey>(self.readable.capacity())
            + state::list::<(Farewell, u8)>(self.ended.capacity())
            + state::list::<CircId>(self.writable.capacity())
            + state::tree(self.unborn.len(), size_of::<(Instant, CircuitKey)>())
    }

    /// A circuit that has not ended.
    pub(crate) fn live_mut(&mut self, key: CircuitKey) -> Option<&mut Circuit<I, F>> {
        self.slots.get_mut(key).filter(|circuit| circuit.stage != Stage::Ended)
    }

    /// A circuit that is about to send a cell, which counts from now on. One that has ended sends none.
    pub(crate) fn sender(&mut self, key: CircuitKey) -> Option<&mut Circuit<I, F>> {
        let circuit = self.slots.get_mut(key).filter(|circuit| circuit.stage != Stage::Ended)?;
        self.shares.count(&mut circuit.share);
        Some(circuit)
    }

    /// Circuits that had a real part in what was sent since the last call; see [`Shares`].
    pub(crate) fn next_epoch(&mut self) -> Option<f64> {
        self.shares.next_epoch()
    }

    /// Whether circuits of such a name are opened by us.
    pub(crate) fn is_ours(&self, circ_id: CircId) -> bool {
        self.role.picks(circ_id)
    }

    /// The name of this number for a circuit that the peer opens: no name goes over the wire.
    pub(crate) fn their_name(&self, number: u32) -> Option<CircId> {
        self.role.other().circ_id(number)
    }

    /// We open a flow.
    pub(crate) fn begin_ours(&mut self, circ_id: CircId, id: I, flow: F) -> CircuitKey {
        self.insert(circ_id, id, flow, Stage::Open)
    }

    /// The peer opened a flow.
    pub(crate) fn begin_theirs(&mut self, now: Instant, circ_id: CircId, id: I, flow: F) -> CircuitKey {
        let due = now + self.first_cell_timeout;
        let key = self.insert(circ_id, id, flow, Stage::Unborn { due });
        self.unborn.insert((due, key));
        key
    }

    fn insert(&mut self, circ_id: CircId, id: I, flow: F, stage: Stage) -> CircuitKey {
        let (is_held, is_queued, turn_cells, share) = (false, false, 0, Share::default());
        let circuit = Circuit { circ_id, id, flow, stage, is_held, is_queued, turn_cells, share };
        let key = self.slots.insert(circuit);
        self.by_name.insert(circ_id, key);
        self.by_id.insert(id, key);
        key
    }

    /// Forgets a circuit, whose name is free then; `None` if it was forgotten before.
    fn remove(&mut self, key: CircuitKey) -> Option<CircId> {
        let circuit = self.slots.remove(key)?;
        self.by_name.remove(&circuit.circ_id);
        self.by_id.remove(&circuit.id);
        if let Stage::Unborn { due } = circuit.stage {
            self.unborn.remove(&(due, key));
        }
        Some(circuit.circ_id)
    }

    /// Gives a circuit its turn.
    pub(crate) fn note_readable(&mut self, key: CircuitKey) {
        if let Some(circuit) = self.live_mut(key)
            && !circuit.is_held
            && !core::mem::replace(&mut circuit.is_queued, true)
        {
            self.readable.push_back(key);
        }
    }

    pub(crate) fn hold(&mut self, circ_id: CircId, hold: bool) {
        if let Some(key) = self.by_name(circ_id) {
            self.slots[key].is_held = hold;
            self.note_readable(key);
        }
    }

    /// Whether there is a farewell, or a circuit that may have a cell.
    pub(crate) fn has_readable(&self) -> bool {
        !self.ended.is_empty() || !self.readable.is_empty()
    }

    /// The circuit whose turn it is to lend a cell.
    pub(crate) fn first_readable(&mut self) -> Option<(CircuitKey, &mut Circuit<I, F>)> {
        loop {
            let key = *self.readable.front()?;
            if self.slots.get(key).is_some_and(|circuit| circuit.stage != Stage::Ended) {
                return Some((key, &mut self.slots[key]));
            }
            self.readable.pop_front();
        }
    }

    /// A circuit's first cell has come.
    pub(crate) fn bear(&mut self, key: CircuitKey) {
        if let Some(circuit) = self.slots.get_mut(key)
            && let Stage::Unborn { due } = circuit.stage
        {
            self.unborn.remove(&(due, key));
            circuit.stage = Stage::Open;
        }
    }

    /// The first readable circuit lent a cell.
    pub(crate) fn lent(&mut self, key: CircuitKey) {
        self.bear(key);
        let circuit = &mut self.slots[key];
        circuit.turn_cells += 1;
        if circuit.turn_cells == TURN_CELLS {
            circuit.turn_cells = 0;
            self.readable.rotate_left(1);
        }
    }

    /// The first readable circuit has no cell to lend.
    pub(crate) fn done(&mut self, key: CircuitKey) {
        let circuit = &mut self.slots[key];
        circuit.is_queued = false;
        circuit.turn_cells = 0;
        self.readable.pop_front();
    }

    /// A circuit takes cells again.
    pub(crate) fn note_writable(&mut self, key: CircuitKey) {
        self.writable.push_back(self.slots[key].circ_id);
    }

    /// The next circuit that takes cells again, if it still exists.
    pub(crate) fn poll_writable(&mut self) -> Option<CircId> {
        while let Some(circ_id) = self.writable.pop_front() {
            if self.by_name.contains_key(&circ_id) {
                return Some(circ_id);
            }
        }
        None
    }

    /// There is no room for a circuit that the relay begins.
    pub(crate) fn refuse(&mut self, circ_id: CircId) {
        self.ended.push_back((Farewell::Refused(circ_id), DestroyReason::RESOURCELIMIT.0));
    }

    /// A circuit is over. The relay is told if it knows it.
    pub(crate) fn end(&mut self, key: CircuitKey, reason: u8) {
        let Some(circuit) = self.live_mut(key) else {
            return;
        };
        if circuit.stage == Stage::Open {
            circuit.stage = Stage::Ended;
            self.ended.push_back((Farewell::Of(key), reason));
        } else {
            self.remove(key);
        }
    }

    /// The peer ends a flow, or begins it in a wrong way. If the relay knows nothing of it, that is counted.
    pub(crate) fn note_stillborn(&mut self, key: CircuitKey) {
        let is_unborn = |circuit: &Circuit<I, F>| matches!(circuit.stage, Stage::Unborn { .. });
        self.stillborn += u32::from(self.slots.get(key).is_some_and(is_unborn));
    }

    /// The relay ends a circuit, and needs not be told. If it waits to be, that is passed over when its turn comes.
    pub(crate) fn destroy(&mut self, key: CircuitKey) {
        self.remove(key);
    }

    /// The next circuit that ended, and why. Its name is free from now on.
    pub(crate) fn next_farewell(&mut self) -> Option<(CircId, u8)> {
        loop {
            let (farewell, reason) = self.ended.pop_front()?;
            let circ_id = match farewell {
                Farewell::Refused(circ_id) => Some(circ_id),
                Farewell::Of(key) => self.remove(key),
            };
            if let Some(circ_id) = circ_id {
                return Some((circ_id, reason));
            }
        }
    }

    /// Whether the peer keeps beginning flows that end before their first cell: the relay never hears of them, so none
    /// of its limits is about them, and each costs us as much as a circuit.
    pub(crate) fn is_churned(&mut self, now: Instant) -> bool {
        (0..core::mem::take(&mut self.stillborn)).any(|_| !self.churn.take(now, STILLBORN))
    }

    /// How many there are that the peer opened and the relay knows nothing of.
    pub(crate) fn unborn(&self) -> usize {
        self.unborn.len()
    }

    /// When a circuit's first cell is overdue.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.unborn.first().map(|(due, _)| *due)
    }

    /// A circuit whose first cell did not come in time. It is the same until that [ends](Self::end).
    pub(crate) fn overdue(&self, now: Instant) -> Option<CircuitKey> {
        self.unborn.first().filter(|(due, _)| *due <= now).map(|(_, key)| *key)
    }

    /// Forgets everything; the connection is over.
    pub(crate) fn clear(&mut self) {
        *self = Circuits::new(self.role, self.first_cell_timeout);
    }
}

/// A cell of a flow, where it is lent from.
#[derive(Debug)]
pub(crate) struct Lent(pub(crate) [u8; FLOW_CELL_LEN]);

impl Lent {
    pub(crate) fn new() -> Self {
        Lent([0; FLOW_CELL_LEN])
    }

    pub(crate) fn body(&self) -> &Body {
        body_of(&self.0)
    }

    /// Lends a cell that came beside flows.
    pub(crate) fn datagram(&mut self, body: &Body) {
        self.0[0] = Command::DATAGRAM.0;
        self.0[1..].copy_from_slice(body);
    }

    /// Lends the cell that says why a circuit ended.
    pub(crate) fn destroy(&mut self, reason: u8) {
        self.0 = [0; FLOW_CELL_LEN];
        (self.0[0], self.0[1]) = (Command::DESTROY.0, reason);
    }
}

/// The body of a cell of a flow.
pub(crate) fn body_of(cell: &[u8]) -> &Body {
    cell[1..].try_into().expect("a cell of a flow is a command and a body")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circuits() -> Circuits<u32, ()> {
        Circuits::new(Role::Responder, Duration::from_secs(10))
    }

    #[test]
    fn only_the_unborn_are_overdue() {
        let mut circuits = circuits();
        let ended = Instant::ZERO + Duration::from_secs(10);
        let [born, destroyed, late] = [1, 2, 3].map(|id| {
            let name = circuits.their_name(id).expect("it is not zero");
            circuits.begin_theirs(Instant::ZERO, name, id, ())
        });
        circuits.note_readable(born);
        assert_eq!(circuits.first_readable().map(|(key, _)| key), Some(born));
        circuits.lent(born);
        circuits.destroy(destroyed);
        assert_eq!((circuits.poll_timeout(), circuits.overdue(Instant::ZERO)), (Some(ended), None));
        assert_eq!(circuits.overdue(ended), Some(late));
        circuits.end(late, 1);
        assert_eq!((circuits.poll_timeout(), circuits.overdue(ended)), (None, None));
        // The relay has heard of none but the one that lent a cell.
        assert_eq!(circuits.next_farewell(), None);
        circuits.end(born, 2);
        assert_eq!(circuits.next_farewell(), circuits.their_name(1).map(|name| (name, 2)));
        assert!(circuits.slots.is_empty() && circuits.by_name.is_empty() && circuits.by_id.is_empty());
    }

    /// Many that both ends give up in one turn take time by their number, and names that are free again are whole.
    #[test]
    fn who_ends_a_circuit_that_is_over_is_not_told_of_it() {
        const COUNT: u32 = 50_000;
        let mut circuits = circuits();
        let names: Vec<CircId> = (1..=COUNT).filter_map(CircId::new).collect();
        let begin =
            |circuits: &mut Circuits<u32, ()>, name: CircId| circuits.begin_ours(name, name.get(), ());
        let keys: Vec<CircuitKey> = names.iter().map(|name| begin(&mut circuits, *name)).collect();
        keys.iter().for_each(|key| circuits.end(*key, 1));
        circuits.refuse(names[0]);
        keys[..keys.len() - 1].iter().for_each(|key| circuits.destroy(*key));
        // The first name is taken anew before the relay hears anything.
        let again = begin(&mut circuits, names[0]);
        let told: Vec<CircId> =
            std::iter::from_fn(|| circuits.next_farewell()).map(|(name, _)| name).collect();
        assert_eq!(told, [names[names.len() - 1], names[0]]);
        assert!(circuits.live_mut(again).is_some() && circuits.len() == 1);
    }

    #[test]
    fn flows_that_end_before_their_first_cell_are_counted() {
        let mut circuits = circuits();
        let begin = |circuits: &mut Circuits<u32, ()>, at: Instant, number: u32| {
            let name = circuits.their_name(number).expect("it is not zero");
            circuits.begin_theirs(at, name, number, ())
        };
        let churn = |circuits: &mut Circuits<u32, ()>, at: Instant, count: u32| {
            for number in 1..=count {
                let key = begin(circuits, at, number);
                circuits.note_stillborn(key);
                circuits.end(key, 1);
            }
            circuits.is_churned(at)
        };
        let mut at = Instant::ZERO;
        assert!(!churn(&mut circuits, at, STILLBORN.burst));
        assert!(churn(&mut circuits, at, 1));
        // Those that had a cell do not count.
        let born = begin(&mut circuits, at, 1);
        circuits.bear(born);
        circuits.note_stillborn(born);
        circuits.end(born, 1);
        assert!(!circuits.is_churned(at) && circuits.next_farewell().is_some());
        for _ in 0..60 {
            at += Duration::from_secs(1);
            assert!(!churn(&mut circuits, at, STILLBORN.per_s));
        }
    }

    #[test]
    fn circuits_lend_in_turn_and_those_that_are_held_or_ended_do_not() {
        let mut circuits = circuits();
        let names = [1, 2, 3].map(|number| CircId::new(number).expect("it is not zero"));
        let keys = names.map(|name| circuits.begin_ours(name, name.get(), ()));
        circuits.hold(names[1], true);
        for key in keys {
            circuits.note_readable(key);
        }
        for turn in [0, 2, 0] {
            for _ in 0..TURN_CELLS {
                assert_eq!(circuits.first_readable().map(|(key, _)| key), Some(keys[turn]));
                circuits.lent(keys[turn]);
            }
        }
        circuits.end(keys[2], 1);
        circuits.hold(names[1], false);
        assert_eq!(circuits.first_readable().map(|(key, _)| key), Some(keys[0]));
        circuits.done(keys[0]);
        assert_eq!(circuits.first_readable().map(|(key, _)| key), Some(keys[1]));
    }
}
