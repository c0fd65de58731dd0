//! A controller that keeps the wire's queue short, bears losses that no queue explains, and holds its own beside TCP.
//!
//! ```text
//!            queue or loss               a queue that is not ours
//!   Startup ──────────────▶ Delay ──────────────────────────────────▶ Contend
//!                             ▲                                          │
//!                             └──────────────────────────────────────────┘
//!                                       the queue is empty without us
//! ```
//!
//! - *Startup* doubles the window with each round trip.
//! - *Delay* sets the window once a round so that [`QUEUE_TARGET`] of queue stays, and half a packet for each circuit. It is
//!   the rule of FAST TCP (Wei, Jin, Low and Hegde 2006, equation 7) with a target of time besides the one of packets:
//!   connections on one wire come to shares in proportion to their circuits.
//! - *Contend* is a [`Bundle`] of as many CUBIC flows as there are busy circuits, since whoever yields to a queue starves
//!   beside whoever fills it.
//! - What tells them apart is a *test*: for two rounds we send less than the path carries, so our own queue drains. What is
//!   left of it is somebody else's. Tests are made when the queue is longer than we make it, and every few seconds; they
//!   also find the path's real round trip again.
//!
//! A lost packet is a sign of congestion as far as there is a queue, or as far as losses are frequent: at an empty queue
//! and one loss in a thousand packets it costs next to nothing, at one in a hundred as much as TCP's.

mod bundle;

use super::gauge::Gauge;
use bundle::Bundle;
use core::any::Any;
use core::time::Duration;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::sync::Arc;
use std::time::Instant;

/// The queue that is meant to stay; it keeps the wire busy when packets come unevenly.
const QUEUE_TARGET: Duration = Duration::from_millis(5);

/// Packets of queue for each circuit, beyond the target.
const PACKETS_PER_CIRCUIT: f64 = 0.5;

/// And this much at most for all of them.
const CIRCUITS_QUEUE_MAX: Duration = Duration::from_millis(8);

/// How much the window may change in a round.
const GROWTH_MAX: f64 = 1.25;
const SHRINKAGE_MAX: f64 = 0.75;

/// Losses of this share of packets are congestion, whatever the queue.
const LOSS_SHARE: f64 = 0.01;

/// What a loss takes of one circuit's part of the window.
const LOSS_CUT: f64 = 0.3;

/// What is left of the path's load while a test lasts.
const TEST_GAIN: f64 = 0.98;

/// How often a test is made without a reason, and at most.
const TEST_EVERY: Duration = Duration::from_secs(5);
const TEST_EVERY_MIN: Duration = Duration::from_secs(1);

/// How long after a test that found no queue the next one is made while contending.
const TEST_AGAIN: Duration = Duration::from_secs(2);

/// A queue after a test that is somebody else's for certain, beyond how much round trips differ anyhow, and one that is
/// nobody's.
const FOREIGN_QUEUE: Duration = Duration::from_millis(15);
const NO_QUEUE: Duration = Duration::from_millis(2);

/// So many tests in a row must find no queue before we stop contending: whoever has just lost a packet leaves none.
const EMPTY_TESTS: u32 = 3;

/// For how long the shortest round trip is remembered.
const BASE_WINDOW: Duration = Duration::from_secs(30);

const PACKETS_INITIAL: f64 = 10.0;
const PACKETS_MIN: f64 = 4.0;

/// What the connection does about its window.
#[derive(Clone, Debug)]
enum Mode {
    Startup,
    Delay,
    Contend(Bundle),
}

/// Rounds of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    /// Our queue drains.
    Draining,
    /// What comes back now was sent while it was drained.
    Listening,
}

/// The controller of one connection; see the module.
#[derive(Clone)]
pub(super) struct Shared {
    gauge: Arc<Gauge>,
    mode: Mode,
    /// The window, in packets.
    packets: f64,
    mtu: f64,
    base: Base,
    round: Round,
    /// The last round's shortest round trip.
    rtt: Option<Duration>,
    /// At startup, the shortest of the latest packets' round trips, and how many these are.
    latest: Option<(Duration, u32)>,
    test: Option<Test>,
    tested_at: Instant,
    /// Tests in a row that found no queue.
    empty_tests: u32,
    /// Rounds in a row with a queue that is longer than we make it.
    long_rounds: u32,
    /// The largest window since the queue was as we make it: what to contend with.
    packets_before: f64,
    losses: Losses,
    /// Circuits that losses of this round have cost something.
    hits: f64,
}

/// One round trip's notes.
#[derive(Clone, Debug)]
struct Round {
    since: Instant,
    rtt: Option<Duration>,
    in_flight: u64,
    in_flight_max: u64,
}

/// The shortest round trip of the last while, in two halves of which the older one is dropped.
#[derive(Clone, Copy, Debug)]
struct Base {
    since: Instant,
    now: Option<Duration>,
    before: Option<Duration>,
}

/// The share of packets that were lost lately.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    packets: f64,
    lost: f64,
}

