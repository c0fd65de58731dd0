//! What takes the cells of a link: a channel, a connection with a flow for each lane, or the crossing to another shard.
//!
//! One loop moves cells for all of them, so whatever carries circuits is served alike: as many cells as would leave
//! promptly, in the order of the link's scheduler, and ends of lanes before cells.

use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::credit::CreditMessage;
use heddle_proto::endpoint::FlowState;
use heddle_seam::time::Instant;

/// Whatever carries the cells of a link's lanes.
pub(crate) trait Outlet {
    /// Whether the end of a lane waits for room as cells do, because all lanes share what they are written into. Where
    /// each lane has something of its own, its end overtakes the others' cells.
    const ENDS_WAIT: bool;

    /// How many cells more would leave promptly.
    fn capacity(&self) -> usize;

    /// Takes a cell. Tells whether its lane takes another one.
    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState;

    /// Tells the neighbour of a lane about credit. Only where neighbours count cells, which flows do by themselves.
    fn tell(&mut self, _now: Instant, _circ_id: CircId, _message: CreditMessage) {}

    /// Ends a lane.
    fn end(&mut self, now: Instant, circ_id: CircId, reason: DestroyReason);
}

/// The body of DESTROY.
pub(crate) fn destroy(reason: DestroyReason) -> Body {
    let mut body = [0; BODY_LEN];
    body[0] = reason.0;
    body
}
