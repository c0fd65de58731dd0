//! Things that stay for a while, each held for one party, of which the greediest gives way.
//!
//! Shares ([`super::share`]) keep one party from taking all. But what was taken while much was free is not given back
//! by that: fifty greedy addresses, one after the other, would leave nothing. So when nothing is free, whoever holds
//! most loses the oldest of what it holds to whoever holds less, until all hold the same. So it is among those behind
//! one neighbour, when that has its share.
//!
//! Nor is what a neighbour holds given back for as long as it likes: its share would keep whoever else stands behind it
//! from everything. So what nobody uses ([`Unused`]) gives way first, also to others behind the same neighbour.

use super::party::{Class, Holder, Key};
use super::share::{Refusal, Share};
use core::cmp::Reverse;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// For whom a thing of some kind is held.
pub(super) trait Claim: Copy {
    /// What names a thing of this kind.
    type Id: Ord + Copy;
    fn class(&self) -> Class;
    /// Who competes with others for it.
    fn key(&self) -> Key;
    /// Behind whom: whoever competes for itself is its own neighbour.
    fn neighbour(&self) -> Key {
        self.key()
    }
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

/// In what way nobody uses a thing. What is good for nothing gives way before what is only quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unused {
    GoodForNothing,
    Quiet,
}

#[derive(Debug)]
struct Entry<C> {
    claim: C,
    since: Instant,
    amount: u64,
    unused: Option<(Unused, Instant)>,
}

/// One who competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    class: Class,
    neighbour: Key,
    key: Key,
}

impl GroupKey {
    fn of(claim: &impl Claim) -> Self {
        GroupKey { class: claim.class(), neighbour: claim.neighbour(), key: claim.key() }
    }
}

/// What one address, relay or circuit holds.
#[derive(Debug)]
struct Group<Id> {
    amount: u64,
    /// The oldest first.
    members: BTreeSet<(Instant, Id)>,
    /// Those of the members that nobody uses, in the order in which they give way.
    unused: BTreeSet<(Unused, Instant, Id)>,
}

impl<Id: Ord + Copy> Group<Id> {
    fn oldest(&self) -> Option<Id> {
        self.members.first().map(|(_, id)| *id)
    }

    fn first_unused(&self) -> Option<Id> {
        self.unused.first().map(|(.., id)| *id)
    }

    fn standing(&self) -> Standing {
        (self.amount, Reverse(self.members.first().map_or(LATEST, |(since, _)| *since)))
    }
}

/// A group's place among others: by what it holds, then by its oldest.
type Standing = (u64, Reverse<Instant>);

/// All groups, in order of their standing.
#[derive(Debug, Default)]
struct Ranking {
    of_class: BTreeSet<(Class, Standing, GroupKey)>,
    of_neighbour: BTreeSet<(Class, Key, Standing, GroupKey)>,
}

impl Ranking {
    fn insert(&mut self, key: GroupKey, standing: Standing) {
        self.of_class.insert((key.class, standing, key));
        self.of_neighbour.insert((key.class, key.neighbour, standing, key));
    }

    fn remove(&mut self, key: GroupKey, standing: Standing) {
        self.of_class.remove(&(key.class, standing, key));
        self.of_neighbour.remove(&(key.class, key.neighbour, standing, key));
    }

    /// Who holds most of a class.
    fn greediest(&self, class: Class) -> Option<GroupKey> {
        let [first, last] = extremes(class);
        Some(self.of_class.range((class, LEAST, first)..=(class, MOST, last)).next_back()?.2)
    }

    /// Who holds most behind a neighbour.
    fn greediest_behind(&self, GroupKey { class, neighbour, .. }: GroupKey) -> Option<GroupKey> {
        let [first, last] = extremes(class);
        let range = (class, neighbour, LEAST, first)..=(class, neighbour, MOST, last);
        Some(self.of_neighbour.range(range).next_back()?.3)
    }
}

