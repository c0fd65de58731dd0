//! What the relay knows of transports over datagrams: an endpoint makes connections, a connection carries flows.
//!
//! ```text
//!   Endpoint      one for each transport and shard; owns a UDP port
//!     └ connection   one for each pair of relays; dialled by one side, awaited by the other
//!         └ flow        one circuit's ordered lane, with an acknowledgement, a window and an end of its own
//! ```
//!
//! A flow is named by a [`CircId`] that never goes over the wire: whoever opens the flow picks one of its own half
//! (the dialler those with the highest bit), as on a TLS channel, and the endpoint at the other end picks one of that
//! same half. So the relay finds circuits by `(link, circuit id)` whatever the link is made of.
//!
//! An endpoint whose flows are TCP connections of a kernel has a stack of its own
//! ([`StackOptions`](heddle_seam::node::StackOptions)): the sockets on it are the flows, and the packets that they send
//! go into the endpoint's datagrams.
//!
//! What a connection must do is in `docs/reference/pair.md`. An endpoint answers no stranger: a datagram that belongs
//! to no connection, or that comes from another address than the connection's peer, is dropped without a word.

use crate::cell::{Body, CircId, Command};
use crate::channel::Role;
use crate::transport::Transport;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use heddle_seam::datagrams::{Datagrams, IdPrefix, Transmit};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Output, SocketId};
use heddle_seam::time::Instant;
use zeroize::Zeroizing;

/// A connection of an endpoint. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// How a new connection comes to be. Everything in it was agreed over an authenticated TLS channel.
#[derive(Debug)]
pub struct ConnectionOptions {
    /// The initiator dials, the responder waits to be dialled.
    pub role: Role,
    /// Our address on the TLS channel, which datagrams are sent from.
    pub local: Option<IpAddr>,
    /// The peer's address on the TLS channel, and the port of its offer. Datagrams are taken from this address only; a
    /// dialler's port may differ, because a translator of addresses may have changed it.
    pub peer: SocketAddr,
    /// The Ed25519 public key of the peer's offer, which it proves to have.
    pub peer_key: [u8; 32],
    pub secrets: PairSecrets,
    /// Flows that the peer may have open at once, of those it opens.
    pub flows_max: u32,
}

/// What is derived from the TLS channel's exporter for one connection.
pub struct PairSecrets {
    /// The dialler's one-use id, by which its first datagram is known.
    pub token: [u8; 20],
    /// The first bytes that the dialler sends on the connection, and those that the other side sends. Nothing else is
    /// believed before they came.
    pub dialler_proof: Zeroizing<[u8; 32]>,
    pub listener_proof: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for PairSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairSecrets")
    }
}

/// What became of a connection or one of its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Both proofs were right: flows may be opened. Once, and before anything else.
    Ready,
    /// From now on so many more flows may be opened (not: so many more than before).
    FlowRoom(u32),
    /// A flow that was blocked takes cells again.
    Writable(CircId),
    /// [`Endpoint::capacity`] rose from zero.
    Capacity,
    /// The peer has answered nothing for a while, so that new circuits go elsewhere; or, with false, it has answered.
    /// Flows go on in either case.
    Suspect(bool),
    /// The connection is over, and with it its flows, without a word for each.
    Ended(ConnectionError),
}

/// Why a connection ended, by blame. These are also the reasons of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// Nobody answered the dialler, or the dialler did not come.
    NoAnswer,
    /// The peer did not prove what its offer said.
    WrongProof,
    /// The peer answered nothing for as long as circuits may wait.
    PathDead,
    /// The peer broke the protocol.
    PeerMisbehaved(String),
    /// The peer closed it.
    PeerClosed,
    /// We closed it.
    Closed,
}

impl ConnectionError {
    /// One word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            ConnectionError::NoAnswer => "no_answer",
            ConnectionError::WrongProof => "wrong_proof",
            ConnectionError::PathDead => "path_dead",
            ConnectionError::PeerMisbehaved(_) => "misbehaved",
            ConnectionError::PeerClosed => "peer_closed",
            ConnectionError::Closed => "closed",
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::NoAnswer => f.write_str("nobody answered"),
            ConnectionError::WrongProof => f.write_str("the peer is not whom the channel vouched for"),
            ConnectionError::PathDead => f.write_str("the path is dead"),
            ConnectionError::PeerMisbehaved(what) => write!(f, "the peer broke the protocol: {what}"),
            ConnectionError::PeerClosed => f.write_str("the peer closed the connection"),
            ConnectionError::Closed => f.write_str("we closed the connection"),
        }
    }
}

impl core::error::Error for ConnectionError {}

/// Whether a flow takes another cell now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    Open,
    /// Not before [`ConnectionEvent::Writable`].
    Blocked,
}

/// A cell that a flow lends.
#[derive(Debug)]
pub struct FlowCell<'a> {
    pub conn: ConnId,
    pub circ_id: CircId,
    pub command: Command,
    pub body: &'a Body,
}

/// What a flow keeps of an endpoint's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub conn: ConnId,
    pub circ_id: CircId,
    /// At most, with what its bytes are kept in; zero if it keeps none.
    pub bytes: usize,
    /// What the flow takes itself, about.
    pub state_bytes: usize,
    /// The oldest of its bytes came no sooner. Without any: since when nothing has come.
    pub since: Instant,
}

/// What a connection has done, for metrics and for the lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    pub rtt_ns: u64,
    pub window_bytes: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub lost_packets: u64,
    pub sent_packets: u64,
    /// Cells taken by [`Endpoint::send`] that the peer has not acknowledged, or whose bytes have not left yet.
    pub queued_cells: u64,
}

