//! What happens to single circuits, for whoever follows them through the relays of a simulated network.
//!
//! A driver may lend a shard a [`CircuitLog`]. The program lends none: what is told here joins a relay's neighbours,
//! and a relay must not keep that. Without one this costs a branch when a cell comes and another when one leaves.

use core::net::SocketAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::credit::CreditMessage;
use heddle_seam::node::ShardId;
use heddle_seam::time::Instant;

/// Hears what happens to a shard's circuits.
pub trait CircuitLog: Send {
    fn on_circuit(&mut self, at: Instant, happened: &Happened<'_>);
}

/// Something that happened to a circuit, at one of its places on links.
#[derive(Clone, Copy, Debug)]
pub struct Happened<'a> {
    /// By which the shard knows the circuit, and never another one; `None` once it is over.
    pub circuit: Option<u64>,
    /// By which the shard knows the link, and never another one.
    pub link: u64,
    pub circ_id: CircId,
    pub neighbour: Neighbour,
    pub what: What<'a>,
}

/// Who is at a link's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// A client or a relay at this address, over this transport.
    At { addr: SocketAddr, transport: &'static str },
    /// Another shard of the relay.
    Shard(ShardId),
    /// Nobody: the circuit is the relay's own, or the link is gone.
    Nobody,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A cell asked for the circuit, and there is one: this is the cell.
    Opened { command: Command, body: &'a Body },
    /// A cell asked for a circuit, and there is to be none.
    Refused { reason: DestroyReason },
    /// A cell of the circuit came. So many wait where those go that come on this side.
    CellIn { command: Command, is_forward: bool, queued_cells: u32, reason: Option<DestroyReason> },
    /// A cell left. So many are left that wait to do so.
    CellOut { command: Command, is_forward: bool, queued_cells: u32, body: &'a Body },
    /// The neighbour spoke of the circuit's credit, of cells that go the other way.
    CreditIn { message: CreditMessage, is_forward: bool },
    /// It was spoken to.
    CreditOut { message: CreditMessage, is_forward: bool },
    /// DESTROY left.
    DestroyOut { reason: DestroyReason },
    /// The circuit ended.
    Destroyed { reason: DestroyReason, by: EndedBy },
}

/// Where a circuit's end came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The neighbour towards the client, or the link to it.
    Behind,
    /// The neighbour away from the client, or the link to it.
    Ahead,
    /// The relay itself.
    Us,
}
