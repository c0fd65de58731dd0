//! A controller that keeps the wire's queue short, bears losses that no queue explains, and holds its own beside TCP.
//!
//! ```text
//!          queue, losses               a queue that is not ours,
//!               ┌─────────▶ Delay ── losses that are congestion, ──┐
//!   Startup ────┤             ▲        or too many of them         ▼
//!               └───────────  │  ──────────────────────────────▶ Contend
//!                  marks      └────────────────────────────────────┘
//!                              no queue without us, and no verdict
//! ```
//!
//! - *Startup* doubles the window with each round trip.
//! - *Delay* sets the window once a round so that [`QUEUE_TARGET`] of queue stays, and a little more for the circuits.
//!   It is the rule of FAST TCP (Wei, Jin, Low and Hegde 2006, equation 7) with a target of time besides the one of
//!   packets. What circuits add grows with the root of circuits times packets: whoever has fewer packets for each
//!   circuit grows faster, so connections on one wire come to shares in proportion to their circuits, be it 1 or 100.
//! - *Contend* is a [`Bundle`] of as many CUBIC flows as there are busy circuits, but not more than the [`Ceiling`] and
//!   than [what arrives suffices for](PACKETS_PER_FLOW), because whoever yields to a queue starves beside whoever fills
//!   it. Where losses or marks tell of congestion and no queue does, its flows are [gentle](Curve::GENTLE).
//! - What tells them apart is a *test*: for three rounds we send less than the path carries, so our own queue drains.
//!   What is left of it is somebody else's. A test also finds the path's real round trip again. Tests are made every
//!   few seconds, and whenever the queue falls all at once, because then somebody else tests: connections of our kind
//!   do it together. So a queue that was not short for [`LONG_FOR`] is not of our kind.
//! - A round trip that stays the same whatever we send is no queue, but a [longer path](path::Steady).
//!
//! Whatever the queue, who loses more than [`LOSS_SHARE`] of what it sends in two seconds in a row contends, too: a
//! path that drops so much is shared as TCP shares it, and tolerance ends there. Who loses [much more](breaker) all the
//! same sends next to nothing.
//!
//! With a ceiling of one there is no Delay and no test: after Startup a connection is one CUBIC flow.
//!
//! In Delay a lost packet is a sign of congestion as far as the queue is longer than ours, or as far as losses are
//! frequent: at a short queue and one loss in a thousand packets it costs next to nothing, at one in a hundred a sixth
//! of what it costs at one in forty, and there half of what it costs TCP. Whether such losses end when we send less is
//! found out [in tests](blame), and a router's mark is never doubted.

mod blame;
mod breaker;
mod bundle;
mod ceiling;
mod counts;
mod losses;
mod path;
mod regain;
mod shares;
mod startup;
mod testing;
mod way_back;

use blame::Blame;
use breaker::{Breaker, PACKETS_OPEN};
use bundle::{Bundle, Curve, PACKETS_PER_FLOW};
pub(crate) use ceiling::Ceiling;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::AckWait;
use losses::{LOSS_SHARE, Losses};
use path::{Base, Delivery, Steady};
pub(crate) use shares::{Share, Shares};
use startup::Told;
use testing::Tests;
pub(crate) use way_back::WayBack;
use way_back::without;

/// The queue that is meant to stay; it keeps the wire busy when packets come unevenly.
const QUEUE_TARGET: Duration = Duration::from_millis(5);

/// What circuits add to it, in packets: so many times the root of circuits times packets.
const CIRCUITS_GAIN: f64 = 0.2;

/// What they add approaches this and does not reach it. Without a bound, 300 circuits at a round trip of 300 ms
/// mean 70 ms of queue on 10 Mbit/s, which CoDel answers with losses and a policer has no room for.
const CIRCUITS_QUEUE_MAX: Duration = Duration::from_millis(30);

/// A queue alone leaves the window at this share at least of what arrived lately in one of the path's round trips.
const DELIVERED_MIN: f64 = 0.25;

/// How much the window may change in a round.
const GROWTH_MAX: f64 = 1.25;
const SHRINKAGE_MAX: f64 = 0.75;

