//! The connections of one session, as the session carries them.

use super::flows::{Flow, Flows, UNWRITTEN_BYTES_MAX};
use super::frame::Number;
use super::options::SharedTcpOptions;
use super::protocol;
use super::spread::Spread;
use crate::connections::circuits::{self, Circuits, Lent};
use crate::connections::proof::Protocol;
use crate::connections::setup::{EndpointSetup, InvalidOptions};
use crate::dtls::tunnelled::{BATCH_CELLS_MIN, CAPACITY_CELLS, Opening, Packet, Tunnelled, Window};
use heddle_proto::cell::{Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionStats, FlowState};
use heddle_proto::transport::Transport;
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use heddle_utcp::BufferPool;
use heddle_utcp::compact::{Content, Mux};
use heddle_utcp::congestion::SessionController;
use heddle_utcp::pool::CHUNK_BYTES;

/// A few TCP connections, over which circuits are spread.
pub(crate) struct SharedTcp<S> {
    mux: Mux,
    flows: Flows<S>,
    /// Its share of the endpoint's memory.
    pool: BufferPool,
    /// When all connections must be open.
    deadline: Option<Instant>,
}

impl<S: Spread> SharedTcp<S> {
    #[cfg(test)]
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.flows.unwritten_bytes()
    }

    fn pool_cells(&self) -> usize {
        (self.pool.writable_bytes() / CHUNK_BYTES).min(CAPACITY_CELLS)
    }

    fn on_events(&mut self, now: Instant) -> Result<(), ConnectionError> {
        self.flows.on_events(now, &mut self.mux);
        if self.flows.is_connected() {
            self.deadline = None;
        }
        self.flows.take_fault().map_or(Ok(()), Err)
    }
}

impl<S: Spread> Tunnelled for SharedTcp<S> {
    const TRANSPORT: &'static Transport = S::TRANSPORT;
    const PROTOCOL: Protocol = protocol(S::TRANSPORT.name);

    type Options = SharedTcpOptions;
    type Memory = BufferPool;
    type Lot = ();
    type FlowId = Number;
    type Flow = Flow;

    fn options(setup: &EndpointSetup<'_>) -> SharedTcpOptions {
        SharedTcpOptions::from_setup(setup)
    }

    fn check(options: &SharedTcpOptions) -> Result<(), InvalidOptions> {
        options.validate()
    }

    fn memory(options: &SharedTcpOptions) -> BufferPool {
        BufferPool::new(options.session.pool_bytes_max)
    }

    fn buffered_bytes(memory: &BufferPool) -> usize {
        memory.lent_bytes()
    }

    fn draw(_rng: &mut Rng) {}

    fn open(now: Instant, opening: Opening<'_, Self>) -> Self {
        let Opening { options, memory, role, packet_bytes_max, ours_max, theirs_max, .. } = opening;
        let pool = memory.session();
        let mut mux = Mux::new(options.mux(packet_bytes_max), pool.clone());
        let mut flows = Flows::new(options, role, [ours_max, theirs_max], pool.clone());
        if role == Role::Initiator {
            flows.connect(now, &mut mux);
        }
        let deadline = Some(now + options.session.timeouts.dial);
        SharedTcp { mux, flows, pool, deadline }
    }

    /// Once the dialler has opened all connections.
    fn is_ready(&self) -> bool {
        self.flows.is_connected()
    }

    fn circuits(&self) -> &Circuits<Number, Flow> {
        &self.flows.circuits
    }

    fn circuits_mut(&mut self) -> &mut Circuits<Number, Flow> {
        &mut self.flows.circuits
    }

    fn has_readable(&self) -> bool {
        self.flows.has_readable()
    }

    fn hold(&mut self, circ_id: CircId, hold: bool) {
        self.flows.hold(circ_id, hold);
    }

    fn controller_mut(&mut self) -> Option<&mut dyn SessionController> {
        None
    }

    fn window(&self) -> Option<Window> {
        None
    }

    fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), ConnectionError> {
        let SharedTcp { mux, flows, .. } = self;
        let result = mux.handle_datagram(now, packet, &mut |id, bytes| flows.take(id, bytes));
        result.map_err(|why| ConnectionError::PeerMisbehaved(why.to_string()))?;
        self.on_events(now)
    }

    fn on_marked(&mut self) {
        self.mux.on_marked();
    }

    fn set_packet_bytes_max(&mut self, bytes: u16) {
        self.mux.set_datagram_bytes_max(bytes);
    }

    fn on_path_back(&mut self, now: Instant) {
        self.mux.on_path_back(now);
    }

    fn on_answered(&mut self, now: Instant) {
        self.mux.on_answered(now);
    }

    fn take_answered(&mut self) -> bool {
        self.mux.take_answered()
    }

    fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.mux.smoothed_rtt_ns()
    }

    fn poll_packet(&mut self, now: Instant, _head_bytes: usize, out: &mut Vec<u8>) -> Option<Packet> {
        let content = self.mux.poll_datagram(now, out);
        // Its faults are heard when it is looked after next.
        self.flows.on_events(now, &mut self.mux);
        Some(if content? == Content::Payload { Packet::Asks } else { Packet::Tells })
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ConnectionError> {
        self.mux.handle_timeout(now);
        self.flows.handle_timeout(now, &mut self.mux);
        self.flows.feed(&mut self.mux);
        self.on_events(now)?;
        match self.deadline {
            Some(deadline) if deadline <= now => Err(ConnectionError::NoAnswer),
            _ => Ok(()),
        }
    }

    fn take_expired(&mut self) -> bool {
        self.mux.take_expired()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.mux.poll_timeout(), self.deadline].into_iter().flatten().min()
    }

    fn is_starved(&self) -> bool {
        self.flows.is_starved(&self.mux)
    }

    fn poll_room(&mut self) -> Option<u32> {
        self.flows.poll_room()
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        self.flows.send(now, &mut self.mux, circ_id, command, body)
    }

    fn next_cell(&mut self, now: Instant, lent: &mut Lent) -> Option<(CircId, Command)> {
        self.flows.next_cell(now, &mut self.mux, lent)
    }

    fn cells_max(&self) -> usize {
        if self.flows.unwritten_bytes() > UNWRITTEN_BYTES_MAX { 0 } else { self.pool_cells() }
    }

    fn lacks_memory(&self) -> bool {
        self.pool_cells() < BATCH_CELLS_MIN / 2
    }

    fn forget_ended(&mut self, now: Instant) -> Result<(), ConnectionError> {
        self.mux.give_up_remains(now);
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        self.mux.heap_bytes() + self.flows.heap_bytes()
    }

    fn add_stats(&self, stats: &mut ConnectionStats) {
        for of in self.mux.ids().filter_map(|id| self.mux.stats(id)) {
            stats.window_bytes += of.window_bytes;
            stats.lost_packets += of.counts.retransmissions;
            stats.queued_cells += of.unacknowledged_bytes / CELL_LEN as u64;
        }
    }

    /// What waits is the connections', and would not be freed with a circuit.
    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        for circuit in self.flows.circuits.iter() {
            let state_bytes = circuits::PLACE_BYTES + size_of::<Flow>();
            let since = circuit.flow.moved_at;
            each(Backlog { conn, circ_id: circuit.circ_id, bytes: 0, state_bytes, since });
        }
    }
}
