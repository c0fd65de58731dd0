//! `tcp-esp` between upgraded relays: everything between the two is ESP in UDP, and in it each circuit has a TCP
//! connection of a kernel's, as M. AlSabah and I. Goldberg have it ("PCTCP: Per-Circuit TCP-over-IPsec Transport for
//! Anonymous Communication Overlay Networks", CCS 2013).
//!
//! ```text
//!   cells ◀──▶ flows, a socket each ◀──▶ a stack of our own ◀──▶ packets ◀──▶ ESP ◀──▶ datagrams
//!              flow.rs, flows.rs          (the driver's)          addresses.rs  heddle-esp
//! ```
//!
//! The connection of a pair is its security association, so there is no handshake: both sides derive the keys from the
//! TLS channel's exporter (`chain.rs`), and new ones from those, by themselves (`associations.rs`). One TCP connection
//! more, the *control stream* (`control.rs`), carries both proofs and why flows end.
//!
//! The port is silent. A datagram is looked at only when it comes from the address of a peer and names an association
//! of ours, and believed when it is authentic. The bytes are in `docs/reference/tcp-esp.md`.

mod addresses;
mod associations;
mod chain;
mod connection;
mod control;
mod establish;
mod flow;
mod flows;
pub mod fuzz;
#[cfg(test)]
mod hostile;
mod options;
mod outbox;
mod segment;
mod sockets;
mod spares;
mod stack;

pub use options::EspOptions;

use crate::connections::circuits::Lent;
use crate::connections::proof::{OfferKey, Protocol};
use crate::connections::setup::{EndpointSetup, Registered, SetupError};
use crate::connections::{ConnKey, Connections, Serve};
use addresses::Addresses;
use connection::Connection;
use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use heddle_esp::packet::{Arrived, classify};
use heddle_esp::{Refused, Spi};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
    FlowCell, FlowState, RefusedDatagrams,
};
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Output, SocketId, StackId};
use heddle_seam::time::Instant;
use sockets::Sockets;
use std::collections::BTreeMap;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What it is to relays.
pub static TRANSPORT: Transport = Transport {
    name: "tcp-esp",
    id: TransportId(4),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Circuit,
        backpressure: Scope::Circuit,
    },
};

/// What the key of its offers is for.
const PROTOCOL: Protocol = Protocol { transport: TRANSPORT.name, version: 1 };

/// Its line in the registry.
pub(crate) static REGISTERED: Registered = Registered {
    transport: &TRANSPORT,
    summary: "one ESP association for each pair of relays, a kernel's TCP connection for each circuit",
    testing_only: None,
    options: &[],
    stack: Some(addresses::STACK),
    endpoint: |setup| Ok(Box::new(EspEndpoint::from_setup(setup)?)),
};

/// All connections of one UDP port; see the module.
pub struct EspEndpoint {
    options: EspOptions,
    key: OfferKey,
    connections: Connections<Connection>,
    /// Which associations towards us there are, with the address that their packets come from.
    spis: BTreeMap<(IpAddr, Spi), ConnKey>,
    /// What peers are called on the stack.
    addresses: Addresses,
    sockets: Sockets,
    lent: Lent,
    /// Bytes that all connections keep for others, and that they take themselves.
    buffered: Arc<AtomicUsize>,
    memory: Arc<AtomicUsize>,
    refused: RefusedDatagrams,
}

impl EspEndpoint {
    fn from_setup(setup: &EndpointSetup<'_>) -> Result<Self, SetupError> {
        Self::new(EspOptions::from_setup(setup), setup.stack, setup.secret)
    }

    /// An endpoint whose offers name the key of `secret`, and whose flows are sockets of `stack`.
    pub fn new(
        options: EspOptions,
        stack: StackId,
        secret: &Zeroizing<[u8; 32]>,
    ) -> Result<Self, SetupError> {
        options.validate().map_err(|why| SetupError::new("tcp-esp", why))?;
        Ok(EspEndpoint {
            key: OfferKey::new(PROTOCOL, secret).map_err(|why| SetupError::new("tcp-esp", why))?,
            options,
            connections: Connections::new(),
            spis: BTreeMap::new(),
            addresses: Addresses::default(),
            sockets: Sockets::new(stack),
            lent: Lent::new(),
            buffered: Arc::default(),
            memory: Arc::default(),
            refused: RefusedDatagrams::default(),
        })
    }

