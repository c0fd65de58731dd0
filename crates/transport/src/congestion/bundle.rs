//! As many CUBIC flows as there are busy circuits, in one window (RFC 9438).
//!
//! Each virtual flow has a window of its own that grows and shrinks as a TCP connection's would, and the connection's
//! window is their sum. A lost packet hits one flow, the sooner the larger its window is, and a flow that was hit bears
//! further losses of the same round trip, just as one recovery serves one connection.

use super::PACKETS_MIN;
use super::ceiling::TCPS_MAX;
use heddle_seam::time::{Duration, Instant};

/// What is left of a flow's window after a loss (RFC 9438, section 4.6).
pub(super) const BETA: f64 = 0.7;

/// How flows grow and what a loss leaves of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Curve {
    /// What a loss leaves.
    beta: f64,
    /// How fast windows grow, in packets per second cubed.
    c: f64,
    /// How much of what Reno grows by where that is faster.
    reno: f64,
}

impl Curve {
    /// RFC 9438's, sections 4.6 and 5.
    pub(super) const CUBIC: Curve = Curve { beta: BETA, c: 0.4, reno: 1.0 };

    /// For a bundle beside others. A packet counts as lost a quarter of a round trip later than TCP's, and until then
    /// windows grow on. As they grow slower by three tenths, no more is lost to their growth than of TCPs in the
    /// bundle's place, and these find room.
    pub(super) const BESIDE_CUBIC: Curve = Curve { beta: BETA, c: 0.7 * 0.4, reno: 0.7 };

    /// Half as deep a cut, as RFC 8511 takes where queues are kept short and a deeper one would leave the wire idle.
    /// Growth is as much slower as would make the mean window at each share of losses that of CUBIC, because RFC 9438,
    /// equation 5, is the fourth root of c (3 + beta) / (1 - beta), and slower still by 0.2, where Reno is faster by
    /// 0.4: a third of the window is left to those beside us, whose packets come in bursts, so that more of them are
    /// lost, and several at once.
    pub(super) const GENTLE: Curve =
        Curve { beta: 0.85, c: 0.2 * 0.4 * (3.7 / 0.3) * (0.15 / 3.85), reno: 0.4 };

    /// What the window grows by in a round trip while Reno would be faster (RFC 9438, section 4.3).
    fn alpha_reno(self) -> f64 {
        self.reno * 3.0 * (1.0 - self.beta) / (1.0 + self.beta)
    }
}

/// A path that has less than this for each flow has fewer flows: who adds half a packet in each round trip and loses
/// 0.3 of its window by a loss has lost one packet in 24 when its windows are of six packets, and one in ten when they
/// are of four. There are more again when all of them have half as much again, so that their number rests.
pub(super) const PACKETS_PER_FLOW: f64 = 6.0;
const PACKETS_PER_FLOW_MORE: f64 = 9.0;

/// What is longer than so many round trips is no round: there was a pause, or a round that left the window unused. All
/// but one round trip of it is no time in which a window grows (RFC 9438, section 5.8).
const ROUND_TRIPS: u32 = 2;

/// No more losses than these are looked at one by one.
const LOSSES_MAX: u32 = 1024;

/// One virtual flow. Windows are in packets.
#[derive(Clone, Debug)]
struct VirtualFlow {
    window: f64,
    /// Where the window was when the last loss came.
    window_max: f64,
    /// What Reno would have.
    reno: f64,
    /// What the curve is a function of begins here, and is put off by pauses.
    epoch: Instant,
    /// When the last loss was told, or the flow began.
    hit_at: Instant,
    /// From the epoch to the window's return to its maximum, in seconds.
    k_s: f64,
}

impl VirtualFlow {
    fn new(now: Instant, window: f64, window_max: f64, curve: Curve) -> Self {
        let k_s = libm::cbrt((window_max - window).max(0.0) / curve.c);
        VirtualFlow { window, window_max, reno: window, epoch: now, hit_at: now, k_s }
    }

