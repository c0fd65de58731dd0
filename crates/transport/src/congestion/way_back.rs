//! How much of a round trip its acknowledgement waited: the peer put it off, and says by how much (RFC 9000, section
//! 13.2.5); and it waited in queues on its way back.
//!
//! A round trip has two ways, and who sends makes a queue on one of them. Where both ends send, each would take the
//! other's queue for one of its own, or of somebody beside it, and send less: the first that has filled its way keeps
//! the other out of its own. So each end says with some of its packets when it sent them, by its own clock. The clocks
//! need not agree: what such a packet took beyond the fastest is what it waited (RFC 6817 has the same for the way
//! there).
//!
//! It is known of those packets alone: from one to the next a queue may have drained, however soon they arrive behind
//! one another. Where the shortest of some round trips is what counts, the others do no harm, because they are only
//! longer. Where a queue is looked for in each of some in a row, it matters what they waited at most: packets come in
//! their order, so each left after the stamped one before it, and waited no longer than that one did plus the time
//! since it came.

use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::AckWait;

/// Half of the time for which the fastest is remembered: so long at least, and up to twice that. Clocks that drift
/// apart by a ten-thousandth, more than most do, differ by 3 ms at most then.
const BASE_WINDOW_US: u64 = 15_000_000;

/// For so long after a stamp packets without one may have waited in the peer's queue, too. Later it is taken to have
/// none, because whoever has a queue stamps each second packet, or one in two milliseconds.
const STAMPED_FOR_US: u64 = 500_000;

/// Of a round trip at least so much is the path's and ours, whatever the peer says.
const OURS_MIN: u32 = 8;

/// A round trip without what of it was waited.
pub(super) fn without(waited: Duration, round_trip: Duration) -> Duration {
    round_trip.saturating_sub(waited).max(round_trip / OURS_MIN)
}

/// What is known of the peer's stamps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WayBack {
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// What the first took: its time by our clock less its time by the peer's. All others are compared with it.
    first: u32,
    /// The fastest of this half of the window and of the one before, and when this half began, in microseconds beyond
    /// the first.
    fastest: i32,
    before: i32,
    since_us: u64,
    /// The last one, and when it came.
    stamped: u32,
    at_us: u64,
}

impl Seen {
    /// What a packet has waited that left with the last stamp and comes now.
    fn waited(self, now_us: u64) -> Duration {
        let waited_us = self.took(now_us).saturating_sub(self.fastest.min(self.before));
        Duration::from_micros(u64::try_from(waited_us).unwrap_or(0))
    }

    /// What it took, beyond the first.
    fn took(self, now_us: u64) -> i32 {
        (now_us as u32).wrapping_sub(self.stamped).wrapping_sub(self.first) as i32
    }
}

impl WayBack {
    /// A packet arrives whose acknowledgement was put off by so much: what that has waited in all. What came without a
    /// stamp left after the last one with a stamp, and waited no longer than one that left with it and comes now.
    pub(crate) fn on_packet(&mut self, now: Instant, stamped: Option<u32>, put_off: Duration) -> AckWait {
        let now_us = now.as_nanos() / 1000;
        if let Some(stamped) = stamped {
            self.on_stamp(now_us, stamped);
        }
        let seen = self.seen.filter(|seen| now_us.saturating_sub(seen.at_us) < STAMPED_FOR_US);
        let at_most = put_off + seen.map_or(Duration::ZERO, |seen| seen.waited(now_us));
        let waited = if stamped.is_some() { at_most } else { put_off };
        AckWait { waited, at_most, is_peer_stamping: seen.is_some() }
    }

