//! Things that stay for a while, each held for one party, of which the greediest gives way.
//!
//! Shares ([`super::share`]) keep one party from taking all. But what was taken while much was free is not given back by
//! that: fifty greedy addresses, one after the other, would leave nothing. So when nothing is free, whoever holds most loses
//! the oldest of what it holds to whoever holds less, until all hold the same.

use super::party::{Class, Holder, Key};
use super::share::{Refusal, Share};
use crate::time::{Duration, Instant};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// For whom a thing of some kind is held.
pub(super) trait Claim: Copy {
    /// What names a thing of this kind.
    type Id: Ord + Copy;
    fn class(&self) -> Class;
    /// Who competes with others for it.
    fn key(&self) -> Key;
    /// Whose shares count.
    fn holders(&self) -> impl Iterator<Item = Holder>;
}

/// What becomes of one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted<Id> {
    Yes,
    /// This one is to be ended for it.
    InsteadOf(Id),
    No(Refusal),
}

#[derive(Debug)]
struct Entry<C> {
    claim: C,
    since: Instant,
    amount: u64,
}

/// What one address, relay or circuit holds.
#[derive(Debug)]
struct Group<Id> {
    amount: u64,
    /// The oldest first.
    members: BTreeSet<(Instant, Id)>,
}

/// A group's place among others: by what it holds, then by its oldest.
type Rank = (Class, u64, Reverse<Instant>, Key);

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Crowd<C: Claim> {
    share: Share,
    /// Who has been there for so long gives way to others of its own group, and to a group that holds nothing. `None`
    /// for things that may stay.
    time_enough: Option<Duration>,
    entries: BTreeMap<C::Id, Entry<C>>,
    groups: BTreeMap<(Class, Key), Group<C::Id>>,
    ranking: BTreeSet<Rank>,
}

