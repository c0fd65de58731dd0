//! What is remembered of clients' addresses.

use super::options::{CircuitDefence, ConnectionDefence};
use core::net::IpAddr;
use heddle_proto::addr::AddrKey;
use heddle_proto::pace::Pace;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// Addresses without a connection that are remembered, 64 bytes each and as much again for the order; then those are
/// forgotten that would be soonest.
const ABSENT_MAX: usize = 32_768;

/// What is known of an address.
#[derive(Debug, Default)]
struct Client {
    /// Open ones.
    connections: u32,
    circuits: Pace,
    connects: Pace,
    no_circuits_until: Instant,
    /// Circuits that ended since their queues were full, and until when they are remembered.
    full_queues: u32,
    full_queues_until: Instant,
    no_connections_until: Instant,
}

impl Client {
    /// When it will be as one that was never seen, if it stays away.
    fn clear_at(&self) -> Instant {
        let paces = self.circuits.clear_at().max(self.connects.clear_at());
        paces.max(self.no_circuits_until).max(self.no_connections_until).max(self.full_queues_until)
    }
}

/// What becomes of a CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    pub may: bool,
    /// Whether its address is held off from now on and was not before.
    pub is_first: bool,
}

/// See [the module](self). As for shares, an IPv6 address counts as its /64.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Those with open connections, at most as many as there are channels, and others.
    by_addr: BTreeMap<AddrKey, Client>,
    /// Those others, by when they are clear.
    absent: BTreeSet<(Instant, AddrKey)>,
}

impl Clients {
    /// One word for why an address may not connect, if so.
    pub(crate) fn refuses_connection(
        &self,
        now: Instant,
        addr: IpAddr,
        defence: &ConnectionDefence,
    ) -> Option<&'static str> {
        let client = self.by_addr.get(&AddrKey::of(addr))?;
        if client.no_connections_until > now {
            return Some("rate");
        }
        (client.connections > defence.concurrent_max).then_some("concurrent")
    }

    /// A channel opened.
    pub fn connect(&mut self, now: Instant, addr: IpAddr, defence: Option<ConnectionDefence>, rng: &mut Rng) {
        self.update(now, addr, |client| {
            client.connections += 1;
            let Some(defence) = defence else { return };
            let is_used_up = client.connects.spend(now, defence.rate);
            if is_used_up && client.no_connections_until <= now {
                client.no_connections_until = held_off_until(now, defence.period, rng);
            }
        });
    }

    /// A channel ended that was counted by [`Clients::connect`].
    pub(crate) fn disconnect(&mut self, now: Instant, addr: IpAddr) {
        self.update(now, addr, |client| client.connections = client.connections.saturating_sub(1));
    }

    /// CREATE came over a channel that is counted. Who goes on while it is held off is held off for longer.
    pub fn create(&mut self, now: Instant, addr: IpAddr, defence: &CircuitDefence, rng: &mut Rng) -> Created {
        self.update(now, addr, |client| {
            let was_marked = client.no_circuits_until > now;
            let is_used_up = client.circuits.spend(now, defence.rate);
            let is_marked = is_used_up && client.connections >= defence.connections_min;
            if is_marked {
                client.no_circuits_until = held_off_until(now, defence.period, rng);
            }
            Created { may: client.no_circuits_until <= now, is_first: is_marked && !was_marked }
        })
    }

    /// A circuit ended since its queue towards the next relay was full. Returns whether its address is held off from
    /// now on; once it is, others count no more.
    pub(crate) fn fill_queue(
        &mut self,
        now: Instant,
        addr: IpAddr,
        defence: &CircuitDefence,
        rng: &mut Rng,
    ) -> bool {
        self.update(now, addr, |client| {
            if client.no_circuits_until > now || defence.full_queues_max == 0 {
                return false;
            }
            client.full_queues += 1;
            client.full_queues_until = now + defence.period;
            let is_marked = client.full_queues >= defence.full_queues_max;
            if is_marked {
                client.full_queues = 0;
                client.no_circuits_until = held_off_until(now, defence.period, rng);
            }
            is_marked
        })
    }

    fn update<R>(&mut self, now: Instant, addr: IpAddr, change: impl FnOnce(&mut Client) -> R) -> R {
        let key = AddrKey::of(addr);
        let client = self.by_addr.entry(key).or_default();
        let was_clear_at = client.clear_at();
        let result = change(client);
        let (clear_at, is_absent) = (client.clear_at(), client.connections == 0);
        self.absent.remove(&(was_clear_at, key));
        if is_absent {
            self.absent.insert((clear_at, key));
        }
        self.forget(now);
        result
    }

    /// Forgets who is clear, and who would be next while there are too many.
    fn forget(&mut self, now: Instant) {
        while let Some(&(clear_at, key)) = self.absent.first()
            && (clear_at <= now || self.absent.len() > ABSENT_MAX)
        {
            self.absent.remove(&(clear_at, key));
            self.by_addr.remove(&key);
        }
    }
}

/// Until when an address is held off. The random part keeps it from being gamed.
fn held_off_until(now: Instant, period: Duration, rng: &mut Rng) -> Instant {
    let half_ns = u64::try_from(period.as_nanos() / 2).unwrap_or(u64::MAX);
    now + period + Duration::from_nanos(rng.below(half_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use heddle_proto::pace::Rate;
    use heddle_seam::rng::Seed;

    fn addr(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn defence() -> ConnectionDefence {
        let rate = Rate { per_s: 20, burst: 40 };
        ConnectionDefence { concurrent_max: 100, rate, period: Duration::from_secs(86_400) }
    }

    #[test]
    fn who_comes_from_many_addresses_takes_no_more_memory_and_frees_nobody() {
        let (mut clients, mut rng) = (Clients::default(), Seed::from_number(1).rng());
        let now = Instant::ZERO;
        let connect = |clients: &mut Clients, rng: &mut Rng, number| {
            clients.connect(now, addr(number), Some(defence()), rng);
        };
        (0..40).for_each(|_| connect(&mut clients, &mut rng, 0));
        (0..40).for_each(|_| clients.disconnect(now, addr(0)));
        connect(&mut clients, &mut rng, 1);
        for number in 2..100_000 {
            connect(&mut clients, &mut rng, number);
            clients.disconnect(now, addr(number));
        }
        assert_eq!((clients.absent.len(), clients.by_addr.len()), (ABSENT_MAX, ABSENT_MAX + 1));
        assert_eq!(clients.refuses_connection(now, addr(0), &defence()), Some("rate"));
        clients.disconnect(now, addr(1));
        let later = now + Duration::from_secs(2 * 86_400);
        clients.disconnect(later, addr(2));
        assert_eq!((clients.absent.len(), clients.by_addr.len()), (0, 0));
    }
}
