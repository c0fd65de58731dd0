//! What the core itself holds when the memory for cells is used up, and what it ends for it ([`crate::memory`]).

use super::Core;
use crate::admission::Party;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::ChannelLink;
use crate::memory::{Buffers, FREED_PART, Holder, Holding, QUESTION_BYTES, end_in_order};
use crate::message::Event;
use crate::table::{Circuit, Table};
use core::cmp::Reverse;
use heddle_forwarding::Session;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::crypto::RelayLayer;
use heddle_proto::endpoint::ConnId;
use heddle_proto::pool::{SLOT_LEN, SlotId};
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

/// What a circuit takes beside its place among the circuits: its layer, the two ciphers of that, which the C library's
/// heap has, its places in two links' tables, and what admission knows of it. With 50,000 circuits a process has no
/// more than this says (`transport`'s tests of whole relays, `quic/hostile/relay.rs` and
/// `tcp_dtls/hostile/relay.rs`).
const CIRCUIT_PARTS: usize = size_of::<RelayLayer>() + CIPHERS + 2 * LANE + ADMISSION;
/// Twice a context of AWS-LC with the round keys of AES-128.
const CIPHERS: usize = 2 * 480;
const LANE: usize = 60;
/// An entry of a tree by the circuit's key, and its place among those of its neighbour by age.
const ADMISSION: usize = 400;

impl Core {
    /// What one circuit takes itself.
    pub const CIRCUIT_BYTES: usize = size_of::<Circuit>() + CIRCUIT_PARTS;

    /// A slot of the pool. A full pool costs others their lives: see [above](self). `None` when even that freed
    /// nothing.
    pub(super) fn take_slot(&mut self, command: Command) -> Option<SlotId> {
        if let Some(slot) = self.pool.take(command) {
            return Some(slot);
        }
        self.relieve_pressure();
        self.pool.take(command)
    }

    fn relieve_pressure(&mut self) {
        let (used, max) = (self.pool.used(), self.pool.max());
        let enough = max - (max / FREED_PART).max(1);
        let is_enough = |core: &Core| core.pool.used() <= enough;
        end_in_order(self, self.holders(), is_enough, |core, holder| match holder {
            Holder::Circuit(key) => core.end_with_streams(key),
            Holder::Connection(socket) => core.abort_leftover(socket),
            Holder::Flow(..) => {}
        });
        self.event(Event::MemoryPressure { freed_cells: used - self.pool.used() });
    }

    /// All that hold cells of the pool.
    pub fn holders(&self) -> Vec<Holding<Holder>> {
        let circuits = self.table.iter().filter_map(|(key, circuit)| {
            let queues = circuit.queues().filter_map(|queue| self.pool.oldest(queue));
            let session = circuit.session();
            let oldest = queues.chain(session.and_then(Session::buffered_since)).min()?;
            let bytes = circuit.queued_cells() as usize * SLOT_LEN + session.map_or(0, Session::bytes);
            Some((oldest, Reverse(bytes), Holder::Circuit(key)))
        });
        let connections = self.streams.owed().filter_map(|(socket, queue)| {
            let oldest = self.pool.oldest(queue)?;
            Some((oldest, Reverse(queue.len() as usize * SLOT_LEN), Holder::Connection(socket)))
        });
        circuits.chain(connections).collect()
    }

    /// What circuits take themselves, with what their clients may have counted, and what the resolver takes for their
    /// questions.
    pub fn circuits_bytes(&self) -> usize {
        self.table.len() * self.counts_bytes()
            + self.sessions.state_bytes()
            + self.table.capacity() * size_of::<(Box<Circuit>, u32)>()
            + self.table.len() * Core::CIRCUIT_BYTES
            + self.table.ledger_bytes()
            + self.streams.questions() * QUESTION_BYTES
            + self.idle_round.bytes()
    }

