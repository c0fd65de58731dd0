//! QUIC between upgraded relays: one connection for each pair of relays, one stream for each circuit.
//!
//! Circuits are isolated from each other: a lost packet holds back only the circuits whose cells it carried, and a
//! circuit that nobody reads takes its own window and no more. They share one congestion window, whose controller can
//! stand for as many connections as there are busy circuits, up to the consensus' ceiling of at most eight.
//!
//! A cell on a flow is its command and its body, 510 bytes. DESTROY is RESET_STREAM and STOP_SENDING with Tor's reason
//! as the code; it overtakes data. Neither circuit ids nor anything else that is per circuit can be seen on the wire.
//!
//! The port is silent. A datagram is looked at only when it comes from the address of a peer and carries an id of ours
//! or a token that a dialler was given over TLS; whatever quinn-proto would answer to anything else is dropped.

mod arrivals;
mod backlog;
mod connection;
mod crypto;
mod establish;
mod flow;
mod flows;
mod frames;
pub mod fuzz;
mod gauge;
mod heaps;
#[cfg(test)]
mod hostile;
mod ids;
mod lateness;
mod lengths;
mod options;
mod shared;
mod stamps;
mod window;

use crate::connections::setup::{EndpointSetup, Registered};
pub use crate::connections::setup::{InvalidOptions, SetupError};
pub use options::{CongestionControl, QuicOptions};

use crate::congestion::Ceiling;
use crate::connections::clock::Clock;
use crate::connections::{ConnKey, Connections, Serve, Served, Token, Want};
use arrivals::Watch;
use bytes::BytesMut;
use connection::Connection;
use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crypto::{KEY_LEN, OurKey};
use establish::server_config;
use gauge::Gauge;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
    FlowCell, FlowState, RefusedDatagrams,
};
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::datagrams::{Datagrams, IdPrefix, Transmit};
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use ids::{Ids, Recent};
use quinn_proto::{DatagramEvent, EcnCodepoint, EndpointConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use window::Common;
use zeroize::Zeroizing;

/// What it is to relays.
pub static TRANSPORT: Transport = Transport {
    name: "quic",
    id: TransportId(1),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Channel,
        backpressure: Scope::Circuit,
    },
};

/// Its line in the registry.
pub(crate) static REGISTERED: Registered = Registered {
    transport: &TRANSPORT,
    summary: "one QUIC connection for each pair of relays, a stream for each circuit",
    testing_only: None,
    options: &[options::CONGESTION_CONTROL],
    stack: None,
    endpoint: |setup| Ok(Box::new(QuicEndpoint::from_setup(setup)?)),
};

/// All connections of one UDP port; see the module.
pub struct QuicEndpoint {
    options: QuicOptions,
    clock: Clock,
    key: OurKey,
    ceiling: Ceiling,
    ids: Ids,
    token_key: aws_lc_rs::hkdf::Prk,
    quinn: quinn_proto::Endpoint,
    connections: Connections<Connection>,
    by_handle: Vec<Option<ConnKey>>,
    /// How many connections there are with each address.
    peers: BTreeMap<IpAddr, usize>,
    scratch: Vec<u8>,
    /// Bytes that flows of all connections hold.
    buffered: Arc<AtomicUsize>,
    /// Bytes that all connections and their flows take themselves.
    state: Arc<AtomicUsize>,
    /// What all connections may be sent and have.
    windows: Common,
    recent_ids: Recent,
    strangers: u64,
}

impl QuicEndpoint {
    pub(crate) fn from_setup(setup: &EndpointSetup<'_>) -> Result<Self, SetupError> {
        Self::new(QuicOptions::from_setup(setup), setup.secret, &setup.seed)
    }

