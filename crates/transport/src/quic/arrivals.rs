//! What comes on a connection's streams: quinn-proto does not tell how much it keeps, so the keys that open packets
//! look.
//!
//! ```text
//!   a datagram ──▶ quinn-proto ──▶ Watching::decrypt ──▶ quinn-proto keeps its frames
//!                                        └──▶ Arrivals ──▶ the connection counts them
//! ```
//!
//! A session's keys are wrapped in [`Watching`], and those of headers in what `lengths.rs` has; all else is the
//! session's own.

use super::frames::{Frame, OfPacket, frames};
use super::gauge::Gauge;
use super::lengths::Lengths;
use bytes::BytesMut;
use core::any::Any;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig,
    Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, StreamId, TransportError, VarInt};
use std::sync::{Arc, Mutex, PoisonError};

/// What a frame takes beside the packet whose bytes it refers to: an entry in a heap that has up to twice as many
/// places, and what an allocation costs.
const FRAME_OVERHEAD: u64 = 192;

/// Frames of one packet on one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) stream: StreamId,
    /// The offset behind their last byte.
    pub(super) end: u64,
    /// How many they are.
    pub(super) frames: u64,
    /// What they take while they are kept. Each may be what keeps the packet.
    pub(super) bytes: u64,
    /// Whether the peer ended it here, and this is all that came.
    pub(super) is_reset: bool,
}

impl Arrival {
    fn reset(stream: StreamId) -> Self {
        Arrival { stream, end: 0, frames: 0, bytes: 0, is_reset: true }
    }
}

/// What came and was not looked at, in order. The connection looks after each batch of datagrams.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<Vec<Arrival>>);

impl Arrivals {
    /// What came since this was last called. `used` is what it gave then, to be filled again.
    pub(super) fn take(&self, mut used: Vec<Arrival>) -> Vec<Arrival> {
        used.clear();
        core::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), used)
    }

    /// Notes what came on streams, and gives what else the packet says.
    fn note(&self, payload: &[u8]) -> OfPacket {
        let mut packet = OfPacket::default();
        let mut arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = arrivals.len();
        for frame in frames(payload) {
            let frame = match frame {
                Frame::Stream(frame) => frame,
                Frame::Reset(stream) => {
                    let stream = VarInt::from_u64(stream).ok().map(StreamId::from);
                    arrivals.extend(stream.map(Arrival::reset));
                    continue;
                }
                Frame::Stamp(_) | Frame::Ack(_) => {
                    packet.note(frame);
                    continue;
                }
            };
            let Some(stream) = VarInt::from_u64(frame.stream).ok().map(StreamId::from) else { continue };
            match arrivals[first..].last_mut().filter(|last| last.stream == stream && !last.is_reset) {
                Some(last) => {
                    last.end = last.end.max(frame.end);
                    (last.frames, last.bytes) = (last.frames + 1, last.bytes + FRAME_OVERHEAD);
                }
                None => {
                    let bytes = payload.len() as u64 + FRAME_OVERHEAD;
                    arrivals.push(Arrival { stream, end: frame.end, frames: 1, bytes, is_reset: false });
                }
            }
        }
        packet
    }
}

/// What a session's keys tell its connection, and what they are told.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) lengths: Arc<Lengths>,
    gauge: Arc<Gauge>,
}

impl Watch {
    pub(super) fn new(gauge: Arc<Gauge>) -> Self {
        Watch { arrivals: Arc::default(), lengths: Arc::new(Lengths::new(gauge.clone())), gauge }
    }
}

/// A configuration, session or key that tells what comes, and makes what leaves as long as it is to be.
pub(super) struct Watching<T> {
    pub(super) inner: T,
    pub(super) watch: Watch,
}

impl<T> Watching<T> {
    fn session(&self, inner: Box<dyn Session>) -> Box<dyn Session> {
        Box::new(Watching { inner, watch: self.watch.clone() })
    }

    fn packet_keys(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let remote = Watching { inner: keys.remote, watch: self.watch.clone() };
        KeyPair { local: keys.local, remote: Box::new(remote) }
    }
}

impl ClientConfig for Watching<Arc<QuicClientConfig>> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(self.session(self.inner.clone().start_session(version, server_name, params)?))
    }
}

impl ServerConfig for Watching<Arc<QuicServerConfig>> {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.inner.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        self.session(self.inner.clone().start_session(version, params))
    }
}

impl Session for Watching<Box<dyn Session>> {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write_handshake(buf)?;
        let local = Lengths::header_key(&self.watch.lengths, keys.header.local);
        let header = KeyPair { local, remote: keys.header.remote };
        Some(Keys { header, packet: self.packet_keys(keys.packet) })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.packet_keys(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

impl PacketKey for Watching<Box<dyn PacketKey>> {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)?;
        self.watch.gauge.on_opened(packet, self.watch.arrivals.note(payload));
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}