/// What a loss takes of one circuit's part of the window while we follow the queue. RFC 9438 takes 0.3, because the
/// queue of whoever fills it is at least as long. Where it is kept short, by us or by CoDel, so much would leave the
/// wire idle, and RFC 8511 takes 0.15 there, too.
const LOSS_CUT: f64 = 0.15;

/// What is left of the path's load while a test lasts.
const TEST_GAIN: f64 = 0.98;

/// And of the most that was delivered lately, because the best of some rounds is more than what a policer lets pass.
const DELIVERED_PART: f64 = 0.97;

/// How often a test is made, and at most.
const TEST_EVERY: Duration = Duration::from_secs(2);
const TEST_EVERY_MIN: Duration = Duration::from_secs(1);

/// While contending: after a test that found a queue, which costs a tenth of the rounds at most because others take
/// what it leaves; and after one that found none.
const TEST_CONTENDING: Duration = Duration::from_secs(6);
const TEST_CONTENDING_ROUNDS: u32 = 30;
const TEST_AGAIN: Duration = Duration::from_secs(3);

/// Rounds of a test: one until our queue has drained, one until others of our kind have joined, and one that is heard.
const TEST_ROUNDS: u32 = 3;
/// While it is to be found out whose losses are.
const TEST_ROUNDS_LOSSY: u32 = 6;

/// A queue that falls by this much in a round, and by a quarter, is drained by somebody who tests.
const FELL_MIN: Duration = Duration::from_millis(3);

/// A queue that is this much longer than ours calls for a test at once.
const FOREIGN_QUEUE: Duration = Duration::from_millis(8);

/// A queue that was not this short for so long is not of our kind, which tests more often.
const SHORT_QUEUE: Duration = Duration::from_millis(4);
const LONG_FOR: Duration = Duration::from_secs(4);

/// A connection that sent nothing for so long knows nothing of the queue. Each time as long halves what it may send at
/// once, as a time-out's worth does in RFC 2861, down to what a new connection may.
const IDLE_MIN: Duration = Duration::from_millis(500);

/// A queue that is nobody's.
const NO_QUEUE: Duration = Duration::from_millis(2);

/// So many tests in a row must find no queue before we stop contending: whoever has just lost packets leaves none. It
/// takes twice as many, up to a bound, whenever that was a mistake.
const EMPTY_TESTS: u32 = 5;
const EMPTY_TESTS_MAX: u32 = 20;

/// For how long we remember that we contended, and with which window. To begin again is then a mistake made good.
const CONTENDED_FOR: Duration = Duration::from_secs(30);
const LONG_AGAIN: Duration = Duration::from_secs(1);

/// A round of fewer packets than this may show how long the peer puts acknowledgements off.
const FEW_PACKETS: u32 = 8;

const PACKETS_INITIAL: f64 = 10.0;
/// The window at its least. quinn-proto sends while a whole packet fits beside what is in flight and something is left,
/// so a window of exactly one packet would be none.
const PACKETS_MIN: f64 = 1.2;

/// What the connection does about its window.
#[derive(Clone, Debug)]
enum Mode {
    Startup,
    Delay,
    Contend(Bundle),
}

/// The controller of one connection; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    mode: Mode,
    ceiling: Ceiling,
    /// The window, in packets.
    packets: f64,
    /// Bytes of a full packet.
    packet_bytes: f64,
    /// What the peer puts acknowledgements off by at most: it is seen in round trips when few packets are on their way.
    ack_delay: Duration,
    /// Circuits that the connection stands for, at least one.
    flows: f64,
    /// How much round trips differ from one another.
    rtt_deviation: Duration,
    /// What the acknowledgement waited that is worked off.
    ack_wait: AckWait,
    base: Base,
    delivery: Delivery,
    steady: Steady,
    /// After a change of the path, and after a pause: what may be in flight until the window is reached, doubling with
    /// each round trip.
    regained: Option<f64>,
    round: Round,
    /// The last round's shortest round trip.
    rtt: Option<Duration>,
    /// What packets tell of a queue at startup.
    told: Told,
    tests: Tests,
    queues: Queues,
    /// When we last contended, and with how many packets.
    contended: Option<(Instant, f64)>,
    usage: Usage,
    losses: Losses,
    blame: Blame,
    breaker: Breaker,
    /// Packets that arrived in each of the last two rounds.
    delivered: [u32; 2],
    /// Circuits that losses of this round have cost something.
    hits: f64,
}

