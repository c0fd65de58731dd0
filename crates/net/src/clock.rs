//! The two clocks of the machine.

use heddle_seam::time::{Instant, UnixTime};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC. Its origin is the machine's start, so all loops of a process agree on it.
pub fn monotonic() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// The moment that [`Instant::ZERO`] stands for, for libraries that want the system's type. Both read the same clock.
pub fn anchor() -> std::time::Instant {
    let now = std::time::Instant::now();
    now.checked_sub(monotonic().since(Instant::ZERO)).unwrap_or(now)
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
    fn the_anchor_stays_where_it_is() {
        let (first, second) = (anchor(), anchor());
        let apart = first.max(second) - first.min(second);
        assert!(apart < std::time::Duration::from_secs(1), "{apart:?}");
        let since = first.elapsed();
        assert!(since <= monotonic().since(Instant::ZERO) + std::time::Duration::from_secs(1));
    }

    #[test]
    fn clocks_run_forward_and_agree_with_std() {
        let first = monotonic();
        assert!(monotonic() >= first);
        let std_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        assert!(u128::from(wall_clock().ns) >= std_ns);
    }
}
