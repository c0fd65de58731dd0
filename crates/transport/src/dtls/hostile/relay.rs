//! A whole relay whose neighbours leave holes in as many flows as they may: what it holds stays within its bounds.

use super::table::{BARE, C, CELL_UNITS, Peer, S, STEPS_PER_INSTANT_MAX, Segment, UNIT, cell};
use crate::attacked::{AMPLE, Attacked, Bounds, Neighbours, SCARCE, alone, create2};
use crate::dtls::key::OurKey;
use crate::dtls::{DtlsEndpoint, DtlsOptions, POOL_BYTES_MIN};
use heddle_proto::cell::Command;
use heddle_proto::rng::Seed;
use heddle_proto::time::{Duration, Instant};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

struct Peers(BTreeMap<u8, Peer>);

impl Neighbours for Peers {
    fn deliver(&mut self, now: Instant, number: u8, datagram: &[u8]) {
        if let Some(peer) = self.0.get_mut(&number) {
            peer.handle(now, datagram);
        }
    }
}

struct Siege {
    attacked: Attacked,
    peers: Peers,
}

impl Siege {
    fn new(bounds: &Bounds, peers: u8) -> Self {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let mut options = DtlsOptions::new(std::time::Instant::now());
        // As a relay sets it.
        options.pool_bytes_max = (bounds.max_queue_bytes / 2).clamp(POOL_BYTES_MIN, options.pool_bytes_max);
        let attacked = Attacked::new(bounds, || {
            let dtls = DtlsEndpoint::new(options.clone(), &Zeroizing::new([1; 32]), &Seed::from_number(1));
            Box::new(dtls.expect("good options"))
        });
        let mut siege = Siege { attacked, peers: Peers(BTreeMap::new()) };
        for number in 1..=peers {
            let key = OurKey::new(&Zeroizing::new([number; 32])).expect("every seed makes a key");
            let vouched = siege.attacked.vouch(number, key.public(), &mut siege.peers);
            let mut peer = Peer::dial(&options, vouched.peer_key, &key, vouched.secrets);
            peer.on_news();
            siege.peers.0.insert(number, peer);
            siege.exchange_all();
        }
        assert_eq!(siege.attacked.relay.held().flow_links, usize::from(peers));
        siege
    }

    fn exchange_all(&mut self) {
        let mut turns = 0;
        while self.exchange() {
            turns += 1;
            assert!(turns < STEPS_PER_INSTANT_MAX, "there is always more to say");
        }
    }

    /// Carries what there is from each side to the other; whether there was something.
    fn exchange(&mut self) -> bool {
        let mut moved = self.attacked.poll(&mut self.peers) > 0;
        for (number, peer) in &mut self.peers.0 {
            while let Some(datagram) = peer.poll_datagram() {
                moved = true;
                self.attacked.deliver(*number, datagram.len(), &datagram);
            }
            peer.segments.clear();
        }
        moved
    }

    fn run(&mut self, time: Duration) {
        let end = self.attacked.now + time;
        loop {
            self.exchange_all();
            let Some(next) = self.attacked.timeout().filter(|next| *next <= end) else { break };
            self.attacked.now = self.attacked.now.max(next);
            self.attacked.handle_timeout();
        }
        self.attacked.now = end;
    }

    /// Each peer opens so many flows with `first`, and sends `pieces` that do not touch behind it.
    fn leave_holes(&mut self, flows: u32, first: &[u8], pieces: u32) {
        const AT_ONCE: u32 = 64;
        let piece = [Command::RELAY.0; UNIT];
        for port in 0..flows {
            for peer in self.peers.0.values_mut() {
                peer.outbox.push(Segment { bits: C | S, port, payload: first, ..BARE }.bytes());
                for number in 0..pieces {
                    let seq = CELL_UNITS + 1 + 2 * number;
                    peer.outbox.push(Segment { port, seq, payload: &piece, ..BARE }.bytes());
                }
            }
            if port % AT_ONCE == 0 {
                self.exchange_all();
            }
        }
        self.exchange_all();
    }
}

fn opening() -> Vec<u8> {
    let mut bytes = cell(Command::CREATE2);
    bytes[1..].copy_from_slice(&create2(&mut Seed::from_number(9).rng()).1);
    bytes
}

/// Flows of which nothing can be read, from one neighbour and from several, where there is memory for few of them.
#[test]
fn holes_take_no_more_than_is_said_and_permitted() {
    for (peers, flows) in [(1, 20_000), (20, 3_000)] {
        let mut siege = Siege::new(&Bounds::of(SCARCE), peers);
        siege.leave_holes(flows, &[0; UNIT], 1);
        siege.attacked.assert_bounds(&format!("{peers} neighbours with {flows} flows over tcp-dtls"));
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_bounds("20 s later");
        assert!(siege.attacked.pressures > 0, "memory was short");
    }
}

/// What is left of their flows counts, and would be free only after a time-out.
#[test]
fn what_many_neighbours_leave_of_flows_at_one_instant_is_within_what_is_permitted() {
    let mut siege = Siege::new(&Bounds::of(SCARCE), 20);
    siege.leave_holes(5_000, &[0; UNIT], 1);
    siege.attacked.assert_peak("20 neighbours with 5,000 flows at one instant over tcp-dtls");
    assert!(siege.attacked.pressures > 0, "memory was short");
}

/// The same behind circuits that were opened.
#[test]
fn holes_of_circuits_take_no_more_than_is_said_and_permitted() {
    let mut siege = Siege::new(&Bounds::of(SCARCE), 2);
    siege.leave_holes(7_000, &opening(), 2);
    siege.attacked.assert_bounds("circuits over tcp-dtls");
    siege.run(Duration::from_secs(20));
    siege.attacked.assert_bounds("20 s later");
    assert!(siege.attacked.pressures > 0, "memory was short");
}

/// As many flows as a neighbour may have where there is memory for few: what the process has, likewise.
#[test]
fn fifty_thousand_holes_are_resident_within_the_bounds() {
    alone("dtls::hostile::relay::fifty_thousand_holes_are_resident_within_the_bounds", || {
        let mut siege = Siege::new(&Bounds::of(SCARCE), 1);
        siege.leave_holes(50_000, &[0; UNIT], 1);
        siege.attacked.assert_resident("50,000 flows over tcp-dtls", false);
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_resident("the same 20 s later", false);
    });
}

/// So many circuits of two neighbours, of whom one alone may have 37,500, each with a hole: what the process has, libraries in C and all.
#[test]
fn fifty_thousand_holes_of_circuits_are_resident_within_the_bounds() {
    alone("dtls::hostile::relay::fifty_thousand_holes_of_circuits_are_resident_within_the_bounds", || {
        let mut siege = Siege::new(&Bounds::of(AMPLE), 2);
        siege.leave_holes(25_000, &opening(), 1);
        assert!(siege.attacked.relay.held().circuits >= 50_000);
        siege.attacked.assert_resident("50,000 circuits over tcp-dtls", true);
    });
}