impl<C: Claim> Crowd<C> {
    pub fn new(limit: usize, time_enough: Option<Duration>) -> Self {
        Crowd {
            share: Share::new(limit),
            time_enough,
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
            ranking: BTreeSet::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// What all hold.
    pub fn used(&self) -> u64 {
        self.share.used()
    }

    /// Whether there is room for `amount` more.
    pub fn admit(&self, now: Instant, claim: C, amount: u64) -> Admitted<C::Id> {
        let (class, key) = group_of(&claim);
        let (instead, refusal) = match self.share.admits(class, claim.holders(), amount) {
            Ok(()) => return Admitted::Yes,
            Err(Refusal::Share) => (
                self.groups.get(&(class, key)).and_then(|group| self.has_had_time(now, group)),
                Refusal::Share,
            ),
            Err(refusal) => (self.gives_way(now, class, key, amount), refusal),
        };
        instead.map_or(Admitted::No(refusal), Admitted::InsteadOf)
    }

    /// One more is there, whatever [`Crowd::admit`] said.
    pub fn insert(&mut self, now: Instant, id: C::Id, claim: C, amount: u64) {
        self.insert_since(now, id, claim, amount);
    }

    fn insert_since(&mut self, since: Instant, id: C::Id, claim: C, amount: u64) {
        self.entries.insert(id, Entry { claim, since, amount: 0 });
        let (class, key) = group_of(&claim);
        match self.groups.get_mut(&(class, key)) {
            Some(group) => {
                self.ranking.remove(&rank(class, key, group));
                group.members.insert((since, id));
                self.ranking.insert(rank(class, key, group));
            }
            None => {
                let group = Group { amount: 0, members: BTreeSet::from([(since, id)]) };
                self.ranking.insert(rank(class, key, &group));
                self.groups.insert((class, key), group);
            }
        }
        self.grow(id, amount);
    }

    /// One holds more.
    pub fn grow(&mut self, id: C::Id, amount: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.amount += amount;
        let (class, key) = group_of(&entry.claim);
        self.share.take(class, entry.claim.holders(), amount);
        if let Some(group) = self.groups.get_mut(&(class, key)) {
            self.ranking.remove(&rank(class, key, group));
            group.amount += amount;
            self.ranking.insert(rank(class, key, group));
        }
    }

    /// Who is to be ended since more is held than may be: the oldest of the group that holds most.
    pub fn overdrawn(&self) -> Option<C::Id> {
        let is_overdrawn =
            [Class::Stranger, Class::Relay].iter().any(|class| self.share.is_overdrawn(*class));
        let greediest = self.greediest(Class::Stranger).or_else(|| self.greediest(Class::Relay));
        greediest.filter(|_| is_overdrawn)?.members.first().map(|(_, id)| *id)
    }

    /// One is over.
    pub fn remove(&mut self, id: C::Id) {
        let Some(Entry { claim, since, amount }) = self.entries.remove(&id) else { return };
        let (class, key) = group_of(&claim);
        self.share.give(class, claim.holders(), amount);
        let Some(group) = self.groups.get_mut(&(class, key)) else { return };
        self.ranking.remove(&rank(class, key, group));
        group.amount -= amount;
        group.members.remove(&(since, id));
        match group.members.is_empty() {
            true => drop(self.groups.remove(&(class, key))),
            false => drop(self.ranking.insert(rank(class, key, group))),
        }
    }

    /// One is held for another from now on.
    pub fn reclaim(&mut self, id: C::Id, claim: C) {
        let Some(Entry { since, amount, .. }) = self.entries.get(&id) else { return };
        let (since, amount) = (*since, *amount);
        self.remove(id);
        self.insert_since(since, id, claim, amount);
    }

    fn greediest(&self, class: Class) -> Option<&Group<C::Id>> {
        let first = (class, 0, Reverse(LATEST), Key::FIRST);
        let last = (class, u64::MAX, Reverse(Instant::ZERO), Key::LAST);
        let (.., key) = self.ranking.range(first..=last).next_back()?;
        self.groups.get(&(class, *key))
    }

    /// The oldest of a group, if that had time enough.
    fn has_had_time(&self, now: Instant, group: &Group<C::Id>) -> Option<C::Id> {
        let (since, id) = *group.members.first()?;
        self.time_enough.is_some_and(|enough| now.since(since) >= enough).then_some(id)
    }

    /// Who gives way when nothing is left: the oldest of the group that holds most, if this one would hold less.
    fn gives_way(&self, now: Instant, class: Class, key: Key, amount: u64) -> Option<C::Id> {
        let own = self.groups.get(&(class, key)).map_or(0, |group| group.amount);
        let greediest = self.greediest(class)?;
        if own + amount < greediest.amount {
            return greediest.members.first().map(|(_, id)| *id);
        }
        (own == 0).then(|| self.has_had_time(now, greediest))?
    }
}

const LATEST: Instant = Instant::from_nanos(u64::MAX);

fn group_of(claim: &impl Claim) -> (Class, Key) {
    (claim.class(), claim.key())
}

fn rank<Id: Ord>(class: Class, key: Key, group: &Group<Id>) -> Rank {
    let oldest = group.members.first().map_or(LATEST, |(since, _)| *since);
    (class, group.amount, Reverse(oldest), key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::admission::Party;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    struct Test(Party);

    impl Claim for Test {
        type Id = u32;

        fn class(&self) -> Class {
            self.0.class()
        }

        fn key(&self) -> Key {
            self.0.key()
        }

        fn holders(&self) -> impl Iterator<Item = Holder> {
            self.0.holders()
        }
    }

    fn stranger(number: u32) -> Test {
        Test(Party::at(Ipv4Addr::from_bits(number).into(), false))
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    /// Takes what it gets, also from others; returns how much is held for it then.
    fn grab(crowd: &mut Crowd<Test>, now: Instant, claim: Test, wanted: u64, next: &mut u32) -> u64 {
        for _ in 0..wanted {
            match crowd.admit(now, claim, 1) {
                Admitted::Yes => {}
                Admitted::InsteadOf(other) => crowd.remove(other),
                Admitted::No(_) => break,
            }
            crowd.insert(now, *next, claim, 1);
            *next += 1;
        }
        crowd.groups.get(&group_of(&claim)).map_or(0, |group| group.amount)
    }

    /// However many were greedy before, and in whatever order.
    #[test]
    fn who_comes_late_gets_as_much_as_the_greedy() {
        let (mut crowd, mut next) = (Crowd::new(1000, None), 0);
        for number in 0..100 {
            grab(&mut crowd, at(0), stranger(number), 1000, &mut next);
        }
        assert_eq!(crowd.used(), 750, "what is reserved for relays is left");
        for number in 100..150 {
            assert_eq!(grab(&mut crowd, at(1), stranger(number), 5, &mut next), 5);
        }
        let most = crowd.groups.values().map(|group| group.amount).max();
        assert!(most.is_some_and(|most| most <= 9), "{most:?}");
    }

    #[test]
    fn the_oldest_of_the_greediest_gives_way() {
        let mut crowd = Crowd::new(8, None);
        for (id, number) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 3)] {
            assert_eq!(crowd.share.free(Class::Stranger), 7 - u64::from(id));
            crowd.insert(at(u64::from(10 - id)), id, stranger(number), 1);
        }
        assert_eq!(crowd.admit(at(9), stranger(1), 1), Admitted::InsteadOf(6));
        assert_eq!(crowd.admit(at(9), stranger(2), 1), Admitted::No(Refusal::Full));
        crowd.remove(6);
        crowd.insert(at(9), 7, stranger(1), 1);
        // All hold the same now; one more each would only take from another.
        assert_eq!(crowd.admit(at(9), stranger(3), 1), Admitted::No(Refusal::Full));
        assert_eq!(crowd.admit(at(9), stranger(4), 1), Admitted::InsteadOf(5), "the oldest of all pairs");
    }

    #[test]
    fn who_has_had_time_enough_gives_way_to_its_own_and_to_newcomers() {
        let mut crowd = Crowd::new(100, Some(Duration::from_secs(2)));
        for id in 0..15 {
            crowd.insert(at(0), id, stranger(1), 1);
        }
        assert_eq!(crowd.admit(at(1), stranger(1), 1), Admitted::No(Refusal::Share));
        assert_eq!(crowd.admit(at(2), stranger(1), 1), Admitted::InsteadOf(0));
        for id in 0..75 {
            crowd.remove(id);
            crowd.insert(at(3), 100 + id, stranger(id), 1);
        }
        assert_eq!(crowd.admit(at(4), stranger(1000), 1), Admitted::No(Refusal::Full));
        assert_eq!(crowd.admit(at(5), stranger(1000), 1), Admitted::InsteadOf(174), "all are equally old");
        assert_eq!(crowd.admit(at(5), stranger(20), 1), Admitted::No(Refusal::Full));
    }

    #[test]
    fn what_grows_beyond_the_limit_is_ended_where_most_is() {
        let mut crowd = Crowd::new(1000, None);
        for id in 0..10 {
            crowd.insert(at(0), id, stranger(id % 2), 50);
        }
        assert_eq!(crowd.overdrawn(), None);
        crowd.grow(3, 300);
        assert_eq!(crowd.overdrawn(), Some(1), "the oldest of that address");
        crowd.remove(1);
        assert_eq!(crowd.overdrawn(), None);
    }

    proptest! {
        /// Whatever happens, all accounts agree with what is there.
        #[test]
        fn accounts_agree(moves in prop::collection::vec((0_u32..30, 0_u32..8, 0_u64..20, 0_u8..4), 0..300)) {
            let mut crowd = Crowd::new(200, Some(Duration::from_secs(2)));
            for (step, (id, number, amount, what)) in (0..).zip(moves) {
                match what {
                    0 => crowd.remove(id),
                    1 => crowd.grow(id, amount),
                    2 => crowd.reclaim(id, stranger(number)),
                    _ if crowd.entries.contains_key(&id) => {}
                    _ => match crowd.admit(at(step), stranger(number), amount) {
                        Admitted::Yes => crowd.insert(at(step), id, stranger(number), amount),
                        Admitted::InsteadOf(other) => {
                            prop_assert!(crowd.entries.contains_key(&other));
                            crowd.remove(other);
                        }
                        Admitted::No(_) => {}
                    },
                }
                for (key, group) in &crowd.groups {
                    let of_group = crowd.entries.values().filter(|entry| group_of(&entry.claim) == *key);
                    let amounts: Vec<u64> = of_group.map(|entry| entry.amount).collect();
                    prop_assert_eq!(group.amount, amounts.iter().sum::<u64>());
                    prop_assert_eq!(group.members.len(), amounts.len());
                    prop_assert!(crowd.ranking.contains(&rank(key.0, key.1, group)));
                }
                prop_assert_eq!(crowd.ranking.len(), crowd.groups.len());
                let members: usize = crowd.groups.values().map(|group| group.members.len()).sum();
                prop_assert_eq!(members, crowd.entries.len());
                prop_assert_eq!(crowd.used(), crowd.entries.values().map(|entry| entry.amount).sum::<u64>());
            }
        }
    }
}
