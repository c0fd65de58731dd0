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
//! longer; and where a queue is looked for in each of some in a row, they are passed over while many stamps come.

use heddle_seam::time::{Duration, Instant};

/// For how long the fastest is remembered. Clocks that drift apart by a ten-thousandth, more than most do, differ by
/// less than two milliseconds then.
const BASE_WINDOW_US: u64 = 15_000_000;

/// After so many stamps in such a while, packets without one may have waited, too, until the next while is over.
/// Whoever has a queue before it stamps each second packet or one in two milliseconds; whoever stamps a few, because a
/// few cells wait now and then, makes no queue.
const WHILE_US: u64 = 500_000;
const STAMPS_MIN: u32 = 8;

/// Of a round trip at least so much is the path's and ours, whatever the peer says.
const OURS_MIN: u32 = 8;

/// What an acknowledgement waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckWait {
    pub(crate) waited: Duration,
    /// Whether it is known what it waited on its way.
    pub(crate) is_known: bool,
}

impl AckWait {
    pub(crate) const NOTHING: AckWait = AckWait { waited: Duration::ZERO, is_known: true };

    /// A round trip without it.
    pub(super) fn taken_from(self, round_trip: Duration) -> Duration {
        round_trip.saturating_sub(self.waited).max(round_trip / OURS_MIN)
    }
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
    /// How many came in this while and in the one before, and when this one began.
    count: u32,
    count_before: u32,
    counted_since_us: u64,
}

impl Seen {
    /// Begins the next while where this one is over.
    fn pass(&mut self, now_us: u64) {
        let whiles = now_us.saturating_sub(self.counted_since_us) / WHILE_US;
        if whiles > 0 {
            self.count_before = if whiles == 1 { self.count } else { 0 };
            (self.count, self.counted_since_us) = (0, now_us);
        }
    }

    /// Whether many stamps come.
    fn are_many(&self) -> bool {
        self.count.max(self.count_before) >= STAMPS_MIN
    }
}

impl WayBack {
    /// A packet arrives whose acknowledgement was put off by so much: what that has waited in all.
    pub(crate) fn on_packet(&mut self, now: Instant, stamped: Option<u32>, put_off: Duration) -> AckWait {
        self.seen.iter_mut().for_each(|seen| seen.pass(now.as_nanos() / 1000));
        match stamped {
            Some(stamped) => AckWait { waited: put_off + self.on_stamp(now, stamped), is_known: true },
            None => AckWait { waited: put_off, is_known: !self.seen.is_some_and(|seen| seen.are_many()) },
        }
    }

    fn on_stamp(&mut self, now: Instant, stamped: u32) -> Duration {
        let now_us = now.as_nanos() / 1000;
        let took = (now_us as u32).wrapping_sub(stamped);
        let seen = self.seen.get_or_insert(Seen {
            first: took,
            fastest: i32::MAX,
            before: i32::MAX,
            since_us: now_us,
            count: 0,
            count_before: 0,
            counted_since_us: now_us,
        });
        seen.count = seen.count.saturating_add(1);
        let took = took.wrapping_sub(seen.first) as i32;
        if now_us.saturating_sub(seen.since_us) >= BASE_WINDOW_US {
            (seen.before, seen.fastest, seen.since_us) = (seen.fastest, i32::MAX, now_us);
        }
        seen.fastest = seen.fastest.min(took);
        let waited_us = took.saturating_sub(seen.fastest.min(seen.before));
        Duration::from_micros(u64::try_from(waited_us).unwrap_or(0))
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
            way_back.on_stamp(at(sent + 20 + queue_ms(sent)), theirs_us.wrapping_sub(5000))
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
    fn it_is_not_known_of_packets_without_a_stamp_while_many_stamps_come() {
        let mut way_back = WayBack::default();
        let put_off = Duration::from_millis(3);
        let mut on_packet = |ms: u64, is_stamped: bool| {
            let stamp = is_stamped.then_some(ms as u32 * 1000);
            let wait = way_back.on_packet(at(ms), stamp, put_off);
            assert_eq!(wait.waited, put_off);
            wait.is_known
        };
        assert!(on_packet(0, false));
        for ms in (0..14).step_by(2) {
            assert!(on_packet(ms, true) && on_packet(ms, false), "{ms}");
        }
        assert!(on_packet(14, true));
        assert_eq!(
            [15, 499, 501, 999, 1002].map(|ms| on_packet(ms, false)),
            [false, false, false, false, true]
        );
    }

    /// Three credits wait now and then, as they do where somebody sends much the other way (seen in experiment 11).
    #[test]
    fn a_stamp_now_and_then_leaves_the_others_known() {
        let mut way_back = WayBack::default();
        for ms in 0..10_000 {
            let stamp = (ms % 100 == 0).then_some(ms as u32 * 1000);
            assert!(way_back.on_packet(at(ms), stamp, Duration::ZERO).is_known, "{ms}");
        }
    }

    /// A packet of 1,200 bytes takes 20 ms on half a megabit per second, and one in two is stamped.
    #[test]
    fn a_peer_with_a_queue_on_a_slow_wire_stamps_enough() {
        let mut way_back = WayBack::default();
        let mut known = 0;
        for packet in 0..500_u64 {
            let stamp = (packet % 2 == 0).then_some(packet as u32 * 20_000);
            let wait = way_back.on_packet(at(20 * packet), stamp, Duration::ZERO);
            known += u32::from(stamp.is_none() && wait.is_known);
        }
        assert!(known < 10, "{known} of 250");
    }

    #[test]
    fn clocks_that_drift_differ_little() {
        const HOURS: u64 = 2 * 3_600_000;
        for drift in [1e-4, -1e-4] {
            let waited = waited_ms(HOURS, drift, |_| 0);
            assert!(waited <= 3.1, "{drift}: {waited} ms");
        }
    }

    #[test]
    fn whoever_lies_hides_seven_eighths() {
        let path = Duration::from_millis(40);
        for stamps in [[0, u32::MAX], [u32::MAX, 0], [1 << 31, 0], [0, 1 << 31], [7, (1 << 31) + 7]] {
            let mut way_back = WayBack::default();
            for stamped in stamps.iter().cycle().take(9) {
                let rest = way_back
                    .on_packet(at(0), Some(*stamped), Duration::from_secs(u64::MAX / 4))
                    .taken_from(path);
                assert!(rest >= path / OURS_MIN && rest <= path, "{stamps:?}: {rest:?}");
            }
        }
    }
}
