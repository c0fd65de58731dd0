//! What a stream of a server wants of whoever carries it.

use heddle_seam::time::Instant;

/// What a socket is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketSetting {
    /// Whether small writes leave at once.
    pub(crate) nodelay: bool,
    /// What the system is told to hold of what was written, at most; `None` leaves it to the system.
    pub(crate) send_buffer_bytes: Option<u32>,
}

/// What a visitor waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// To read.
    pub(crate) read: bool,
    /// To write.
    pub(crate) write: bool,
    /// To do something at this time.
    pub(crate) wakes: Option<Instant>,
    /// Nothing: the stream ends.
    pub(crate) end: bool,
}
