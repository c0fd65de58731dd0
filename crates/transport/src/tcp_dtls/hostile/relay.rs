//! A whole relay whose neighbours leave holes in as many flows as they may, over `tcp-dtls`.

use super::table::{BARE, C, CELL_UNITS, Peer, S, Segment, UNIT};
use crate::attacked::siege::{self, Holes, IN_VAIN, Siege};
use crate::attacked::{Attacked, Bounds, Neighbours, SCARCE};
use crate::connections::circuits::FLOW_CELL_LEN;
use crate::dtls::key::OurKey;
use crate::dtls::options::POOL_BYTES_MIN;
use crate::tcp_dtls::{self, DtlsOptions, PROTOCOL};
use heddle_proto::cell::Command;
use heddle_proto::endpoint::Endpoint;
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Flows that each opens, or fills, before what they send is delivered.
const AT_ONCE: u32 = 64;

#[derive(Default)]
struct Peers(BTreeMap<u8, Peer>);

impl Neighbours for Peers {
    fn deliver(&mut self, now: Instant, number: u8, datagram: &[u8]) {
        if let Some(peer) = self.0.get_mut(&number) {
            peer.handle(now, datagram);
        }
    }
}

fn options() -> DtlsOptions {
    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    DtlsOptions::new(std::time::Instant::now())
}

impl siege::Peers for Peers {
    const OVER: &'static str = "tcp-dtls";
    const FEW_UNBORN: bool = false;

    fn endpoint(bounds: &Bounds) -> Box<dyn Endpoint> {
        let mut options = options();
        // As a relay sets it.
        let pool_bytes_max = &mut options.session.pool_bytes_max;
        *pool_bytes_max = (bounds.max_queue_bytes / 2).clamp(POOL_BYTES_MIN, *pool_bytes_max);
        let dtls = tcp_dtls::endpoint(options, &Zeroizing::new([1; 32]), &Seed::from_number(1));
        dtls.expect("good options")
    }

    fn dial(siege: &mut Siege<Self>, number: u8) {
        let key = OurKey::new(PROTOCOL, &Zeroizing::new([number; 32])).expect("every seed makes a key");
        let vouched = siege.attacked.vouch(number, key.public(), &mut siege.peers);
        let mut peer = Peer::dial(&options(), vouched.peer_key, &key, vouched.secrets);
        peer.on_news();
        siege.peers.0.insert(number, peer);
        siege.exchange_all();
    }

    fn send(&mut self, attacked: &mut Attacked) -> bool {
        let mut moved = false;
        for (number, peer) in &mut self.0 {
            while let Some(datagram) = peer.poll_datagram() {
                moved = true;
                attacked.deliver(*number, datagram.len(), &datagram);
            }
            peer.segments.clear();
        }
        moved
    }

    /// Pieces do not touch.
    fn leave_holes(siege: &mut Siege<Self>, flows: u32, holes: Holes<'_>) {
        let piece = [Command::RELAY.0; UNIT];
        let payload = holes.opening.unwrap_or(&[0; UNIT]);
        for port in 0..flows {
            for peer in siege.peers.0.values_mut() {
                peer.outbox.push(Segment { bits: C | S, port, payload, ..BARE }.bytes());
                for number in 0..holes.pieces {
                    let seq = CELL_UNITS + 1 + 2 * number;
                    peer.outbox.push(Segment { port, seq, payload: &piece, ..BARE }.bytes());
                }
            }
            if port % AT_ONCE == 0 {
                siege.exchange_all();
            }
        }
        siege.exchange_all();
    }

    /// Windows are not heeded.
    fn fill(siege: &mut Siege<Self>, flows: u32, opening: &[u8], cells: u32) {
        let cell = [IN_VAIN; FLOW_CELL_LEN];
        for number in 0..=cells {
            for port in 0..flows {
                let segment = match number {
                    0 => Segment { bits: C | S, port, payload: opening, ..BARE },
                    _ => Segment { port, seq: number * CELL_UNITS, payload: &cell, ..BARE },
                };
                siege.peers.0.values_mut().for_each(|peer| peer.outbox.push(segment.bytes()));
                if port % AT_ONCE == 0 {
                    siege.exchange_all();
                }
            }
        }
        siege.exchange_all();
    }
}

#[test]
fn holes_take_no_more_than_is_said_and_permitted() {
    siege::holes_take_no_more_than_is_said_and_permitted::<Peers>([(1, 20_000), (20, 3_000)]);
}

/// What is left of their flows counts, and would be free only after a time-out.
#[test]
fn what_many_neighbours_leave_of_flows_at_one_instant_is_within_what_is_permitted() {
    let mut siege: Siege<Peers> = Siege::new(&Bounds::of(SCARCE), 20);
    siege.leave_holes(5_000);
    siege.attacked.assert_peak("20 neighbours with 5,000 flows at one instant over tcp-dtls");
    assert!(siege.attacked.pressures > 0, "memory was short");
}

#[test]
fn holes_of_circuits_take_no_more_than_is_said_and_permitted() {
    siege::holes_of_circuits_take_no_more_than_is_said_and_permitted::<Peers>();
}

#[test]
fn fifty_thousand_holes_are_resident_within_the_bounds() {
    siege::fifty_thousand_holes_are_resident_within_the_bounds::<Peers>(
        "tcp_dtls::hostile::relay::fifty_thousand_holes_are_resident_within_the_bounds",
    );
}

#[test]
fn fifty_thousand_holes_of_circuits_are_resident_within_the_bounds() {
    siege::fifty_thousand_holes_of_circuits_are_resident_within_the_bounds::<Peers>(
        "tcp_dtls::hostile::relay::fifty_thousand_holes_of_circuits_are_resident_within_the_bounds",
    );
}

#[test]
fn fifty_thousand_unread_circuits_are_resident_as_is_said() {
    siege::fifty_thousand_unread_circuits_are_resident_as_is_said::<Peers>(
        "tcp_dtls::hostile::relay::fifty_thousand_unread_circuits_are_resident_as_is_said",
    );
}

#[test]
fn fifty_thousand_unread_circuits_are_resident_within_the_bounds() {
    siege::fifty_thousand_unread_circuits_are_resident_within_the_bounds::<Peers>(
        "tcp_dtls::hostile::relay::fifty_thousand_unread_circuits_are_resident_within_the_bounds",
    );
}

#[test]
fn unread_flows_of_many_neighbours_are_resident_within_the_bounds() {
    siege::unread_flows_of_many_neighbours_are_resident_within_the_bounds::<Peers>(
        "tcp_dtls::hostile::relay::unread_flows_of_many_neighbours_are_resident_within_the_bounds",
    );
}
