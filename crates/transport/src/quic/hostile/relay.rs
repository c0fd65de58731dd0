//! A whole relay whose neighbours leave holes in as many flows as they may: what it holds stays within its bounds.

use super::hoard::unpaced;
use super::{Peer, STEPS_PER_INSTANT_MAX, cell};
use crate::attacked::{AMPLE, Attacked, Bounds, Neighbours, SCARCE, alone, create2};
use crate::clock::Clock;
use crate::quic::crypto::OurKey;
use crate::quic::{QuicEndpoint, QuicOptions};
use bytes::BytesMut;
use heddle_proto::cell::Command;
use heddle_proto::rng::Seed;
use heddle_proto::time::{Duration, Instant};
use quinn_proto::{Dir, StreamId};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

struct Peers(BTreeMap<u8, Peer>);

impl Neighbours for Peers {
    fn deliver(&mut self, now: Instant, number: u8, datagram: &[u8]) {
        if let Some(peer) = self.0.get_mut(&number) {
            peer.handle(now, BytesMut::from(datagram));
        }
    }
}

struct Siege {
    attacked: Attacked,
    peers: Peers,
    /// Whether what peers send is lost.
    losing: bool,
}

impl Siege {
    fn new(bounds: &Bounds, peers: u8) -> Self {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let anchor = std::time::Instant::now();
        let attacked = Attacked::new(bounds, || {
            let quic =
                QuicEndpoint::new(QuicOptions::new(anchor), &Zeroizing::new([1; 32]), &Seed::from_number(1));
            Box::new(quic.expect("good options"))
        });
        let mut siege = Siege { attacked, peers: Peers(BTreeMap::new()), losing: false };
        for number in 1..=peers {
            let key = OurKey::new(&Zeroizing::new([number; 32])).expect("every seed makes a key");
            let options = siege.attacked.vouch(number, key.public(), &mut siege.peers);
            let peer = Peer::dial(Clock { anchor }, &key, options.peer_key, options.secrets.token, unpaced());
            siege.peers.0.insert(number, peer);
            siege.exchange_all();
            let peer = siege.peers.0.get_mut(&number).expect("it was put there");
            assert!(!peer.connection.is_handshaking());
            peer.open(Dir::Uni, &options.secrets.dialler_proof[..]);
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
        let now = self.attacked.now;
        let mut out = Vec::new();
        for (number, peer) in &mut self.peers.0 {
            peer.settle(now);
            let at = peer.clock.std(now);
            while let Some(transmit) = peer.connection.poll_transmit(at, 1, &mut out) {
                moved = true;
                if !self.losing {
                    self.attacked.deliver(*number, transmit.size, &out[..transmit.size]);
                }
                out.clear();
            }
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

    /// Each peer opens so many flows, a few at a time, sends `first`, loses a byte, and sends `behind` after it.
    fn leave_holes(&mut self, flows: usize, first: &[u8], behind: &[u8]) {
        const AT_ONCE: usize = 16;
        for _ in 0..flows.div_ceil(AT_ONCE) {
            let mut opened: Vec<(u8, StreamId)> = Vec::new();
            for (number, peer) in &mut self.peers.0 {
                let ids = core::iter::from_fn(|| peer.connection.streams().open(Dir::Bi));
                opened.extend(ids.take(AT_ONCE).map(|id| (*number, id)));
            }
            self.write(&opened, first);
            self.exchange_all();
            self.losing = true;
            self.write(&opened, &[0]);
            self.exchange();
            self.losing = false;
            self.write(&opened, behind);
            self.exchange_all();
        }
    }

    fn write(&mut self, streams: &[(u8, StreamId)], bytes: &[u8]) {
        for (number, id) in streams {
            let peer = self.peers.0.get_mut(number).expect("it is there");
            // Windows are full, or it was ended.
            let _ = peer.connection.send_stream(*id).write(bytes);
        }
    }
}

fn opening() -> Vec<u8> {
    let mut bytes = cell(Command::CREATE2).to_vec();
    bytes[1..].copy_from_slice(&create2(&mut Seed::from_number(9).rng()).1);
    bytes
}

/// Flows of which nothing can be read, from one neighbour and from several, where there is memory for few of them.
#[test]
fn holes_take_no_more_than_is_said_and_permitted() {
    for (peers, flows) in [(1, 20_000), (10, 2_000)] {
        let mut siege = Siege::new(&Bounds::of(SCARCE), peers);
        siege.leave_holes(flows, &[], &[0; 4]);
        siege.attacked.assert_bounds(&format!("{peers} neighbours with {flows} flows over QUIC"));
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_bounds("20 s later");
        assert!(siege.attacked.pressures > 0, "memory was short");
    }
}

/// The same behind circuits that were opened.
#[test]
fn holes_of_circuits_take_no_more_than_is_said_and_permitted() {
    let mut siege = Siege::new(&Bounds::of(SCARCE), 2);
    siege.leave_holes(7_000, &opening(), &[0; 10]);
    siege.attacked.assert_bounds("circuits over QUIC");
    siege.run(Duration::from_secs(20));
    siege.attacked.assert_bounds("20 s later");
    assert!(siege.attacked.pressures > 0, "memory was short");
}

/// As many flows as a neighbour may have where there is memory for few: what the process has, likewise.
#[test]
fn fifty_thousand_holes_are_resident_within_the_bounds() {
    alone("quic::hostile::relay::fifty_thousand_holes_are_resident_within_the_bounds", || {
        let mut siege = Siege::new(&Bounds::of(SCARCE), 1);
        siege.leave_holes(50_000, &[], &[0; 4]);
        siege.attacked.assert_resident("50,000 flows over QUIC", false);
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_resident("the same 20 s later", false);
    });
}

/// So many circuits of two neighbours, of whom one alone may have 37,500, each with a hole: what the process has, libraries in C and all.
#[test]
fn fifty_thousand_holes_of_circuits_are_resident_within_the_bounds() {
    alone("quic::hostile::relay::fifty_thousand_holes_of_circuits_are_resident_within_the_bounds", || {
        let mut siege = Siege::new(&Bounds::of(AMPLE), 2);
        siege.leave_holes(25_000, &opening(), &[0; 4]);
        assert!(siege.attacked.relay.held().circuits >= 50_000);
        siege.attacked.assert_resident("50,000 circuits over QUIC", true);
    });
}