const LATEST: Instant = Instant::from_nanos(u64::MAX);
const LEAST: Standing = (0, Reverse(LATEST));
const MOST: Standing = (u64::MAX, Reverse(Instant::ZERO));

/// The first group of a class that there could be, and the last.
fn extremes(class: Class) -> [GroupKey; 2] {
    [Key::FIRST, Key::LAST].map(|key| GroupKey { class, neighbour: key, key })
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Crowd<C: Claim> {
    share: Share,
    /// Who has been there for so long gives way to others of its own group, and to a group that holds nothing. `None`
    /// for things that may stay.
    time_enough: Option<Duration>,
    entries: BTreeMap<C::Id, Entry<C>>,
    groups: BTreeMap<GroupKey, Group<C::Id>>,
    ranking: Ranking,
}

impl<C: Claim> Crowd<C> {
    pub fn new(share: Share, time_enough: Option<Duration>) -> Self {
        Crowd {
            share,
            time_enough,
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
            ranking: Ranking::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn holds(&self, id: C::Id) -> bool {
        self.entries.contains_key(&id)
    }

    /// Whether half of all that there may be is held, or more.
    pub fn is_half_full(&self) -> bool {
        self.share.is_half_full()
    }

    /// What all hold.
    pub fn used(&self) -> u64 {
        self.share.used()
    }

    /// Whether there is room for `amount` more.
    pub fn admit(&self, now: Instant, claim: C, amount: u64) -> Admitted<C::Id> {
        let key = GroupKey::of(&claim);
        let (instead, refusal) = match self.share.admits(key.class, claim.holders(), amount) {
            Ok(()) => return Admitted::Yes,
            Err(Refusal::Share) => {
                let own = self.groups.get(&key);
                let own =
                    own.and_then(|group| group.first_unused().or_else(|| self.has_had_time(now, group)));
                (own.or_else(|| self.gives_way_behind(claim, amount)), Refusal::Share)
            }
            Err(refusal) => (self.gives_way(now, key, amount), refusal),
        };
        instead.map_or(Admitted::No(refusal), Admitted::InsteadOf)
    }

    /// One more is there, whatever [`Crowd::admit`] said.
    pub fn insert(&mut self, now: Instant, id: C::Id, claim: C, amount: u64) {
        self.insert_since(now, id, claim, amount);
    }

    fn insert_since(&mut self, since: Instant, id: C::Id, claim: C, amount: u64) {
        self.entries.insert(id, Entry { claim, since, amount: 0, unused: None });
        let key = GroupKey::of(&claim);
        match self.groups.get_mut(&key) {
            Some(group) => {
                self.ranking.remove(key, group.standing());
                group.members.insert((since, id));
                self.ranking.insert(key, group.standing());
            }
            None => {
                let members = BTreeSet::from([(since, id)]);
                let group = Group { amount: 0, members, unused: BTreeSet::new() };
                self.ranking.insert(key, group.standing());
                self.groups.insert(key, group);
            }
        }
        self.set_amount(id, amount);
    }

    /// One is to hold more. Fails when that is more than its shares, or what is free.
    pub fn try_grow(&mut self, id: C::Id, amount: u64) -> Result<(), Refusal> {
        if let Some(Entry { claim, .. }) = self.entries.get(&id).filter(|_| amount > 0) {
            self.share.admits(claim.class(), claim.holders(), amount)?;
        }
        let before = self.entries.get(&id).map_or(0, |entry| entry.amount);
        self.set_amount(id, before + amount);
        Ok(())
    }

    /// One holds so much, whatever its shares are.
    pub fn set_amount(&mut self, id: C::Id, amount: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = core::mem::replace(&mut entry.amount, amount);
        let key = GroupKey::of(&entry.claim);
        self.share.give(key.class, entry.claim.holders(), before);
        self.share.take(key.class, entry.claim.holders(), amount);
        if let Some(group) = self.groups.get_mut(&key) {
            self.ranking.remove(key, group.standing());
            group.amount = group.amount - before + amount;
            self.ranking.insert(key, group.standing());
        }
    }

    /// Nobody uses one since a time, or somebody does.
    pub fn set_unused(&mut self, id: C::Id, unused: Option<(Unused, Instant)>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = core::mem::replace(&mut entry.unused, unused);
        let Some(group) = self.groups.get_mut(&GroupKey::of(&entry.claim)) else { return };
        if let Some((how, since)) = before {
            group.unused.remove(&(how, since, id));
        }
        group.unused.extend(unused.map(|(how, since)| (how, since, id)));
    }

    /// One is over.
    pub fn remove(&mut self, id: C::Id) {
        self.set_unused(id, None);
        let Some(Entry { claim, since, amount, .. }) = self.entries.remove(&id) else { return };
        let key = GroupKey::of(&claim);
        self.share.give(key.class, claim.holders(), amount);
        let Some(group) = self.groups.get_mut(&key) else { return };
        self.ranking.remove(key, group.standing());
        group.amount -= amount;
        group.members.remove(&(since, id));
        match group.members.is_empty() {
            true => drop(self.groups.remove(&key)),
            false => self.ranking.insert(key, group.standing()),
        }
    }

    /// One is held for another from now on.
    pub fn reclaim(&mut self, id: C::Id, claim: C) {
        let Some(Entry { since, amount, unused, .. }) = self.entries.get(&id) else { return };
        let (since, amount, unused) = (*since, *amount, *unused);
        self.remove(id);
        self.insert_since(since, id, claim, amount);
        self.set_unused(id, unused);
    }

    fn greediest(&self, class: Class) -> Option<&Group<C::Id>> {
        self.groups.get(&self.ranking.greediest(class)?)
    }

    /// The oldest of a group, if that had time enough.
    fn has_had_time(&self, now: Instant, group: &Group<C::Id>) -> Option<C::Id> {
        let (since, id) = *group.members.first()?;
        self.time_enough.is_some_and(|enough| now.since(since) >= enough).then_some(id)
    }

    /// Who gives way when nothing is left: what nobody uses, of the group that holds most, if this one would hold less,
    /// or of this one; else the oldest of that group.
    fn gives_way(&self, now: Instant, key: GroupKey, amount: u64) -> Option<C::Id> {
        let own = self.held_by(key);
        let own_unused = || self.groups.get(&key)?.first_unused();
        let greediest = self.greediest(key.class)?;
        if own + amount < greediest.amount {
            return greediest.first_unused().or_else(own_unused).or_else(|| greediest.oldest());
        }
        own_unused().or_else(|| (own == 0).then(|| self.has_had_time(now, greediest))?)
    }

    /// Who gives way when the neighbour has its share, and not whoever asks behind it: the same, among those behind it.
    fn gives_way_behind(&self, claim: C, amount: u64) -> Option<C::Id> {
        let key = GroupKey::of(&claim);
        let own_share = claim.holders().filter(|holder| holder.key == key.key);
        self.share.admits(key.class, own_share, amount).ok()?;
        let greediest = self.groups.get(&self.ranking.greediest_behind(key)?)?;
        (self.held_by(key) + amount < greediest.amount).then(|| greediest.oldest())?
    }

    fn held_by(&self, key: GroupKey) -> u64 {
        self.groups.get(&key).map_or(0, |group| group.amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Party;
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
        crowd.held_by(GroupKey::of(&claim))
    }

    /// However many were greedy before, and in whatever order.
    #[test]
    fn who_comes_late_gets_as_much_as_the_greedy() {
        let (mut crowd, mut next) = (Crowd::new(Share::new(1000), None), 0);
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
        let mut crowd = Crowd::new(Share::new(8), None);
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
        let mut crowd = Crowd::new(Share::new(100), Some(Duration::from_secs(2)));
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
    fn nobody_grows_beyond_its_share() {
        let mut crowd = Crowd::new(Share::new(1000), None);
        for id in 0..10 {
            crowd.insert(at(0), id, stranger(id % 2), 20);
        }
        assert_eq!(crowd.try_grow(3, 10), Ok(()));
        assert_eq!(crowd.try_grow(3, 30), Err(Refusal::Share));
        assert_eq!(crowd.try_grow(3, 1000), Err(Refusal::Full));
        assert_eq!(crowd.held_by(GroupKey::of(&stranger(1))), 110);
        assert_eq!(crowd.try_grow(99, 1000), Ok(()), "it is gone");
        assert_eq!(crowd.used(), 210);
    }

    #[test]
    fn what_nobody_uses_gives_way_first() {
        let mut crowd = Crowd::new(Share::new(100), None);
        for id in 0..15 {
            crowd.insert(at(0), id, stranger(1), 1);
        }
        assert_eq!(crowd.admit(at(100), stranger(1), 1), Admitted::No(Refusal::Share));
        crowd.set_unused(3, Some((Unused::Quiet, at(1))));
        crowd.set_unused(4, Some((Unused::GoodForNothing, at(3))));
        crowd.set_unused(5, Some((Unused::GoodForNothing, at(2))));
        for gives_way in [5, 4, 3] {
            assert_eq!(crowd.admit(at(100), stranger(1), 1), Admitted::InsteadOf(gives_way));
            crowd.set_unused(gives_way, None);
        }
        assert_eq!(crowd.admit(at(100), stranger(1), 1), Admitted::No(Refusal::Share));
        // Nothing is left for anybody: that of who holds most, then one's own, then the oldest of who holds most.
        for id in 0..60 {
            crowd.insert(at(0), 100 + id, stranger(100 + id / 2), 1);
        }
        crowd.set_unused(100, Some((Unused::GoodForNothing, at(1))));
        crowd.set_unused(7, Some((Unused::Quiet, at(5))));
        for gives_way in [7, 100, 0] {
            assert_eq!(crowd.admit(at(100), stranger(100), 1), Admitted::InsteadOf(gives_way));
            crowd.set_unused(gives_way, None);
        }
    }

    proptest! {
        /// Whatever happens, all accounts agree with what is there.
        #[test]
        fn accounts_agree(moves in prop::collection::vec((0_u32..30, 0_u32..8, 0_u64..20, 0_u8..5), 0..300)) {
            let mut crowd = Crowd::new(Share::new(200), Some(Duration::from_secs(2)));
            for (step, (id, number, amount, what)) in (0..).zip(moves) {
                match what {
                    0 => crowd.remove(id),
                    1 if amount % 2 == 0 => crowd.set_amount(id, amount),
                    1 => drop(crowd.try_grow(id, amount)),
                    2 => crowd.reclaim(id, stranger(number)),
                    3 => crowd.set_unused(id, (number > 1).then_some((Unused::Quiet, at(step)))),
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
                    let of_group = crowd.entries.values().filter(|entry| GroupKey::of(&entry.claim) == *key);
                    let amounts: Vec<u64> = of_group.map(|entry| entry.amount).collect();
                    prop_assert_eq!(group.amount, amounts.iter().sum::<u64>());
                    prop_assert_eq!(group.members.len(), amounts.len());
                    let of_group = crowd.entries.values().filter(|entry| GroupKey::of(&entry.claim) == *key);
                    prop_assert_eq!(group.unused.len(), of_group.filter(|entry| entry.unused.is_some()).count());
                    let (class, neighbour, standing) = (key.class, key.neighbour, group.standing());
                    prop_assert!(crowd.ranking.of_class.contains(&(class, standing, *key)));
                    prop_assert!(crowd.ranking.of_neighbour.contains(&(class, neighbour, standing, *key)));
                }
                prop_assert_eq!(crowd.ranking.of_class.len(), crowd.groups.len());
                prop_assert_eq!(crowd.ranking.of_neighbour.len(), crowd.groups.len());
                let members: usize = crowd.groups.values().map(|group| group.members.len()).sum();
                prop_assert_eq!(members, crowd.entries.len());
                prop_assert_eq!(crowd.used(), crowd.entries.values().map(|entry| entry.amount).sum::<u64>());
            }
        }
    }
}
