//! CoDel, controlled delay (RFC 8289): drops at the head of a queue whose delay stays above a target.
//!
//! 1. Every packet that leaves is judged by how long it waited (section 5.5). Below the target, or with no more than
//!    one longest packet left behind it, all is well.
//! 2. Above the target for a whole interval, the packet may be dropped, and the queue enters the dropping state
//!    (section 5.6).
//! 3. In the dropping state the n-th drop follows the one before after interval / √n (section 5.4), until a packet
//!    waited less than the target.
//! 4. If the state is entered again soon, it goes on near the rate of drops that controlled the queue last.
//!
//! Where it shall mark, a packet that can be marked goes on marked in the place of each drop, as one packet at a time
//! is enough of a signal; the others are dropped.

use crate::options::CodelOptions;
use crate::waiting::Waiting;
use heddle_seam::time::Instant;

/// The state of section 5.3, in its order and with its names where they say enough.
#[derive(Debug)]
pub(crate) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    marks: bool,
    /// When the delay will have been above the target for an interval.
    first_above: Option<Instant>,
    /// When to drop next, in the dropping state and, as a memory, after it.
    drop_next: Instant,
    /// Drops since the dropping state was entered.
    count: u64,
    /// `count` when it was last entered.
    last_count: u64,
    is_dropping: bool,
}

impl Codel {
    pub(crate) fn new(options: &CodelOptions) -> Self {
        Codel {
            target_ns: options.target_ns,
            interval_ns: options.interval_ns,
            marks: options.ecn,
            first_above: None,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            is_dropping: false,
        }
    }

