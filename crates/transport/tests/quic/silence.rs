//! The port answers no stranger, whatever is sent and from wherever.

use crate::bench::{Bench, MS, S, Sent, addr, anchor, delay, options};
use core::net::SocketAddr;
use heddle_proto::endpoint::ConnectionEvent;
use heddle_proto::rng::Seed;
use heddle_transport::quic::fuzz::{flows, stranger_datagrams};
use proptest::prelude::*;

const STRANGER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9)), 443);

fn answers(bench: &mut Bench, host: usize, from: SocketAddr, data: &[u8]) -> usize {
    bench.deliver(host, Sent { from, to: addr(host), ecn: 0, data: data.to_vec() });
    bench.record = Some(Vec::new());
    bench.run_for(15 * MS, &mut ());
    bench.record.take().map_or(0, |record| record.len())
}

/// The datagrams of a handshake, and a listener that awaits that dialler still.
fn overheard() -> (Vec<Sent>, Bench) {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    bench.record = Some(Vec::new());
    bench.open_ready();
    let overheard = bench.record.take().expect("it was recorded");
    let mut waiting = Bench::pair(delay(10 * MS), &options());
    let there = waiting.connection(1, 0, heddle_proto::channel::Role::Responder);
    waiting.ends[1].endpoint.open(waiting.now, there);
    (overheard, waiting)
}

#[test]
fn an_initial_from_elsewhere_is_not_answered_even_with_the_token() {
    let (overheard, mut bench) = overheard();
    let initial = &overheard[0];
    assert_eq!(initial.from, addr(0));
    assert_eq!(answers(&mut bench, 1, STRANGER, &initial.data), 0);
    assert_eq!(bench.ends[1].endpoint.stranger_datagrams(), 1);
    // From the peer's address it is: that is what the listener waits for, and a translator may change the port.
    let translated = SocketAddr::new(addr(0).ip(), 12345);
    bench.deliver(1, Sent { from: translated, to: addr(1), ecn: 0, data: initial.data.clone() });
    assert!(bench.ends[1].endpoint.poll_transmit(bench.now, 10_000, &mut Vec::new()).is_some());
}

#[test]
fn other_versions_are_not_negotiated() {
    let (overheard, mut bench) = overheard();
    for version in [0_u32, 0x6b33_43cf, 0xff00_001d, 0x0a0a_0a0a] {
        let mut probe = overheard[0].data.clone();
        probe[1..5].copy_from_slice(&version.to_be_bytes());
        assert_eq!(answers(&mut bench, 1, addr(0), &probe), 0, "{version:08x}");
    }
}

#[test]
fn another_token_is_not_answered() {
    let (overheard, mut bench) = overheard();
    let mut probe = overheard[0].data.clone();
    assert_eq!(probe[5], 20);
    probe[6] ^= 1;
    assert_eq!(answers(&mut bench, 1, addr(0), &probe), 0);
}

#[test]
fn a_broken_initial_uses_up_no_token() {
    let (overheard, mut bench) = overheard();
    let mut broken = overheard[0].data.clone();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    assert_eq!(answers(&mut bench, 1, addr(0), &broken), 0);
    let here = bench.connection(0, 1, heddle_proto::channel::Role::Initiator);
    bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(2 * S, &mut ());
    for end in &bench.ends {
        assert_eq!(end.events.first().map(|(_, event)| event), Some(&ConnectionEvent::Ready));
    }
}

#[test]
fn what_was_overheard_is_worth_nothing_later() {
    let (mut overheard, _) = overheard();
    overheard.retain(|sent| sent.from == addr(0));
    // While the connection lives, and after it has ended.
    for ends in [false, true] {
        let mut bench = Bench::pair(delay(10 * MS), &options());
        let (a, b) = bench.open_ready();
        if ends {
            bench.ends[0].endpoint.close(bench.now, a);
            bench.ends[1].endpoint.close(bench.now, b);
            bench.run_for(60 * S, &mut ());
        }
        for end in &mut bench.ends {
            end.events.clear();
        }
        for sent in &overheard {
            for from in [addr(0), STRANGER] {
                let answers = answers(&mut bench, 1, from, &sent.data);
                // A live connection may acknowledge a packet that it has seen before, to its peer.
                assert!(answers == 0 || (!ends && from == addr(0)), "{answers}");
            }
        }
        assert_eq!(bench.ends[1].events, []);
    }
}

#[test]
fn packets_for_connections_that_never_were_get_no_reset() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    bench.open_ready();
    let mut rng = Seed::from_number(3).rng();
    for _ in 0..50 {
        let mut packet = vec![0; 200];
        rng.fill(&mut packet);
        packet[0] = 0x40 | packet[0] & 0x3f;
        assert_eq!(answers(&mut bench, 1, addr(0), &packet), 0);
    }
    assert_eq!(bench.ends[1].endpoint.stranger_datagrams(), 50);
}

#[test]
fn a_script_of_cells_delivers_them() {
    let script: Vec<u8> = (0..200).flat_map(|step: u8| [[0, step], [7, 0]]).flatten().collect();
    assert!(flows(anchor(), &script) > 100);
}

proptest! {
    #[test]
    fn arbitrary_datagrams_are_not_answered(
        datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8),
        quic in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        for mut datagram in datagrams {
            if quic {
                // Close to what is let through: version 1, an Initial, and the token or nearly so.
                let tail = datagram.clone();
                datagram = [&[0xc0, 0, 0, 0, 1, 20][..], &[0xaa; 20], &[0, 0], &tail].concat();
                datagram.resize(1200, 0);
            }
            bytes.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&datagram);
        }
        stranger_datagrams(anchor(), &bytes);
    }

    #[test]
    fn flows_keep_order_whatever_happens(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        flows(anchor(), &script);
    }
}
