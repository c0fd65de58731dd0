//! Whatever is done to a table, in whatever order, it stays as its first comment says.

use super::{Circuit, CreditWord, Lane, LaneFlow, Next, Popped, Pushed, Table};
use crate::admission::Party;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::message::Wanted;
use crate::scheduler::{LinkScheduler, Scheduler};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Target;
use heddle_proto::credit::{CreditMessage, N3, N23};
use heddle_proto::crypto::onionskin::HandshakeType;
use heddle_proto::ids::RsaId;
use heddle_proto::pool::CellPool;
use heddle_seam::node::JobId;
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use slotmap::SlotMap;
use std::panic::catch_unwind;

const LINKS: usize = 3;
const IDS: u64 = 12;
const STEPS: usize = 2_000;

/// A table and all that it needs, with chance that decides what is done.
struct World {
    rng: Rng,
    now: Instant,
    table: Table,
    pool: CellPool,
    names: SlotMap<LinkKey, ()>,
    links: Vec<LinkKey>,
    circuits: Vec<CircuitKey>,
}

impl World {
    fn new(seed: u64) -> Self {
        let scheduler = match seed % 2 {
            0 => Scheduler::RoundRobin,
            _ => Scheduler::Kist { half_life: Duration::from_secs(30), interval: Duration::ZERO },
        };
        let mut world = World {
            rng: Seed::from_number(seed).child("table", 0).rng(),
            now: Instant::ZERO,
            table: Table::new(scheduler, u32::MAX),
            pool: CellPool::new(1 << 20),
            names: SlotMap::with_key(),
            links: Vec::new(),
            circuits: Vec::new(),
        };
        (0..LINKS).for_each(|_| world.add_link());
        world
    }

    fn add_link(&mut self) {
        let link = self.names.insert(());
        let scheduler = match self.rng.below(2) {
            0 => Scheduler::RoundRobin,
            _ => Scheduler::Ewma { half_life: Duration::from_secs(30) },
        };
        self.table.add_link(link, LinkScheduler::new(scheduler), self.rng.next_u64());
        self.links.push(link);
    }

    fn link(&mut self) -> LinkKey {
        self.links[self.rng.below(LINKS as u64) as usize]
    }

    fn circuit(&mut self) -> Option<CircuitKey> {
        let count = self.circuits.len() as u64;
        (count > 0).then(|| self.circuits[self.rng.below(count) as usize])
    }

    fn side(&mut self) -> Side {
        if self.rng.below(2) == 0 { Side::Prev } else { Side::Next }
    }

    fn free_id(&mut self, link: LinkKey) -> Option<CircId> {
        let candidate = |rng: &mut Rng| CircId::new(1 + rng.below(IDS) as u32).expect("not zero");
        self.table.free_id(link, &mut self.rng, &candidate)
    }

    fn flow(&mut self) -> Option<LaneFlow> {
        [None, Some(LaneFlow::begun()), Some(LaneFlow::to_begin())][self.rng.below(3) as usize]
    }

    /// Now and then a lane's neighbour counts.
    fn count_cells(&mut self, key: CircuitKey, side: Side) {
        if self.rng.below(3) == 0 {
            let mut n23 = || N23 {
                n2_cells: 1 + self.rng.below(4) as u16,
                n3: [N3::Static(self.rng.below(4) as u16), N3::Adaptive][self.rng.below(2) as usize],
            };
            let (ours, theirs) = (n23(), n23());
            self.table.count_cells(key, side, ours, theirs);
        }
    }

    fn begin(&mut self) {
        let link = self.link();
        let Some(circ_id) = self.free_id(link) else { return };
        let prev = match self.rng.below(4) {
            0 => Lane::crossing(link, circ_id),
            _ => Lane::new(link, circ_id, self.flow()),
        };
        let party = Party::Relay(RsaId([1; 20]));
        let circuit = match self.rng.below(2) {
            0 => Circuit::transit(self.now, party, prev, wanted()),
            _ => Circuit::handshaking(self.now, party, prev, (HandshakeType::Fast, JobId(0)), None),
        };
        let key = self.table.insert(circuit);
        assert_eq!(self.table.find(link, circ_id), Some((key, Side::Prev)));
        self.count_cells(key, Side::Prev);
        self.circuits.push(key);
    }

