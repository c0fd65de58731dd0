//! Token buckets: the operator's bandwidth limits, and the rate that an XON advertises.

use heddle_seam::time::{Duration, Instant};

const NS_PER_S: u128 = 1_000_000_000;

/// Bytes that may pass: `burst` at once, `rate` per second in the long run.
///
/// Fractions of a byte are carried from refill to refill, so any pattern of polling passes the
/// same bytes to within one.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    rate_bytes_per_s: u64,
    burst_bytes: u64,
    /// Below zero after more was taken than there was.
    tokens_bytes: i64,
    /// The part of the next byte that has already come, in bytes × 10⁻⁹.
    fraction: u64,
    refilled: Instant,
}

impl TokenBucket {
    /// A full bucket. Both numbers are brought below 2⁶³.
    pub fn new(now: Instant, rate_bytes_per_s: u64, burst_bytes: u64) -> Self {
        let tokens_bytes = i64::try_from(burst_bytes).unwrap_or(i64::MAX);
        TokenBucket {
            rate_bytes_per_s: rate_bytes_per_s.min(i64::MAX as u64),
            burst_bytes: tokens_bytes.unsigned_abs(),
            tokens_bytes,
            fraction: 0,
            refilled: now,
        }
    }

    /// Changes the limits from `now` on. What is in the bucket stays, up to the new burst.
    pub(crate) fn set_limits(&mut self, now: Instant, rate_bytes_per_s: u64, burst_bytes: u64) {
        self.refill(now);
        let limits = TokenBucket::new(now, rate_bytes_per_s, burst_bytes);
        *self = TokenBucket {
            tokens_bytes: self.tokens_bytes.min(limits.tokens_bytes),
            fraction: self.fraction,
            refilled: self.refilled,
            ..limits
        };
    }

    /// Adds what has come since the last refill. A `now` before that adds nothing.
    pub fn refill(&mut self, now: Instant) {
        let elapsed_ns = u128::from(now.as_nanos().saturating_sub(self.refilled.as_nanos()));
        self.refilled = self.refilled.max(now);
        let come = elapsed_ns * u128::from(self.rate_bytes_per_s) + u128::from(self.fraction);
        let missing = i128::from(self.burst_bytes) - i128::from(self.tokens_bytes);
        if come / NS_PER_S >= missing.unsigned_abs() {
            self.tokens_bytes = self.burst_bytes as i64;
            self.fraction = 0;
        } else {
            // Less than what is missing, and that ends below 2⁶³.
            self.tokens_bytes += (come / NS_PER_S) as i64;
            self.fraction = (come % NS_PER_S) as u64;
        }
    }

    /// Bytes that may pass now, as of the last refill.
    pub fn available(&self) -> u64 {
        u64::try_from(self.tokens_bytes).unwrap_or(0)
    }

    /// Takes `bytes` out. More than is there leaves a debt, which later refills pay first: what a
    /// TLS record or a datagram adds is only known once it is sent.
    pub fn take(&mut self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.tokens_bytes = self.tokens_bytes.saturating_sub(bytes);
    }

    /// When `want` bytes may pass at once, or as many as the bucket ever holds: `now` when they
    /// already may, `None` when they never will because the rate is zero.
    pub fn next_available(&self, now: Instant, want: u64) -> Option<Instant> {
        let want = want.min(self.burst_bytes);
        let missing = i128::from(want) - i128::from(self.tokens_bytes);
        if missing <= 0 {
            return Some(now);
        }
        if self.rate_bytes_per_s == 0 {
            return None;
        }
        let come = missing.unsigned_abs() * NS_PER_S - u128::from(self.fraction);
        let wait_ns = come.div_ceil(u128::from(self.rate_bytes_per_s));
        let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        Some(now.max(self.refilled + wait))
    }
}

/// A rate and a burst, as `torrc` gives them in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `BandwidthRate` or `RelayBandwidthRate`.
    pub rate_bytes_per_s: u64,
    /// `BandwidthBurst` or `RelayBandwidthBurst`; stock Tor refuses one below its rate.
    pub burst_bytes: u64,
}

/// Which way bytes pass the relay's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// Whose bytes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// The relay's own, such as its directory documents: only the global limit holds.
    Own,
    /// Other people's: both limits hold.
    Relayed,
}

