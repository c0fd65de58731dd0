//! The clock that timing programs share, and the stream of its readings.

use heddle_seam::time::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Bytes of one reading on the wire: nanoseconds, big-endian.
pub(crate) const READING_BYTES: usize = 8;
/// Bytes of readings without end that are written at once with the same reading: the stream's resolution.
pub(crate) const BURST: usize = 4096;

/// CLOCK_MONOTONIC in nanoseconds. All processes of a machine agree on it, in whichever network
/// namespace they are, so one of them can subtract another one's reading; two machines cannot.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The same as a time of programs: over real sockets, readings are times.
pub(super) fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

/// Milliseconds from one reading to a later one.
pub(crate) fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// Cuts a stream of readings where it does not know how the network cut it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    partial: [u8; READING_BYTES],
    filled: usize,
}

impl Readings {
    /// Takes what came and returns the newest reading that is complete, if one became so.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<u64> {
        let mut newest = None;
        let mut rest = bytes;
        // All but the last few bytes only matter for where readings begin.
        let skipped = rest.len().saturating_sub(2 * READING_BYTES) / READING_BYTES * READING_BYTES;
        if skipped > 0 {
            let (_, after) = rest.split_at(skipped - self.filled);
            self.filled = 0;
            rest = after;
        }
        for byte in rest {
            self.partial[self.filled] = *byte;
            self.filled += 1;
            if self.filled == READING_BYTES {
                newest = Some(u64::from_be_bytes(self.partial));
                self.filled = 0;
            }
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn readings_survive_any_cutting(cuts in proptest::collection::vec(0_usize..60, 1..40)) {
            let readings: Vec<u64> = (0..400).map(|n| n * 0x0101_0307).collect();
            let wire: Vec<u8> = readings.iter().flat_map(|reading| reading.to_be_bytes()).collect();
            let mut parser = Readings::default();
            let mut at = 0;
            for cut in cuts {
                let end = (at + cut).min(wire.len());
                let before = at / READING_BYTES;
                let complete = end / READING_BYTES;
                let expected = (complete > before).then(|| readings[complete - 1]);
                prop_assert_eq!(parser.push(&wire[at..end]), expected);
                at = end;
            }
        }
    }

    #[test]
    fn the_clock_runs_forward() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        assert_eq!(ms_between(3_000_000, 5_500_000), 2.5);
        assert_eq!(ms_between(5, 3), 0.0);
    }
}
