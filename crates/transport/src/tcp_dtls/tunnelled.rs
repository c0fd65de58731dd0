//! The TCP connections of one session, as the session carries them.

use super::datagrams::DatagramCells;
use super::flow::Flow;
use super::flows::Flows;
use super::options::{ACK_DELAY, CongestionControl, DtlsOptions};
use super::{PROTOCOL, TRANSPORT};
use crate::connections::circuits::{self, Circuits, FLOW_CELL_LEN, Lent};
use crate::connections::proof::Protocol;
use crate::connections::setup::{EndpointSetup, InvalidOptions};
use crate::dtls::tunnelled::{CAPACITY_CELLS, Opening, Packet, Tunnelled, Window};
use crate::shared_window::SharedOfSession;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionStats, FlowState};
use heddle_proto::transport::Transport;
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use heddle_utcp::BufferPool;
use heddle_utcp::compact::{Content, FlowId, HEADER_BYTES, Mux, PADDING};
use heddle_utcp::congestion::SessionController;
use heddle_utcp::pool::CHUNK_BYTES;

/// What is in a datagram with one cell and nothing else. The end of a circuit is as long.
const LONE_CELL_BYTES: usize = HEADER_BYTES + FLOW_CELL_LEN;

/// A TCP connection for each circuit.
pub(crate) struct Tcp {
    mux: Mux,
    flows: Flows,
    datagrams: DatagramCells,
    packet_bytes_max: u16,
    /// Its share of the endpoint's memory.
    pool: BufferPool,
}

impl Tunnelled for Tcp {
    const TRANSPORT: &'static Transport = &TRANSPORT;
    const PROTOCOL: Protocol = PROTOCOL;

    type Options = DtlsOptions;
    type Memory = BufferPool;
    type Lot = ();
    type FlowId = FlowId;
    type Flow = Flow;

    fn options(setup: &EndpointSetup<'_>) -> DtlsOptions {
        DtlsOptions::from_setup(setup)
    }

    fn check(options: &DtlsOptions) -> Result<(), InvalidOptions> {
        options.validate()
    }

    fn memory(options: &DtlsOptions) -> BufferPool {
        BufferPool::new(options.session.pool_bytes_max)
    }

    fn buffered_bytes(memory: &BufferPool) -> usize {
        memory.lent_bytes()
    }

    fn draw(_rng: &mut Rng) {}

    fn open(now: Instant, opening: Opening<'_, Self>) -> Self {
        let Opening { options, memory, ceiling, role, packet_bytes_max, ours_max, theirs_max, .. } = opening;
        let pool = memory.session();
        let of_mux = options.mux(packet_bytes_max, theirs_max);
        let mux = match options.congestion {
            CongestionControl::Shared => {
                let shared = |mss_bytes| SharedOfSession::new(now, mss_bytes, ACK_DELAY, ceiling);
                Mux::with_controller(of_mux, pool.clone(), |mss_bytes| Box::new(shared(mss_bytes)))
            }
            CongestionControl::Cubic | CongestionControl::Reno => Mux::new(of_mux, pool.clone()),
        };
        let first_cell_timeout = options.session.timeouts.first_cell;
        let flows = Flows::new(role, ours_max, first_cell_timeout, pool.clone());
        Tcp { mux, flows, datagrams: DatagramCells::default(), packet_bytes_max, pool }
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn circuits(&self) -> &Circuits<FlowId, Flow> {
        &self.flows.circuits
    }

    fn circuits_mut(&mut self) -> &mut Circuits<FlowId, Flow> {
        &mut self.flows.circuits
    }

    fn has_readable(&self) -> bool {
        self.datagrams.has_come() || self.flows.circuits.has_readable()
    }

    fn controller_mut(&mut self) -> Option<&mut dyn SessionController> {
        self.mux.controller_mut()
    }

    fn window(&self) -> Option<Window> {
        let [bytes, _, waiting_bytes] = self.mux.shared_window()?;
        let waiting_cells = usize::try_from(waiting_bytes).unwrap_or(usize::MAX) / FLOW_CELL_LEN;
        Some(Window { bytes, waiting_bytes, waiting_cells })
    }

    fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), ConnectionError> {
        let Tcp { mux, flows, datagrams, .. } = self;
        if let Some(cells) = DatagramCells::parse(packet) {
            for (id, body) in cells {
                if flows.open_circuit(id).is_some() {
                    datagrams.take_in(id, body);
                }
            }
            return Ok(());
        }
        let result = mux.handle_datagram(now, packet, &mut |id, bytes| flows.take(id, bytes));
        flows.on_events(now, mux);
        result.map_err(|why| ConnectionError::PeerMisbehaved(why.to_string()))
    }