impl Shared {
    fn new(now: Instant, mtu: u16, gauge: Arc<Gauge>) -> Self {
        Shared {
            gauge,
            mode: Mode::Startup,
            packets: PACKETS_INITIAL,
            mtu: f64::from(mtu),
            base: Base { since: now, now: None, before: None },
            round: Round { since: now, rtt: None, in_flight: 0, in_flight_max: 0 },
            rtt: None,
            latest: None,
            test: None,
            tested_at: now,
            empty_tests: 0,
            long_rounds: 0,
            packets_before: PACKETS_INITIAL,
            losses: Losses::default(),
            hits: 0.0,
        }
    }

    fn window_packets(&self) -> f64 {
        let Some((base, rtt)) = self.base.get().zip(self.rtt).filter(|_| self.test.is_some()) else {
            return self.packets;
        };
        // As much as the path itself holds, and a little less.
        (self.packets * base.as_secs_f64() / rtt.max(base).as_secs_f64() * TEST_GAIN).max(PACKETS_MIN)
    }

    /// Doubles the window in a round trip, until a queue shows in eight packets in a row (HyStart, RFC 9406, waits for the
    /// next round trip, in which a paced sender has doubled twice). Then the window is what the path holds without it.
    fn start_up(&mut self, sample: Duration, acked_bytes: u64) {
        const SAMPLES: u32 = 8;
        let base = self.base.get().unwrap_or(sample).min(sample);
        let (shortest, count) = self.latest.map_or((sample, 1), |(rtt, count)| (rtt.min(sample), count + 1));
        self.latest = (count < SAMPLES).then_some((shortest, count));
        if count == SAMPLES && shortest > base + QUEUE_TARGET.max(base / 8) {
            self.mode = Mode::Delay;
            self.packets_before = 0.0;
            self.packets = (self.packets * base.as_secs_f64() / shortest.as_secs_f64()).max(PACKETS_MIN);
        } else if self.is_used() {
            self.packets += acked_bytes as f64 / self.mtu;
        }
    }

    /// Whether this round made use of the window, so that more would be used too.
    fn is_used(&self) -> bool {
        self.round.in_flight_max as f64 >= 0.85 * (self.window_packets() - 2.0) * self.mtu
    }

    /// A round trip is over.
    fn on_round(&mut self, now: Instant, rtt: Duration) {
        self.base.add(now, rtt);
        let base = self.base.get().unwrap_or(rtt);
        let queue = rtt.saturating_sub(base);
        let is_used = self.is_used();
        self.losses.decay();
        self.hits = 0.0;
        match self.test {
            Some(Test::Draining) => {
                self.test = Some(Test::Listening);
                return;
            }
            Some(Test::Listening) => {
                self.test = None;
                self.tested_at = now;
                self.on_tested(now, queue);
                return;
            }
            None => {}
        }
        self.rtt = Some(rtt);
        match &mut self.mode {
            Mode::Startup => {}
            Mode::Delay => {
                self.follow_queue(base, rtt, is_used);
                self.look_for_others(now, base, queue, is_used);
            }
            Mode::Contend(bundle) => {
                bundle.set_count(now, self.gauge.flows());
                if is_used {
                    bundle.grow(now, rtt);
                }
                self.packets = bundle.packets();
                let every = if self.empty_tests > 0 { TEST_AGAIN } else { 2 * TEST_EVERY };
                if now.saturating_duration_since(self.tested_at) >= every {
                    self.start_test(now, queue, is_used);
                }
            }
        }
    }

    /// The queue that our circuits are meant to make beyond the target, in packets.
    fn circuits_packets(&self, rtt: Duration) -> f64 {
        let most = self.packets * CIRCUITS_QUEUE_MAX.as_secs_f64() / rtt.as_secs_f64().max(1e-6);
        (PACKETS_PER_CIRCUIT * self.gauge.flows()).min(most.max(PACKETS_PER_CIRCUIT))
    }

    fn follow_queue(&mut self, base: Duration, rtt: Duration, is_used: bool) {
        let meant = base + QUEUE_TARGET;
        let goal =
            self.packets * meant.as_secs_f64() / rtt.as_secs_f64().max(1e-6) + self.circuits_packets(rtt);
        let goal = goal.clamp(self.packets * SHRINKAGE_MAX, self.packets * GROWTH_MAX);
        if goal < self.packets || is_used {
            self.packets = (0.5 * (self.packets + goal)).max(PACKETS_MIN);
        }
    }

    /// Whether the queue is longer than we make it, so that a test is due.
    fn look_for_others(&mut self, now: Instant, base: Duration, queue: Duration, is_used: bool) {
        let rtt = base + queue;
        let circuits_s = self.circuits_packets(rtt) * rtt.as_secs_f64() / self.packets;
        let ours = QUEUE_TARGET + Duration::from_secs_f64(circuits_s);
        if queue > ours + FOREIGN_QUEUE {
            self.long_rounds += 1;
        } else {
            self.long_rounds = 0;
            self.packets_before = 0.0;
        }
        self.packets_before = self.packets_before.max(self.packets);
        let since = now.saturating_duration_since(self.tested_at);
        if since >= TEST_EVERY || (self.long_rounds >= 3 && since >= TEST_EVERY_MIN) {
            self.start_test(now, queue, is_used);
        }
    }