    /// The same flow with a part of the window, or more of it.
    fn scaled(&self, now: Instant, scale: f64, curve: Curve) -> Self {
        let flow = VirtualFlow::new(now, self.window * scale, self.window_max * scale, curve);
        VirtualFlow { hit_at: self.hit_at, ..flow }
    }

    fn on_loss(&mut self, now: Instant, curve: Curve) {
        let is_smaller = self.window < self.window_max;
        // Fast convergence makes room for newcomers (RFC 9438, section 4.7).
        let window_max = if is_smaller { self.window * (1.0 + curve.beta) / 2.0 } else { self.window };
        let window = (self.window * curve.beta).max(PACKETS_MIN);
        *self = VirtualFlow::new(now, window, window_max.max(window), curve);
    }

    /// What it had in flight at that time, in this round trip or the one before.
    fn window_at(&self, at: Instant, curve: Curve) -> f64 {
        if self.hit_at > at { self.window / curve.beta } else { self.window }
    }

    /// A round trip is over.
    fn grow(&mut self, now: Instant, rtt: Duration, curve: Curve) {
        let t_s = now.since(self.epoch).as_secs_f64() + rtt.as_secs_f64();
        let cubic = curve.c * (t_s - self.k_s).powi(3) + self.window_max;
        self.reno += curve.alpha_reno();
        let target = cubic.max(self.reno);
        // At most half as much again in a round trip (RFC 9438, section 4.2).
        self.window = target.clamp(self.window, self.window * 1.5);
    }
}

/// The flows of one connection.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    curve: Curve,
    flows: Vec<VirtualFlow>,
    /// What windows were to grow by in this round when it began, and how much of that is still to come.
    grown: f64,
    to_come: f64,
    /// When windows grew last, or were held.
    grown_at: Instant,
    /// Where chance stands: who is hit by the next loss.
    chance: u64,
}

impl Bundle {
    /// Shares `packets` out among `count` flows that have just reached their maximum.
    pub(super) fn new(now: Instant, packets: f64, count: f64, curve: Curve) -> Self {
        let count = whole(count, packets);
        let share = (packets / count as f64).max(PACKETS_MIN);
        let flows = vec![VirtualFlow::new(now, share, share, curve); count];
        Bundle { curve, flows, grown: 0.0, to_come: 0.0, grown_at: now, chance: 0 }
    }

    pub(super) fn curve(&self) -> Curve {
        self.curve
    }

    /// From now on flows grow and shrink so.
    pub(super) fn set_curve(&mut self, curve: Curve) {
        self.curve = curve;
    }

    /// The flows' windows together, of which what they grew by in the last round comes with the acknowledgements of
    /// this one.
    pub(super) fn packets(&self) -> f64 {
        (self.windows() - self.to_come).max(PACKETS_MIN)
    }

    fn windows(&self) -> f64 {
        self.flows.iter().map(|flow| flow.window).sum()
    }

    /// So many packets arrived. TCPs grow with each of their acknowledgements. Who adds the growth of eight of them to
    /// a full queue at once loses nearly all of it, and those beside it next to nothing.
    pub(super) fn on_acked(&mut self, packets: f64) {
        if self.to_come > 0.0 {
            let came = self.grown * packets / self.windows();
            self.to_come = (self.to_come - came).max(0.0);
        }
    }

    /// The same bytes are so many times as many packets from now on.
    pub(super) fn scale(&mut self, scale: f64) {
        for flow in &mut self.flows {
            flow.window *= scale;
            flow.window_max *= scale;
            flow.reno *= scale;
            flow.k_s *= libm::cbrt(scale);
        }
        self.grown *= scale;
        self.to_come *= scale;
    }

    /// Ends flows beyond so many, with what they had.
    pub(super) fn truncate(&mut self, count_max: f64) {
        self.flows.truncate((count_max as usize).max(1));
    }

