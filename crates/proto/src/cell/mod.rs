//! Cells: what travels on a channel (tor-spec, "Cells (messages on channels)").
//!
//! Link protocols 4 and 5 only, so a circuit id always has four bytes.
//!
//! A channel's bytes become cells in [`frame`], without a copy when a cell lies whole in a chunk.
//! What a cell says is read by the module of its topic: [`link`] for the channel, [`create`] for
//! circuits, and [`relay`] for what travels inside a circuit, where [`extend`], [`stream`] and
//! [`flow_control`] read the data.

mod command;
pub mod create;
pub mod extend;
pub mod flow_control;
pub mod frame;
pub mod link;
pub mod measure;
mod read;
pub mod relay;
pub mod stream;

pub use command::Command;
pub use read::Malformed;

/// A circuit's name on one channel; never zero.
///
/// The side that opened the TLS connection picks ids with the highest bit set, the other side ids
/// without it (tor-spec, "Choosing circuit IDs in create cells").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircId(core::num::NonZeroU32);

impl CircId {
    /// The id `raw`, or `None` for zero, which means the channel itself.
    pub const fn new(raw: u32) -> Option<Self> {
        match core::num::NonZeroU32::new(raw) {
            Some(id) => Some(CircId(id)),
            None => None,
        }
    }

    /// The number on the wire.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl core::fmt::Display for CircId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Bytes of a circuit id.
pub(crate) const CIRC_ID_LEN: usize = 4;
/// Bytes of a fixed-length cell's body (`PAYLOAD_LEN`).
pub const BODY_LEN: usize = 509;
/// Bytes of a whole fixed-length cell: circuit id, command, body.
pub const CELL_LEN: usize = CIRC_ID_LEN + 1 + BODY_LEN;
/// Bytes before a fixed-length cell's body.
pub(crate) const CELL_HEADER_LEN: usize = CIRC_ID_LEN + 1;
/// Bytes before a variable-length cell's body: circuit id, command, length.
pub(crate) const VAR_HEADER_LEN: usize = CIRC_ID_LEN + 1 + 2;

/// The body of a fixed-length cell.
pub type Body = [u8; BODY_LEN];
