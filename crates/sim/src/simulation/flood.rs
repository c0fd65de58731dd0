//! A flood at a UDP port, as those feel it who share the port's buffer in the kernel.

use super::packet::Datagram;
use super::{Due, HostId, Simulation};
use heddle_seam::language::Language;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};

/// More datagrams than a node can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// How many times as many come as the node takes, at least 2. Once the buffer is full, so many are lost for each
    /// that is kept, whosesoever they are.
    pub times: u32,
    /// How long the last datagram of a full buffer waits: the buffer's size by what the node takes.
    pub full_wait: Duration,
}

/// The buffer of a port that is flooded, or was.
pub(crate) struct Flooded {
    flood: Option<Flood>,
    rng: Rng,
    /// How long what is in the buffer takes, at `at`.
    backlog: Duration,
    at: Instant,
}

impl Flooded {
    fn pass_time(&mut self, now: Instant) {
        let elapsed = now.since(self.at);
        self.at = now;
        self.backlog = match self.flood {
            Some(flood) => (self.backlog + elapsed * (flood.times - 1)).min(flood.full_wait),
            None => self.backlog.saturating_sub(elapsed),
        };
    }

    /// Whether the buffer has room for what comes now.
    fn has_room(&mut self) -> bool {
        let is_full = |flood: Flood| self.backlog >= flood.full_wait;
        self.flood.filter(|flood| is_full(*flood)).is_none_or(|flood| self.rng.below(flood.times.into()) == 0)
    }
}

impl<L: Language> Simulation<L> {
    /// Begins a flood at a port, or ends it. Its senders lie about their addresses: in the place of each datagram that
    /// is lost comes another one, as long and from the same address, of random bytes.
    pub fn flood(&mut self, host: HostId, port: u16, flood: Option<Flood>) {
        assert!(
            flood.is_none_or(|flood| flood.times >= 2),
            "a node takes all of what is no more than it can take"
        );
        let (now, seed) = (self.now, &self.seed);
        let flooded = self.datagrams.flooded.entry((host, port)).or_insert_with(|| {
            let rng = seed.child("flood", host.0 as u64).child("port", port.into()).rng();
            Flooded { flood: None, rng, backlog: Duration::ZERO, at: now }
        });
        flooded.pass_time(now);
        flooded.flood = flood;
    }

    /// Takes from what has arrived what comes to ports with a buffer, and leaves the rest.
    pub(crate) fn buffer_datagrams(&mut self, arrived: &mut Vec<Datagram>) {
        let now = self.now;
        let (ports, queue, by_addr) = (&mut self.datagrams.flooded, &mut self.queue, &self.by_addr);
        if ports.is_empty() {
            return;
        }
        arrived.retain_mut(|datagram| {
            let Some(flooded) = ports.get_mut(&(by_addr[&datagram.to.ip()], datagram.to.port())) else {
                return true;
            };
            flooded.pass_time(now);
            if !flooded.has_room() {
                flooded.rng.fill(&mut datagram.data);
            }
            queue.push(now + flooded.backlog, Due::Datagram(datagram.clone()));
            false
        });
    }
}
