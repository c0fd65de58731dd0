//! Time as a wire sees it: a number of nanoseconds that only ever comes in as an argument.

/// A point in time: nanoseconds since an origin that the driver chose. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The driver's origin.
    pub const ZERO: Time = Time(0);

    /// The point `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `ns` nanoseconds later.
    #[must_use]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Time(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, or zero when `earlier` is later.
    pub const fn ns_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let last = Time::from_nanos(u64::MAX);
        assert_eq!(last.plus_ns(1), last);
        assert_eq!(Time::ZERO.ns_since(last), 0);
    }
}