/// What rounds have shown of the queue.
#[derive(Clone, Debug)]
struct Queues {
    /// The last round's.
    before: Duration,
    /// When one was last as short as we make it.
    short_at: Instant,
    /// Rounds in a row with one that is longer than we make it.
    long_rounds: u32,
    /// The largest window since it was as we make it: what to contend with.
    packets_before: f64,
}

/// How much of the window is used.
#[derive(Clone, Debug)]
struct Usage {
    sent_at: Instant,
    /// The most that was in flight since then, for half a second and a round trip at least.
    bytes_max: u64,
    since: Instant,
}

/// One round trip's notes.
#[derive(Clone, Debug, Default)]
struct Round {
    since: Instant,
    rtt: Option<Duration>,
    packets: u32,
    /// The same by their bytes.
    acked_bytes: u64,
    in_flight: u64,
    in_flight_max: u64,
}

impl Shared {
    /// For a connection that begins now and whose packets have so many bytes. Its peer puts acknowledgements off by
    /// `ack_delay` at most. It stands for as many TCPs as `ceiling` says, whenever that changes.
    pub(crate) fn new(now: Instant, packet_bytes: u16, ack_delay: Duration, ceiling: Ceiling) -> Self {
        Shared {
            mode: Mode::Startup,
            ceiling,
            packets: PACKETS_INITIAL,
            packet_bytes: f64::from(packet_bytes),
            ack_delay,
            flows: 1.0,
            rtt_deviation: Duration::ZERO,
            ack_wait: AckWait::default(),
            base: Base::new(now, None),
            delivery: Delivery::new(now),
            steady: Steady::new(now, Duration::ZERO, 0.0),
            regained: None,
            round: Round { since: now, ..Round::default() },
            rtt: None,
            told: Told::default(),
            tests: Tests::new(now),
            queues: Queues {
                before: Duration::ZERO,
                short_at: now,
                long_rounds: 0,
                packets_before: PACKETS_INITIAL,
            },
            contended: None,
            usage: Usage { sent_at: now, bytes_max: 0, since: now },
            losses: Losses::new(now),
            blame: Blame::new(),
            breaker: Breaker::new(now),
            delivered: [0; 2],
            hits: 0.0,
        }
    }

    fn window_packets(&self) -> f64 {
        if self.breaker.is_open() {
            return PACKETS_OPEN;
        }
        let packets = self.regained.map_or(self.packets, |regained| self.packets.min(regained));
        let Some(((base, rtt), packets_max)) = self.base.get().zip(self.rtt).zip(self.tests.packets()) else {
            return packets;
        };
        // As much as the path itself holds and delivers, and a little less.
        let held = packets.min(packets_max) * base.as_secs_f64() / rtt.max(base).as_secs_f64();
        let delivered = DELIVERED_PART * self.delivery.packets_in(base);
        let carried = if self.blame.is_undecided() { held.min(delivered) } else { held };
        (carried * TEST_GAIN).max(PACKETS_MIN)
    }

    /// Whether this round made use of the window, so that more would be used too.
    fn is_used(&self) -> bool {
        self.round.in_flight_max as f64 >= 0.85 * (self.window_packets() - 2.0) * self.packet_bytes
    }

