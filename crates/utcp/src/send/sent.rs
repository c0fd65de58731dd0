//! A segment that was sent, as the scoreboard remembers it and RACK judges it.

use crate::segment::Range;
use crate::time::Instant;

/// Where a segment is believed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    InFlight,
    Lost,
    Sacked,
}

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub start: u64,
    /// When it was last sent.
    pub at: Instant,
    pub len: u32,
    pub place: Place,
    /// Whether it was ever sent again.
    pub retransmitted: bool,
    /// How far its timestamp is behind the time it was last sent.
    pub lag_ms: u16,
}

impl Sent {
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    pub(crate) fn range(&self) -> Range {
        Range::new(self.start, self.end())
    }
}