    /// An endpoint whose offers name the key of `secret`. `seed` must serve this endpoint alone: ids, reset tokens and
    /// what quinn-proto draws for itself come of it. Keys do not, rustls draws those from the system.
    pub fn new(options: QuicOptions, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Result<Self, SetupError> {
        options.validate().map_err(setup_error)?;
        let key = OurKey::new(secret).map_err(setup_error)?;
        let (ids, of_ids) = (Ids::new(&seed.child("ids", 0)), seed.child("ids", 0));
        let secret_of = |label| seed.child(label, 0).rng().array::<KEY_LEN>();
        let reset_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret_of("reset"));
        let token_key =
            aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]).extract(&secret_of("token"));
        let mut config = EndpointConfig::new(Arc::new(reset_key));
        config
            .cid_generator(move || Box::new(Ids::new(&of_ids)))
            .supported_versions(vec![1])
            .grease_quic_bit(false)
            .rng_seed(Some(secret_of("quinn")));
        config.max_udp_payload_size(options.datagram_bytes_max).map_err(setup_error)?;
        // Accepts nobody: each connection brings a configuration with its peer's key.
        let nobody = server_config(
            &key,
            [0; KEY_LEN],
            options.ciphers,
            token_key.clone(),
            Watch::new(Gauge::new(options.anchor).into()),
        )?;
        let quinn = quinn_proto::Endpoint::new(Arc::new(config), Some(Arc::new(nobody)), true, None);
        Ok(QuicEndpoint {
            clock: Clock { anchor: options.anchor },
            windows: Common::new(
                options.receive_window_bytes_min.into(),
                options.shared_receive_window_bytes,
            ),
            options,
            key,
            ceiling: Ceiling::default(),
            ids,
            token_key,
            quinn,
            connections: Connections::new(),
            by_handle: Vec::new(),
            peers: BTreeMap::new(),
            scratch: Vec::new(),
            buffered: Arc::default(),
            state: Arc::default(),
            recent_ids: Recent::new(),
            strangers: 0,
        })
    }

    /// Hands one datagram to its connection, or drops it.
    fn handle_datagram(&mut self, now: Instant, from: &Datagrams, data: BytesMut) -> Option<ConnKey> {
        if !self.is_known(from, &data) {
            self.strangers += 1;
            return None;
        }
        let ecn = EcnCodepoint::from_bits(from.ecn);
        let len = data.len();
        self.scratch.clear();
        let event =
            self.quinn.handle(self.clock.std(now), from.from, from.to, ecn, data, &mut self.scratch)?;
        match event {
            DatagramEvent::ConnectionEvent(handle, event) => {
                let key = self.by_handle.get(handle.0).copied().flatten()?;
                if !self.connections.is_from(key, from.from.ip()) {
                    self.strangers += 1;
                    return None;
                }
                if let Some(connection) = self.connections.live_mut(key) {
                    connection.handle_datagram(now, event, len);
                }
                Some(key)
            }
            DatagramEvent::NewConnection(incoming) => {
                self.accept(now, incoming);
                None
            }
            // The port is silent.
            DatagramEvent::Response(_) => None,
        }
    }

    /// Whether a peer of ours may have sent it, from whose address it comes.
    fn is_known(&mut self, from: &Datagrams, datagram: &[u8]) -> bool {
        let Some(head) = ids::head(datagram) else {
            return false;
        };
        if let Ok(token) = <&Token>::try_from(head.to) {
            return head.is_initial && self.connections.dialled_from(token, from.from.ip()).is_some();
        }
        self.recent_ids.is_ours(&self.ids, head.to)
    }
}