    /// A round trip is over.
    fn on_round(&mut self, now: Instant, rtt: Duration) {
        self.base.add(now, rtt);
        let base = self.base.get().unwrap_or(rtt);
        let is_few = self.round.packets < FEW_PACKETS;
        let ack_delay = if is_few { self.ack_delay } else { Duration::ZERO };
        self.steady.add(now, rtt, ack_delay, self.round.in_flight_max as f64 / self.packet_bytes);
        self.delivery.add(
            now,
            self.round.acked_bytes as f64 / self.packet_bytes,
            now.since(self.round.since),
        );
        let is_one = self.round.packets < 2;
        let rtt = if is_one { rtt.saturating_sub(self.ack_delay).max(base) } else { rtt };
        let queue = rtt.saturating_sub(base);
        let is_used = self.is_used();
        if matches!(self.mode, Mode::Delay)
            && queue > QUEUE_TARGET
            && let Some(path) = self.steady.path(now, self.tests.ended_at, &self.delivery)
        {
            return self.on_longer_path(now, path);
        }
        self.losses.decay();
        self.hits = 0.0;
        // What a test lets through tells nothing of what the path carries.
        if !self.tests.is_testing() {
            self.delivered = [self.delivered[1], self.round.packets];
        }
        self.heed_ceiling(now, false);
        if self.losses.are_too_many(now) && matches!(self.mode, Mode::Delay) && !self.tests.is_testing() {
            self.contend(now, Curve::BESIDE_CUBIC);
        }
        let before = core::mem::replace(&mut self.queues.before, queue);
        if queue <= SHORT_QUEUE + (self.rtt_deviation / 4).min(SHORT_QUEUE / 2) {
            self.queues.short_at = now;
            self.queues.packets_before = 0.0;
        }
        if self.tests.is_testing() {
            return self.on_test_round(now, queue);
        }
        let since = now.since(self.tests.ended_at);
        let least = if matches!(self.mode, Mode::Contend(_)) { TEST_AGAIN } else { TEST_EVERY_MIN };
        if since >= least && !self.ceiling.is_single() && queue + FELL_MIN.max(before / 4) < before {
            // Somebody's queue drains: if it is a test of our kind, ours is to find no queue either.
            self.start_test(now, queue, is_used);
            return;
        }
        self.rtt = Some(rtt);
        match self.mode {
            Mode::Startup => {}
            Mode::Delay => {
                self.follow_queue(base, rtt, is_used);
                self.look_for_others(now, base, queue, is_used);
            }
            Mode::Contend(_) => self.grow_beside(now, rtt, queue, is_used),
        }
    }

    /// As how many TCPs to contend: circuits that had packets delivered lately, as far as these suffice for each.
    fn tcps(&self) -> f64 {
        let delivered = self.delivered.iter().max().copied().unwrap_or(0);
        self.flows.min(self.ceiling.tcps()).min(f64::from(delivered) / PACKETS_PER_FLOW).max(1.0)
    }

    /// Where one CUBIC flow is all there is to be, no queue is followed, and no test made. A loss ends the startup and
    /// is paid for by flows that are older than the packet.
    fn heed_ceiling(&mut self, since: Instant, is_loss: bool) {
        if !self.ceiling.is_single() {
            return;
        }
        self.tests.give_up();
        if let Mode::Contend(bundle) = &mut self.mode {
            bundle.set_curve(Curve::CUBIC);
        }
        if matches!(self.mode, Mode::Delay) || is_loss && matches!(self.mode, Mode::Startup) {
            self.contend(since, Curve::CUBIC);
        }
    }

    fn contend(&mut self, since: Instant, curve: Curve) {
        self.tests.empty = 0;
        self.mode = Mode::Contend(Bundle::new(since, self.packets, self.tcps(), curve));
    }

    /// The queue that our circuits are meant to make beyond the target, at a round trip like this one. It stays below
    /// [`CIRCUITS_QUEUE_MAX`], yet always grows with circuits for a packet, because connections come to shares in
    /// proportion to their circuits by nothing else.
    fn circuits_queue(&self, rtt: Duration) -> Duration {
        let free = CIRCUITS_GAIN * (self.flows / self.packets).sqrt() * rtt.as_secs_f64();
        Duration::from_secs_f64(free / (1.0 + free / CIRCUITS_QUEUE_MAX.as_secs_f64()))
    }

    /// The queue that we make at a round trip like this one.
    fn our_queue(&self, rtt: Duration) -> Duration {
        QUEUE_TARGET + self.circuits_queue(rtt)
    }

