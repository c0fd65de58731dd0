//! Associations of ours with another SCTP, `sctp-proto`, on wires that lose and reorder. It has no I-DATA, so both send
//! DATA, and no zero checksums, so it tells whether ours are right.

#![allow(clippy::disallowed_methods, reason = "sctp-proto wants the system's instants, of which any will do")]

mod support;

use bytes::Bytes;
use core::net::SocketAddr;
use heddle_sctp::{Association, Event, Options};
use heddle_seam::time::{Duration, Instant};
use sctp_proto::{
    AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Payload,
    PayloadProtocolIdentifier, ServerConfig, StreamEvent,
};
use std::sync::Arc;
use support::{Chance, Faults, MS, Wire, message, random};

const CALM: Faults = Faults { lost: 0, late: 0, twice: 0 };
const ROUGH: Faults = Faults { lost: 50, late: 100, twice: 30 };

/// One of ours and one of the other kind.
struct Mixed {
    now: Instant,
    anchor: std::time::Instant,
    ours: Association,
    theirs: Endpoint,
    their_association: Option<(AssociationHandle, sctp_proto::Association)>,
    /// From ours, and from theirs.
    wires: [Wire; 2],
    events: Vec<Event>,
    their_events: Vec<String>,
    /// Stream and bytes of what came.
    read: Vec<(u16, Vec<u8>)>,
    their_read: Vec<(u16, Vec<u8>)>,
}

fn peer() -> SocketAddr {
    "192.0.2.1:9000".parse().expect("an address")
}

impl Mixed {
    fn new(seed: u64, faults: Faults, we_ask: bool) -> Self {
        let config = Arc::new(EndpointConfig::default());
        let server = we_ask.then(|| Arc::new(ServerConfig::default()));
        let mut theirs = Endpoint::new(config, server);
        let mut ours = Association::new(Options::default(), random(77));
        let their_association = if we_ask {
            ours.connect();
            None
        } else {
            Some(theirs.connect(ClientConfig::default(), peer()).expect("it can"))
        };
        Mixed {
            now: Instant::ZERO + 1000 * MS,
            anchor: std::time::Instant::now(),
            ours,
            theirs,
            their_association,
            wires: [1, 2].map(|way| Wire::new(seed + way, 20 * MS, faults)),
            events: Vec::new(),
            their_events: Vec::new(),
            read: Vec::new(),
            their_read: Vec::new(),
        }
    }

    fn connected(seed: u64, faults: Faults, we_ask: bool) -> Self {
        let mut mixed = Mixed::new(seed, faults, we_ask);
        let is_there = |mixed: &Mixed| mixed.ours.is_established() && !mixed.their_events.is_empty();
        assert!(mixed.run_until(120_000, is_there), "{:?} {:?}", mixed.events, mixed.their_events);
        mixed
    }

    fn theirs_now(&self) -> std::time::Instant {
        self.anchor + self.now.since(Instant::ZERO)
    }

    fn run_until(&mut self, ms: u32, done: impl Fn(&Mixed) -> bool) -> bool {
        let end = self.now + ms * MS;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let their_timer =
                self.their_association.as_ref().and_then(|(_, association)| association.poll_timeout());
            // Their instants are finer than ours by nothing, but for rounding up.
            let their_timer =
                their_timer.map(|at| Instant::ZERO + (at - self.anchor) + Duration::from_nanos(1));
            let timers = [self.ours.poll_timeout(), their_timer, self.wires[0].next(), self.wires[1].next()];
            let Some(next) = timers.into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            self.ours.handle_timeout(self.now);
            let now = self.theirs_now();
            if let Some((_, association)) = &mut self.their_association {
                association.handle_timeout(now);
            }
            while let Some(packet) = self.wires[1].pop(self.now) {
                self.ours.handle_packet(self.now, &packet);
            }
            while let Some(packet) = self.wires[0].pop(self.now) {
                self.deliver(packet);
            }
        }
    }

    fn deliver(&mut self, packet: Vec<u8>) {
        let now = self.theirs_now();
        match self.theirs.handle(now, peer(), None, None, Bytes::from(packet)) {
            Some((handle, DatagramEvent::NewAssociation(association))) => {
                self.their_association = Some((handle, association));
            }
            Some((_, DatagramEvent::AssociationEvent(event))) => {
                if let Some((_, association)) = &mut self.their_association {
                    association.handle_event(event);
                }
            }
            None => {}
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.ours.poll_event() {
            self.events.push(event);
            if let Event::Readable(stream) = event {
                while let Some(message) = self.ours.read(stream) {
                    self.read.push((stream, message.bytes));
                }
            }
        }
        let mut packet = Vec::new();
        while self.ours.poll_packet(self.now, &mut packet).is_some() {
            self.wires[0].push(self.now, core::mem::take(&mut packet));
        }
        self.settle_theirs();
    }

    fn settle_theirs(&mut self) {
        let now = self.theirs_now();
        while let Some(transmit) = self.theirs.poll_transmit() {
            push(&mut self.wires[1], self.now, transmit.payload);
        }
        let Some((handle, association)) = &mut self.their_association else { return };
        while let Some(event) = association.poll() {
            if let sctp_proto::Event::Stream(StreamEvent::Readable { id }) = event {
                read_all(association, id, &mut self.their_read);
            }
            self.their_events.push(format!("{event:?}"));
        }
        while let Some(event) = association.poll_endpoint_event() {
            if let Some(event) = self.theirs.handle_event(*handle, event) {
                association.handle_event(event);
            }
        }
        while let Some(transmit) = association.poll_transmit(now) {
            push(&mut self.wires[1], self.now, transmit.payload);
        }
    }

    fn their_write(&mut self, stream: u16, bytes: &[u8]) {
        let (_, association) = self.their_association.as_mut().expect("it is there");
        if association.stream(stream).is_err() {
            association.open_stream(stream, PayloadProtocolIdentifier::Binary).expect("it can");
        }
        let mut stream = association.stream(stream).expect("it is there");
        stream.write_sctp(&Bytes::copy_from_slice(bytes), PayloadProtocolIdentifier::Binary).expect("it can");
    }
}

