//! One thing of which there is a limited amount, and who holds how much of it.
//!
//! Each holder may hold at most a stated part of what is *free* (dynamic thresholds: Choudhury and Hahne, "Dynamic
//! Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998). So one
//! alone may use much, and the more is held by others the less that is. A holder with a `part` of 4 stops at one fifth
//! of the limit, n of them that grow together at 1 / (4 + n) each; of n that come one after the other each gets a fifth
//! of what those before left.
//!
//! Of most things a quarter is reserved for relays of the consensus, and another for all others together: neither can
//! use up what the other comes for. What only relays have a use for has no reserve for others.

use super::party::{Class, Holder, Key};
use std::collections::BTreeMap;

/// Of a limit one part in so many is reserved for a class.
const RESERVE_PARTS: u64 = 4;

/// Why something is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// Nothing is left for anybody of this class.
    Full,
    /// This holder has its share.
    Share,
    /// The address was dialled often lately.
    Target,
}

impl Refusal {
    /// One word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Refusal::Full => "full",
            Refusal::Share => "share",
            Refusal::Target => "target",
        }
    }
}

/// What is held of one thing.
#[derive(Clone, Debug)]
pub struct Share {
    limit: u64,
    for_relays: u64,
    for_strangers: u64,
    by_relays: u64,
    by_strangers: u64,
    /// Only holders that hold something: at most as many as there are held things, times the holders of each.
    held: BTreeMap<Key, u64>,
}

impl Share {
    /// With a reserve for each class.
    pub fn new(limit: usize) -> Self {
        let limit = limit as u64;
        let reserve = limit / RESERVE_PARTS;
        Share {
            limit,
            for_relays: reserve,
            for_strangers: reserve,
            by_relays: 0,
            by_strangers: 0,
            held: BTreeMap::new(),
        }
    }

    /// With a reserve for relays only, who may use the whole limit.
    pub(crate) fn for_relays(limit: usize) -> Self {
        Share { for_strangers: 0, ..Share::new(limit) }
    }

    /// Whether half of the limit is held, or more.
    pub(super) fn is_half_full(&self) -> bool {
        2 * self.used() >= self.limit
    }

    /// What is held in all.
    pub fn used(&self) -> u64 {
        self.by_relays + self.by_strangers
    }

    fn held_by(&self, key: &Key) -> u64 {
        self.held.get(key).copied().unwrap_or(0)
    }

    /// What is left for a class.
    pub fn free(&self, class: Class) -> u64 {
        self.limit.saturating_sub(self.spoken_for(class))
    }

    /// What a class cannot have.
    fn spoken_for(&self, class: Class) -> u64 {
        match class {
            Class::Relay => self.by_relays + self.by_strangers.max(self.for_strangers),
            Class::Stranger => self.by_strangers + self.by_relays.max(self.for_relays),
        }
    }

    /// Whether all these holders may hold `amount` more. Who holds nothing yet gets what is left.
    pub(crate) fn admits(
        &self,
        class: Class,
        holders: impl IntoIterator<Item = Holder>,
        amount: u64,
    ) -> Result<(), Refusal> {
        let free = self.free(class);
        if amount > free {
            return Err(Refusal::Full);
        }
        let has_share = |Holder { key, part }: Holder| {
            let held = self.held_by(&key);
            held > 0 && (held + amount).saturating_mul(part) > free
        };
        if holders.into_iter().any(has_share) { Err(Refusal::Share) } else { Ok(()) }
    }

    /// Notes that they hold `amount` more, whatever [`Share::admits`] says.
    pub fn take(&mut self, class: Class, holders: impl IntoIterator<Item = Holder>, amount: u64) {
        *self.of_class(class) += amount;
        for Holder { key, .. } in holders.into_iter().filter(|_| amount > 0) {
            *self.held.entry(key).or_default() += amount;
        }
    }

