//! Tests of the queue: for some rounds we send less than the path carries, and what is left is somebody else's.

use super::bundle::{BETA, Curve};
use super::{
    CONTENDED_FOR, EMPTY_TESTS, EMPTY_TESTS_MAX, FOREIGN_QUEUE, LONG_AGAIN, LONG_FOR, LOSS_SHARE, Mode,
    NO_QUEUE, PACKETS_MIN, Shared, TEST_AGAIN, TEST_CONTENDING, TEST_CONTENDING_ROUNDS, TEST_EVERY,
    TEST_EVERY_MIN, TEST_ROUNDS, TEST_ROUNDS_LOSSY,
};
use heddle_seam::time::{Duration, Instant};

/// While it is not known whose losses are, who contends goes on while more than this share is lost. Whoever followed
/// the queue again would grow until more than [`LOSS_SHARE`] is lost, and come back.
const UNDECIDED_SHARE: f64 = LOSS_SHARE / 16.0;

/// The tests of a connection.
#[derive(Clone, Debug)]
pub(super) struct Tests {
    /// The one that is made now.
    running: Option<Test>,
    pub(super) ended_at: Instant,
    /// How many in a row found no queue.
    pub(super) empty: u32,
    /// How many of them it takes to stop contending.
    empty_needed: u32,
}

/// A test under way.
#[derive(Clone, Debug)]
struct Test {
    rounds_left: u32,
    /// It lets a part of no more packets through than these, which were in flight where the window was not used.
    packets: f64,
    /// Whether its first round is over.
    is_drained: bool,
    /// The shortest queue that it saw.
    shortest: Duration,
}

impl Tests {
    pub(super) fn new(now: Instant) -> Self {
        Tests { running: None, ended_at: now, empty: 0, empty_needed: EMPTY_TESTS }
    }

    pub(super) fn is_testing(&self) -> bool {
        self.running.is_some()
    }

    /// The one that is made now lets a part of so many packets through.
    fn limit(&mut self, packets: f64) {
        self.running.iter_mut().for_each(|test| test.packets = packets);
    }

    /// What was in flight when the one that is made now began is no matter any more.
    pub(super) fn forget_limit(&mut self) {
        self.limit(f64::INFINITY);
    }

    /// The same bytes are so many times as many packets from now on.
    pub(super) fn scale(&mut self, scale: f64) {
        self.running.iter_mut().for_each(|test| test.packets *= scale);
    }

    /// Of how many packets the one that is made now lets a part through, if there is one.
    pub(super) fn packets(&self) -> Option<f64> {
        self.running.as_ref().map(|test| test.packets)
    }

    /// What the one that is made now would find is no matter any more.
    pub(super) fn give_up(&mut self) {
        self.running = None;
    }
}

impl Shared {
    /// Whether the queue is longer than we make it, so that a test is due.
    pub(super) fn look_for_others(&mut self, now: Instant, base: Duration, queue: Duration, is_used: bool) {
        if queue > self.our_queue(base + queue) + FOREIGN_QUEUE {
            self.queues.long_rounds += 1;
        } else {
            self.queues.long_rounds = 0;
        }
        self.queues.packets_before = self.queues.packets_before.max(self.packets);
        let since = now.since(self.tests.ended_at);
        if since >= TEST_EVERY || (self.queues.long_rounds >= 3 && since >= TEST_EVERY_MIN) {
            self.start_test(now, queue, is_used);
        }
    }

    /// A round trip is over in which we contend.
    pub(super) fn grow_beside(&mut self, now: Instant, rtt: Duration, queue: Duration, is_used: bool) {
        let tcps = self.tcps();
        let Mode::Contend(bundle) = &mut self.mode else { return };
        // On the way back to the window, what arrives tells neither how many flows it suffices for nor that more would
        // be used.
        bundle.truncate(self.ceiling.tcps());
        if self.regained.is_none() {
            bundle.set_count(now, tcps);
            if is_used {
                bundle.grow(now, rtt);
            }
        }
        self.packets = bundle.packets();
        let every =
            if self.tests.empty > 0 { TEST_AGAIN } else { TEST_CONTENDING.max(TEST_CONTENDING_ROUNDS * rtt) };
        if now.since(self.tests.ended_at) >= every && !self.ceiling.is_single() {
            self.start_test(now, queue, is_used);
        }
    }

