//! A QUIC connection for each circuit, for experiments: what a congestion window, a loss and a round trip of its own
//! are worth to a circuit. It shows on the wire how many circuits there are, and when each begins and ends, which
//! `quic` hides (`docs/reference/anonymity.md`).
//!
//! ```text
//!   pair (what the relay knows as the connection)
//!     ├ first connection    dialled and awaited as the pair's offers say; carries no flow, lives as long as the pair
//!     ├ spare, spare …      connections that are ready and wait for a circuit
//!     └ carrier, carrier …  connections with one circuit each; they end with it
//! ```
//!
//! All connections of a pair go between the same two UDP ports. They are those of [`QuicEndpoint`], which knows nothing
//! of this: each is opened with secrets of its own, derived from the first one's, so the port stays silent. Even
//! numbers are for circuits of the pair's dialler, odd ones for those of its listener, and the dialler dials them all,
//! a few ahead of need. Without a spare there is no room, and circuits go over TLS.

mod further;

use crate::connections::setup::Registered;
use crate::quic::QuicEndpoint;
use core::fmt;
use further::{Further, Pair, Stage};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
    FlowCell, FlowState, RefusedDatagrams,
};
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zeroize::Zeroizing;

/// Cells that the relay may give between two looks; each circuit has a window of its own besides.
const BATCH_CELLS: usize = 64;

/// A circuit is over when both sides know. Whoever ended it waits so long for the other one to close the connection.
const LINGER: Duration = Duration::from_secs(10);

/// What it is to relays.
pub static TRANSPORT: Transport = Transport {
    name: "quic-per-circuit",
    id: TransportId(3),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Circuit,
        backpressure: Scope::Circuit,
    },
};

/// Its line in the registry. It has the options of `quic`.
pub(crate) static REGISTERED: Registered = Registered {
    transport: &TRANSPORT,
    summary: "a QUIC connection for each circuit",
    testing_only: Some("it shows every circuit on the wire, so it is for experiments"),
    options: &[],
    stack: None,
    endpoint: |setup| Ok(Box::new(PerCircuitEndpoint::new(QuicEndpoint::from_setup(setup)?))),
};

/// All pairs of one UDP port; see the module.
pub struct PerCircuitEndpoint {
    quic: QuicEndpoint,
    /// By the names of their first connections.
    pairs: BTreeMap<ConnId, Pair>,
    /// All further connections.
    further: BTreeMap<ConnId, Further>,
    events: VecDeque<(ConnId, ConnectionEvent)>,
    /// Circuits whose connections broke, by their pairs.
    broken: VecDeque<(ConnId, CircId, DestroyReason)>,
    /// Connections whose circuits we ended, and when they are closed at the latest.
    closing: BTreeSet<(Instant, ConnId)>,
    /// The body of the cell that is lent.
    body: Body,
}

impl PerCircuitEndpoint {
    pub fn new(quic: QuicEndpoint) -> Self {
        PerCircuitEndpoint {
            quic,
            pairs: BTreeMap::new(),
            further: BTreeMap::new(),
            events: VecDeque::new(),
            broken: VecDeque::new(),
            closing: BTreeSet::new(),
            body: [0; BODY_LEN],
        }
    }
}

