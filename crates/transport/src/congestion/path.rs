//! What is known of the path: its shortest round trip, and how much it delivers.

use heddle_seam::time::{Duration, Instant};

/// For how long the shortest round trip is remembered.
const BASE_WINDOW: Duration = Duration::from_secs(30);

/// For how long the largest rate is.
const RATE_WINDOW: Duration = Duration::from_secs(4);

/// For so long the shortest round trips of all rounds must be the same before a path is taken to be longer, and how
/// much they may differ: a few packets of others on a narrow wire make more.
const STEADY_FOR: Duration = Duration::from_secs(1);
const STEADY_WITHIN: Duration = Duration::from_millis(2);

/// By so many times [`STEADY_WITHIN`] the queue would have changed meanwhile, had our packets been a part of it.
const CHANGE_MIN: f64 = 3.0;
const CHANGE_PACKETS_MIN: f64 = 4.0;

/// The shortest round trip of the last while, in two halves of which the older one is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    since: Instant,
    now: Option<Duration>,
    before: Option<Duration>,
}

impl Base {
    pub(super) fn new(now: Instant, rtt: Option<Duration>) -> Self {
        Base { since: now, now: rtt, before: None }
    }

    pub(super) fn add(&mut self, now: Instant, rtt: Duration) {
        if now.since(self.since) >= BASE_WINDOW / 2 {
            *self = Base { since: now, now: None, before: self.now };
        }
        self.now = Some(self.now.map_or(rtt, |shortest| shortest.min(rtt)));
    }

    pub(super) fn get(&self) -> Option<Duration> {
        [self.now, self.before].into_iter().flatten().min()
    }
}

/// The largest rate at which packets arrived lately, in packets per second; in two halves, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    since: Instant,
    now: f64,
    before: f64,
}

impl Delivery {
    pub(super) fn new(now: Instant) -> Self {
        Delivery { since: now, now: 0.0, before: 0.0 }
    }

    /// So many packets arrived in a round that took so long.
    pub(super) fn add(&mut self, now: Instant, packets: f64, took: Duration) {
        if now.since(self.since) >= RATE_WINDOW / 2 {
            *self = Delivery { since: now, now: 0.0, before: self.now };
        }
        self.now = self.now.max(packets / took.as_secs_f64().max(1e-6));
    }

    /// How many arrive in so long.
    pub(super) fn packets_in(&self, time: Duration) -> f64 {
        self.now.max(self.before) * time.as_secs_f64()
    }
}

/// The latest rounds that all had the same round trip, and what was in flight in them. A queue at a bottleneck of ours
/// is as much shorter as we send less. What stays, whatever we send, is the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    since: Instant,
    rtt_min: Duration,
    rtt_max: Duration,
    packets_min: f64,
    packets_max: f64,
}

impl Steady {
    pub(super) fn new(now: Instant, rtt: Duration, packets: f64) -> Self {
        Steady { since: now, rtt_min: rtt, rtt_max: rtt, packets_min: packets, packets_max: packets }
    }

    /// A round is over that had so many packets in flight at most. Of its round trip so much may be the peer's delay.
    pub(super) fn add(&mut self, now: Instant, rtt: Duration, ack_delay: Duration, packets: f64) {
        let rtt = rtt.min(rtt.saturating_sub(ack_delay).max(self.rtt_max));
        (self.rtt_min, self.rtt_max) = (self.rtt_min.min(rtt), self.rtt_max.max(rtt));
        self.packets_min = self.packets_min.min(packets);
        self.packets_max = self.packets_max.max(packets);
        if self.rtt_max.saturating_sub(self.rtt_min) > STEADY_WITHIN {
            *self = Steady::new(now, rtt, packets);
        }
    }

    /// The path's round trip, if it is known by now, and the latest test was over then.
    pub(super) fn path(&self, now: Instant, tested_at: Instant, delivery: &Delivery) -> Option<Duration> {
        let change = (delivery.packets_in(STEADY_WITHIN) * CHANGE_MIN).max(CHANGE_PACKETS_MIN);
        let is_long = now.since(self.since) >= STEADY_FOR && self.since < tested_at;
        (is_long && self.packets_max - self.packets_min >= change).then_some(self.rtt_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(60);

    /// What is taken for the path's round trip after two seconds in which windows shrink from 50 packets to 10, where
    /// each packet in flight makes the queue of a thousand packets per second longer by `share` of what it takes there.
    fn path(share: f64) -> Option<Duration> {
        let mut delivery = Delivery::new(Instant::ZERO);
        let mut steady = Steady::new(Instant::ZERO, Duration::ZERO, 0.0);
        let mut now = Instant::ZERO;
        for round in 0..33 {
            now = Instant::ZERO + round * ROUND;
            let packets = f64::from(50 - round.min(40));
            delivery.add(now, packets, ROUND);
            steady.add(
                now,
                ROUND + Duration::from_millis(1).mul_f64(share * packets),
                Duration::ZERO,
                packets,
            );
        }
        steady.path(now, now, &delivery)
    }

    #[test]
    fn a_round_trip_that_stays_the_same_whatever_we_send_is_the_paths() {
        assert_eq!(path(0.0), Some(ROUND));
    }

    #[test]
    fn a_round_trip_that_follows_our_window_is_a_queue() {
        for share in [0.1, 0.3, 1.0] {
            assert_eq!(path(share), None, "{share}");
        }
    }

    #[test]
    fn what_arrived_long_ago_is_forgotten() {
        let mut delivery = Delivery::new(Instant::ZERO);
        delivery.add(Instant::ZERO, 60.0, ROUND);
        assert_eq!(delivery.packets_in(ROUND), 60.0);
        for half in 1..=2 {
            delivery.add(Instant::ZERO + half * RATE_WINDOW / 2, 6.0, ROUND);
        }
        assert_eq!(delivery.packets_in(ROUND), 6.0);
    }
}
