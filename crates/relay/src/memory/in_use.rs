//! What a shard holds, for metrics and for tests that nothing is left behind.

use crate::admission::Granted;

/// Counts of what a shard holds at the moment, each taken where the things lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Slots of the cell pool in use: always the sum of the two counts of cells below.
    pub slots: u32,
    /// Cells that wait in circuits, towards channels and towards connections.
    pub circuit_cells: u32,
    /// Cells that wait for connections whose streams are over.
    pub leftover_cells: u32,
    /// Bytes that flows keep in endpoints, at most.
    pub flow_bytes: usize,
    /// Bytes of sockets that the system did not take yet, and of messages that are not whole.
    pub buffer_bytes: usize,
    /// Circuits, those that cross from another shard included.
    pub circuits: usize,
    /// Channels, open or not.
    pub channels: usize,
    /// Connections with flows that are ready.
    pub flow_links: usize,
    /// Circuit ids in use on channels, of flows and between shards, also those whose DESTROY waits.
    pub circ_ids: usize,
    /// Turns to send that lanes stand in line for, or stood before they were over.
    pub turns: usize,
    /// Relays that are being dialled.
    pub dials: usize,
    /// Connections of streams, and those of streams that are over and still owed data.
    pub connections: usize,
    /// Questions that the resolver has not answered.
    pub questions: usize,
    /// Onionskins that workers have not answered, and handshakes that they have not gone on with.
    pub onionskins: usize,
    pub granted: Granted,
    /// Streams that wake up by a timer.
    pub wakes: usize,
    /// Relays that this shard's directory of channels names.
    pub directory: usize,
}