fn push(wire: &mut Wire, now: Instant, payload: Payload) {
    if let Payload::RawEncode(packets) = payload {
        packets.into_iter().for_each(|packet| wire.push(now, packet.to_vec()));
    }
}

fn read_all(association: &mut sctp_proto::Association, id: u16, into: &mut Vec<(u16, Vec<u8>)>) {
    let Ok(mut stream) = association.stream(id) else { return };
    while let Ok(Some(chunks)) = stream.read_sctp() {
        let mut bytes = vec![0; chunks.len()];
        let count = chunks.read(&mut bytes).expect("there is room");
        assert_eq!(count, bytes.len());
        into.push((id, bytes));
    }
}

/// Fails unless these are messages 0 to so many on each of some streams, in order on each.
fn check(read: &[(u16, Vec<u8>)], streams: u16, messages: u32) {
    for stream in 0..streams {
        let mut number = 0;
        for (_, bytes) in read.iter().filter(|(id, _)| *id == stream) {
            assert_eq!(bytes, &message(stream, number, bytes.len()), "{stream} {number}");
            number += 1;
        }
        assert_eq!(number, messages, "{stream}");
    }
}

#[test]
fn messages_come_whole_and_in_order_both_ways() {
    const STREAMS: u16 = 4;
    const MESSAGES: u32 = 60;
    for we_ask in [true, false] {
        for faults in [CALM, ROUGH] {
            for seed in 0..3 {
                let mut mixed = Mixed::connected(seed, faults, we_ask);
                let mut chance = Chance(seed);
                for number in 0..MESSAGES {
                    for stream in 0..STREAMS {
                        let bytes = message(stream, number, 6 + chance.draw(4000) as usize);
                        assert!(mixed.ours.write(stream, bytes.clone(), 53, false));
                        mixed.their_write(stream, &bytes);
                    }
                }
                let all = usize::from(STREAMS) * MESSAGES as usize;
                let done = |mixed: &Mixed| mixed.read.len() == all && mixed.their_read.len() == all;
                let came = mixed.run_until(600_000, done);
                assert!(came, "{we_ask} {faults:?} {seed}: {} {}", mixed.read.len(), mixed.their_read.len());
                check(&mixed.read, STREAMS, MESSAGES);
                check(&mixed.their_read, STREAMS, MESSAGES);
            }
        }
    }
}

#[test]
fn streams_are_reset_by_either_and_used_again() {
    for faults in [CALM, ROUGH] {
        for we_begin in [true, false] {
            let mut mixed = Mixed::connected(5, faults, true);
            for turn in 1..=5 {
                for number in 0..3 {
                    mixed.ours.write(0, message(0, number, 2000), 53, false);
                }
                let came = mixed.run_until(60_000, |mixed| mixed.their_read.len() == 3 * turn);
                assert!(
                    came,
                    "turn {turn}: {faults:?} {we_begin} {:?} {:?}",
                    mixed.events, mixed.their_events
                );
                (0..3).for_each(|number| mixed.their_write(0, &message(0, number, 1500)));
                assert!(mixed.run_until(60_000, |mixed| mixed.read.len() == 3 * turn), "turn {turn}");
                // It answers a reset with one of its own, also where it asked for the first.
                let before = mixed.events.len();
                let count = |mixed: &Mixed, event| {
                    mixed.events[before..].iter().filter(|told| **told == event).count()
                };
                if we_begin {
                    mixed.ours.reset_stream(0);
                    let came = mixed.run_until(60_000, |mixed| count(mixed, Event::PeerReset(0)) > 0);
                    assert!(came, "turn {turn}: {:?} {:?}", mixed.events, mixed.their_events);
                } else {
                    let (_, association) = mixed.their_association.as_mut().expect("it is there");
                    association.stream(0).expect("it is open").close().expect("it can");
                    let came = mixed.run_until(60_000, |mixed| count(mixed, Event::PeerReset(0)) > 0);
                    assert!(came, "turn {turn}: {faults:?} {:?} {:?}", mixed.events, mixed.their_events);
                    mixed.ours.reset_stream(0);
                }
                let came = mixed.run_until(60_000, |mixed| count(mixed, Event::Reset(0)) > 0);
                assert!(came, "turn {turn}: {:?} {:?}", mixed.events, mixed.their_events);
                mixed.run_until(5_000, |_| false);
            }
            for turn in 0..5 {
                check(&mixed.read[3 * turn..][..3], 1, 3);
                check(&mixed.their_read[3 * turn..][..3], 1, 3);
            }
        }
    }
}

#[test]
fn either_may_end_it() {
    for we_end in [true, false] {
        let mut mixed = Mixed::connected(8, ROUGH, we_end);
        (0..20).for_each(|number| assert!(mixed.ours.write(0, message(0, number, 900), 53, false)));
        if we_end {
            mixed.ours.shutdown();
        } else {
            assert!(mixed.run_until(100_000, |mixed| mixed.their_read.len() == 20));
            let (_, association) = mixed.their_association.as_mut().expect("it is there");
            association.shutdown().expect("it can");
        }
        assert!(mixed.run_until(200_000, |mixed| mixed.ours.is_ended()), "{:?}", mixed.their_events);
        check(&mixed.their_read, 1, 20);
    }
}
