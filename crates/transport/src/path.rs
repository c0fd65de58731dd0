//! Whether the peer can be reached: what it owes us, and probes.

use crate::silence::{Due, PROBE_MIN, probe_at};
use heddle_seam::time::{Duration, Instant};

/// What a peer may put an acknowledgement off by.
const ACK_DELAY: Duration = Duration::from_millis(40);

/// What is known of the way to the peer and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    keep_alive: Duration,
    heard_at: Instant,
    /// Since when the peer has owed us something.
    waiting_since: Option<Instant>,
    probed_at: Instant,
    /// The last ping, and the last that was answered.
    ping: u32,
    answered: u32,
    /// The round trip: that of the last ping, or as flows smoothed it.
    round_trip: Option<Duration>,
}

impl Path {
    pub(crate) fn new(now: Instant, keep_alive: Duration) -> Self {
        Path {
            keep_alive,
            heard_at: now,
            waiting_since: None,
            probed_at: now,
            ping: 0,
            answered: 0,
            round_trip: None,
        }
    }

    /// A record of the peer came. It need not answer anything: where the path is dead one way only, who sends is heard
    /// and hears nothing.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// The peer answered.
    pub(crate) fn on_answer(&mut self) {
        self.waiting_since = None;
    }

    /// Something was sent that the peer answers.
    pub(crate) fn on_question(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// So much of the time since then does not count, because nobody looked whether a word had come.
    pub(crate) fn forgive(&mut self, now: Instant, late: Duration) {
        self.waiting_since = self.waiting_since.map(|since| (since + late).min(now));
    }

    /// The number of a ping that is sent now.
    pub(crate) fn next_ping(&mut self, now: Instant) -> u32 {
        self.probed_at = now;
        self.ping = self.ping.wrapping_add(1);
        self.ping
    }

    /// Whether a pong answers a ping that is under way. Else whoever sends them would pass for somebody who hears us.
    pub(crate) fn takes_pong(&mut self, number: u32) -> bool {
        let asked = self.ping.wrapping_sub(self.answered);
        let is_asked = (1..=asked).contains(&number.wrapping_sub(self.answered));
        if is_asked {
            self.answered = number;
        }
        is_asked
    }

    /// The answer to a ping. Gives the round trip, if it is to the last one.
    pub(crate) fn on_pong(&mut self, now: Instant, number: u32) -> Option<Duration> {
        let round_trip = (number == self.ping).then(|| now.since(self.probed_at))?;
        self.round_trip = Some(round_trip);
        Some(round_trip)
    }

    /// What flows measured, if they did.
    pub(crate) fn set_round_trip(&mut self, smoothed_ns: Option<u64>) {
        self.round_trip = smoothed_ns.map(Duration::from_nanos).or(self.round_trip);
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// What the peer owes us.
    pub(crate) fn due(&self) -> Option<Due> {
        let probe_timeout = self.round_trip.map_or(PROBE_MIN, |rtt| 2 * rtt + ACK_DELAY);
        self.waiting_since.map(|since| Due { since, probe_timeout })
    }

    /// When the path is to be probed.
    pub(crate) fn probe_at(&self) -> Instant {
        probe_at(self.due(), self.heard_at, self.probed_at, self.keep_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_answers_a_ping_once() {
        let mut path = Path::new(Instant::ZERO, Duration::from_secs(15));
        path.ping = u32::MAX - 1;
        path.answered = u32::MAX - 1;
        assert!(![0, 7, u32::MAX - 1, u32::MAX].iter().any(|number| path.takes_pong(*number)));
        let pings = [0; 3].map(|_| path.next_ping(Instant::ZERO));
        assert_eq!(pings, [u32::MAX, 0, 1]);
        assert!(path.takes_pong(0), "the one before it was lost");
        assert!(!path.takes_pong(0) && !path.takes_pong(u32::MAX) && !path.takes_pong(2));
        assert!(path.takes_pong(1));
    }
}
