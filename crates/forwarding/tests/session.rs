//! A session from end to end through hops that hand cells on as they come, over a wire that loses, reorders and
//! repeats.

use heddle_forwarding::{HopKeys, HopLayer, Session};
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::cell::{BODY_LEN, Body};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::BufferPool;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a wire does to cells, in parts of 1,000.
#[derive(Clone, Copy, Debug)]
struct Wire {
    lost: u64,
    repeated: u64,
    late: u64,
    touched: u64,
}

const CLEAN: Wire = Wire { lost: 0, repeated: 0, late: 0, touched: 0 };
const ONE_WAY: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Client,
    Exit,
}

struct World {
    now: Instant,
    client: Session,
    exit: Session,
    layers: Vec<HopLayer>,
    wire: Wire,
    on_wire: BTreeMap<(Instant, u64), (To, Body)>,
    sent: u64,
    rng: Rng,
    heard: [Vec<(u8, Vec<u8>)>; 2],
}

impl World {
    fn new(seed: u64, hops: u8, wire: Wire) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let end = HopKeys::new([1; 16], [2; 16]);
        let pool = || BufferPool::new(4 << 20);
        World {
            now,
            client: Session::connect(now, &end, pool()),
            exit: Session::accept(&end, pool()),
            layers: (0..hops)
                .map(|hop| HopLayer::new(&HopKeys::new([10 + hop; 16], [20 + hop; 16])))
                .collect(),
            wire,
            on_wire: BTreeMap::new(),
            sent: 0,
            rng: Seed::from_number(seed).rng(),
            heard: [Vec::new(), Vec::new()],
        }
    }

    fn send(&mut self, to: To, command: u8, data: &[u8]) {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, RelayCommand(command), StreamId::new(7), data, &mut self.rng);
        let session = if to == To::Exit { &mut self.client } else { &mut self.exit };
        session.send(&body).expect("few wait");
    }

    /// Puts a cell on the wire, through all layers: a hop does with it what it does to each, in any order.
    fn launch(&mut self, to: To, mut body: Body) {
        match to {
            To::Exit => self.layers.iter().for_each(|layer| layer.forward(&mut body)),
            To::Client => self.layers.iter().for_each(|layer| layer.backward(&mut body)),
        }
        if self.rng.below(1000) < self.wire.touched {
            let at = self.rng.below(BODY_LEN as u64) as usize;
            body[at] ^= 1 << self.rng.below(8);
        }
        let copies = 1 + u64::from(self.rng.below(1000) < self.wire.repeated);
        for _ in 0..copies {
            if self.rng.below(1000) < self.wire.lost {
                continue;
            }
            let late = if self.rng.below(1000) < self.wire.late { self.rng.below(40) } else { 0 };
            self.sent += 1;
            self.on_wire.insert((self.now + ONE_WAY + Duration::from_millis(late), self.sent), (to, body));
        }
    }

    fn poll(&mut self) {
        let mut body = [0; BODY_LEN];
        while self.client.poll_cell(self.now, &mut body) {
            self.launch(To::Exit, body);
        }
        while self.exit.poll_cell(self.now, &mut body) {
            self.launch(To::Client, body);
        }
    }

    /// Hands in the next cell, or lets the next timer fire. False when nothing is left.
    fn step(&mut self) -> bool {
        self.poll();
        let arrival = self.on_wire.first_key_value().map(|((at, _), _)| *at);
        let timers = [self.client.poll_timeout(), self.exit.poll_timeout()];
        let Some(next) = timers.into_iter().chain([arrival]).flatten().min() else { return false };
        self.now = self.now.max(next);
        if arrival.is_some_and(|at| at <= self.now)
            && let Some((_, (to, mut body))) = self.on_wire.pop_first()
        {
            self.arrive(to, &mut body);
        }
        for session in [&mut self.client, &mut self.exit] {
            if session.poll_timeout().is_some_and(|at| at <= self.now) {
                session.handle_timeout(self.now);
            }
        }
        true
    }

    fn arrive(&mut self, to: To, body: &mut Body) {
        // Layers come off one by one as they went on.
        let (session, heard) = match to {
            To::Exit => {
                self.layers.iter().for_each(|layer| layer.forward(body));
                (&mut self.exit, &mut self.heard[0])
            }
            To::Client => {
                self.layers.iter().for_each(|layer| layer.backward(body));
                (&mut self.client, &mut self.heard[1])
            }
        };
        session.handle_cell(self.now, body).expect("the other end is honest");
        let mut message = [0; BODY_LEN];
        while session.next_message(self.now, &mut message).expect("and says messages") {
            let (header, data) = relay::parse(&message).expect("of a cell's length");
            heard.push((header.command.0, data.to_vec()));
        }
    }

    fn run(&mut self, until: impl Fn(&World) -> bool) {
        let end = self.now + Duration::from_secs(3600);
        while !until(self) {
            assert!(self.now < end, "an hour: {:?} {:?}", self.client, self.exit);
            assert!(self.step(), "it stands still: {:?} {:?}", self.client, self.exit);
        }
    }
}

