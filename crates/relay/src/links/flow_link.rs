//! What the relay knows of a connection whose lanes are flows; it is ready as long as the link exists.

use core::net::SocketAddr;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::RelayIds;
use heddle_seam::time::Instant;

/// What a connection is from the moment it is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyConnection {
    /// The endpoint's place among the shard's ports, and its name for the connection.
    pub port: usize,
    pub conn: ConnId,
    pub role: Role,
    pub peer: RelayIds,
    /// Where the channel that vouched for it is connected to, and whether the peer itself names that address.
    pub addr: SocketAddr,
    pub canonical: bool,
    /// Whether the operator's rates hold for this peer.
    pub limited: bool,
    /// Whether a flow that is not read holds back its own circuit alone, so that it may be held while its cells wait.
    pub may_hold: bool,
}

impl ReadyConnection {
    /// Its place in the counts by transport.
    pub fn transport(&self) -> usize {
        self.port + 1
    }
}

#[derive(Debug)]
pub(crate) struct FlowLink {
    connection: ReadyConnection,
    opened_at: Instant,
    /// Flows that we may open, as the endpoint said, less those opened since.
    room: u32,
    /// Of these, as many are for circuits whose CREATE2 has not left.
    opening: u32,
    /// Takes no new circuits of ours.
    draining: bool,
    /// Whether the pair knows that there are flows.
    occupied: bool,
    cells_in: u64,
    cells_out: u64,
}

impl FlowLink {
    /// A connection is ready. It takes no circuits until it is in use.
    pub fn new(now: Instant, connection: ReadyConnection) -> Self {
        FlowLink {
            connection,
            opened_at: now,
            room: 0,
            opening: 0,
            draining: true,
            occupied: false,
            cells_in: 0,
            cells_out: 0,
        }
    }

    pub fn connection(&self) -> ReadyConnection {
        self.connection
    }

    pub fn peer(&self) -> RelayIds {
        self.connection.peer
    }

    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Its place in the counts by transport.
    pub fn transport(&self) -> usize {
        self.connection.transport()
    }

    /// Whether circuits go over it as long as there is room.
    pub fn is_in_use(&self) -> bool {
        !self.draining
    }

    /// Circuits are to go over it, or no more.
    pub fn prefer(&mut self, is_in_use: bool) {
        self.draining = !is_in_use;
    }

    /// Whether one more circuit may go over it.
    pub fn takes_circuits(&self) -> bool {
        !self.draining && self.room > self.opening
    }

    /// The endpoint says how many flows we may open.
    pub fn on_room(&mut self, flows: u32) {
        self.room = flows;
    }

    /// CREATE2 is to leave for a flow that we open.
    pub fn begin_flow(&mut self) {
        self.opening += 1;
    }

    /// CREATE2 left, so that the flow exists.
    pub fn on_flow_begun(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        self.room = self.room.saturating_sub(1);
    }

    /// CREATE2 did not leave, and will not.
    pub fn give_up_flow(&mut self) {
        self.opening -= 1;
    }

    /// Whether the pair knows whether there are flows.
    pub fn knows_occupied(&self, is_occupied: bool) -> bool {
        self.occupied == is_occupied
    }

    /// The pair is told that there are flows, or none.
    pub fn tell_occupied(&mut self, is_occupied: bool) {
        self.occupied = is_occupied;
    }

    /// A cell came in.
    pub fn count_in(&mut self) {
        self.cells_in += 1;
    }

    /// So many cells went out.
    pub fn count_out(&mut self, cells: u64) {
        self.cells_out += cells;
    }

    /// Cells that came in and went out in its whole life.
    pub fn cells(&self) -> (u64, u64) {
        (self.cells_in, self.cells_out)
    }
}
