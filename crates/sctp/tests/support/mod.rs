//! Two associations of ours on a wire that delays, loses, reorders and repeats, in virtual time.

#![allow(dead_code, reason = "each test uses a part of it")]

use heddle_sctp::{Association, Event, Message, Options, Random};
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeMap;

pub const MS: Duration = Duration::from_millis(1);

/// What a wire does to packets, in a thousand each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u32,
    pub late: u32,
    pub twice: u32,
}

/// Chance that repeats with its seed.
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    pub fn draw(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below.max(1))) as u32
    }

    fn happens(&mut self, in_a_thousand: u32) -> bool {
        self.draw(1000) < in_a_thousand
    }
}

/// One way between two ends.
pub struct Wire {
    pub faults: Faults,
    pub delay: Duration,
    chance: Chance,
    count: u64,
    under_way: BTreeMap<(Instant, u64), Vec<u8>>,
    /// Packets and bytes that were put on it.
    pub sent: (u64, u64),
}

impl Wire {
    pub fn new(seed: u64, delay: Duration, faults: Faults) -> Self {
        let (chance, under_way) = (Chance(seed), BTreeMap::new());
        Wire { faults, delay, chance, count: 0, under_way, sent: (0, 0) }
    }

    pub fn push(&mut self, now: Instant, packet: Vec<u8>) {
        self.sent = (self.sent.0 + 1, self.sent.1 + packet.len() as u64);
        if self.chance.happens(self.faults.lost) {
            return;
        }
        let times = 1 + u32::from(self.chance.happens(self.faults.twice));
        for _ in 0..times {
            let late = if self.chance.happens(self.faults.late) {
                self.delay * (1 + self.chance.draw(3))
            } else {
                Duration::ZERO
            };
            self.count += 1;
            self.under_way.insert((now + self.delay + late, self.count), packet.clone());
        }
    }

    pub fn next(&self) -> Option<Instant> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }

    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        let key = *self.under_way.keys().next().filter(|(at, _)| *at <= now)?;
        self.under_way.remove(&key)
    }
}

pub fn random(tag: u32) -> Random {
    Random { tag, tsn: tag.wrapping_mul(0x9e37_79b9), cookie: [tag as u8; 32] }
}

/// Two ends, what each was told and read, and a wire from each.
pub struct Pair {
    pub now: Instant,
    pub ends: [Association; 2],
    pub wires: [Wire; 2],
    pub events: [Vec<Event>; 2],
    pub read: [Vec<Message>; 2],
    /// Whether ends read what came as soon as it is there.
    pub reads: bool,
}

impl Pair {
    pub fn new(seed: u64, options: [Options; 2], faults: Faults) -> Self {
        let [first, second] = options;
        Pair {
            now: Instant::ZERO + 1000 * MS,
            ends: [Association::new(first, random(1)), Association::new(second, random(0xffff_0002))],
            wires: [1, 2].map(|way| Wire::new(seed + way, 20 * MS, faults)),
            events: Default::default(),
            read: Default::default(),
            reads: true,
        }
    }

    /// One that has an association.
    pub fn connected(seed: u64, options: &Options, faults: Faults) -> Self {
        let mut pair = Pair::new(seed, [options.clone(), options.clone()], faults);
        pair.ends[0].connect();
        pair.run_until(60_000, |pair| pair.ends.iter().all(Association::is_established));
        pair
    }

    /// Lets so many milliseconds pass at most, until that holds; whether it did.
    pub fn run_until(&mut self, ms: u32, done: impl Fn(&Pair) -> bool) -> bool {
        let end = self.now + ms * MS;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let timers = self.ends.iter().filter_map(Association::poll_timeout);
            let next = timers.chain(self.wires.iter().filter_map(Wire::next)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            for end in 0..2 {
                self.ends[end].handle_timeout(self.now);
                while let Some(packet) = self.wires[1 - end].pop(self.now) {
                    self.ends[end].handle_packet(self.now, &packet);
                }
            }
        }
    }

    pub fn run_for(&mut self, ms: u32) {
        self.run_until(ms, |_| false);
    }

    /// Works off what the ends have to say now.
    fn settle(&mut self) {
        for end in 0..2 {
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push(event);
                if let (Event::Readable(stream), true) = (event, self.reads) {
                    while let Some(message) = self.ends[end].read(stream) {
                        self.read[end].push(message);
                    }
                }
            }
            let mut packet = Vec::new();
            for turn in 0.. {
                assert!(turn < 10_000, "it does not stop sending");
                if self.ends[end].poll_packet(self.now, &mut packet).is_none() {
                    break;
                }
                self.wires[end].push(self.now, core::mem::take(&mut packet));
            }
        }
    }
}

/// A message that says which it is: its stream, its number on it, and bytes that follow from both.
pub fn message(stream: u16, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = [&stream.to_be_bytes()[..], &number.to_be_bytes()].concat();
    bytes.extend(
        (0..len.saturating_sub(6)).map(|at| (at as u32).wrapping_add(number * 7 + u32::from(stream)) as u8),
    );
    bytes
}

/// Fails unless these are such messages, on each stream all of them from 0 on and in order. Returns how many.
pub fn check(messages: &[Message]) -> usize {
    let mut next: BTreeMap<u16, u32> = BTreeMap::new();
    for read in messages.iter().filter(|message| !message.is_unordered) {
        let number = next.entry(read.stream).or_default();
        assert_eq!(read.bytes, message(read.stream, *number, read.bytes.len()), "{} {number}", read.stream);
        *number += 1;
    }
    messages.len()
}