    /// The next packet to be put on the interface, after the drops that are due, and for how many nanoseconds it
    /// waited. `signal` drops the packet that it is given, or gives it back marked if it may be marked.
    pub(crate) fn dequeue<P>(
        &mut self,
        now: Instant,
        waiting: &mut Waiting<P>,
        mut signal: impl FnMut(P, bool) -> Option<P>,
    ) -> Option<(P, u64)> {
        let (Some((mut packet, mut sojourn_ns)), may_drop) = self.judge(now, waiting) else {
            self.is_dropping = false;
            return None;
        };
        if self.is_dropping {
            self.is_dropping = may_drop;
            while self.is_dropping && now >= self.drop_next {
                self.count += 1;
                if let Some(marked) = signal(packet, self.marks) {
                    self.drop_next = self.control_law(self.drop_next);
                    return Some((marked, sojourn_ns));
                }
                let (next, may_drop) = self.judge(now, waiting);
                if may_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.is_dropping = false;
                }
                (packet, sojourn_ns) = next?;
            }
            return Some((packet, sojourn_ns));
        }
        if !may_drop {
            return Some((packet, sojourn_ns));
        }
        let next = match signal(packet, self.marks) {
            Some(marked) => Some((marked, sojourn_ns)),
            None => self.judge(now, waiting).0,
        };
        self.is_dropping = true;
        let in_last_cycle = self.count - self.last_count;
        let is_soon = now.ns_since(self.drop_next) < 16 * self.interval_ns;
        self.count = if in_last_cycle > 1 && is_soon { in_last_cycle } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
        next
    }

    /// Takes the next packet and says whether it may be dropped.
    fn judge<P>(&mut self, now: Instant, waiting: &mut Waiting<P>) -> (Option<(P, u64)>, bool) {
        let Some((packet, sojourn_ns)) = waiting.pop(now) else {
            self.first_above = None;
            return (None, false);
        };
        if sojourn_ns < self.target_ns || waiting.stats.bytes <= waiting.packet_bytes_most {
            self.first_above = None;
            return (Some((packet, sojourn_ns)), false);
        }
        let first_above = *self.first_above.get_or_insert(now.plus_ns(self.interval_ns));
        (Some((packet, sojourn_ns)), now >= first_above)
    }

    /// The time of the next drop after one at `at`.
    fn control_law(&self, at: Instant) -> Instant {
        at.plus_ns((self.interval_ns as f64 / libm::sqrt(self.count as f64)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A queue that always holds packets of 100 bytes and whose head always waited `sojourn_ns`, served every
    /// `service_ns`. Gives the times of the drops, in nanoseconds.
    struct Bench {
        codel: Codel,
        dropped: u64,
        marked: u64,
        now_ns: u64,
    }

    impl Bench {
        fn new() -> Self {
            Bench::that_marks(false)
        }

        fn that_marks(ecn: bool) -> Self {
            let codel = Codel::new(&CodelOptions { ecn, ..CodelOptions::default() });
            Bench { codel, dropped: 0, marked: 0, now_ns: 1_000 * MS }
        }

        /// Packets that were dropped or marked so far.
        fn signals(&self) -> u64 {
            self.dropped + self.marked
        }

        fn serve(&mut self, until_ns: u64, service_ns: u64, sojourn_ns: u64, left: u64) -> Vec<u64> {
            let mut dropped = Vec::new();
            while self.now_ns < until_ns {
                let mut waiting = Waiting::new(1000, 1 << 20);
                for _ in 0..=left {
                    waiting.push(Instant::from_nanos(self.now_ns - sojourn_ns), (), 100).expect("room");
                }
                let before = self.signals();
                self.codel.dequeue(Instant::from_nanos(self.now_ns), &mut waiting, |(), may_mark| {
                    *(if may_mark { &mut self.marked } else { &mut self.dropped }) += 1;
                    may_mark.then_some(())
                });
                dropped.extend((before..self.signals()).map(|_| self.now_ns));
                self.now_ns += service_ns;
            }
            dropped
        }

        /// Enters the dropping state, stays in it until `drops` packets are gone, and leaves it.
        fn cycle(&mut self, drops: usize) {
            let mut dropped = 0;
            while dropped < drops {
                dropped += self.serve(self.now_ns + MS, MS, 10 * MS, 50).len();
            }
            self.serve(self.now_ns + MS, MS, MS, 50);
        }
    }

    #[test]
    fn below_the_target_nothing_is_dropped() {
        assert_eq!(Bench::new().serve(100_000 * MS, MS, 5 * MS - 1, 50), []);
    }

    #[test]
    fn one_longest_packet_behind_is_not_a_queue() {
        assert_eq!(Bench::new().serve(100_000 * MS, MS, 1000 * MS, 1), []);
        assert_ne!(Bench::new().serve(100_000 * MS, MS, 1000 * MS, 2), []);
    }

    #[test]
    fn drops_begin_after_an_interval_and_follow_the_square_root() {
        let service_ns = MS / 100;
        let dropped = Bench::new().serve(4_000 * MS, service_ns, 5 * MS, 50);
        assert_eq!(dropped[0], 1_100 * MS);
        let mut expected = dropped[0] as f64;
        for (number, at_ns) in dropped.iter().enumerate().skip(1) {
            expected += 100.0 * MS as f64 / (number as f64).sqrt();
            // A drop waits for the next packet that leaves, and each of them is rounded down to a nanosecond.
            assert!((-250.0..=service_ns as f64).contains(&(*at_ns as f64 - expected)), "drop {number}");
        }
        // The sum of 1 / √n up to N is about 2 √N: 2900 ms hold about (2900 / 200)² drops.
        assert!((200..=240).contains(&dropped.len()), "{}", dropped.len());
    }

    #[test]
    fn an_interval_with_one_good_packet_begins_anew() {
        let mut bench = Bench::new();
        for _ in 0..50 {
            assert_eq!(bench.serve(bench.now_ns + 99 * MS, MS, 10 * MS, 50), []);
            assert_eq!(bench.serve(bench.now_ns + MS, MS, MS, 50), []);
        }
    }

    #[test]
    fn a_slow_link_makes_up_for_drops_that_were_due() {
        // Served every 400 ms, several drops are due each time; they are made one after the other.
        let dropped = Bench::new().serve(20_000 * MS, 400 * MS, 500 * MS, 100);
        assert!(dropped.windows(3).any(|times| times[0] == times[2]));
    }

    #[test]
    fn soon_again_it_goes_on_near_the_last_rate() {
        let mut bench = Bench::new();
        bench.cycle(20);
        let dropped = bench.serve(bench.now_ns + 400 * MS, MS / 10, 10 * MS, 50);
        // The last cycle went from a count of 1 to 20, so the state is entered at 19: after 100 ms / √19, not 100 ms.
        let gap_ms = (dropped[1] - dropped[0]) as f64 / MS as f64;
        assert!((gap_ms - 100.0 / 19f64.sqrt()).abs() <= 0.1, "{gap_ms}");
    }

    #[test]
    fn much_later_it_begins_at_one() {
        let mut bench = Bench::new();
        bench.cycle(20);
        bench.serve(bench.now_ns + 1_700 * MS, MS, MS, 50);
        let dropped = bench.serve(bench.now_ns + 400 * MS, MS / 10, 10 * MS, 50);
        assert_eq!(dropped[1] - dropped[0], 100 * MS);
    }

    #[test]
    fn marks_come_when_drops_would_one_packet_at_a_time() {
        let (mut marking, mut dropping) = (Bench::that_marks(true), Bench::new());
        let marked = marking.serve(4_000 * MS, MS / 100, 10 * MS, 50);
        assert_eq!(marked, dropping.serve(4_000 * MS, MS / 100, 10 * MS, 50));
        assert_eq!((marking.dropped, marking.marked), (0, marked.len() as u64));
        assert_eq!(dropping.marked, 0);
        // A slow interface does not make up for marks that were due: one packet leaves, so one is marked.
        let marked = Bench::that_marks(true).serve(20_000 * MS, 400 * MS, 500 * MS, 100);
        assert!(!marked.is_empty() && marked.windows(2).all(|times| times[0] != times[1]));
    }

    #[test]
    fn what_cannot_be_marked_is_dropped() {
        let mut bench = Bench::that_marks(true);
        let mut waiting = Waiting::new(1000, 1 << 20);
        for number in 0..200 {
            waiting.push(Instant::ZERO, number, 100).expect("room");
        }
        let mut left = Vec::new();
        for ms in 0..400 {
            let Bench { codel, dropped, marked, .. } = &mut bench;
            let signal = |number: i32, _| {
                let can_be_marked = number % 2 == 0;
                *(if can_be_marked { &mut *marked } else { &mut *dropped }) += 1;
                can_be_marked.then_some(number)
            };
            let now = Instant::from_nanos((1000 + 5 * ms) * MS);
            left.extend(codel.dequeue(now, &mut waiting, signal).map(|(number, _)| number));
        }
        let (dropped, marked) = (bench.dropped, bench.marked);
        assert!(dropped > 0 && marked > 0 && left.len() as u64 + dropped == 200, "{dropped} {marked}");
        assert!((0..200).filter(|number| !left.contains(number)).all(|number| number % 2 == 1));
    }

    #[test]
    fn an_empty_queue_gives_nothing() {
        let mut bench = Bench::new();
        let mut waiting = Waiting::<()>::new(1, 1);
        assert_eq!(bench.codel.dequeue(Instant::ZERO, &mut waiting, |(), _| None), None);
    }
}