    /// One step of a circuit's way to its next lane, or back.
    fn grow(&mut self, key: CircuitKey) {
        let link = self.link();
        match self.rng.below(7) {
            0 => self.table.wait(key, wanted()),
            1 => self.table.queue_on(key, link),
            2 => assert!(!self.table.leave_queue(key, link) || !self.table.is_queued_on(key, link)),
            3 => {
                let Some(circ_id) = self.free_id(link) else { return };
                let Some(wanted) = self.table.take_wanted(key) else { return };
                let lane = Lane::unanswered(link, circ_id, self.flow());
                let again = (self.rng.below(2) == 0).then_some(wanted);
                self.table.create(key, lane, again, self.now);
                assert_eq!(self.table.find(link, circ_id), Some((key, Side::Next)));
                self.count_cells(key, Side::Next);
            }
            4 => drop(self.table.join(key)),
            5 => {
                if let Some(lane) = self.table.create_again(key) {
                    self.drop_lane(lane);
                }
            }
            _ => {
                let next = self.table.cut(key);
                self.drop_next(next);
            }
        }
    }

    fn push(&mut self, key: CircuitKey) {
        let Some(slot) = self.pool.take(Command::RELAY) else { return };
        let side = self.side();
        let used = self.pool.used();
        match self.table.push(&mut self.pool, self.now, (key, side), slot) {
            Pushed::Queued(cells) => {
                assert!(cells > 0);
                self.table.mark_ready(self.now, key, side);
            }
            Pushed::Gone => assert_eq!(self.pool.used(), used - 1),
        }
    }

    fn pop(&mut self, link: LinkKey) -> bool {
        match self.table.pop(&mut self.pool, self.now, link) {
            Some(Popped::Cell(departure)) => {
                self.pool.free(departure.slot);
                assert_eq!(
                    self.table.find(link, departure.circ_id),
                    Some((departure.circuit, departure.side))
                );
                true
            }
            Some(Popped::Farewell(farewell)) => {
                assert!(!self.table.is_taken(link, farewell.circ_id));
                true
            }
            Some(Popped::Credit(word)) => {
                let (key, side) =
                    self.table.find(link, word.circ_id).expect("words are of lanes that are there");
                let lane = self.table.get(key).and_then(|circuit| circuit.lane(side));
                assert!(lane.is_some_and(|lane| lane.ledger.is_some()));
                true
            }
            None => false,
        }
    }

    fn end(&mut self, key: CircuitKey) {
        self.circuits.retain(|other| *other != key);
        let circuit = self.table.remove(key).expect("it is there");
        let (prev, next) = circuit.into_lanes();
        self.drop_next(Some(next));
        self.drop_lane(prev);
    }

    fn drop_next(&mut self, next: Option<Next>) {
        if let Some(Next::Creating { lane, .. } | Next::Joined(lane)) = next {
            self.drop_lane(lane);
        }
    }

    fn drop_lane(&mut self, lane: Lane) {
        let farewell = (self.rng.below(2) == 0).then_some(DestroyReason::NONE);
        self.table.drop_lane(&mut self.pool, lane, farewell);
    }

    fn change_credit(&mut self, key: CircuitKey) {
        let (link, side) = (self.link(), self.side());
        let circ_id = CircId::new(1 + self.rng.below(IDS) as u32).expect("not zero");
        match self.rng.below(8) {
            0 => self.table.begin_flow(link, circ_id),
            1 => self.table.set_blocked(self.now, link, circ_id, true),
            2 => self.table.set_blocked(self.now, link, circ_id, false),
            3 => drop(self.table.count_arrival(key, side)),
            4 => {
                let message = match self.rng.below(4) {
                    0 => CreditMessage::Asked,
                    _ => CreditMessage::Granted { cells: self.rng.below(30) },
                };
                let _ = self.table.on_credit(self.now, link, CreditWord { circ_id, message });
            }
            5 => self.table.pass_on(self.now, (key, side), self.rng.below(9) as u32, Duration::ZERO),
            6 => self.table.ask_for_credit(self.now),
            _ => {
                let is_news = self.table.set_held(key, side, true).is_some();
                assert!(!is_news || self.table.set_held(key, side, true).is_none());
            }
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.rng.below(100));
        let (what, link) = (self.rng.below(100), self.link());
        match (what, self.circuit()) {
            (0..=9, _) | (_, None) => self.begin(),
            (10..=39, Some(key)) => self.push(key),
            (40..=59, _) => drop(self.pop(link)),
            (60..=79, Some(key)) => self.grow(key),
            (80..=89, Some(key)) => self.change_credit(key),
            (90..=94, Some(key)) => self.end(key),
            (95, _) => {
                let circ_id = CircId::new(1 + self.rng.below(IDS) as u32).expect("not zero");
                let was_taken = self.table.is_taken(link, circ_id);
                assert_eq!(self.table.refuse(link, circ_id, DestroyReason::NONE), !was_taken);
            }
            (96, _) => self.lose(link),
            _ => {
                while let Some(listed) = self.table.next_listed(self.now) {
                    self.table.unlist(listed);
                    while self.pop(listed) {}
                    assert!(!self.table.has_output(listed));
                }
            }
        }
    }

