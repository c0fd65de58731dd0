//! What a client asks a server to send, burst by burst.

use std::time::Duration;

/// The most bursts of one script.
pub(super) const BURSTS_MAX: usize = 20_000;
/// Bytes of a burst in a script: the pause before it in microseconds, then its bytes, big-endian.
pub(super) const BURST_WIRE_BYTES: usize = 8;
/// What a server sends when it has sent and received everything.
pub(super) const FINISHED: u8 = b'.';

/// Bytes sent at once, after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// How long to wait before, in microseconds.
    pub pause_us: u32,
    /// How much to send.
    pub bytes: u32,
}

impl Burst {
    pub(super) fn pause(self) -> Duration {
        Duration::from_micros(self.pause_us.into())
    }

    pub(super) fn to_wire(self) -> [u8; BURST_WIRE_BYTES] {
        let mut wire = [0; BURST_WIRE_BYTES];
        wire[..4].copy_from_slice(&self.pause_us.to_be_bytes());
        wire[4..].copy_from_slice(&self.bytes.to_be_bytes());
        wire
    }

    /// Reads a burst from the first [`BURST_WIRE_BYTES`] bytes.
    pub(super) fn from_wire(wire: &[u8]) -> Burst {
        let number = |at: usize| wire[at..at + 4].iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        Burst { pause_us: number(0), bytes: number(4) }
    }
}