    /// What a circuit's counts take, if its client asked for them.
    fn counts_bytes(&self) -> usize {
        if self.config.answers_measure { Table::COUNTS_BYTES } else { 0 }
    }

    /// All cells of the circuit are freed: what it owes its connections is not left over.
    pub fn end_with_streams(&mut self, key: CircuitKey) {
        let end = self.table.get_mut(key).and_then(|circuit| circuit.take_end());
        end.into_iter().for_each(|end| self.abort_streams(*end));
        self.close_circuit(key, DestroyReason::RESOURCELIMIT);
    }

    /// The flows that a circuit has open, and under what names.
    pub fn open_flows(&self, key: CircuitKey) -> Vec<(LinkKey, usize, ConnId, CircId)> {
        let Some(circuit) = self.table.get(key) else { return Vec::new() };
        let flow = |(link, circ_id)| {
            let connection = self.links.flows(link)?.connection();
            Some((link, connection.port, connection.conn, circ_id))
        };
        circuit.open_flows().filter_map(flow).collect()
    }
}

/// What the shard counts together with what endpoints keep.
impl Core {
    /// Bytes that may be held in all.
    pub fn bytes_max(&self) -> usize {
        self.config.max_queue_bytes
    }

    /// Cells that wait in this shard.
    pub fn queued_cells(&self) -> u32 {
        self.pool.used()
    }

    /// What they take of the pool, and what they keep beside them.
    pub fn cells_bytes(&self) -> [usize; 2] {
        [self.pool.used_bytes(), self.pool.spare_bytes()]
    }

    pub fn circuits_len(&self) -> usize {
        self.table.len()
    }

    /// All circuits, each with whom it came through, when it was used last, and what it takes itself and for questions.
    pub fn circuits(&self) -> impl Iterator<Item = (CircuitKey, Party, Instant, (usize, usize))> {
        let bytes = |circuit: &Circuit| {
            let state_bytes = Core::CIRCUIT_BYTES + self.counts_bytes() + circuit.forwarding_bytes();
            (state_bytes, usize::from(circuit.questions()) * QUESTION_BYTES)
        };
        self.table.iter().map(move |(key, circuit)| (key, circuit.party(), circuit.used_at(), bytes(circuit)))
    }

    /// The circuit of a flow.
    pub fn circuit_of(&self, link: LinkKey, circ_id: CircId) -> Option<CircuitKey> {
        self.table.find(link, circ_id).map(|(key, _)| key)
    }

    /// What sessions of circuits whose cells are datagrams take.
    pub fn sessions_bytes(&self) -> usize {
        self.sessions.bytes()
    }

    /// The bytes of sockets' buffers.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The driver keeps so many bytes for a socket.
    pub fn on_unsent(&mut self, socket: SocketId, bytes: usize) {
        self.buffers.set_unsent(self.now, socket, bytes);
    }

    /// A channel keeps so many bytes.
    pub fn on_kept(&mut self, socket: SocketId, bytes: usize) {
        self.buffers.set_kept(self.now, socket, bytes);
    }

    /// What a channel takes itself has changed.
    pub fn on_channel_state(&mut self, before: usize, after: usize) {
        self.buffers.change_state(before, after);
    }

    /// What open channels take themselves.
    pub fn channels_bytes(&self) -> usize {
        self.buffers.state_bytes()
    }

    /// What handshakes of channels are taken to hold.
    pub fn handshakes_bytes(&self) -> usize {
        usize::try_from(self.admission.handshake_bytes()).unwrap_or(usize::MAX)
    }

    /// When a channel was used last: now, while it has circuits.
    pub fn channel_used_at(&self, link: LinkKey) -> Instant {
        let idle_since = self.links.channel(link).map(ChannelLink::idle_since);
        idle_since.filter(|_| self.table.is_idle(link)).unwrap_or(self.now)
    }

    /// A socket ends with all that waits for it.
    pub fn forget_buffer(&mut self, socket: SocketId) {
        self.buffers.forget(socket);
    }
}
