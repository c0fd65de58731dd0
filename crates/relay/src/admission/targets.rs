//! How often an address is dialled for others: who sends EXTEND2 must not be able to aim us at somebody.
//!
//! A relay of the consensus at its own port is a target by itself: its honest dials all are one, so whoever names other
//! identities there must not use up its dials. So is a port of a relay, for all other identities, and any other address
//! altogether: relays of a private network share addresses. Stock Tor does not connect to a relay again for a minute
//! after that failed, by identity, address and port (`should_connect_to_relay`, `or_connect_failure_entry_t`).
//!
//! At a target whose identities we cannot tell from inventions, a relay that we do not know yet or one that is private,
//! all share its dials, and each neighbour has at most a part of those that are left, as of other things
//! ([`super::share`]): so one client cannot use them up. Dials to each identity apart, and more to the address, would
//! only have it invent more.

use super::party::{Holder, Key, Party};
use core::net::SocketAddr;
use heddle_proto::addr::AddrKey;
use heddle_proto::ids::RsaId;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// Dials to one target at once.
pub const BURST: u32 = 16;
/// ... and one more each time this has passed.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Targets that are remembered, with each neighbour for which they were dialled; then those are forgotten that were
/// dialled least.
const COUNTS_MAX: usize = 16_384;

/// Who listens at an address, as the consensus has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
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
    Addr(AddrKey),
}

impl Target {
    fn new(addr: SocketAddr, listener: Listener) -> Self {
        match listener {
            Listener::Wanted(rsa) => Target::Relay(rsa, addr),
            // Relays of a private network share an address, and may be asked for before they are known.
            Listener::Other | Listener::Unknown => Target::RelayPort(addr),
            Listener::Nobody => Target::Addr(AddrKey::of(addr.ip())),
        }
    }

    /// Whether neighbours have shares of its dials.
    fn is_shared(&self) -> bool {
        !matches!(self, Target::Relay(..))
    }
}

/// Dials to a target, for one who has a share of them or for all.
type Counted = (Target, Option<Key>);

/// See [the module](self).
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// When each count is as if there never was a dial.
    clear_at: BTreeMap<Counted, Instant>,
    by_time: BTreeSet<(Instant, Counted)>,
}

impl Targets {
    /// Whether an address may be dialled for a neighbour now; if so that is noted.
    pub fn dial(&mut self, now: Instant, party: Party, addr: SocketAddr, listener: Listener) -> bool {
        while let Some((at, counted)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) {
            self.forget(at, counted);
        }
        let target = Target::new(addr, listener);
        let Some(free) = BURST.checked_sub(self.count(now, (target, None))).filter(|free| *free > 0) else {
            return false;
        };
        let holders: Vec<Holder> = party.holders().filter(|_| target.is_shared()).collect();
        let has_share = |Holder { key, part }: &Holder| {
            let held = u64::from(self.count(now, (target, Some(*key))));
            held > 0 && (held + 1) * part > u64::from(free)
        };
        if holders.iter().any(has_share) {
            return false;
        }
        self.note(now, (target, None));
        holders.iter().for_each(|holder| self.note(now, (target, Some(holder.key))));
        true
    }

    /// Dials that still count.
    fn count(&self, now: Instant, counted: Counted) -> u32 {
        let left = self.clear_at.get(&counted).map_or(Duration::ZERO, |clear_at| clear_at.since(now));
        u32::try_from(left.as_nanos().div_ceil(PERIOD.as_nanos())).unwrap_or(u32::MAX)
    }

    fn note(&mut self, now: Instant, counted: Counted) {
        let clear_at = self.clear_at.get(&counted).copied().unwrap_or(now);
        self.forget(clear_at, counted);
        if self.clear_at.len() >= COUNTS_MAX
            && let Some((at, least)) = self.by_time.first().copied()
        {
            self.forget(at, least);
        }
        self.clear_at.insert(counted, clear_at + PERIOD);
        self.by_time.insert((clear_at + PERIOD, counted));
    }

    fn forget(&mut self, clear_at: Instant, counted: Counted) {
        self.clear_at.remove(&counted);
        self.by_time.remove(&(clear_at, counted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn addr(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    /// Each another neighbour.
    fn client(number: u32) -> Party {
        Party::at(Ipv4Addr::from_bits(number).into(), false)
    }

    #[test]
    fn an_address_is_dialled_so_often_and_no_more() {
        let mut targets = Targets::default();
        let dialled = |targets: &mut Targets, secs, listener| {
            let dial =
                |port: &u16| targets.dial(at(secs), client((*port).into()), addr(1, 1 + port), listener);
            (0..1000).filter(dial).count()
        };
        assert_eq!(dialled(&mut targets, 0, Listener::Nobody), 16, "whatever the port");
        assert_eq!(dialled(&mut targets, 0, Listener::Other), 1000, "relays may share an address");
        assert!(targets.dial(at(0), client(1), addr(2, 1), Listener::Nobody));
        let in_a_minute: usize = (1..=60).map(|secs| dialled(&mut targets, secs, Listener::Nobody)).sum();
        assert_eq!(in_a_minute, 30);
        assert_eq!(dialled(&mut targets, 1000, Listener::Nobody), 16);
        assert_eq!((targets.clear_at.len(), targets.by_time.len()), (17, 17));
    }

    #[test]
    fn a_relay_has_dials_of_its_own_at_its_port() {
        let mut targets = Targets::default();
        let mut dialled = |listener| {
            let dial = |number: &u32| targets.dial(at(0), client(*number), addr(1, 9), listener);
            (0..1000).filter(dial).count()
        };
        assert_eq!(dialled(Listener::Other), 16);
        assert_eq!(dialled(Listener::Wanted(RsaId([1; 20]))), 16);
        assert_eq!(dialled(Listener::Wanted(RsaId([2; 20]))), 16);
        assert_eq!(dialled(Listener::Unknown), 0, "nor is it more while no consensus is known");
    }

    /// Or whoever names identities of its own making would keep others from a relay that we do not know yet.
    #[test]
    fn each_neighbour_has_a_part_of_the_dials_to_an_address() {
        for listener in [Listener::Nobody, Listener::Other, Listener::Unknown] {
            let mut targets = Targets::default();
            let relay = |number: u8| Party::Relay(RsaId([number; 20]));
            let mut dialled = |secs, party| {
                (0..1000).filter(|_| targets.dial(at(secs), party, addr(1, 9), listener)).count()
            };
            assert_eq!(dialled(0, client(1)), 3, "a fifth");
            assert_eq!(dialled(0, relay(1)), 7, "half of what is left, and the odd one");
            assert_eq!((2..10).map(|number| dialled(0, relay(number))).sum::<usize>(), 6);
            assert_eq!((dialled(2, relay(1)), dialled(2, client(2))), (0, 1), "who has none is next");
        }
        let mut targets = Targets::default();
        let wanted = Listener::Wanted(RsaId([1; 20]));
        assert_eq!((0..99).filter(|_| targets.dial(at(0), client(1), addr(1, 9), wanted)).count(), 16);
    }

    #[test]
    fn who_was_dialled_most_is_remembered() {
        let mut targets = Targets::default();
        let mut dial = |party, addr| targets.dial(at(0), client(party), addr, Listener::Other);
        assert_eq!((0..100).filter(|party| dial(*party, addr(1, 9))).count(), 16);
        for number in 0..60_000 {
            assert!(dial(1, addr(2 + (number % 200) as u8, number)));
        }
        assert!(!dial(101, addr(1, 9)));
        assert_eq!((targets.clear_at.len(), targets.by_time.len()), (COUNTS_MAX, COUNTS_MAX));
    }
}
