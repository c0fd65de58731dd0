//! The two clocks of the machine.

use heddle_proto::time::{Instant, UnixTime};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC. Its origin is the machine's start, so all loops of a process agree on it.
pub fn monotonic() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CLOCK_REALTIME; a clock set before 1970 reads as 1970.
pub fn wall_clock() -> UnixTime {
    UnixTime { ns: nanos(clock_gettime(ClockId::Realtime)) }
}

fn nanos(time: Timespec) -> u64 {
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_forward_and_agree_with_std() {
        let first = monotonic();
        assert!(monotonic() >= first);
        let std_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        assert!(u128::from(wall_clock().ns) >= std_ns);
    }
}