/// Datagrams that an endpoint has dropped since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedDatagrams {
    /// Nobody of ours could have sent them.
    pub strangers: u64,
    /// They were for a connection, but replayed, forged, or so late that they are taken for that.
    pub peers: u64,
}

impl core::ops::AddAssign for RefusedDatagrams {
    fn add_assign(&mut self, more: Self) {
        self.strangers += more.strangers;
        self.peers += more.peers;
    }
}

/// What the network wants of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionParams {
    /// As how many TCPs a connection contends at most, however many circuits it carries; other values are taken for the
    /// next one of 1 to [`CongestionParams::TCPS_MAX`]. With 1 it is one TCP at all times.
    pub tcps_max: u8,
}

impl CongestionParams {
    /// The most that the network may ask for, and the default.
    pub const TCPS_MAX: u8 = 8;
}

impl Default for CongestionParams {
    fn default() -> Self {
        CongestionParams { tcps_max: CongestionParams::TCPS_MAX }
    }
}

/// A transport over datagrams, with all its connections: quic, tcp-dtls and the like.
pub trait Endpoint: Send {
    fn transport(&self) -> &'static Transport;

    /// The Ed25519 public key that our offers name.
    fn public_key(&self) -> [u8; 32];

    /// Proves another key on connections from now on; those that exist live on.
    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>);

    /// Connections keep to this from now on, those that exist and those to come. Congestion control that is not of our
    /// own kind need not heed it.
    fn set_congestion(&mut self, params: CongestionParams);

    /// Dials, or gets ready to be dialled. It ends with [`ConnectionEvent::Ready`] or [`ConnectionEvent::Ended`] within
    /// 30 seconds.
    fn open(&mut self, now: Instant, options: ConnectionOptions) -> ConnId;

    /// Ends a connection; a last word may still be sent to the peer. [`ConnectionEvent::Ended`] does not follow.
    fn close(&mut self, now: Instant, conn: ConnId);

    /// Asks the peer for an answer at once, so that its silence shows.
    fn probe(&mut self, now: Instant, conn: ConnId);

    /// Datagrams that came to our port, from anybody.
    fn handle_datagrams(&mut self, now: Instant, datagrams: Datagrams);

    /// The prefix that all datagrams have which come on connections that are ready, if they have one. It stays as it
    /// is.
    fn id_prefix(&self) -> Option<IdPrefix> {
        None
    }

    fn handle_timeout(&mut self, now: Instant);

    /// When [`Endpoint::handle_timeout`] is to be called. Asked when nothing is left to be sent.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Appends datagrams to `out`, of one receiver.
    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit>;

    /// What the driver says of the endpoint's own stack: packets that it sends, and what becomes of its sockets. Only
    /// endpoints that were [registered](heddle_seam::node::StackOptions) with a stack have one.
    fn handle_stack(&mut self, _now: Instant, _input: Input<Plain>) {}

    /// What the endpoint wants of its stack: packets for it, and sockets on it. Asked before
    /// [`Endpoint::poll_transmit`], until `None`.
    fn poll_stack(&mut self, _now: Instant, _out: &mut Vec<u8>) -> Option<Output<Plain>> {
        None
    }

    /// Where the bytes of a socket of the stack are put, as [`Node::recv_buf`](heddle_seam::node::Node::recv_buf) says.
    fn stack_recv_buf(&mut self, _socket: SocketId) -> &mut [u8] {
        &mut []
    }

    /// What became of connections, one at a time, until `None`.
    fn poll_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)>;

    /// The next cell of a flow that is not held, in turn among flows, until `None`. A flow that the peer reset gives
    /// DESTROY with the peer's reason as its last cell; then its name is free.
    fn next_incoming(&mut self, now: Instant) -> Option<FlowCell<'_>>;

    /// Bytes of memory that flows take here, at most: what came and was not lent, in order or not. They count like
    /// cells that wait in the relay's queues.
    fn buffered_bytes(&self) -> usize;

    /// Bytes of memory that connections and their flows take themselves, with and without bytes: about what an
    /// allocator says. They count, too.
    fn state_bytes(&self) -> usize;

    /// Gives `each` the flows that there are, in any order. The relay does not know a flow whose first cell has
    /// not come, yet may end it by its name.
    fn backlogs(&self, each: &mut dyn FnMut(Backlog));

    /// Memory is short: frees what is kept of flows that have ended, as far as the rest can live without, at the cost
    /// of who had much of it. An endpoint that keeps nothing has nothing to do.
    fn forget_ended(&mut self, _now: Instant) {}

    /// Whether a flow's cells are to wait. What the peer may send meanwhile is bounded by the flow's window. DESTROY
    /// does not wait. A name that is not in use means nothing.
    fn hold(&mut self, conn: ConnId, circ_id: CircId, hold: bool);

    /// Cells that would leave the connection promptly if sent now, whichever flow they are of.
    fn capacity(&self, conn: ConnId) -> usize;

    /// Takes a cell for a flow that is open, at most [`Endpoint::capacity`] of them. The first cell of a name of our
    /// half opens the flow, for which there must be room ([`ConnectionEvent::FlowRoom`]). DESTROY resets the flow in
    /// both directions, discards what it has queued, and frees its name; it may be sent at any time, without capacity,
    /// and for a name that is free already.
    fn send(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) -> FlowState;

    fn stats(&self, conn: ConnId) -> ConnectionStats;

    fn refused_datagrams(&self) -> RefusedDatagrams;
}
