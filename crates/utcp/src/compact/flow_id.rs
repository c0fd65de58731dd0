//! What flows of a session are called.

use super::codec::PORT_MAX;

/// A flow of a session. Names are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// Whether this end opened it.
    pub is_ours: bool,
    /// Its port id.
    pub port: u32,
}

impl FlowId {
    /// The flow of a segment that came in. Its sender chose the port id if it was the connector.
    pub(super) fn of_incoming(is_connector: bool, port: u32) -> Self {
        debug_assert!(port <= PORT_MAX);
        FlowId { is_ours: !is_connector, port }
    }
}