/// The operator's limits: one for everything, one more for relayed traffic, each applied to
/// reading and to writing separately.
#[derive(Clone, Debug)]
pub struct Buckets {
    read: OneWay,
    write: OneWay,
}

#[derive(Clone, Debug)]
struct OneWay {
    global: TokenBucket,
    relayed: Option<TokenBucket>,
}

impl Buckets {
    /// Full buckets. Without a limit of its own (`RelayBandwidthRate 0`), relayed traffic is only
    /// held by the global one.
    pub fn new(now: Instant, global: Limit, relayed: Option<Limit>) -> Self {
        let bucket = |limit: Limit| TokenBucket::new(now, limit.rate_bytes_per_s, limit.burst_bytes);
        let one_way = OneWay { global: bucket(global), relayed: relayed.map(bucket) };
        Buckets { read: one_way.clone(), write: one_way }
    }

    /// Bytes that may pass now: the smaller of the allowances that hold.
    pub fn allowance(&mut self, now: Instant, direction: Direction, traffic: Traffic) -> u64 {
        let mut least = u64::MAX;
        for bucket in self.one_way_mut(direction).holding_mut(traffic) {
            bucket.refill(now);
            least = least.min(bucket.available());
        }
        least
    }

    /// Takes `bytes` out of every bucket that holds; a debt is possible, as in
    /// `TokenBucket::take`.
    pub fn take(&mut self, direction: Direction, traffic: Traffic, bytes: u64) {
        for bucket in self.one_way_mut(direction).holding_mut(traffic) {
            bucket.take(bytes);
        }
    }