    /// Drains our queue; when we send less than a test lets through, this round has shown what there is without us.
    ///
    /// Who leaves window unused may all the same keep a queue as it is, if no less comes than the wire takes: behind a
    /// wire that is as fast, for instance, whatever once filled the queue.
    pub(super) fn start_test(&mut self, now: Instant, queue: Duration, is_used: bool) {
        let rounds_left = if self.blame.is_undecided() { TEST_ROUNDS_LOSSY } else { TEST_ROUNDS };
        let packets = f64::INFINITY;
        self.tests.running = Some(Test { rounds_left, packets, is_drained: false, shortest: queue });
        if is_used {
            return;
        }
        let in_flight = self.round.in_flight_max as f64 / self.packet_bytes;
        if matches!(self.mode, Mode::Startup) || in_flight <= self.window_packets() {
            self.tests.running = None;
            self.tests.ended_at = now;
            self.on_tested(now, queue);
        } else {
            self.tests.limit(in_flight);
        }
    }

    /// A round of a test is over, which had so much queue.
    pub(super) fn on_test_round(&mut self, now: Instant, queue: Duration) {
        let Some(test) = &mut self.tests.running else { return };
        test.rounds_left -= 1;
        test.shortest = test.shortest.min(queue);
        let (is_over, shortest) = (test.rounds_left == 0, test.shortest);
        let was_drained = core::mem::replace(&mut test.is_drained, true);
        if let Mode::Contend(bundle) = &mut self.mode {
            bundle.hold(now);
        }
        if !was_drained {
            self.blame.begin(now);
        }
        if is_over {
            self.blame.end(now);
            self.tests.running = None;
            self.tests.ended_at = now;
            self.on_tested(now, shortest);
        }
    }

    /// Whether losses are congestion, or may be and are too many to bear while it is not known.
    fn may_be_congestion(&self) -> bool {
        self.blame.is_congestion() || self.blame.is_undecided() && self.losses.share() > UNDECIDED_SHARE
    }

    /// Our own queue was drained, and so much was left.
    pub(super) fn on_tested(&mut self, now: Instant, queue: Duration) {
        self.tests.empty = if queue <= NO_QUEUE { self.tests.empty + 1 } else { 0 };
        if let Mode::Contend(bundle) = &mut self.mode
            && self.blame.is_congestion()
            && self.tests.empty > 0
        {
            bundle.set_curve(Curve::GENTLE);
        }
        match &self.mode {
            Mode::Contend(_) if self.tests.empty >= self.tests.empty_needed && !self.may_be_congestion() => {
                self.mode = Mode::Delay;
                self.queues.long_rounds = 0;
                self.queues.packets_before = 0.0;
                self.contended = Some((now, self.packets));
            }
            Mode::Delay if self.blame.is_congestion() => {
                // What was won while losses were not believed is given back.
                self.packets = (BETA * self.packets).max(PACKETS_MIN);
                self.contend(now, Curve::GENTLE);
            }
            Mode::Delay => {
                let again = self.contended.filter(|(at, _)| now.since(*at) < CONTENDED_FOR);
                let long_for = if again.is_some() { LONG_AGAIN } else { LONG_FOR };
                if now.since(self.queues.short_at) < long_for {
                    return;
                }
                let packets = again.map_or(0.0, |(_, packets)| BETA * packets);
                self.tests.empty_needed = if again.is_some() {
                    (2 * self.tests.empty_needed).min(EMPTY_TESTS_MAX)
                } else {
                    EMPTY_TESTS
                };
                self.packets = self.packets.max(self.queues.packets_before).max(packets);
                self.contend(now, Curve::BESIDE_CUBIC);
            }
            _ => {}
        }
    }
}