    /// Makes it `count` flows, with the same window in all: a circuit that falls silent leaves the others what it had,
    /// and one that begins has its part of it, so nothing is won by coming and going.
    pub(super) fn set_count(&mut self, now: Instant, count: f64) {
        let (now_count, packets) = (self.flows.len() as f64, self.windows());
        let count_more = (packets / PACKETS_PER_FLOW_MORE).max(now_count);
        let count = count.min(count_more).min((packets / PACKETS_PER_FLOW).max(1.0));
        // Not for every wobble of the estimate.
        if (count - now_count).abs() < 0.75 {
            return;
        }
        let count = whole(count, packets);
        let chosen: Vec<VirtualFlow> = self.flows.iter().cycle().take(count).cloned().collect();
        let scale = packets / chosen.iter().map(|flow| flow.window).sum::<f64>();
        self.flows = chosen.iter().map(|flow| flow.scaled(now, scale, self.curve)).collect();
    }

    /// A round trip is over that made use of the window.
    pub(super) fn grow(&mut self, now: Instant, rtt: Duration) {
        let took = now.since(self.grown_at);
        let pause = if took > rtt * ROUND_TRIPS { took.saturating_sub(rtt) } else { Duration::ZERO };
        self.grown_at = now;
        let before = self.windows();
        for flow in &mut self.flows {
            flow.epoch = (flow.epoch + pause).min(now);
            flow.grow(now, rtt, self.curve);
        }
        self.to_come += self.windows() - before;
        self.grown = self.to_come;
    }

    /// A round trip is over in which we sent less than the window by our own choice. As after a pause, that is no time
    /// in which it grows: to come back with more than there was before fills a queue at once.
    pub(super) fn hold(&mut self, now: Instant) {
        let held = now.since(self.grown_at);
        for flow in &mut self.flows {
            flow.epoch = (flow.epoch + held).min(now);
        }
        self.grown_at = now;
    }

    /// So many packets were lost, of which the newest left at `sent`. Each was of a flow with a probability in
    /// proportion to what that flow had in flight, as it is with TCPs that share a queue.
    pub(super) fn on_lost(&mut self, now: Instant, sent: Instant, packets: f64) {
        let in_flight = self.flows.iter().map(|flow| flow.window_at(sent, self.curve));
        let sums: Vec<f64> = in_flight.scan(0.0, |sum, window| Some(add(sum, window))).collect();
        let last = sums.len() - 1;
        for _ in 0..(packets.ceil() as u32).min(LOSSES_MAX) {
            let at = self.draw() * sums[last];
            let flow = &mut self.flows[sums.partition_point(|sum| *sum <= at).min(last)];
            // A flow that was hit after the packet was sent has paid for it.
            if flow.hit_at <= sent {
                flow.on_loss(now, self.curve);
            }
        }
    }

    /// A number from 0 to 1 that chance has. Knuth's generator; any would do, and this one repeats with the run.
    fn draw(&mut self) -> f64 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 32) as f64 / 2f64.powi(32)
    }
}

fn add(sum: &mut f64, more: f64) -> f64 {
    *sum += more;
    *sum
}