    /// Notes that they hold `amount` less, which they took before.
    pub fn give(&mut self, class: Class, holders: impl IntoIterator<Item = Holder>, amount: u64) {
        let of_class = self.of_class(class);
        debug_assert!(*of_class >= amount, "more is given back than was taken");
        *of_class = of_class.saturating_sub(amount);
        for Holder { key, .. } in holders {
            let Some(held) = self.held.get_mut(&key) else { continue };
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.held.remove(&key);
            }
        }
    }

    fn of_class(&mut self, class: Class) -> &mut u64 {
        match class {
            Class::Relay => &mut self.by_relays,
            Class::Stranger => &mut self.by_strangers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Party;
    use core::net::{IpAddr, Ipv4Addr};
    use heddle_proto::ids::RsaId;
    use proptest::prelude::*;

    fn stranger(number: u32) -> Party {
        Party::at(Ipv4Addr::from_bits(number).into(), false)
    }

    fn relay(number: u8) -> Party {
        Party::Relay(RsaId([number; 20]))
    }

    /// Takes as much as is granted.
    fn grab(share: &mut Share, party: Party) -> u64 {
        let mut got = 0;
        while share.admits(party.class(), party.holders(), 1).is_ok() {
            share.take(party.class(), party.holders(), 1);
            got += 1;
        }
        got
    }

    #[test]
    fn the_greedy_leave_a_part_for_who_comes_next() {
        let mut share = Share::new(100_000);
        let got: Vec<u64> = (0..4).map(|number| grab(&mut share, stranger(number))).collect();
        assert_eq!(got, [15_000, 12_000, 9_600, 7_680]);
        assert_eq!(share.free(Class::Stranger), 30_720);
        // Whoever is there already gets no more.
        assert_eq!(grab(&mut share, stranger(0)), 0);
        for number in 4..40 {
            assert!(grab(&mut share, stranger(number)) > 0);
        }
    }

    #[test]
    fn strangers_cannot_use_up_what_is_reserved_for_relays() {
        let mut share = Share::new(1000);
        for number in 0..10_000 {
            grab(&mut share, stranger(number));
        }
        assert_eq!((share.used(), share.free(Class::Stranger), share.free(Class::Relay)), (750, 0, 250));
        assert_eq!(share.admits(Class::Stranger, stranger(10_000).holders(), 1), Err(Refusal::Full));
        assert_eq!(grab(&mut share, relay(1)), 125);
        assert_eq!(grab(&mut share, relay(2)), 63);
    }

    #[test]
    fn relays_cannot_use_up_what_is_reserved_for_strangers() {
        let mut share = Share::new(1000);
        assert_eq!(grab(&mut share, relay(1)), 375, "half of three quarters");
        for number in 2..200 {
            grab(&mut share, relay(number));
        }
        assert_eq!((share.used(), share.free(Class::Relay), share.free(Class::Stranger)), (750, 0, 250));
        assert_eq!(grab(&mut share, stranger(1)), 50);
        // Where strangers have no reserve they have what relays leave.
        let mut share = Share::for_relays(1000);
        assert_eq!(grab(&mut share, relay(1)), 500);
        for number in 2..200 {
            grab(&mut share, relay(number));
        }
        assert_eq!(share.free(Class::Stranger), share.free(Class::Relay));
    }

    #[test]
    fn who_picks_addresses_in_a_network_gets_no_more() {
        let v6 = |text: &str| Party::at(text.parse::<IpAddr>().unwrap(), false);
        let mut share = Share::new(100_000);
        assert_eq!(grab(&mut share, v6("2001:db8:1:1::1")), 15_000);
        assert_eq!(grab(&mut share, v6("2001:db8:1:1:ffff::2")), 0);
        // Another network of the same site, until the site has its third.
        let site: u64 = (2..1000).map(|net| grab(&mut share, v6(&format!("2001:db8:1:{net:x}::1")))).sum();
        assert_eq!(15_000 + site, 25_000);
        assert_eq!(grab(&mut share, v6("2001:db8:2::1")), 10_000);
        // An IPv4 address in an IPv6 one is that IPv4 address.
        let mut share = Share::new(1000);
        assert_eq!(grab(&mut share, v6("::ffff:192.0.2.1")), grab(&mut Share::new(1000), v6("192.0.2.1")));
        assert_eq!(grab(&mut share, v6("192.0.2.1")), 0);
    }

    proptest! {
        /// Whatever is taken and given: the sums are right, nobody is remembered who holds nothing, each class keeps
        /// off the other's reserve, and who holds nothing gets what is left.
        #[test]
        fn accounts_add_up(limit in 0_usize..200, moves in prop::collection::vec((0_u8..12, any::<bool>()), 0..400)) {
            let mut share = Share::new(limit);
            let mut held = [0_u64; 12];
            for (number, takes) in moves {
                let party = if number < 4 { relay(number) } else { stranger(number.into()) };
                let holds = &mut held[usize::from(number)];
                if takes {
                    let answer = share.admits(party.class(), party.holders(), 1);
                    if *holds == 0 {
                        prop_assert_eq!(answer.is_ok(), share.free(party.class()) > 0);
                    }
                    if answer.is_ok() {
                        share.take(party.class(), party.holders(), 1);
                        *holds += 1;
                    }
                } else if *holds > 0 {
                    share.give(party.class(), party.holders(), 1);
                    *holds -= 1;
                }
                prop_assert_eq!(share.used(), held.iter().sum::<u64>());
                prop_assert!(share.used() <= limit as u64);
                for class in [&held[..4], &held[4..]] {
                    prop_assert!(class.iter().sum::<u64>() <= (limit - limit / 4) as u64);
                }
                prop_assert_eq!(share.held.len(), held.iter().filter(|holds| **holds > 0).count());
            }
        }
    }
}
