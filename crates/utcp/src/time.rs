//! Time as a connection sees it: a number of nanoseconds that only ever comes in as an argument.

pub use heddle_seam::time::Instant;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const S: u64 = 1_000_000_000;
