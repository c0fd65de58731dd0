//! Who loses circuits and flows when what they take themselves is more than half of the memory.
//!
//! State counts for the party that brought the circuit, on whichever channel or connection, and in whichever shard its
//! neighbour is. It is shared out as places are ([`admission`](crate::admission)): relays of the consensus and
//! strangers have half each, sites share what their class has, and networks what their site has; what somebody does not
//! need is the others'. A circuit and its flows are one thing that ends as a whole.

use crate::admission::{Class, Key, Party};
use std::collections::BTreeMap;

/// A network within its site, within its class.
pub(crate) type Account = (Class, Key, Key);

pub(crate) fn account(party: Party) -> Account {
    (party.class(), party.site_key(), party.key())
}

/// What each may keep of `max`, if all are to keep as much of it as there is.
pub(crate) fn shares(held: &BTreeMap<Account, usize>, max: usize) -> BTreeMap<Account, usize> {
    let of_classes = sums(held, |(class, ..)| class);
    let of_sites = sums(held, |(class, site, _)| (class, site));
    let classes = divide(&of_classes, |_| (), &BTreeMap::from([((), max)]));
    let sites = divide(&of_sites, |(class, _)| class, &classes);
    divide(held, |(class, site, _)| (class, site), &sites)
}

fn sums<A: Copy, B: Ord>(held: &BTreeMap<A, usize>, of: impl Fn(A) -> B) -> BTreeMap<B, usize> {
    let mut sums = BTreeMap::new();
    for (holder, bytes) in held {
        *sums.entry(of(*holder)).or_default() += bytes;
    }
    sums
}

/// Divides what each whole may have among its parts, as equally as they need it.
fn divide<Part: Ord + Copy, Whole: Ord>(
    held: &BTreeMap<Part, usize>,
    of: impl Fn(Part) -> Whole,
    may: &BTreeMap<Whole, usize>,
) -> BTreeMap<Part, usize> {
    let mut parts: BTreeMap<Whole, Vec<(Part, usize)>> = BTreeMap::new();
    for (part, bytes) in held {
        parts.entry(of(*part)).or_default().push((*part, *bytes));
    }
    let divided = parts.into_iter().flat_map(|(whole, parts)| {
        let level = fair_level(parts.iter().map(|(_, bytes)| *bytes).collect(), may[&whole]);
        parts.into_iter().map(move |(part, bytes)| (part, bytes.min(level)))
    });
    divided.collect()
}

/// The most that each of those may keep who hold so much, for all to keep `max` together: who holds less keeps all of
/// it.
pub(crate) fn fair_level(mut held: Vec<usize>, max: usize) -> usize {
    held.sort_unstable();
    let mut left = max;
    for (before, bytes) in held.iter().enumerate() {
        let share = left / (held.len() - before);
        if *bytes > share {
            return share;
        }
        left -= bytes;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use heddle_proto::ids::RsaId;

    #[test]
    fn who_holds_less_than_the_level_keeps_all() {
        assert_eq!(fair_level(vec![10, 100, 20], 60), 30);
        assert_eq!(fair_level(vec![50, 50], 60), 30);
        assert_eq!(fair_level(vec![10, 20], 30), usize::MAX);
        assert_eq!(fair_level(vec![10, 20], 0), 0);
        assert_eq!(fair_level(vec![], 0), usize::MAX);
    }

    /// Two relays, and strangers: one address, and a site with ten networks, who hold 1,000 each.
    #[test]
    fn classes_then_sites_then_networks_have_equal_shares() {
        let stranger = |addr: &str| Party::at(addr.parse::<IpAddr>().expect("an address"), false);
        let site = (0..10).map(|network| stranger(&format!("2001:db8:1:{network}::1")));
        let relays = [1, 2].map(|number| Party::Relay(RsaId([number; 20])));
        let all: Vec<Party> = relays.into_iter().chain([stranger("192.0.2.1")]).chain(site).collect();
        let held = all.iter().map(|party| (account(*party), 1000)).collect();
        let keeps = |max| {
            let shares = shares(&held, max);
            all.iter().map(|party| shares[&account(*party)]).collect::<Vec<_>>()
        };
        assert_eq!(keeps(800), [[200, 200, 200].as_slice(), &[20; 10]].concat());
        // Relays need no more than 2,000, so that strangers have the rest.
        assert_eq!(keeps(6000), [[1000, 1000, 1000].as_slice(), &[300; 10]].concat());
        assert_eq!(keeps(13_000), [1000; 13]);
    }
}