    fn on_marked(&mut self) {
        self.mux.on_marked();
    }

    fn set_packet_bytes_max(&mut self, bytes: u16) {
        self.packet_bytes_max = bytes;
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

    fn poll_packet(&mut self, now: Instant, head_bytes: usize, out: &mut Vec<u8>) -> Option<Packet> {
        let bytes_max = self.packet_bytes_max.into();
        let are_datagrams_first = self.datagrams.leaving.take();
        if are_datagrams_first && self.datagrams.poll_packet(bytes_max, out) {
            return Some(Packet::Tells);
        }
        let content = self.mux.poll_datagram(now, out);
        self.flows.on_events(now, &mut self.mux);
        if content.is_none() && !are_datagrams_first && self.datagrams.poll_packet(bytes_max, out) {
            return Some(Packet::Tells);
        }
        let lone_cell_bytes = head_bytes + LONE_CELL_BYTES;
        if content == Some(Content::Ends) && out.len() < lone_cell_bytes {
            out.push(PADDING);
            out.resize(lone_cell_bytes, 0);
        }
        // What only acknowledges asks for nothing, and resets are repeated by TCP itself.
        Some(if content? == Content::Payload { Packet::Asks } else { Packet::Tells })
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ConnectionError> {
        let Tcp { mux, flows, .. } = self;
        mux.handle_timeout(now);
        flows.handle_timeout(now, mux);
        flows.feed(mux);
        flows.on_events(now, mux);
        Ok(())
    }

    fn take_expired(&mut self) -> bool {
        self.mux.take_expired()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.mux.poll_timeout()
    }

    fn is_starved(&self) -> bool {
        self.flows.is_starved()
    }

    fn poll_room(&mut self) -> Option<u32> {
        self.flows.poll_room()
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        if command == Command::DATAGRAM {
            if let Some(id) = self.flows.flow_of(circ_id) {
                self.datagrams.send(id, body);
            }
            return FlowState::Open;
        }
        self.flows.send(now, &mut self.mux, circ_id, command, body)
    }

    fn next_cell(&mut self, now: Instant, lent: &mut Lent) -> Option<(CircId, Command)> {
        let Tcp { mux, flows, datagrams, .. } = self;
        if datagrams.coming.take() {
            let datagram = datagrams.lend(lent, |id| flows.open_circuit(id));
            datagram.or_else(|| flows.next_cell(now, mux, lent))
        } else {
            let cell = flows.next_cell(now, mux, lent);
            cell.or_else(|| datagrams.lend(lent, |id| flows.open_circuit(id)))
        }
    }

    /// Each may be of another flow, which takes a chunk.
    fn cells_max(&self) -> usize {
        (self.pool.writable_bytes() / CHUNK_BYTES).min(CAPACITY_CELLS)
    }

    fn forget_ended(&mut self, now: Instant) -> Result<(), ConnectionError> {
        self.mux.give_up_remains(now);
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        self.mux.heap_bytes() + self.flows.circuits.heap_bytes() + self.datagrams.heap_bytes()
    }

    fn add_stats(&self, stats: &mut ConnectionStats) {
        for flow in self.mux.ids().filter_map(|id| self.mux.stats(id)) {
            stats.window_bytes += flow.window_bytes;
            stats.lost_packets += flow.counts.retransmissions;
            stats.queued_cells += flow.unacknowledged_bytes / FLOW_CELL_LEN as u64;
        }
        if let Some(window) = self.window() {
            stats.window_bytes = window.bytes;
        }
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        for circuit in self.flows.circuits.iter() {
            let Some(tcp) = self.mux.get(circuit.id) else { continue };
            let circ_id = circuit.circ_id;
            let since = self.mux.buffered_since(circuit.id).unwrap_or(circuit.flow.moved_at);
            let state_bytes = Mux::FLOW_BYTES + tcp.heap_bytes() + circuits::PLACE_BYTES + size_of::<Flow>();
            each(Backlog { conn, circ_id, bytes: tcp.pool_bytes(), state_bytes, since });
        }
    }
}