fn whole(count: f64, packets: f64) -> usize {
    (count.min(packets / PACKETS_PER_FLOW).round() as usize).clamp(1, usize::from(TCPS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn start() -> Instant {
        Instant::from_nanos(1_000_000_000)
    }

    #[test]
    fn a_flow_comes_back_to_its_maximum_when_rfc_9438_says() {
        let start = start();
        let mut bundle = Bundle::new(start, 100.0, 1.0, Curve::CUBIC);
        bundle.on_lost(start, start, 1.0);
        assert_eq!(bundle.packets(), 70.0);
        // K is the cube root of 100 · 0.3 / 0.4, which is 4.22 s.
        let mut reached = None;
        for round in 1..100 {
            let now = start + round * RTT;
            bundle.grow(now, RTT);
            if reached.is_none() && bundle.windows() >= 99.99 {
                reached = Some(now.since(start));
            }
        }
        let reached = reached.expect("it comes back");
        assert!(
            reached > Duration::from_millis(3500) && reached < Duration::from_millis(4400),
            "{reached:?}"
        );
    }

    #[test]
    fn a_pause_is_no_time_to_grow_in() {
        let start = start();
        let windows = [Duration::ZERO, Duration::from_secs(60)].map(|pause| {
            let mut bundle = Bundle::new(start, 100.0, 1.0, Curve::CUBIC);
            bundle.on_lost(start, start, 1.0);
            bundle.grow(start + RTT, RTT);
            (2..12).for_each(|round| bundle.grow(start + pause + round * RTT, RTT));
            bundle.windows()
        });
        assert!((windows[1] - windows[0]).abs() < 0.1, "{windows:?}");
    }

    #[test]
    fn a_window_that_was_held_goes_on_from_where_it_was() {
        let start = start();
        let grown = [false, true].map(|is_held| {
            let mut bundle = Bundle::new(start, 100.0, 1.0, Curve::CUBIC);
            (1..=60).for_each(|round| bundle.grow(start + round * RTT, RTT));
            let before = bundle.windows();
            let held = if is_held { 30 } else { 0 };
            (61..=60 + held).for_each(|round| bundle.hold(start + round * RTT));
            bundle.grow(start + (61 + held) * RTT, RTT);
            bundle.windows() - before
        });
        assert!((grown[0] - grown[1]).abs() < 0.01 && grown[0] > 0.0, "{grown:?}");
    }

    #[test]
    fn one_loss_costs_one_flow_and_one_recovery_pays_once() {
        let start = start();
        let mut bundle = Bundle::new(start, 80.0, 8.0, Curve::CUBIC);
        bundle.on_lost(start + RTT, start, 1.0);
        assert_eq!(bundle.packets(), 77.0);
        bundle.on_lost(start + RTT, start, 1000.0);
        let all_hit = bundle.packets();
        assert!((55.9..56.1).contains(&all_hit), "{all_hit}");
    }

    /// Of two flows with 30 and 10 packets in flight, the first has three in four of those that are lost.
    #[test]
    fn a_loss_hits_flows_by_what_they_have_in_flight() {
        let start = start();
        let mut bundle = Bundle::new(start, 40.0, 2.0, Curve::CUBIC);
        (bundle.flows[0].window, bundle.flows[1].window) = (30.0, 10.0);
        let mut hits = 0;
        for _ in 0..1000 {
            let mut after = bundle.clone();
            after.on_lost(start + RTT, start, 1.0);
            hits += u32::from(after.flows[0].window < 30.0);
            bundle.chance = after.chance;
        }
        assert!((700..=800).contains(&hits), "{hits}");
        // Neither does what it has lost already make it a smaller mark for others that left with it.
        bundle.on_lost(start + RTT, start, 100.0);
        assert!((bundle.flows[0].window_at(start, Curve::CUBIC) - 30.0).abs() < 0.01);
    }

    #[test]
    fn the_count_follows_and_stays_bounded() {
        let start = start();
        let mut bundle = Bundle::new(start, 80.0, 4.0, Curve::CUBIC);
        bundle.set_count(start, 4.5);
        assert_eq!(bundle.packets(), 80.0);
        for (count, flows) in [(6.0, 6), (1e9, usize::from(TCPS_MAX)), (0.0, 1), (2.0, 2)] {
            bundle.set_count(start, count);
            assert_eq!((bundle.flows.len(), bundle.packets().round()), (flows, 80.0));
        }
    }

    #[test]
    fn losses_end_flows_until_one_is_left() {
        let start = start();
        let mut bundle = Bundle::new(start, 20.0, 8.0, Curve::CUBIC);
        for round in 1..100 {
            let now = start + round * RTT;
            bundle.on_lost(now, now, 8.0);
            bundle.set_count(now, 8.0);
        }
        assert_eq!((bundle.flows.len(), bundle.packets()), (1, PACKETS_MIN));
    }

    #[test]
    fn newcomers_do_not_make_room_for_more() {
        let start = start();
        let mut bundle = Bundle::new(start, 13.8, 2.0, Curve::CUBIC);
        for round in 1..100 {
            bundle.set_count(start + round * RTT, 8.0);
        }
        assert_eq!((bundle.flows.len(), bundle.packets()), (2, 13.8));
    }
}