fn data(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_message_comes_once_and_in_order(
        seed: u64,
        hops in 0u8..4,
        lost in 0u64..150,
        repeated in 0u64..100,
        late in 0u64..300,
        touched in 0u64..50,
        lengths in prop::collection::vec(0usize..=relay::DATA_LEN, 1..200),
    ) {
        let mut world = World::new(seed, hops, Wire { lost, repeated, late, touched });
        let said: Vec<_> = lengths.iter().enumerate().map(|(n, len)| (n as u8, data(n, *len))).collect();
        for (command, data) in &said {
            world.send(To::Exit, *command, data);
        }
        world.run(|world| !world.heard[0].is_empty());
        for (command, data) in &said {
            world.send(To::Client, *command, data);
        }
        let count = said.len();
        world.run(|world| world.heard.iter().all(|heard| heard.len() == count));
        prop_assert!(world.heard.iter().all(|heard| *heard == said));
    }
}

#[test]
fn what_waits_is_told_and_a_full_window_leaves_soon() {
    let mut world = World::new(1, 2, CLEAN);
    (0..150).for_each(|n| world.send(To::Exit, n as u8, &data(n, 498)));
    world.poll();
    let waiting = world.client.queued_cells();
    assert!((110..150).contains(&waiting), "{waiting}: ten segments leave at first");
    world.run(|world| world.heard[0].len() == 150);
    assert_eq!(world.client.queued_cells(), 0);
    assert_eq!(world.client.stats().retransmissions, 0);
    let rtt_ns = world.client.stats().smoothed_rtt_ns.expect("it measured");
    assert!((60_000_000..75_000_000).contains(&rtt_ns), "{rtt_ns}");
}

#[test]
fn cells_that_are_not_the_other_ends_change_nothing() {
    let mut world = World::new(2, 1, CLEAN);
    world.send(To::Exit, 1, b"one");
    world.run(|world| world.heard[0].len() == 1);
    let before = world.exit.stats();
    for number in 0..100u8 {
        let mut body = [number; BODY_LEN];
        world.exit.handle_cell(world.now, &mut body).expect("it is dropped");
    }
    let after = world.exit.stats();
    assert_eq!((after.refused_cells, after.received_cells), (100, before.received_cells));
    world.send(To::Exit, 2, b"two");
    world.run(|world| world.heard[0].len() == 2);
    assert!(!world.exit.is_over());
}

#[test]
fn whoever_takes_nothing_is_owed_a_bounded_amount() {
    let mut world = World::new(3, 0, CLEAN);
    let mut body = [0; BODY_LEN];
    relay::write(&mut body, RelayCommand::DATA, StreamId::new(1), &data(1, 498), &mut world.rng);
    let refused = (0..100_000).find(|_| world.client.send(&body).is_err());
    assert!(refused.is_some_and(|count| count < 3_000), "{refused:?}");
    assert!(world.client.bytes() < 2 << 20, "{}", world.client.bytes());
}

/// What waits outside of TCP waits since it was asked for first, however long the other end has been silent.
#[test]
fn what_waits_waits_since_it_was_asked_for() {
    let mut world = World::new(5, 0, CLEAN);
    let mut body = [0; BODY_LEN];
    relay::write(&mut body, RelayCommand::DATA, StreamId::new(1), b"owed", &mut world.rng);
    let mut cell = [0; BODY_LEN];
    world.exit.send(&body).expect("few wait");
    assert!(!world.exit.poll_cell(world.now, &mut cell), "TCP has not begun");
    let begun = world.now;
    assert_eq!(world.exit.buffered_since(), Some(begun));
    world.send(To::Exit, 1, b"one");
    world.run(|world| world.heard[1].len() == 1);
    world.run(|world| world.exit.buffered_since().is_none());
    let later = world.now + Duration::from_secs(60);
    world.exit.send(&body).expect("few wait");
    assert!(world.exit.poll_cell(later, &mut cell));
    assert_eq!(world.exit.buffered_since(), Some(later), "the minute before does not count");
}

/// Memory for a fifth of what the wire would hold: less is under way, and all of it comes.
#[test]
fn little_memory_slows_a_session_and_does_not_stop_it() {
    let mut world = World::new(4, 1, CLEAN);
    let end = HopKeys::new([1; 16], [2; 16]);
    world.client = Session::connect(world.now, &end, BufferPool::new(16 << 10));
    let (mut said, mut steps) = (0, 0);
    while world.heard[0].len() < 2000 {
        while said < 2000 && world.client.queued_cells() < 100 {
            world.send(To::Exit, (said % 50) as u8 + 1, &data(said, 498));
            said += 1;
        }
        steps += 1;
        assert!(steps < 1_000_000 && world.step(), "it stands still: {:?}", world.client);
    }
    assert!(world.client.bytes() < 200 << 10, "{}", world.client.bytes());
}
