//! All sessions of one UDP port, whatever they carry.
//!
//! The port is silent. A datagram is looked at only when it comes from the address of a peer and begins with the id of
//! a session of ours, or with a token that a dialler was given over TLS.

mod establish;

use super::connection::{Arrival, Connection};
use super::ids::{self, SessionId};
use super::key::OurKey;
use super::tunnelled::Tunnelled;
use crate::congestion::Ceiling;
use crate::connections::circuits::Lent;
use crate::connections::setup::{EndpointSetup, SetupError};
use crate::connections::{ConnKey, Connections, Serve};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
    FlowCell, FlowState, RefusedDatagrams,
};
use heddle_proto::transport::Transport;
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::stopwatch::{Step, Stopwatch};
use heddle_seam::time::Instant;
use slotmap::SecondaryMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use zeroize::Zeroizing;

/// All connections of one UDP port; see the module.
pub(crate) struct SessionEndpoint<T: Tunnelled> {
    options: T::Options,
    key: OurKey,
    ceiling: Ceiling,
    rng: Rng,
    /// What flows of all connections hold.
    memory: T::Memory,
    /// Bytes that all connections and their flows take themselves.
    state: Arc<AtomicUsize>,
    connections: Connections<Connection<T>>,
    /// What datagrams to us begin with.
    ids: BTreeMap<SessionId, ConnKey>,
    our_ids: SecondaryMap<ConnKey, SessionId>,
    lent: Lent,
    refused: RefusedDatagrams,
    stopwatch: Stopwatch,
}

impl<T: Tunnelled> SessionEndpoint<T> {
    /// An endpoint whose offers name the key of `secret`. `seed` must serve this endpoint alone. Keys do not come of
    /// it, dimpl draws those from the system.
    pub(crate) fn new(
        options: T::Options,
        secret: &Zeroizing<[u8; 32]>,
        seed: &Seed,
    ) -> Result<Self, SetupError> {
        T::check(&options).map_err(|why| SetupError::new(T::TRANSPORT.name, why))?;
        let key = OurKey::new(T::PROTOCOL, secret).map_err(|why| SetupError::new(T::TRANSPORT.name, why))?;
        Ok(SessionEndpoint {
            key,
            ceiling: Ceiling::default(),
            rng: seed.child("sessions", 0).rng(),
            memory: T::memory(&options),
            state: Arc::default(),
            options,
            connections: Connections::new(),
            ids: BTreeMap::new(),
            our_ids: SecondaryMap::new(),
            lent: Lent::new(),
            refused: RefusedDatagrams::default(),
            stopwatch: Stopwatch::default(),
        })
    }

    /// As the registry wants one.
    pub(crate) fn from_setup(setup: &EndpointSetup<'_>) -> Result<Box<dyn Endpoint>, SetupError> {
        let endpoint = Self::new(T::options(setup), setup.secret, &setup.seed)?;
        Ok(Box::new(SessionEndpoint { stopwatch: setup.stopwatch.clone(), ..endpoint }))
    }

    /// Hands one datagram to its connection, or drops it.
    fn handle_datagram(&mut self, now: Instant, from: &Datagrams, datagram: &[u8]) -> Option<ConnKey> {
        let lap = self.stopwatch.begin();
        let found = self.find(now, from, datagram);
        self.stopwatch.end(lap, Step::Demultiplex);
        let Some((key, records)) = found else {
            self.refused.strangers += 1;
            return None;
        };
        let lap = self.stopwatch.begin();
        let connection = self.connections.live_mut(key)?;
        let is_dropped =
            connection.handle_records(now, records, Arrival { bytes: datagram.len(), ecn: from.ecn });
        self.stopwatch.end(lap, Step::Inject);
        self.refused.peers += u64::from(is_dropped);
        Some(key)
    }

    /// Whose datagram it is, and where its records begin.
    fn find<'a>(
        &mut self,
        now: Instant,
        from: &Datagrams,
        datagram: &'a [u8],
    ) -> Option<(ConnKey, &'a [u8])> {
        let by_id = ids::split_id(datagram).and_then(|(id, rest)| Some((*self.ids.get(id)?, rest)));
        let (key, records) = by_id.or_else(|| {
            let (token, rest) = ids::split_token(datagram)?;
            // A dialler that was heard goes on with its token until it hears us.
            let key = self.connections.dialled_from(token, from.from.ip())?;
            (self.connections.live(key).is_some() || ids::is_hello(rest)).then_some((key, rest))
        })?;
        if !self.connections.is_from(key, from.from.ip()) {
            return None;
        }
        if by_id.is_none() {
            self.accept(now, key, from.from);
        }
        // The whole address stays as it was when the session began.
        let is_peer = self.connections.live(key).is_some_and(|connection| connection.peer() == from.from);
        is_peer.then_some((key, records))
    }
}

impl<T: Tunnelled> Endpoint for SessionEndpoint<T> {
    fn transport(&self) -> &'static Transport {
        T::TRANSPORT
    }

    fn public_key(&self) -> [u8; 32] {
        self.key.public()
    }

    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) {
        // Every seed makes a key, so there is nothing to keep the old one for.
        if let Ok(key) = OurKey::new(T::PROTOCOL, secret) {
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
        let each = datagrams.data.chunks(datagrams.stride.max(1));
        self.handle_each(now, each, |endpoint, datagram| endpoint.handle_datagram(now, &datagrams, datagram));
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((key, late)) = self.connections.due(now) {
            let lap = self.stopwatch.begin();
            self.on_timer(now, key, late);
            self.stopwatch.end(lap, Step::Timer);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.connections.next_timer()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let batch_max = self.options.as_ref().batch_datagrams_max;
        self.next_sender(now, |endpoint, key| {
            let connection = endpoint.connections.live_mut(key)?;
            connection.poll_transmit(now, batch_max, &endpoint.stopwatch, out)
        })
    }

    fn poll_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)> {
        self.next_event(now)
    }

    fn next_incoming(&mut self, now: Instant) -> Option<FlowCell<'_>> {
        let next =
            |endpoint: &mut Self, key| endpoint.connections.live_mut(key)?.next_cell(now, &mut endpoint.lent);
        let (key, (circ_id, command)) = self.next_reader(now, next)?;
        Some(FlowCell { conn: key.conn(), circ_id, command, body: self.lent.body() })
    }

    fn buffered_bytes(&self) -> usize {
        T::buffered_bytes(&self.memory)
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
        self.after(now, key);
        state
    }

    fn stats(&self, conn: ConnId) -> ConnectionStats {
        self.connections.stats(conn)
    }

    fn refused_datagrams(&self) -> RefusedDatagrams {
        self.refused
    }
}

impl<T: Tunnelled> fmt::Debug for SessionEndpoint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = T::TRANSPORT.name;
        f.debug_struct(name).field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}
