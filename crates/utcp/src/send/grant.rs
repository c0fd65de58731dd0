//! What a session's window and a flow's sender tell each other.

use crate::time::Instant;

/// The flow's part of a window that the session owns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grant {
    /// Bytes that may leave now.
    pub room: u64,
    /// Whether something would leave if there were more.
    pub waits: bool,
    /// Whether the peer has no memory for anything: what it drops then is not lost to congestion, and sent again once
    /// it has some. Until then the first segment asks for it.
    pub is_shut: bool,
    /// When the peer last answered anything, on whichever flow.
    pub answered_at: Instant,
    /// When a time-out last spoke against the peer.
    pub counted_at: Instant,
    /// What the session has not heard yet.
    pub report: Report,
}

/// What became of a flow's bytes since the session looked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub sent: u64,
    pub delivered: u64,
    /// When the newest delivered segment left that was sent only once.
    pub newest_delivered: Option<Instant>,
    pub lost: u64,
    /// Its retransmission timer expired, which ran since then.
    pub silent_since: Option<Instant>,
}