    fn follow_queue(&mut self, base: Duration, rtt: Duration, is_used: bool) {
        let meant = base + self.our_queue(rtt);
        let goal = self.packets * meant.as_secs_f64() / rtt.as_secs_f64().max(1e-6);
        let goal = goal.clamp(self.packets * SHRINKAGE_MAX, self.packets * GROWTH_MAX);
        let least = self.packets.min(DELIVERED_MIN * self.delivery.packets_in(base)).max(PACKETS_MIN);
        if goal < self.packets || is_used && self.regained.is_none() {
            self.packets = (0.5 * (self.packets + goal)).max(least);
        }
    }

    /// What is taken for congestion of so many circuits, once a round each: a share of it, by `weight`.
    fn cut(&mut self, packets: f64, weight: f64) {
        let flows = self.flows.min(self.ceiling.tcps());
        let hit = packets.ceil().min(flows - self.hits).max(0.0);
        self.hits += hit;
        if weight >= 1.0 {
            self.end_startup();
            self.stop_at_regained();
        }
        self.packets = (self.packets * (1.0 - weight * LOSS_CUT * hit / flows)).max(PACKETS_MIN);
    }

    /// What of the window was reached again is the window.
    fn stop_at_regained(&mut self) {
        self.packets = self.packets.min(self.regained.take().unwrap_or(self.packets));
    }

    fn on_loss(&mut self, now: Instant, sent: Instant, lost_packets: f64) {
        self.losses.on_lost(lost_packets);
        self.heed_ceiling(sent, true);
        self.stop_regaining(sent);
        let queue = match (self.rtt, self.base.get()) {
            (Some(rtt), Some(base)) => self.round.rtt.unwrap_or(rtt).max(rtt).saturating_sub(base),
            _ => Duration::ZERO,
        };
        let ours = self.our_queue(self.rtt.unwrap_or(queue));
        if queue <= ours + FOREIGN_QUEUE {
            self.blame.on_lost(now, sent, lost_packets.min(1.0));
        }
        match &mut self.mode {
            Mode::Startup | Mode::Delay => {
                let over = queue.saturating_sub(ours);
                let by_queue = over.as_secs_f64() / QUEUE_TARGET.as_secs_f64();
                let by_share = (self.losses.share() / LOSS_SHARE).powi(2);
                self.cut(lost_packets, by_queue.max(by_share).min(1.0));
            }
            Mode::Contend(bundle) => {
                bundle.on_lost(now, sent, lost_packets);
                self.packets = bundle.packets();
            }
        }
    }
}

/// What the connection tells, and asks.
impl Shared {
    /// How many circuits it stands for.
    pub(crate) fn set_flows(&mut self, flows: f64) {
        self.flows = flows.max(1.0);
    }

    /// How much round trips differ from one another: `rttvar` of RFC 6298 and RFC 9002.
    pub(crate) fn set_rtt_deviation(&mut self, deviation: Duration) {
        self.rtt_deviation = deviation;
    }

    /// From now on a full packet has so many bytes, and all windows go on with as many bytes as before. One fits the
    /// window at its least, too: with less nothing would ever leave, and so nothing would come that could open it.
    pub(crate) fn set_packet_bytes(&mut self, packet_bytes: u16) {
        let scale = self.packet_bytes / f64::from(packet_bytes);
        self.packet_bytes = f64::from(packet_bytes);
        // The least is a number of packets, whatever they have.
        let regained = self.regained.iter_mut().filter(|regained| **regained > PACKETS_MIN);
        regained.for_each(|regained| *regained = (*regained * scale).max(PACKETS_MIN));
        let contended = self.contended.iter_mut().map(|(_, packets)| packets);
        let before = &mut self.queues.packets_before;
        contended.chain([&mut self.packets, before]).for_each(|packets| *packets *= scale);
        if let Mode::Contend(bundle) = &mut self.mode {
            bundle.scale(scale);
        }
        self.tests.scale(scale);
        self.packets = self.packets.max(PACKETS_MIN);
    }

