//! How often an address is dialled for others: who sends EXTEND2 must not be able to aim us at somebody.
//!
//! A relay of the consensus at its own port is a target by itself: its honest dials all are one, so whoever names other
//! identities there must not use up its dials. So is a port of a relay, for all other identities, and any other address
//! altogether: relays of a private network share addresses. Stock Tor does not connect to a relay again for a minute after
//! that failed, by identity, address and port (`should_connect_to_relay`, `or_connect_failure_entry_t`).

use super::party::{Key, addr_key};
use crate::ids::RsaId;
use crate::time::{Duration, Instant};
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

/// Dials to one target at once.
pub const BURST: u32 = 16;
/// ... and one more each time this has passed.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Targets that are remembered; then those are forgotten that were dialled least.
const TARGETS_MAX: usize = 8192;

/// Who listens at an address, as the consensus has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::relay) enum Listener {
    /// The relay that is wanted, with this identity.
    Wanted(RsaId),
    /// Other relays or an authority.
    Other,
    /// No relay.
    Nobody,
    /// We know no consensus.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Relay(RsaId, SocketAddr),
    RelayPort(SocketAddr),
    Addr(Key),
}

impl Target {
    fn new(addr: SocketAddr, listener: Listener) -> Self {
        match listener {
            Listener::Wanted(rsa) => Target::Relay(rsa, addr),
            // Relays of a private network share an address, and may be asked for before they are known.
            Listener::Other | Listener::Unknown => Target::RelayPort(addr),
            Listener::Nobody => Target::Addr(addr_key(addr.ip())),
        }
    }
}

/// See [the module](self).
#[derive(Debug, Default)]
pub struct Targets {
    /// When each target may be dialled as often as one that was never dialled.
    clear_at: BTreeMap<Target, Instant>,
    by_time: BTreeSet<(Instant, Target)>,
}

impl Targets {
    /// Whether an address may be dialled now; if so that is noted.
    pub fn dial(&mut self, now: Instant, addr: SocketAddr, listener: Listener) -> bool {
        while let Some((at, target)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) {
            self.forget(at, target);
        }
        let target = Target::new(addr, listener);
        let clear_at = self.clear_at.get(&target).copied().unwrap_or(now);
        if clear_at.since(now) > PERIOD * (BURST - 1) {
            return false;
        }
        self.forget(clear_at, target);
        if self.clear_at.len() >= TARGETS_MAX
            && let Some((at, least)) = self.by_time.first().copied()
        {
            self.forget(at, least);
        }
        self.clear_at.insert(target, clear_at + PERIOD);
        self.by_time.insert((clear_at + PERIOD, target));
        true
    }

    fn forget(&mut self, clear_at: Instant, target: Target) {
        self.clear_at.remove(&target);
        self.by_time.remove(&(clear_at, target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn an_address_is_dialled_so_often_and_no_more() {
        let mut targets = Targets::default();
        let dialled = |targets: &mut Targets, secs, listener| {
            (0..1000).filter(|port| targets.dial(at(secs), addr(1, 1 + port), listener)).count()
        };
        assert_eq!(dialled(&mut targets, 0, Listener::Nobody), 16, "whatever the port");
        assert_eq!(dialled(&mut targets, 0, Listener::Other), 1000, "relays may share an address");
        assert!(targets.dial(at(0), addr(2, 1), Listener::Nobody));
        let in_a_minute: usize = (1..=60).map(|secs| dialled(&mut targets, secs, Listener::Nobody)).sum();
        assert_eq!(in_a_minute, 30);
        assert_eq!(dialled(&mut targets, 1000, Listener::Nobody), 16);
        assert_eq!((targets.clear_at.len(), targets.by_time.len()), (1, 1));
    }

    #[test]
    fn a_relay_has_dials_of_its_own_at_its_port() {
        let mut targets = Targets::default();
        let mut dialled = |listener| (0..1000).filter(|_| targets.dial(at(0), addr(1, 9), listener)).count();
        assert_eq!(dialled(Listener::Other), 16);
        assert_eq!(dialled(Listener::Wanted(RsaId([1; 20]))), 16);
        assert_eq!(dialled(Listener::Wanted(RsaId([2; 20]))), 16);
        assert_eq!(dialled(Listener::Unknown), 0, "nor is it more while no consensus is known");
    }

    #[test]
    fn who_was_dialled_most_is_remembered() {
        let mut targets = Targets::default();
        assert_eq!((0..100).filter(|_| targets.dial(at(0), addr(1, 9), Listener::Other)).count(), 16);
        for number in 0..60_000 {
            assert!(targets.dial(at(0), addr(2 + (number % 200) as u8, number), Listener::Other));
        }
        assert_eq!((targets.clear_at.len(), targets.by_time.len()), (TARGETS_MAX, TARGETS_MAX));
        assert!(!targets.dial(at(0), addr(1, 9), Listener::Other));
    }
}