impl Endpoint for QuicEndpoint {
    fn transport(&self) -> &'static Transport {
        &TRANSPORT
    }

    fn public_key(&self) -> [u8; 32] {
        self.key.public()
    }

    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) {
        // Every seed makes a key, so there is nothing to keep the old one for.
        if let Ok(key) = OurKey::new(secret) {
            self.key = key;
        }
    }

    fn set_congestion(&mut self, params: CongestionParams) {
        self.ceiling.set(params);
    }

    fn open(&mut self, now: Instant, options: ConnectionOptions) -> ConnId {
        let key = self.begin(now, options);
        self.after(now, key);
        key.conn()
    }

    fn close(&mut self, now: Instant, conn: ConnId) {
        self.close_connection(now, conn);
    }

    fn probe(&mut self, now: Instant, conn: ConnId) {
        self.probe_connection(now, conn);
    }

    fn handle_datagrams(&mut self, now: Instant, datagrams: Datagrams) {
        let stride = datagrams.stride.max(1);
        if !self.peers.contains_key(&datagrams.from.ip().to_canonical()) {
            self.strangers += datagrams.data.len().div_ceil(stride) as u64;
            return;
        }
        self.handle_each(now, datagrams.data.chunks(stride), |endpoint, datagram| {
            // A copy, so that what a flow keeps, which keeps its datagram, keeps no other.
            endpoint.handle_datagram(now, &datagrams, BytesMut::from(datagram))
        });
    }

    fn id_prefix(&self) -> Option<IdPrefix> {
        Some(self.ids.id_prefix())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((key, late)) = self.connections.due(now) {
            self.on_timer(now, key, late);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.connections.next_timer()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let batch_max = self.options.batch_datagrams_max;
        self.next_sender(now, |endpoint, key| {
            // quinn-proto wants an empty buffer.
            let is_empty = out.is_empty();
            let scratch = &mut endpoint.scratch;
            scratch.clear();
            let connection = endpoint.connections.live_mut(key)?;
            let transmit = connection.poll_transmit(now, batch_max, if is_empty { out } else { scratch });
            out.extend_from_slice(scratch);
            transmit
        })
    }

    fn poll_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)> {
        self.next_event(now)
    }

    fn next_incoming(&mut self, now: Instant) -> Option<FlowCell<'_>> {
        let next = |endpoint: &mut Self, key| endpoint.connections.live_mut(key)?.next_cell(now);
        let (key, (circ_id, command)) = self.next_reader(now, next)?;
        let body = self.connections.live(key)?.lent();
        Some(FlowCell { conn: key.conn(), circ_id, command, body })
    }

    fn buffered_bytes(&self) -> usize {
        self.buffered.load(Relaxed)
    }

    fn state_bytes(&self) -> usize {
        self.state.load(Relaxed)
    }

    fn backlogs(&self, each: &mut dyn FnMut(Backlog)) {
        self.connections.backlogs(each);
    }

    fn forget_ended(&mut self, now: Instant) {
        for key in self.connections.live_keys() {
            if self.connections.live_mut(key).is_some_and(|connection| connection.forget_ended(now)) {
                self.after(now, key);
            }
        }
    }

    fn hold(&mut self, conn: ConnId, circ_id: CircId, hold: bool) {
        self.hold_flow(conn, circ_id, hold);
    }

    fn capacity(&self, conn: ConnId) -> usize {
        self.connections.capacity(conn)
    }

    fn send(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let key = ConnKey::of(conn);
        let Some(connection) = self.connections.live_mut(key) else {
            return FlowState::Open;
        };
        let state = connection.send(now, circ_id, command, body);
        // A circuit for which there is no room ends at once.
        self.connections.note_if(key, Want::Read, Connection::has_readable);
        self.connections.note(key, Want::Transmit);
        state
    }

    fn stats(&self, conn: ConnId) -> ConnectionStats {
        self.connections.stats(conn)
    }

    /// What QUIC drops of a peer's it does not tell.
    fn refused_datagrams(&self) -> RefusedDatagrams {
        RefusedDatagrams { strangers: self.strangers, peers: 0 }
    }
}

impl fmt::Debug for QuicEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicEndpoint").field("options", &self.options).finish_non_exhaustive()
    }
}

fn setup_error(why: impl fmt::Display) -> SetupError {
    SetupError::new("QUIC", why)
}
