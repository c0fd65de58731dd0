//! The bodies of fuzz targets: a neighbour whose key and proof are right, and who does anything with streams that
//! quinn-proto lets it do; and the payloads of packets as they are after decryption.

use super::crypto::{self, KEY_LEN, OurKey};
use super::{QuicEndpoint, QuicOptions, frames};
use crate::Ciphers;
use crate::connections::clock::Clock;
use crate::fuzz_endpoint::street::{Neighbour, Street, contents, pause};
use crate::fuzz_endpoint::{PEER, connection};
use bytes::{Bytes, BytesMut};
use core::net::SocketAddr;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::Endpoint;
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionId, DatagramEvent, Dir, EndpointConfig, Side, StreamId,
    TransportConfig, VarInt,
};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The dialler, with the streams that it knows.
struct Dialler {
    clock: Clock,
    endpoint: quinn_proto::Endpoint,
    connection: Connection,
    streams: Vec<StreamId>,
}

/// What is read of a packet is no more than is in it, and the same behind frames that say nothing.
pub fn payload(payload: &[u8]) {
    /// PADDING, PING and HANDSHAKE_DONE.
    const NOTHING: [u8; 3] = [0x00, 0x01, 0x1e];
    let kept: Vec<_> = frames::frames(payload).collect();
    assert!(kept.len() <= payload.len());
    let behind = [&NOTHING[..], payload].concat();
    assert!(frames::frames(&behind).eq(kept));
}

/// Streams with any bytes and any ends, pauses, and what our relay does meanwhile.
pub fn streams(anchor: std::time::Instant, mut script: &[u8]) {
    let options = QuicOptions::new(anchor);
    let ours = QuicEndpoint::new(options, &Zeroizing::new([1; KEY_LEN]), &Seed::from_number(1));
    let ours = ours.expect("the defaults are good");
    let key = OurKey::new(&Zeroizing::new([2; KEY_LEN])).expect("every seed makes a key");
    let dialler = Dialler::dial(Clock { anchor }, &key, ours.public_key());
    let options = connection(Role::Responder, key.public());
    let proof = *options.secrets.dialler_proof;
    let mut street = Street::new(Box::new(ours), options, dialler);
    street.run(Duration::from_millis(200));
    street.neighbour.open(Dir::Uni, &proof);
    street.run(Duration::from_millis(200));
    assert!(street.is_ready, "both are who they should be");
    while let Some((&what, rest)) = script.split_first()
        && !street.is_over
    {
        script = rest;
        match what % 8 {
            6 => street.run(pause(what)),
            7 => {
                let Some((&act, rest)) = script.split_first() else { break };
                script = rest;
                street.act(act);
            }
            _ => {
                street.neighbour.step(what, &mut script);
                street.exchange_all();
            }
        }
    }
    street.end();
}

/// A connection of quinn-proto alone to whoever has the key `listener`, with a pair's token.
pub(super) fn dial(
    clock: &Clock,
    key: &OurKey,
    (to, listener): (SocketAddr, [u8; KEY_LEN]),
    token: [u8; 20],
    transport: TransportConfig,
) -> (quinn_proto::Endpoint, Connection) {
    let reset_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[1; 32]);
    let mut config = EndpointConfig::new(Arc::new(reset_key));
    config.supported_versions(vec![1]).grease_quic_bit(false).rng_seed(Some([2; 32]));
    let mut endpoint = quinn_proto::Endpoint::new(Arc::new(config), None, true, None);
    let tls = crypto::client(key, listener, Ciphers::default()).expect("a key");
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
    config.transport_config(Arc::new(transport));
    config.initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&token)));
    let (_, connection) = endpoint.connect(clock.anchor, config, to, "heddle").expect("an address");
    (endpoint, connection)
}

impl Dialler {
    fn dial(clock: Clock, key: &OurKey, listener: [u8; KEY_LEN]) -> Self {
        let token = connection(Role::Initiator, listener).secrets.token;
        let (endpoint, connection) = dial(&clock, key, (PEER, listener), token, TransportConfig::default());
        Dialler { clock, endpoint, connection, streams: Vec::new() }
    }

    /// What cannot be done is not.
    fn step(&mut self, what: u8, script: &mut &[u8]) {
        let which = usize::from(what >> 3);
        // One of ours, which carries no flow, where it has none itself.
        let unused = StreamId::new(Side::Server, Dir::Bi, u64::from(what >> 3));
        let stream = *self.streams.get(which % (self.streams.len() + 1)).unwrap_or(&unused);
        // One in four is no reason that a cell could give.
        let code = VarInt::from_u32(u32::from(what) + if which.is_multiple_of(4) { 1 << 20 } else { 0 });
        match what % 8 {
            0 | 1 => {
                let dir = if which == 31 { Dir::Uni } else { Dir::Bi };
                if let Some(bytes) = contents(script) {
                    self.open(dir, &bytes);
                }
            }
            2 | 3 => {
                if let Some(bytes) = contents(script) {
                    let _ = self.connection.send_stream(stream).write(&bytes);
                }
            }
            4 if which.is_multiple_of(2) => {
                let _ = self.connection.send_stream(stream).finish();
            }
            4 => {
                let _ = self.connection.send_stream(stream).reset(code);
            }
            _ if which.is_multiple_of(2) => {
                let _ = self.connection.recv_stream(stream).stop(code);
            }
            _ => {
                if let Some(bytes) = contents(script) {
                    let _ = self.connection.datagrams().send(Bytes::from(bytes), true);
                }
            }
        }
    }

    /// Opens a stream with these bytes, if there may be one more.
    fn open(&mut self, dir: Dir, bytes: &[u8]) {
        if let Some(id) = self.connection.streams().open(dir) {
            // Of others nothing may be read.
            self.streams.extend((dir == Dir::Bi).then_some(id));
            let _ = self.connection.send_stream(id).write(bytes);
        }
    }

    fn settle(&mut self, now: Instant) {
        let at = self.clock.std(now);
        if self.connection.poll_timeout().is_some_and(|due| due <= at) {
            self.connection.handle_timeout(at);
        }
        while self.connection.poll().is_some() {}
    }
}

impl Neighbour for Dialler {
    fn handle(&mut self, now: Instant, datagram: &[u8]) {
        let (at, data) = (self.clock.std(now), BytesMut::from(datagram));
        let event = self.endpoint.handle(at, PEER, None, None, data, &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    fn poll_datagram(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.settle(now);
        let mut datagram = Vec::with_capacity(1500);
        let transmit = self.connection.poll_transmit(self.clock.std(now), 1, &mut datagram)?;
        datagram.truncate(transmit.size);
        Some(datagram)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.connection.poll_timeout().map(|at| self.clock.ours(at))
    }
}
