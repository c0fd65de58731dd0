//! What a peer's silence means. After three probe time-outs without an answer (1 + 2 + 4 of them, because each waits
//! twice as long) a connection is *suspect*: new circuits are to go elsewhere, and those that it carries wait. An
//! answer ends the suspicion. Only a much longer silence ends the connection, and with it its circuits.

use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::time::{Duration, Instant};

/// A probe is sent no sooner than this after the last, and after something that was not answered.
pub(crate) const PROBE_MIN: Duration = Duration::from_secs(1);
/// A connection is suspect no sooner than after this. Shorter pauses are common where a relay has much to do, and a
/// circuit that is begun again meanwhile is two for the next relay.
pub(crate) const SUSPECT_MIN: Duration = Duration::from_secs(3);
/// It is dead no sooner than after this. A flood, a route that changes and a process that was stopped last for tens of
/// seconds, and TLS only stalls as long: Linux gives a TCP connection up after 15 minutes. Clients leave a circuit that
/// says nothing after some ten seconds by themselves, so a minute serves all that still wait and frees what nobody will
/// come for.
pub(crate) const DEAD_MIN: Duration = Duration::from_secs(60);

/// One connection's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    suspect_min: Duration,
    dead_min: Duration,
    is_suspect: bool,
    /// What the relay was told last.
    told: bool,
}

/// An answer that is due: since when, and how long a probe waits for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) since: Instant,
    pub(crate) probe_timeout: Duration,
}

impl Due {
    fn at(&self, least: Duration) -> Instant {
        self.since + (7 * self.probe_timeout).max(least)
    }
}

/// When a path is to be probed, on which something came last at `heard_at` and a probe left last at `probed_at`.
pub(crate) fn probe_at(
    due: Option<Due>,
    heard_at: Instant,
    probed_at: Instant,
    keep_alive: Duration,
) -> Instant {
    match due {
        Some(due) => due.since.max(probed_at) + due.probe_timeout.max(PROBE_MIN),
        None => heard_at.max(probed_at) + keep_alive,
    }
}

impl Silence {
    pub(crate) fn new(suspect_min: Duration, dead_min: Duration) -> Self {
        Silence { suspect_min, dead_min, is_suspect: false, told: false }
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// When the silence will mean something else than now.
    pub(crate) fn poll_timeout(&self, due: Option<Due>) -> Option<Instant> {
        due.map(|due| due.at(if self.is_suspect { self.dead_min } else { self.suspect_min }))
    }

    /// Time passed. Returns whether the connection is dead.
    pub(crate) fn handle_timeout(&mut self, now: Instant, due: Option<Due>) -> bool {
        self.is_suspect = due.is_some_and(|due| due.at(self.suspect_min) <= now);
        due.is_some_and(|due| due.at(self.dead_min) <= now)
    }

    /// Something came; an answer if nothing is `due` for long any more.
    pub(crate) fn on_heard(&mut self, now: Instant, due: Option<Due>) {
        self.is_suspect &= due.is_some_and(|due| due.at(self.suspect_min) <= now);
    }

    pub(crate) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        (self.told != self.is_suspect).then(|| {
            self.told = self.is_suspect;
            ConnectionEvent::Suspect(self.is_suspect)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_suspect_long_before_it_is_death_and_an_answer_ends_it() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let due = |s: u64| Some(Due { since: at(s), probe_timeout: Duration::from_secs(1) });
        let mut silence = Silence::new(SUSPECT_MIN, DEAD_MIN);
        assert_eq!(silence.poll_timeout(due(0)), Some(at(7)));
        assert!(!silence.handle_timeout(at(6), due(0)));
        assert_eq!(silence.poll_event(), None);
        assert!(!silence.handle_timeout(at(7), due(0)));
        assert_eq!(silence.poll_event(), Some(ConnectionEvent::Suspect(true)));
        assert_eq!((silence.poll_event(), silence.poll_timeout(due(0))), (None, Some(at(60))));
        // Something that answers nothing changes nothing.
        silence.on_heard(at(20), due(0));
        assert_eq!(silence.poll_event(), None);
        silence.on_heard(at(21), due(21));
        assert_eq!(silence.poll_event(), Some(ConnectionEvent::Suspect(false)));
        silence.on_heard(at(40), due(21));
        assert_eq!(silence.poll_event(), None, "only time makes it suspect");
        assert!(!silence.handle_timeout(at(80), due(21)) && silence.handle_timeout(at(81), due(21)));
    }
}