    fn on_stamp(&mut self, now_us: u64, stamped: u32) {
        let seen = self.seen.get_or_insert(Seen {
            first: (now_us as u32).wrapping_sub(stamped),
            fastest: i32::MAX,
            before: i32::MAX,
            since_us: now_us,
            stamped,
            at_us: now_us,
        });
        (seen.stamped, seen.at_us) = (stamped, now_us);
        let since_us = now_us.saturating_sub(seen.since_us);
        if since_us >= 2 * BASE_WINDOW_US {
            // What was fastest before a long pause was so by clocks of then.
            (seen.before, seen.fastest, seen.since_us) = (i32::MAX, i32::MAX, now_us);
        } else if since_us >= BASE_WINDOW_US {
            (seen.before, seen.fastest) = (seen.fastest, i32::MAX);
            seen.since_us += BASE_WINDOW_US;
        }
        seen.fastest = seen.fastest.min(seen.took(now_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * MS)
    }

    /// What the last of these stamps waited, of a peer whose clock began elsewhere and goes faster by `drift`: one each
    /// two milliseconds, of which `queue_ms` says what each waits besides 20.
    fn waited_ms(millis: u64, drift: f64, queue_ms: impl Fn(u64) -> u64) -> f64 {
        let mut way_back = WayBack::default();
        let stamps = (0..millis).step_by(2).map(|sent| {
            let theirs_us = (sent as f64 * 1000.0 * (1.0 + drift)) as u64 as u32;
            let stamp = Some(theirs_us.wrapping_sub(5000));
            way_back.on_packet(at(sent + 20 + queue_ms(sent)), stamp, Duration::ZERO).waited
        });
        stamps.last().map_or(0.0, |waited| waited.as_secs_f64() * 1e3)
    }

    #[test]
    fn what_a_packet_waited_is_what_it_took_beyond_the_fastest() {
        assert_eq!(waited_ms(1000, 0.0, |_| 7), 0.0);
        assert_eq!(waited_ms(1000, 0.0, |ms| if ms < 100 { 0 } else { 30 }), 30.0);
        assert_eq!(waited_ms(1001, 0.0, |ms| ms / 10), 100.0);
        // The fastest is forgotten.
        assert_eq!(waited_ms(60_000, 0.0, |ms| if ms < 10_000 { 0 } else { 30 }), 0.0);
    }

    #[test]
    fn packets_behind_a_stamp_waited_no_longer_than_it_and_what_passed_since() {
        let mut way_back = WayBack::default();
        let put_off = Duration::from_millis(3);
        let mut on_packet = |ms: u64, stamp_ms: Option<u32>| {
            let wait = way_back.on_packet(at(ms), stamp_ms.map(|ms| ms * 1000), put_off);
            let waited_ms =
                [wait.waited, wait.at_most].map(|waited| waited.saturating_sub(put_off).as_millis());
            (waited_ms, wait.is_peer_stamping)
        };
        assert_eq!(on_packet(0, None), ([0, 0], false));
        assert_eq!(on_packet(20, Some(0)), ([0, 0], true));
        assert_eq!(on_packet(25, None), ([0, 5], true));
        assert_eq!(on_packet(60, Some(10)), ([30, 30], true));
        for (ms, at_most_ms) in [(60, 30), (61, 31), (559, 529)] {
            assert_eq!(on_packet(ms, None), ([0, at_most_ms], true));
        }
        assert_eq!(on_packet(560, None), ([0, 0], false));
    }

    #[test]
    fn clocks_that_drift_differ_little() {
        const HOURS: u64 = 2 * 3_600_000;
        for drift in [1e-4, -1e-4] {
            let waited = waited_ms(HOURS, drift, |_| 0);
            assert!(waited <= 3.1, "{drift}: {waited} ms");
        }
    }

    /// A clock that is slower by a ten-thousandth is late by 360 ms after an hour without a stamp.
    #[test]
    fn clocks_that_drift_while_little_is_stamped_differ_no_more() {
        const HOUR: u64 = 3_600_000;
        let mut way_back = WayBack::default();
        for (ms, most_us) in [(0, 0), (29_900, 3000), (44_800, 3000), (HOUR, 0), (HOUR + 4, 1)] {
            let theirs_us = (ms as f64 * 1000.0 * (1.0 - 1e-4)) as u64 as u32;
            let waited = way_back.on_packet(at(ms), Some(theirs_us), Duration::ZERO).waited;
            assert!(waited <= Duration::from_micros(most_us), "{ms}: {waited:?}");
        }
    }

    /// However much it says.
    #[test]
    fn whoever_lies_hides_seven_eighths() {
        let path = Duration::from_millis(40);
        let put_off = Duration::from_secs(u64::MAX / 4);
        for stamps in [[0, u32::MAX], [u32::MAX, 0], [1 << 31, 0], [0, 1 << 31], [7, (1 << 31) + 7]] {
            let mut way_back = WayBack::default();
            for stamped in stamps.iter().cycle().take(9) {
                for stamp in [Some(*stamped), None] {
                    let wait = way_back.on_packet(at(0), stamp, put_off);
                    assert!(wait.at_most >= wait.waited && wait.waited >= put_off, "{stamps:?}: {wait:?}");
                    assert_eq!(without(wait.waited, path), path / OURS_MIN, "{stamps:?}");
                }
            }
        }
    }
}
