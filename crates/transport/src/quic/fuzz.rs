//! Bodies of fuzz targets: arbitrary bytes in, and a panic when a promise is broken.

use super::{QuicEndpoint, QuicOptions};
use bytes::BytesMut;
use core::net::SocketAddr;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionOptions, Datagrams, Endpoint, PairSecrets};
use heddle_proto::rng::Seed;
use heddle_proto::time::Instant;
use zeroize::Zeroizing;

const PEER: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)), 9000);

/// A listener to whom somebody at the peer's address sends these bytes, cut into datagrams by their own first bytes: he
/// knows neither token nor key, so nothing is ever answered.
pub fn stranger_datagrams(anchor: std::time::Instant, bytes: &[u8]) {
    let seed = Seed::from_number(1);
    let endpoint = QuicEndpoint::new(QuicOptions::new(anchor), &Zeroizing::new([1; 32]), &seed);
    let mut endpoint = endpoint.expect("the defaults are good");
    let secrets = PairSecrets {
        token: [0xaa; 20],
        dialler_proof: Zeroizing::new([2; 32]),
        listener_proof: Zeroizing::new([3; 32]),
    };
    let role = Role::Responder;
    let options =
        ConnectionOptions { role, local: None, peer: PEER, peer_key: [4; 32], secrets, flows_max: 10 };
    endpoint.open(Instant::ZERO, options);
    let mut rest = bytes;
    while let Some((head, tail)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*head)) % 1500;
        let (datagram, tail) = tail.split_at(len.min(tail.len()));
        rest = tail;
        let data = BytesMut::from(datagram);
        let stride = datagram.len().max(1);
        endpoint.handle_datagrams(Instant::ZERO, Datagrams { from: PEER, to: None, ecn: 0, stride, data });
    }
    let answer = endpoint.poll_transmit(Instant::ZERO, usize::MAX, &mut Vec::new());
    assert_eq!(answer, None, "the port is silent");
    assert!(endpoint.poll_event(Instant::ZERO).is_none());
}
