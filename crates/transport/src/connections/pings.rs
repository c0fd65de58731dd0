//! Questions of a connection's own, by which it knows whether its path is good: for transports that hear of no
//! acknowledgement by themselves.

use crate::connections::path::{Path, Remedy};
use crate::connections::setup::Timeouts;
use crate::connections::silence::{Due, PROBE_MIN};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::{Duration, Instant};

/// What a peer may put an acknowledgement off by.
const ACK_DELAY: Duration = Duration::from_millis(40);

/// A path with the pings that were sent on it, and what else was that the peer answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pings {
    path: Path,
    /// Since when the peer has owed us something.
    waiting_since: Option<Instant>,
    /// The last ping, and the last that was answered.
    ping: u32,
    answered: u32,
    /// The round trip: that of the last ping, or as flows smoothed it.
    round_trip: Option<Duration>,
}

/// What an answer to a ping says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Whether the path was suspect until it came.
    pub(crate) was_suspect: bool,
    /// The round trip, if it is to the last ping.
    pub(crate) round_trip: Option<Duration>,
}

impl Pings {
    pub(crate) fn new(now: Instant, timeouts: &Timeouts) -> Self {
        Pings { path: Path::new(now, timeouts), waiting_since: None, ping: 0, answered: 0, round_trip: None }
    }

    /// As [`Path::on_heard`].
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.path.on_heard(now);
    }

    /// Something was sent that the peer answers.
    pub(crate) fn on_question(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// The peer answered what was sent. Returns whether the path was suspect until then.
    pub(crate) fn on_answer(&mut self, now: Instant) -> bool {
        self.waiting_since = None;
        self.path.on_answer(now, None)
    }

    /// The number of a ping that is sent now.
    pub(crate) fn next_ping(&mut self, now: Instant) -> u32 {
        self.path.on_probe(now);
        self.ping = self.ping.wrapping_add(1);
        self.ping
    }

    /// A pong came; `None` if it answers no ping that is under way. Else whoever sends them would pass for somebody who
    /// hears us.
    pub(crate) fn on_pong(&mut self, now: Instant, number: u32) -> Option<Answer> {
        let asked = self.ping.wrapping_sub(self.answered);
        if !(1..=asked).contains(&number.wrapping_sub(self.answered)) {
            return None;
        }
        self.answered = number;
        let was_suspect = self.on_answer(now);
        let round_trip = (number == self.ping).then(|| now.since(self.path.probed_at()));
        self.round_trip = round_trip.or(self.round_trip);
        Some(Answer { was_suspect, round_trip })
    }

    /// What flows measured, if they did.
    pub(crate) fn set_round_trip(&mut self, smoothed_ns: Option<u64>) {
        self.round_trip = smoothed_ns.map(Duration::from_nanos).or(self.round_trip);
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// As [`Path::poll_timeout`].
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.path.poll_timeout(self.due())
    }

    /// So much of the time since then does not count, because nobody looked whether a word had come.
    pub(crate) fn forgive(&mut self, now: Instant, late: Duration) {
        self.waiting_since = self.waiting_since.map(|since| (since + late).min(now));
    }

    /// As [`Path::handle_timeout`].
    pub(crate) fn handle_timeout(&mut self, now: Instant, is_late: bool) -> Option<Remedy> {
        self.path.handle_timeout(now, is_late, self.due())
    }

    /// As [`Path::poll_event`].
    pub(crate) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.path.poll_event()
    }

    /// What the peer owes us.
    fn due(&self) -> Option<Due> {
        let probe_timeout = self.round_trip.map_or(PROBE_MIN, |rtt| 2 * rtt + ACK_DELAY);
        self.waiting_since.map(|since| Due { since, probe_timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pings() -> Pings {
        Pings::new(Instant::ZERO, &Timeouts::default())
    }

    #[test]
    fn a_pong_answers_a_ping_once() {
        let mut pings = pings();
        (pings.ping, pings.answered) = (u32::MAX - 1, u32::MAX - 1);
        let takes_pong = |pings: &mut Pings, number| pings.on_pong(Instant::ZERO, number).is_some();
        assert!(![0, 7, u32::MAX - 1, u32::MAX].iter().any(|number| takes_pong(&mut pings, *number)));
        let sent = [0; 3].map(|_| pings.next_ping(Instant::ZERO));
        assert_eq!(sent, [u32::MAX, 0, 1]);
        assert!(takes_pong(&mut pings, 0), "the one before it was lost");
        assert!(![0, u32::MAX, 2].iter().any(|number| takes_pong(&mut pings, *number)));
        assert!(takes_pong(&mut pings, 1));
    }

    #[test]
    fn silence_while_nobody_looked_is_not_the_peers() {
        let mut pings = pings();
        pings.next_ping(Instant::ZERO);
        pings.on_question(Instant::ZERO);
        let wakes_at = Instant::ZERO + 1000 * SECOND;
        let late = wakes_at.since(pings.poll_timeout());
        pings.forgive(wakes_at, late);
        let remedy = pings.handle_timeout(wakes_at, true);
        assert_eq!(remedy, Some(Remedy::Probe), "what came is about to be read");
        assert_eq!(pings.poll_event(), None);
        assert_eq!(pings.handle_timeout(wakes_at + 60 * SECOND, false), Some(Remedy::GiveUp));
    }
}
