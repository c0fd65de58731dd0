//! Time as everything without I/O sees it: a number of nanoseconds that only ever comes in as an argument.

use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;

/// A point in time, in nanoseconds since an origin that the driver chose.
///
/// Unlike `std::time::Instant` it can be made from a number, which is what lets one seed replay a
/// run bit for bit. It wraps after 584 years, so arithmetic saturates instead of checking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The driver's origin.
    pub const ZERO: Instant = Instant(0);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Instant(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `ns` nanoseconds later.
    #[must_use]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Instant(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, or zero when `earlier` is later.
    pub const fn ns_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time since `earlier`, or zero when `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns_since(earlier))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, rhs: Duration) -> Instant {
        self.plus_ns(nanos(rhs))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(rhs)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Wall-clock time: nanoseconds since the Unix epoch, for certificates, NETINFO and logs only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime {
    pub ns: u64,
}

impl UnixTime {
    /// Whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.ns / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last + Duration::from_secs(1), last);
        assert_eq!(last.plus_ns(1), last);
        assert_eq!(Instant::ZERO.ns_since(last), 0);
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::ZERO.since(last), Duration::ZERO);
    }
}