impl Endpoint for PerCircuitEndpoint {
    fn transport(&self) -> &'static Transport {
        &TRANSPORT
    }

    fn public_key(&self) -> [u8; 32] {
        self.quic.public_key()
    }

    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) {
        self.quic.set_key(secret);
    }

    fn set_congestion(&mut self, params: CongestionParams) {
        self.quic.set_congestion(params);
    }

    fn open(&mut self, now: Instant, options: ConnectionOptions) -> ConnId {
        let pair = Pair::new(&options);
        let conn = self.quic.open(now, ConnectionOptions { flows_max: 0, ..options });
        self.pairs.insert(conn, pair);
        conn
    }

    fn close(&mut self, now: Instant, conn: ConnId) {
        self.quic.close(now, conn);
        self.forget_pair(now, conn);
        self.events.retain(|(of, _)| *of != conn);
    }

    fn probe(&mut self, now: Instant, conn: ConnId) {
        self.quic.probe(now, conn);
    }

    fn handle_datagrams(&mut self, now: Instant, datagrams: Datagrams) {
        self.quic.handle_datagrams(now, datagrams);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
        while let Some(&(_, further)) = self.closing.first().filter(|(at, _)| *at <= now) {
            self.close_further(now, further);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let closing = self.closing.first().map(|(at, _)| *at);
        [self.quic.poll_timeout(), closing].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.quic.poll_transmit(now, out)
    }

    fn poll_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let (conn, event) = self.quic.poll_event(now)?;
            if self.pairs.contains_key(&conn) {
                self.on_pair_event(now, conn, event);
            } else {
                self.on_further_event(now, conn, event);
            }
        }
    }

    fn next_incoming(&mut self, now: Instant) -> Option<FlowCell<'_>> {
        if let Some((conn, circ_id, reason)) = self.broken.pop_front() {
            self.body = [0; BODY_LEN];
            self.body[0] = reason.0;
            return Some(FlowCell { conn, circ_id, command: Command::DESTROY, body: &self.body });
        }
        loop {
            let cell = self.quic.next_incoming(now)?;
            let (further, inner, command) = (cell.conn, cell.circ_id, cell.command);
            self.body = *cell.body;
            if let Some((conn, circ_id)) = self.on_cell(now, further, inner, command) {
                return Some(FlowCell { conn, circ_id, command, body: &self.body });
            }
        }
    }

    fn buffered_bytes(&self) -> usize {
        self.quic.buffered_bytes()
    }

    fn state_bytes(&self) -> usize {
        self.quic.state_bytes()
    }

    fn forget_ended(&mut self, now: Instant) {
        self.quic.forget_ended(now);
    }

    /// A flow on a connection that carries no circuit yet is named by nobody; it ends by itself.
    fn backlogs(&self, each: &mut dyn FnMut(Backlog)) {
        self.quic.backlogs(&mut |backlog| {
            if let Some((conn, circ_id)) = self.further.get(&backlog.conn).and_then(Further::circuit) {
                each(Backlog { conn, circ_id, ..backlog });
            }
        });
    }

    fn hold(&mut self, conn: ConnId, circ_id: CircId, hold: bool) {
        let carrier = self.pairs.get(&conn).and_then(|pair| pair.carriers.get(&circ_id));
        if let Some(&further) = carrier
            && let Some(Further { stage: Stage::Carrying { inner, .. }, .. }) = self.further.get(&further)
        {
            self.quic.hold(further, *inner, hold);
        }
    }

    fn capacity(&self, conn: ConnId) -> usize {
        // A circuit whose connection takes no more is blocked by itself.
        if self.pairs.get(&conn).is_some_and(|pair| pair.is_ready) { BATCH_CELLS } else { 0 }
    }

    fn send(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let Some(carrier) = self.carrier(now, conn, circ_id, command) else {
            return FlowState::Open;
        };
        let Some(further) = self.further.get_mut(&carrier) else {
            return FlowState::Open;
        };
        let Stage::Carrying { inner, is_blocked, is_full, .. } = &mut further.stage else {
            return FlowState::Open;
        };
        let state = self.quic.send(now, carrier, *inner, command, body);
        if command == Command::DESTROY {
            self.linger(now, carrier);
            return FlowState::Open;
        }
        *is_blocked = state == FlowState::Blocked;
        *is_full = self.quic.capacity(carrier) == 0;
        if *is_blocked || *is_full { FlowState::Blocked } else { FlowState::Open }
    }

    /// The sums of all connections of the pair; the round trip is the first one's.
    fn stats(&self, conn: ConnId) -> ConnectionStats {
        let Some(pair) = self.pairs.get(&conn) else {
            return ConnectionStats::default();
        };
        let mut sum = self.quic.stats(conn);
        for of in pair.further.iter().map(|further| self.quic.stats(*further)).chain([pair.gone]) {
            further::add(&mut sum, &of);
        }
        sum
    }

    fn refused_datagrams(&self) -> RefusedDatagrams {
        self.quic.refused_datagrams()
    }
}

impl fmt::Debug for PerCircuitEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCircuitEndpoint").field("quic", &self.quic).finish_non_exhaustive()
    }
}
