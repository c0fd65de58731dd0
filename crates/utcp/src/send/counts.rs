//! What a sender counts.

/// What happened on the sending side so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments sent for the first time.
    pub segments: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Times that acknowledgements told of a loss.
    pub recoveries: u32,
    /// Times that the retransmission timer expired.
    pub timeouts: u32,
    /// Tail loss probes.
    pub probes: u32,
    /// Reductions that were taken back.
    pub undos: u32,
}