    /// Drains our queue; when we send too little to make one, this round has shown what there is without us.
    fn start_test(&mut self, now: Instant, queue: Duration, is_used: bool) {
        if is_used {
            self.test = Some(Test::Draining);
        } else {
            self.tested_at = now;
            self.on_tested(now, queue);
        }
    }

    /// Our own queue was drained, and so much was left.
    fn on_tested(&mut self, now: Instant, queue: Duration) {
        self.empty_tests = if queue <= NO_QUEUE { self.empty_tests + 1 } else { 0 };
        match &self.mode {
            Mode::Contend(_) if self.empty_tests >= EMPTY_TESTS => {
                self.mode = Mode::Delay;
                self.long_rounds = 0;
                self.packets_before = 0.0;
            }
            Mode::Delay if queue > FOREIGN_QUEUE + self.gauge.rtt_deviation() => {
                self.packets = self.packets.max(self.packets_before);
                self.mode = Mode::Contend(Bundle::new(now, self.packets, self.gauge.flows()));
            }
            _ => {}
        }
    }

    fn on_loss(&mut self, now: Instant, sent: Instant, lost_packets: f64) {
        self.losses.lost += lost_packets;
        let queue = match (self.rtt, self.base.get()) {
            (Some(rtt), Some(base)) => self.round.rtt.unwrap_or(rtt).max(rtt).saturating_sub(base),
            _ => Duration::ZERO,
        };
        match &mut self.mode {
            Mode::Startup | Mode::Delay => {
                let by_queue = queue.as_secs_f64() / QUEUE_TARGET.as_secs_f64();
                let weight = by_queue.max(self.losses.share() / LOSS_SHARE).min(1.0);
                let flows = self.gauge.flows();
                let hit = lost_packets.max(1.0).min(flows - self.hits).max(0.0);
                self.hits += hit;
                if weight >= 1.0 && matches!(self.mode, Mode::Startup) {
                    self.mode = Mode::Delay;
                }
                self.packets = (self.packets * (1.0 - weight * LOSS_CUT * hit / flows)).max(PACKETS_MIN);
            }
            Mode::Contend(bundle) => {
                for _ in 0..(lost_packets.max(1.0) as u32).min(64) {
                    bundle.on_loss(now, sent);
                }
                self.packets = bundle.packets();
                // Others of our kind lose packets now too. When all test at once, they find out that they are among
                // themselves.
                if self.test.is_none() && now.saturating_duration_since(self.tested_at) >= TEST_EVERY {
                    self.test = Some(Test::Draining);
                }
            }
        }
    }
}

impl Controller for Shared {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        self.round.in_flight += bytes;
        self.round.in_flight_max = self.round.in_flight_max.max(self.round.in_flight);
        self.losses.packets += bytes as f64 / self.mtu;
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, _rtt: &RttEstimator) {
        let sample = now.saturating_duration_since(sent);
        let shortest = self.round.rtt.map_or(sample, |rtt| rtt.min(sample));
        self.round.rtt = Some(shortest);
        if matches!(self.mode, Mode::Startup) {
            self.start_up(sample, bytes);
        }
        if sent >= self.round.since {
            let round = Round { since: now, rtt: None, ..self.round };
            self.on_round(now, shortest);
            self.round = Round { in_flight_max: round.in_flight, ..round };
        }
    }

    fn on_end_acks(&mut self, _now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        self.round.in_flight = in_flight;
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.round.in_flight = self.round.in_flight.saturating_sub(lost_bytes);
        self.on_loss(now, sent, (lost_bytes as f64 / self.mtu).ceil());
        if is_persistent {
            self.mode = Mode::Startup;
            self.packets = PACKETS_MIN;
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.packets *= self.mtu / f64::from(new_mtu);
        self.mtu = f64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        (self.window_packets() * self.mtu) as u64
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        (PACKETS_INITIAL * self.mtu) as u64
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Base {
    fn add(&mut self, now: Instant, rtt: Duration) {
        if now.saturating_duration_since(self.since) >= BASE_WINDOW / 2 {
            *self = Base { since: now, now: None, before: self.now };
        }
        self.now = Some(self.now.map_or(rtt, |shortest| shortest.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        [self.now, self.before].into_iter().flatten().min()
    }
}

impl Losses {
    /// Forgets half of what is older than some hundred packets.
    fn decay(&mut self) {
        if self.packets > 1000.0 {
            self.packets /= 2.0;
            self.lost /= 2.0;
        }
    }

    fn share(&self) -> f64 {
        self.lost / self.packets.max(200.0)
    }
}

/// Makes the controllers of one connection.
pub(super) struct SharedFactory {
    pub(super) gauge: Arc<Gauge>,
}

impl ControllerFactory for SharedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Shared::new(now, current_mtu, self.gauge.clone()))
    }
}