    /// A packet leaves.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        // A queue is not long that nobody looked at.
        let idle = now.since(self.usage.sent_at);
        if self.round.in_flight == 0 && idle > IDLE_MIN {
            (self.queues.short_at, self.usage.since, self.usage.bytes_max) = (now, now, 0);
            self.tests.forget_limit();
            self.decay(idle);
        }
        self.usage.sent_at = now;
        self.round.in_flight += bytes;
        self.round.in_flight_max = self.round.in_flight_max.max(self.round.in_flight);
        self.usage.bytes_max = self.usage.bytes_max.max(self.round.in_flight);
        if now.since(self.usage.since) >= IDLE_MIN.max(self.rtt.unwrap_or(IDLE_MIN)) {
            self.validate(self.usage.bytes_max as f64 / self.packet_bytes);
            (self.usage.since, self.usage.bytes_max) = (now, self.round.in_flight);
        }
        let packets = bytes as f64 / self.packet_bytes;
        self.losses.on_sent(packets);
        self.blame.on_sent(now, packets);
        self.breaker.on_sent(now, packets);
    }

    /// A packet was acknowledged that left at `sent` and never before.
    pub(crate) fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        let round_trip = now.since(sent);
        let sample = without(self.ack_wait.waited, round_trip);
        let shortest = self.round.rtt.map_or(sample, |rtt| rtt.min(sample));
        self.round.rtt = Some(shortest);
        self.round.packets += 1;
        self.round.acked_bytes += bytes;
        match &mut self.mode {
            Mode::Startup => self.start_up(round_trip, bytes),
            Mode::Delay => {}
            Mode::Contend(bundle) => {
                bundle.on_acked(bytes as f64 / self.packet_bytes);
                self.packets = bundle.packets();
            }
        }
        self.regain(bytes);
        if sent >= self.round.since {
            let round = Round { since: now, rtt: None, packets: 0, acked_bytes: 0, ..self.round };
            self.on_round(now, shortest);
            self.round = Round { in_flight_max: round.in_flight, ..round };
        }
    }

    /// A probe that took part in no traffic came back after so long.
    pub(crate) fn on_probe(&mut self, now: Instant, rtt: Duration) {
        self.base.add(now, rtt);
    }

    /// What is acknowledged from now on waited so long on its way back. What was acknowledged until now was one
    /// acknowledgement, and is judged.
    pub(crate) fn set_ack_wait(&mut self, wait: AckWait) {
        self.on_worked_off();
        self.ack_wait = wait;
    }

    /// What is in flight after acknowledgements.
    pub(crate) fn set_in_flight(&mut self, bytes: u64) {
        self.round.in_flight = bytes;
    }

    /// Packets are lost, of which the newest left at `sent`.
    pub(crate) fn on_lost(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.round.in_flight = self.round.in_flight.saturating_sub(bytes);
        self.on_loss(now, sent, bytes as f64 / self.packet_bytes);
    }

    /// So many bytes were lost, whatever the controller is told of them by and by: the circuit breaker heeds all.
    pub(crate) fn on_gone(&mut self, bytes: u64) {
        self.breaker.on_lost(bytes as f64 / self.packet_bytes);
    }

    /// A router marked packets in the place of dropping one (CE); the newest of them left at `sent`. It is one loss
    /// that nobody need doubt (RFC 3168, section 5; RFC 9002, section 7.1), so the queue and the share of losses do not
    /// matter.
    pub(crate) fn on_marked(&mut self, now: Instant, sent: Instant) {
        self.heed_ceiling(sent, true);
        self.stop_regaining(sent);
        self.blame.on_marked(now);
        if !matches!(self.mode, Mode::Contend(_)) {
            self.end_startup();
            self.stop_at_regained();
            self.contend(sent, Curve::GENTLE);
        }
        if let Mode::Contend(bundle) = &mut self.mode {
            bundle.on_lost(now, sent, 1.0);
            self.packets = bundle.packets();
        }
    }

    /// What may be in flight.
    pub(crate) fn window_bytes(&self) -> u64 {
        (self.window_packets() * self.packet_bytes) as u64
    }

    /// What may be in flight at first.
    pub(crate) fn initial_window_bytes(&self) -> u64 {
        (PACKETS_INITIAL * self.packet_bytes) as u64
    }

    /// Whether the window doubles with each round trip.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.mode, Mode::Startup)
    }
}

#[cfg(test)]
mod tests;