    /// A link ends with all circuits on it, and another one comes.
    fn lose(&mut self, link: LinkKey) {
        self.links.retain(|other| *other != link);
        for (key, _) in self.table.remove_link(link) {
            if self.table.contains(key) {
                self.end(key);
            }
        }
        self.add_link();
    }

    fn check(&self) {
        let queued: u32 = self.table.iter().map(|(_, circuit)| circuit.queued_cells()).sum();
        assert_eq!(self.pool.used(), queued, "slots are in queues");
        assert_eq!(self.table.len(), self.circuits.len());
        for (key, circuit) in self.table.iter() {
            for (side, lane) in [Side::Prev, Side::Next].map(|side| (side, circuit.lane(side))) {
                let Some(lane) = lane else { continue };
                assert_eq!(self.table.find(lane.link, lane.circ_id), Some((key, side)), "ids lead to lanes");
                let may_send = !lane.queue.is_empty() && lane.may_send();
                assert!(lane.ready || !may_send, "who may send has a turn");
            }
        }
        let lanes: usize = self.table.iter().map(|(_, circuit)| circuit.lanes().count()).sum();
        let ledgers =
            self.table.iter().flat_map(|(_, circuit)| circuit.lanes().filter(|lane| lane.ledger.is_some()));
        assert_eq!(self.table.ledgers, ledgers.count(), "ledgers are counted");
        let farewells: usize = self.links.iter().map(|link| self.table.farewells_len(*link)).sum();
        assert_eq!(self.table.totals().0, lanes + farewells, "each id is a lane's or a farewell's");
    }
}

fn wanted() -> Box<Wanted> {
    let target = Target { rsa: RsaId([2; 20]), ed25519: None, addrs: Vec::new() };
    Box::new(Wanted { target, create2: [0; BODY_LEN], addrs_tried: 0, over_channel: false })
}

/// A client may end thousands of circuits at once: others on the same link wait for one of them at a time.
#[test]
fn between_two_farewells_a_cell_of_somebody_else_leaves() {
    let mut world = World::new(0);
    let (link, party) = (world.links[0], Party::Relay(RsaId([1; 20])));
    let circ_id = |number: u32| CircId::new(number).expect("not zero");
    for number in 2..=100 {
        assert!(world.table.refuse(link, circ_id(number), DestroyReason::NONE));
    }
    let prev = Lane::new(link, circ_id(1), None);
    let key = world.table.insert(Circuit::transit(world.now, party, prev, wanted()));
    for _ in 0..10 {
        let slot = world.pool.take(Command::RELAY).expect("the pool has room");
        world.table.push(&mut world.pool, world.now, (key, Side::Prev), slot);
        world.table.mark_ready(world.now, key, Side::Prev);
    }
    let mut order = String::new();
    while let Some(popped) = world.table.pop(&mut world.pool, world.now, link) {
        match popped {
            Popped::Farewell(_) => order.push('d'),
            Popped::Credit(_) => order.push('w'),
            Popped::Cell(departure) => {
                world.pool.free(departure.slot);
                order.push('c');
            }
        }
    }
    assert_eq!(order, "dc".repeat(10) + &"d".repeat(89));
}

#[test]
fn ids_turns_and_slots_stay_together_whatever_happens() {
    for seed in 0..40 {
        let stands = catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step();
                world.check();
            }
            // At the end nothing is left of anything.
            for key in world.circuits.clone() {
                world.end(key);
            }
            for link in world.links.clone() {
                while world.pop(link) {}
                assert!(world.table.is_idle(link));
            }
            assert_eq!((world.pool.used(), world.table.len()), (0, 0));
        });
        assert!(stands.is_ok(), "seed {seed}");
    }
}
