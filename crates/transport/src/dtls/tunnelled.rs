//! What a session carries, as its connection and its endpoint see it.

use crate::congestion::Ceiling;
use crate::connections::circuits::{Circuits, Lent};
use crate::connections::proof::Protocol;
use crate::connections::setup::{EndpointSetup, InvalidOptions};
use crate::dtls::options::SessionOptions;
use core::hash::Hash;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionStats, FlowState};
use heddle_proto::transport::Transport;
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use heddle_utcp::congestion::SessionController;

/// Cells that a connection takes at once, at most.
pub(crate) const CAPACITY_CELLS: usize = 256;
/// Cells that may wait for a window which flows share, at least.
pub(crate) const BATCH_CELLS_MIN: usize = 8;

/// A protocol in the records of a session, with a flow for each circuit: many TCP connections, or an SCTP association.
/// Its packets may be lost and come in any order.
pub(crate) trait Tunnelled: Send + Sized + 'static {
    const TRANSPORT: &'static Transport;
    /// What the proofs of its sessions are of.
    const PROTOCOL: Protocol;

    type Options: AsRef<SessionOptions> + Clone + Send;
    /// The account of the bytes that all connections of an endpoint hold.
    type Memory: Clone + Send;
    /// What a connection draws by lot before its session is open.
    type Lot: Send;
    /// What its circuits are called, and their flows.
    type FlowId: Copy + Eq + Hash;
    type Flow;

    /// As whoever assembles a relay wants it.
    fn options(setup: &EndpointSetup<'_>) -> Self::Options;

    /// Says what of these cannot be done as it is asked.
    fn check(options: &Self::Options) -> Result<(), InvalidOptions>;

    fn memory(options: &Self::Options) -> Self::Memory;

    /// Bytes that flows hold of all connections.
    fn buffered_bytes(memory: &Self::Memory) -> usize;

    fn draw(rng: &mut Rng) -> Self::Lot;

    /// Begins once the session is open.
    fn open(now: Instant, opening: Opening<'_, Self>) -> Self;

    /// Whether circuits may be opened.
    fn is_ready(&self) -> bool;

    fn circuits(&self) -> &Circuits<Self::FlowId, Self::Flow>;

    fn circuits_mut(&mut self) -> &mut Circuits<Self::FlowId, Self::Flow>;

    /// Whether there is a cell to lend.
    fn has_readable(&self) -> bool {
        self.circuits().has_readable()
    }

    /// A flow is not read from now on, or again.
    fn hold(&mut self, circ_id: CircId, hold: bool) {
        self.circuits_mut().hold(circ_id, hold);
    }

    /// That of the window which flows share, if they do.
    fn controller_mut(&mut self) -> Option<&mut dyn SessionController>;

    fn window(&self) -> Option<Window>;

    /// Takes a packet. An error ends the connection.
    fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), ConnectionError>;

    /// Routers marked some of ours.
    fn on_marked(&mut self);

    /// Packets may have so many bytes from now on.
    fn set_packet_bytes_max(&mut self, bytes: u16);

    /// The path carries again what it did not.
    fn on_path_back(&mut self, now: Instant);

    /// The session was answered.
    fn on_answered(&mut self, _now: Instant) {}

    /// Whether something of ours was acknowledged, once.
    fn take_answered(&mut self) -> bool;

    fn smoothed_rtt_ns(&self) -> Option<u64>;

    /// Appends the next packet to `out`, which begins with heads of so many bytes.
    fn poll_packet(&mut self, now: Instant, head_bytes: usize, out: &mut Vec<u8>) -> Option<Packet>;

    /// Its time has come. An error ends the connection.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), ConnectionError>;

    /// Whether something was not answered in time, once.
    fn take_expired(&mut self) -> bool;

    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether some flow waits for memory.
    fn is_starved(&self) -> bool {
        false
    }

    /// Flows that may be opened now, if that is news.
    fn poll_room(&mut self) -> Option<u32>;

    /// Takes a cell, and opens a flow for it if it is the first of a name of our half.
    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState;

    /// Lends the next cell.
    fn next_cell(&mut self, now: Instant, lent: &mut Lent) -> Option<(CircId, Command)>;

    /// Cells that there is memory for, at most [`CAPACITY_CELLS`].
    fn cells_max(&self) -> usize;

    /// Whether there is too little memory to tell the relay of room, so that nothing but another look finds more.
    fn lacks_memory(&self) -> bool {
        self.cells_max() < BATCH_CELLS_MIN / 2
    }

    /// Memory is short: gives up what is kept of flows that have ended. An error ends the connection.
    fn forget_ended(&mut self, now: Instant) -> Result<(), ConnectionError>;

    /// Bytes on the heap beside those that flows hold.
    fn heap_bytes(&self) -> usize;

    /// Puts what flows hold on the account.
    fn count_buffered(&mut self) {}

    /// Adds what it knows to what its connection does.
    fn add_stats(&self, stats: &mut ConnectionStats);

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog));
}

/// What a session is opened with.
pub(crate) struct Opening<'a, T: Tunnelled> {
    pub(crate) options: &'a T::Options,
    pub(crate) memory: &'a T::Memory,
    pub(crate) lot: T::Lot,
    pub(crate) ceiling: Ceiling,
    pub(crate) role: Role,
    /// Bytes that a packet may have.
    pub(crate) packet_bytes_max: u16,
    /// Flows that the peer permits us, and that we permit it.
    pub(crate) ours_max: u32,
    pub(crate) theirs_max: u32,
}

/// The congestion window that flows share, in bytes, and what waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) bytes: u64,
    pub(crate) waiting_bytes: u64,
    pub(crate) waiting_cells: usize,
}

/// What a packet wants of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// An answer.
    Asks,
    /// Nothing: it only acknowledges, or is repeated without one.
    Tells,
}
