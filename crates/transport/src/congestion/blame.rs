//! Whose losses are: those that end while we send less than the path carries are of a queue that is too short to be
//! seen, of a router that keeps it short, or of a policer. Those that go on are the wire's.

use super::counts::Counts;
use heddle_seam::time::{Duration, Instant};

/// So many losses are expected of what was sent while we sent less, had that made no difference, before anything is
/// said. They are congestion when there was none of them, or of those beyond four one in four. Of independent losses
/// that go on, one in fifty such verdicts is wrong, and the next losses take it back.
const EXPECTED_MIN: f64 = 4.0;
const SHARE_MAX: f64 = 0.25;

/// They are the wire's when there were two, and more than this share of those expected.
const SHARE_OF_WIRE: f64 = 0.5;
const LOSSES_OF_WIRE: f64 = 1.5;

/// What each test leaves of what was counted before.
const AGED: f64 = 0.9;

/// For how long without a loss a verdict of congestion stands. A single CUBIC flow on a path of 300 ms and 50 Mbit/s
/// loses a packet every half minute.
const STANDS_FOR: Duration = Duration::from_secs(60);

/// One connection's evidence, and the verdict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blame {
    /// Losses here are of packets together: a burst counts once.
    usual: Counts,
    /// While we sent less, and our queue had drained.
    less: Counts,
    /// When we last began to send less, and when that ended.
    began: Option<Instant>,
    ended: Option<Instant>,
    /// Whether losses are congestion, and when there last was one, or a mark.
    is_congestion: bool,
    lost_at: Option<Instant>,
}

impl Blame {
    pub(super) fn new() -> Self {
        let counts = Counts::default();
        Blame { usual: counts, less: counts, began: None, ended: None, is_congestion: false, lost_at: None }
    }

    /// Our queue has drained, and we send less.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.began, self.ended) = (Some(now), None);
    }

    /// From now on we send as usual.
    pub(super) fn end(&mut self, now: Instant) {
        self.ended = Some(now);
        for counts in [&mut self.usual, &mut self.less] {
            counts.age(AGED);
        }
        self.judge(now);
    }

    fn judge(&mut self, now: Instant) {
        let expected = self.expected();
        if expected >= EXPECTED_MIN && self.less.lost <= SHARE_MAX * (expected - EXPECTED_MIN) {
            self.is_congestion = true;
        } else if self.are_the_wires() {
            self.is_congestion = false;
        }
        if self.lost_at.is_none_or(|lost_at| now.since(lost_at) >= STANDS_FOR) {
            self.is_congestion = false;
        }
    }

    fn are_the_wires(&self) -> bool {
        self.less.lost >= LOSSES_OF_WIRE && self.less.lost > SHARE_OF_WIRE * self.expected()
    }

    fn expected(&self) -> f64 {
        self.usual.lost * self.less.packets / self.usual.packets.max(1.0)
    }

    fn counts(&mut self, sent: Instant) -> &mut Counts {
        let is_less =
            self.began.is_some_and(|began| sent >= began) && self.ended.is_none_or(|ended| sent < ended);
        if is_less { &mut self.less } else { &mut self.usual }
    }

    pub(super) fn on_sent(&mut self, now: Instant, packets: f64) {
        self.counts(now).packets += packets;
    }

    /// Packets were lost at a queue that does not explain it, of which the newest left at `sent`: one loss, or the part
    /// of one that is believed.
    pub(super) fn on_lost(&mut self, now: Instant, sent: Instant, loss: f64) {
        self.counts(sent).lost += loss;
        self.lost_at = Some(now);
    }

    /// A router tells by a mark what others tell by losses, and nobody need doubt it.
    pub(super) fn on_marked(&mut self, now: Instant) {
        self.is_congestion = true;
        self.lost_at = Some(now);
    }

    /// Whether there are losses of late, of which it is not known yet whose they are.
    pub(super) fn is_undecided(&self) -> bool {
        !self.is_congestion && self.usual.lost > 1.0 && !self.are_the_wires()
    }

    /// Whether losses are congestion, by what is known.
    pub(super) fn is_congestion(&self) -> bool {
        self.is_congestion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 packets of 100 ms each, of which one in `every` is lost; every fourth of them sends less, and then
    /// as many are lost where losses are the wire's.
    fn verdict_after(rounds: u32, every: u32, is_wire: bool) -> Blame {
        let mut blame = Blame::new();
        let mut sent = 0;
        for round in 0..rounds {
            let begin = Instant::ZERO + Duration::from_millis(u64::from(round) * 100);
            let is_less = round % 4 == 3;
            if is_less {
                blame.begin(begin);
            }
            for packet in 0..100 {
                let now = begin + Duration::from_millis(packet);
                blame.on_sent(now, 1.0);
                sent += 1;
                if sent % every == 0 && (is_wire || !is_less) {
                    blame.on_lost(now, now, 1.0);
                }
            }
            if is_less {
                blame.end(begin + Duration::from_millis(100));
            }
        }
        blame
    }

    #[test]
    fn losses_that_end_while_we_send_less_are_congestion() {
        assert!(!verdict_after(8, 50, false).is_congestion(), "too few to tell");
        assert!(verdict_after(20, 50, false).is_congestion());
    }

    #[test]
    fn losses_that_go_on_are_the_wires() {
        for every in [20, 50, 101, 1009] {
            for rounds in [20, 100, 1000] {
                assert!(!verdict_after(rounds, every, true).is_congestion(), "{every} {rounds}");
            }
        }
    }

    #[test]
    fn a_verdict_is_taken_back_by_losses_that_go_on_and_by_time_without_any() {
        let mut blame = verdict_after(20, 50, false);
        let now = Instant::ZERO + Duration::from_secs(3);
        blame.end(now);
        assert!(blame.is_congestion());
        let mut without = blame;
        without.end(now + STANDS_FOR);
        assert!(!without.is_congestion());
        blame.begin(now);
        (0..20).for_each(|_| blame.on_lost(now, now, 1.0));
        blame.end(now + Duration::from_millis(1));
        assert!(!blame.is_congestion());
    }

    #[test]
    fn whose_losses_are_is_undecided_until_tests_have_told() {
        assert!(verdict_after(3, 50, true).is_undecided());
        for is_wire in [false, true] {
            assert!(!verdict_after(20, 50, is_wire).is_undecided(), "{is_wire}");
        }
    }

    #[test]
    fn a_mark_leaves_no_doubt() {
        let mut blame = Blame::new();
        blame.on_marked(Instant::ZERO);
        blame.end(Instant::ZERO);
        assert!(blame.is_congestion());
    }
}
