//! An endpoint whose flows' cells are tampered with as they leave.

use super::{Deed, Mischief};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
    FlowCell, FlowState, RefusedDatagrams,
};
use heddle_proto::transport::Transport;
use heddle_seam::datagrams::{Datagrams, IdPrefix, Transmit};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Output, SocketId};
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A cell and its flow.
struct Held {
    conn: ConnId,
    circ_id: CircId,
    command: Command,
    body: Body,
}

pub(super) struct RogueEndpoint {
    inner: Box<dyn Endpoint>,
    mischief: Arc<Mischief>,
    /// A cell that the next one of its flow overtakes.
    held: Option<Held>,
}

impl RogueEndpoint {
    pub fn new(inner: Box<dyn Endpoint>, mischief: Arc<Mischief>) -> Self {
        RogueEndpoint { inner, mischief, held: None }
    }
}

impl Endpoint for RogueEndpoint {
    fn send(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState {
        let is_first = !matches!(command, Command::RELAY | Command::RELAY_EARLY | Command::DATAGRAM);
        let overtaken = self.held.take_if(|held| (held.conn, held.circ_id) == (conn, circ_id));
        // A flow's first cell opens it and DESTROY ends it, on this side as well.
        let deed = if is_first { None } else { self.mischief.deed_of_flow() };
        let changed;
        let forged: Body;
        let cells: &[(Command, &Body)] = match deed {
            Some(Deed::Drop) => &[],
            Some(Deed::Change) => {
                changed = self.mischief.changed(body);
                &[(command, &changed)]
            }
            Some(Deed::Double) => &[(command, body), (command, body)],
            Some(Deed::HoldBack) => {
                self.held = Some(Held { conn, circ_id, command, body: *body });
                &[]
            }
            Some(Deed::Forge) => {
                forged = self.mischief.random(Rng::array);
                &[(Command::RELAY, &forged), (command, body)]
            }
            _ => &[(command, body)],
        };
        let behind = overtaken.iter().filter(|_| command != Command::DESTROY);
        let behind = behind.map(|held| (held.command, &held.body));
        let mut state = FlowState::Open;
        for (place, (command, body)) in cells.iter().copied().chain(behind).enumerate() {
            // There was room for one.
            let has_room = place == 0 || state == FlowState::Open && self.inner.capacity(conn) > 0;
            if has_room {
                state = self.inner.send(now, conn, circ_id, command, body);
            }
        }
        state
    }

    fn transport(&self) -> &'static Transport {
        self.inner.transport()
    }

    fn public_key(&self) -> [u8; 32] {
        self.inner.public_key()
    }

    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) {
        self.inner.set_key(secret);
    }

    fn set_congestion(&mut self, params: CongestionParams) {
        self.inner.set_congestion(params);
    }

    fn open(&mut self, now: Instant, options: ConnectionOptions) -> ConnId {
        self.inner.open(now, options)
    }

    fn close(&mut self, now: Instant, conn: ConnId) {
        self.inner.close(now, conn);
    }

    fn probe(&mut self, now: Instant, conn: ConnId) {
        self.inner.probe(now, conn);
    }

    fn handle_datagrams(&mut self, now: Instant, datagrams: Datagrams) {
        self.inner.handle_datagrams(now, datagrams);
    }

    fn id_prefix(&self) -> Option<IdPrefix> {
        self.inner.id_prefix()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.inner.handle_timeout(now);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.inner.poll_transmit(now, out)
    }

    fn handle_stack(&mut self, now: Instant, input: Input<Plain>) {
        self.inner.handle_stack(now, input);
    }

    fn poll_stack(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Output<Plain>> {
        self.inner.poll_stack(now, out)
    }

    fn stack_recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        self.inner.stack_recv_buf(socket)
    }

    fn poll_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)> {
        self.inner.poll_event(now)
    }

    fn next_incoming(&mut self, now: Instant) -> Option<FlowCell<'_>> {
        self.inner.next_incoming(now)
    }

    fn buffered_bytes(&self) -> usize {
        self.inner.buffered_bytes()
    }

    fn state_bytes(&self) -> usize {
        self.inner.state_bytes()
    }

    fn backlogs(&self, each: &mut dyn FnMut(Backlog)) {
        self.inner.backlogs(each);
    }

    fn forget_ended(&mut self, now: Instant) {
        self.inner.forget_ended(now);
    }

    fn hold(&mut self, conn: ConnId, circ_id: CircId, hold: bool) {
        self.inner.hold(conn, circ_id, hold);
    }

    fn capacity(&self, conn: ConnId) -> usize {
        self.inner.capacity(conn)
    }

    fn stats(&self, conn: ConnId) -> ConnectionStats {
        self.inner.stats(conn)
    }

    fn refused_datagrams(&self) -> RefusedDatagrams {
        self.inner.refused_datagrams()
    }
}