    /// When `want` bytes may pass at once; see `TokenBucket::next_available`.
    pub fn next_available(
        &self,
        now: Instant,
        direction: Direction,
        traffic: Traffic,
        want: u64,
    ) -> Option<Instant> {
        let one_way = match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        };
        let relayed = one_way.relayed.as_ref().filter(|_| traffic == Traffic::Relayed);
        let first = one_way.global.next_available(now, want)?;
        match relayed {
            Some(bucket) => Some(first.max(bucket.next_available(now, want)?)),
            None => Some(first),
        }
    }

    fn one_way_mut(&mut self, direction: Direction) -> &mut OneWay {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

impl OneWay {
    fn holding_mut(&mut self, traffic: Traffic) -> impl Iterator<Item = &mut TokenBucket> {
        let relayed = self.relayed.as_mut().filter(|_| traffic == Traffic::Relayed);
        core::iter::once(&mut self.global).chain(relayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn a_fast_poller_gets_as_much_as_a_slow_one() {
        // 3 bytes a second: a poll every millisecond sees a fraction of a byte each time.
        let mut bucket = TokenBucket::new(at(0), 3, 10);
        bucket.take(10);
        for ms in 1..=2_000 {
            bucket.refill(at(ms * 1_000_000));
        }
        assert_eq!(bucket.available(), 6);
    }

    #[test]
    fn a_debt_is_paid_before_anything_passes() {
        let mut bucket = TokenBucket::new(at(0), 100, 100);
        bucket.take(300);
        assert_eq!(bucket.available(), 0);
        assert_eq!(bucket.next_available(at(0), 1), Some(at(2_010_000_000)));
        bucket.refill(at(2_000_000_000));
        assert_eq!(bucket.available(), 0);
        bucket.refill(at(2_010_000_000));
        assert_eq!(bucket.available(), 1);
    }

    #[test]
    fn a_rate_of_zero_never_refills_and_a_clock_that_steps_back_adds_nothing() {
        let mut bucket = TokenBucket::new(at(5), 0, 7);
        assert_eq!(bucket.next_available(at(5), 7), Some(at(5)));
        bucket.take(1);
        bucket.refill(at(u64::MAX));
        assert_eq!(bucket.next_available(at(6), 7), None);

        let mut bucket = TokenBucket::new(at(1_000_000_000), 10, 10);
        bucket.take(10);
        bucket.refill(at(0));
        bucket.refill(at(1_500_000_000));
        assert_eq!(bucket.available(), 5);
    }

    #[test]
    fn a_want_above_the_burst_waits_for_a_full_bucket() {
        let mut bucket = TokenBucket::new(at(0), 10, 10);
        bucket.take(10);
        assert_eq!(bucket.next_available(at(0), 1_000), Some(at(1_000_000_000)));
    }

    #[test]
    fn new_limits_keep_what_is_there() {
        let mut bucket = TokenBucket::new(at(0), 100, 1_000);
        bucket.take(500);
        bucket.set_limits(at(1_000_000_000), 10, 2_000);
        assert_eq!(bucket.available(), 600);
        bucket.set_limits(at(1_000_000_000), 10, 50);
        assert_eq!(bucket.available(), 50);
    }

    #[test]
    fn relayed_traffic_is_held_by_the_smaller_limit_and_pays_into_both() {
        let limit = |rate_bytes_per_s, burst_bytes| Limit { rate_bytes_per_s, burst_bytes };
        let mut buckets = Buckets::new(at(0), limit(1_000, 1_000), Some(limit(100, 400)));
        let read = Direction::Read;
        assert_eq!(buckets.allowance(at(0), read, Traffic::Relayed), 400);
        assert_eq!(buckets.allowance(at(0), read, Traffic::Own), 1_000);
        buckets.take(read, Traffic::Relayed, 400);
        buckets.take(read, Traffic::Own, 100);
        assert_eq!(buckets.allowance(at(0), read, Traffic::Relayed), 0);
        assert_eq!(buckets.allowance(at(0), read, Traffic::Own), 500);
        assert_eq!(buckets.allowance(at(0), Direction::Write, Traffic::Relayed), 400);
        assert_eq!(buckets.next_available(at(0), read, Traffic::Relayed, 100), Some(at(1_000_000_000)));
        assert_eq!(buckets.next_available(at(0), read, Traffic::Own, 100), Some(at(0)));
    }

    proptest! {
        /// A greedy taker under any pattern of polling gets burst + rate × time, to the byte,
        /// as long as the bucket never overflows between two polls.
        #[test]
        fn any_polling_passes_rate_times_time_plus_burst(
            rate in 1_000_u64..10_000_000_000,
            gaps_ns in prop::collection::vec(1_u64..50_000_000, 1..300),
        ) {
            let burst = rate;
            let (mut bucket, mut now_ns, mut passed) = (TokenBucket::new(at(0), rate, burst), 0, 0);
            for gap_ns in gaps_ns {
                passed += bucket.available();
                bucket.take(bucket.available());
                now_ns += gap_ns;
                bucket.refill(at(now_ns));
            }
            passed += bucket.available();
            let exact = u128::from(burst) + u128::from(rate) * u128::from(now_ns) / NS_PER_S;
            prop_assert_eq!(u128::from(passed), exact);
        }

        /// The promised time is right, and a nanosecond earlier is too early.
        #[test]
        fn the_next_time_is_exact(
            rate in 1_u64..10_000_000_000,
            burst in 1_u64..1_000_000,
            taken in 0_u64..2_000_000,
            want in 1_u64..1_000_000,
            first_ns in 0_u64..1_000_000_000,
        ) {
            let mut bucket = TokenBucket::new(at(0), rate, burst);
            bucket.take(taken);
            bucket.refill(at(first_ns));
            let want = want.min(burst);
            let when = bucket.next_available(at(first_ns), want).expect("the rate is not zero");
            if when > at(first_ns) {
                let mut early = bucket.clone();
                early.refill(at(when.as_nanos() - 1));
                prop_assert!(early.available() < want);
            }
            bucket.refill(when);
            prop_assert!(bucket.available() >= want);
        }

        /// No number a configuration or a peer can name breaks the arithmetic.
        #[test]
        fn nothing_overflows(
            calls in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0..4), 1..50),
        ) {
            let mut bucket = TokenBucket::new(at(0), 1, 1);
            for (a, b, c, call) in calls {
                match call {
                    0 => bucket.refill(at(a)),
                    1 => bucket.take(a),
                    2 => bucket.set_limits(at(a), b, c),
                    _ => drop(bucket.next_available(at(a), b)),
                }
                prop_assert!(bucket.available() <= bucket.burst_bytes);
            }
        }
    }
}