    /// Opens one datagram, or drops it. Tells whose it was.
    fn handle_datagram(&mut self, now: Instant, from: &Datagrams, datagram: &mut [u8]) -> Option<ConnKey> {
        let address = from.from.ip().to_canonical();
        let key = match classify(datagram) {
            Arrived::Esp(spi) => self.spis.get(&(address, spi)).copied(),
            Arrived::KeepAlive | Arrived::Other => None,
        };
        let Some((key, connection)) = key.and_then(|key| Some((key, self.connections.live_mut(key)?))) else {
            self.refused.strangers += 1;
            return None;
        };
        match connection.handle_datagram(now, from, datagram, &mut self.sockets) {
            Ok(()) => Some(key),
            Err(Refused::NotOurs) => {
                self.refused.strangers += 1;
                None
            }
            Err(_) => {
                self.refused.peers += 1;
                None
            }
        }
    }
}

impl Endpoint for EspEndpoint {
    fn transport(&self) -> &'static Transport {
        &TRANSPORT
    }

    fn public_key(&self) -> [u8; 32] {
        self.key.public()
    }

    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) {
        // Every seed makes a key, so there is nothing to keep the old one for.
        if let Ok(key) = OfferKey::new(PROTOCOL, secret) {
            self.key = key;
        }
    }

    /// The kernel's congestion control is its own.
    fn set_congestion(&mut self, _params: CongestionParams) {}

    fn open(&mut self, now: Instant, options: ConnectionOptions) -> ConnId {
        let key = self.begin(now, options);
        self.after(now, key);
        // A control stream takes a socket that flows may have counted on.
        self.tell_room(now);
        key.conn()
    }

    fn close(&mut self, now: Instant, conn: ConnId) {
        self.close_connection(now, conn);
    }

    fn probe(&mut self, now: Instant, conn: ConnId) {
        self.probe_connection(now, conn);
    }

    fn handle_datagrams(&mut self, now: Instant, mut datagrams: Datagrams) {
        let mut data = core::mem::take(&mut datagrams.data);
        let each = data.chunks_mut(datagrams.stride.max(1));
        self.handle_each(now, each, |endpoint, datagram| endpoint.handle_datagram(now, &datagrams, datagram));
    }

    fn handle_stack(&mut self, now: Instant, input: Input<Plain>) {
        self.on_stack(now, input);
    }

    fn poll_stack(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Output<Plain>> {
        self.sockets.poll(out)
    }

    fn stack_recv_buf(&mut self, _socket: SocketId) -> &mut [u8] {
        self.sockets.recv_buf()
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
        self.next_sender(now, |endpoint, key| {
            endpoint.connections.live_mut(key)?.poll_transmit(&mut endpoint.sockets.spares, out)
        })
    }

    fn poll_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)> {
        self.next_event(now)
    }

    fn next_incoming(&mut self, now: Instant) -> Option<FlowCell<'_>> {
        let next = |endpoint: &mut Self, key| {
            // What cells leave is counted when none is left to lend, in `rest`.
            let connection = endpoint.connections.live_mut(key)?;
            connection.next_cell(now, &mut endpoint.lent, &mut endpoint.sockets)
        };
        let (key, (circ_id, command)) = self.next_reader(now, next)?;
        Some(FlowCell { conn: key.conn(), circ_id, command, body: self.lent.body() })
    }

    fn buffered_bytes(&self) -> usize {
        self.buffered.load(Relaxed)
    }

    fn state_bytes(&self) -> usize {
        self.memory.load(Relaxed)
    }

    fn backlogs(&self, each: &mut dyn FnMut(Backlog)) {
        self.connections.backlogs(each);
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
        let (state, is_all) = connection.send(now, (circ_id, command, body), key, &mut self.sockets);
        // Most cells change nothing but what waits for their socket, and there is one for each half a kilobyte.
        if !is_all {
            self.after(now, key);
            self.tell_room(now);
        }
        state
    }

    fn stats(&self, conn: ConnId) -> ConnectionStats {
        self.connections.stats(conn)
    }

    fn refused_datagrams(&self) -> RefusedDatagrams {
        self.refused
    }
}

impl fmt::Debug for EspEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EspEndpoint").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}
