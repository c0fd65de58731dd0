//! A whole relay whose neighbours leave holes in as many flows as they may, over QUIC.

use super::Peer;
use super::hoard::unpaced;
use crate::attacked::siege::{self, Holes, IN_VAIN, Siege};
use crate::attacked::{Attacked, Bounds, Neighbours};
use crate::connections::circuits::FLOW_CELL_LEN;
use crate::connections::clock::Clock;
use crate::quic::crypto::OurKey;
use crate::quic::{QuicEndpoint, QuicOptions};
use bytes::BytesMut;
use heddle_proto::endpoint::Endpoint;
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use quinn_proto::{Dir, StreamId};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Streams that each opens, or all fill, before what they send is delivered.
const AT_ONCE: u32 = 16;

#[derive(Default)]
struct Peers {
    all: BTreeMap<u8, Peer>,
    /// Whether what they send is lost.
    losing: bool,
}

impl Neighbours for Peers {
    fn deliver(&mut self, now: Instant, number: u8, datagram: &[u8]) {
        if let Some(peer) = self.all.get_mut(&number) {
            peer.handle(now, BytesMut::from(datagram));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
fn anchor() -> std::time::Instant {
    std::time::Instant::now()
}

impl siege::Peers for Peers {
    const OVER: &'static str = "QUIC";
    const FEW_UNBORN: bool = true;

    fn endpoint(bounds: &Bounds) -> Box<dyn Endpoint> {
        // As a relay sets it.
        let shared_receive_window_bytes = bounds.max_queue_bytes / 2;
        let options = QuicOptions { shared_receive_window_bytes, ..QuicOptions::new(anchor()) };
        let quic = QuicEndpoint::new(options, &Zeroizing::new([1; 32]), &Seed::from_number(1));
        Box::new(quic.expect("good options"))
    }

    fn dial(siege: &mut Siege<Self>, number: u8) {
        let key = OurKey::new(&Zeroizing::new([number; 32])).expect("every seed makes a key");
        let options = siege.attacked.vouch(number, key.public(), &mut siege.peers);
        let clock = Clock { anchor: anchor() };
        let peer = Peer::dial(clock, &key, options.peer_key, options.secrets.token, unpaced());
        siege.peers.all.insert(number, peer);
        siege.exchange_all();
        let peer = siege.peers.all.get_mut(&number).expect("it was put there");
        assert!(!peer.connection.is_handshaking());
        peer.open(Dir::Uni, &options.secrets.dialler_proof[..]);
        siege.exchange_all();
    }

    fn send(&mut self, attacked: &mut Attacked) -> bool {
        let now = attacked.now;
        let (mut moved, mut out) = (false, Vec::new());
        for (number, peer) in &mut self.all {
            peer.settle(now);
            let at = peer.clock.std(now);
            while let Some(transmit) = peer.connection.poll_transmit(at, 1, &mut out) {
                moved = true;
                if !self.losing {
                    attacked.deliver(*number, transmit.size, &out[..transmit.size]);
                }
                out.clear();
            }
        }
        moved
    }

    /// A few at a time: of each a byte is lost, and the pieces behind it are one.
    fn leave_holes(siege: &mut Siege<Self>, flows: u32, holes: Holes<'_>) {
        let behind = vec![0; 5 * holes.pieces as usize];
        for _ in 0..flows.div_ceil(AT_ONCE) {
            let opened = siege.peers.open();
            siege.peers.write(&opened, holes.opening.unwrap_or_default());
            siege.exchange_all();
            siege.peers.losing = true;
            siege.peers.write(&opened, &[0]);
            siege.exchange();
            siege.peers.losing = false;
            siege.peers.write(&opened, &behind);
            siege.exchange_all();
        }
    }

    fn fill(siege: &mut Siege<Self>, flows: u32, opening: &[u8], cells: u32) {
        let mut all = Vec::new();
        for _ in 0..flows.div_ceil(AT_ONCE) {
            let opened = siege.peers.open();
            siege.peers.write(&opened, opening);
            siege.exchange_all();
            all.extend(opened);
        }
        for _ in 0..cells {
            for some in all.chunks(AT_ONCE as usize) {
                siege.peers.write(some, &[IN_VAIN; FLOW_CELL_LEN]);
                siege.exchange_all();
            }
        }
    }
}

impl Peers {
    /// Each opens a few streams, if it may.
    fn open(&mut self) -> Vec<(u8, StreamId)> {
        let mut opened = Vec::new();
        for (number, peer) in &mut self.all {
            let ids = core::iter::from_fn(|| peer.connection.streams().open(Dir::Bi));
            opened.extend(ids.take(AT_ONCE as usize).map(|id| (*number, id)));
        }
        opened
    }

    fn write(&mut self, streams: &[(u8, StreamId)], bytes: &[u8]) {
        for (number, id) in streams {
            let peer = self.all.get_mut(number).expect("it is there");
            // Windows are full, or it was ended.
            let _ = peer.connection.send_stream(*id).write(bytes);
        }
    }
}

#[test]
fn holes_take_no_more_than_is_said_and_permitted() {
    siege::holes_take_no_more_than_is_said_and_permitted::<Peers>([(1, 20_000), (10, 2_000)]);
}

#[test]
fn holes_of_circuits_take_no_more_than_is_said_and_permitted() {
    siege::holes_of_circuits_take_no_more_than_is_said_and_permitted::<Peers>();
}

#[test]
fn fifty_thousand_holes_are_resident_within_the_bounds() {
    siege::fifty_thousand_holes_are_resident_within_the_bounds::<Peers>(
        "quic::hostile::relay::fifty_thousand_holes_are_resident_within_the_bounds",
    );
}

#[test]
fn fifty_thousand_holes_of_circuits_are_resident_within_the_bounds() {
    siege::fifty_thousand_holes_of_circuits_are_resident_within_the_bounds::<Peers>(
        "quic::hostile::relay::fifty_thousand_holes_of_circuits_are_resident_within_the_bounds",
    );
}

#[test]
fn fifty_thousand_unread_circuits_are_resident_as_is_said() {
    siege::fifty_thousand_unread_circuits_are_resident_as_is_said::<Peers>(
        "quic::hostile::relay::fifty_thousand_unread_circuits_are_resident_as_is_said",
    );
}

#[test]
fn fifty_thousand_unread_circuits_are_resident_within_the_bounds() {
    siege::fifty_thousand_unread_circuits_are_resident_within_the_bounds::<Peers>(
        "quic::hostile::relay::fifty_thousand_unread_circuits_are_resident_within_the_bounds",
    );
}

#[test]
fn unread_flows_of_many_neighbours_are_resident_within_the_bounds() {
    siege::unread_flows_of_many_neighbours_are_resident_within_the_bounds::<Peers>(
        "quic::hostile::relay::unread_flows_of_many_neighbours_are_resident_within_the_bounds",
    );
}
