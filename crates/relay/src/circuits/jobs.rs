//! Work for the workers, handed out so that nobody's is delayed by anybody's who asks for much.
//!
//! Workers serve all shards and take jobs as they come. A shard therefore has only a few jobs with them at once, and
//! keeps the others here: relays of the consensus and all others take turns, in each class the neighbours, and the
//! links of each.
//!
//! Nobody waits for longer than an age: who asked is told then that there is no room, because an answer that is late
//! looks like one that was lost, and whoever waits for it begins again elsewhere. Each job has an age of its own, so
//! those of a greedy neighbour grow old behind each other and make no other older.

use crate::admission::{Class, Key, Party};
use crate::job::Job;
use crate::keys::{CircuitKey, LinkKey};
use crate::turns::{Turns, Waiting};
use heddle_seam::node::JobId;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// A job's purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// Who is answered.
    pub circuit: CircuitKey,
    /// Whose share it takes.
    pub party: Party,
}

type OfParty = Turns<LinkKey, VecDeque<(JobId, Purpose, Job)>>;

/// Jobs that were given up are swept out of the turns when there are this many, and more than others.
const GIVEN_UP_MIN: usize = 64;

/// A job that waits.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    purpose: Purpose,
    since: Instant,
}

/// The shard's jobs: those that wait, and those that workers have.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// Those that wait, and those that were given up: at most as many, and [`GIVEN_UP_MIN`].
    queued: Turns<Class, Turns<Key, OfParty>>,
    queued_len: usize,
    /// Those that wait. Names are given in the order of time, so the first has waited for longest.
    waiting: BTreeMap<JobId, Waiter>,
    age_max: Duration,
    at_work: BTreeMap<JobId, Purpose>,
    at_work_max: usize,
    /// Jobs of channels that workers have, at most one of each.
    of_channels: BTreeMap<JobId, LinkKey>,
    made: u64,
}

impl Jobs {
    pub fn new(at_work_max: usize, age_max: Duration) -> Self {
        Jobs {
            queued: Turns::default(),
            queued_len: 0,
            waiting: BTreeMap::new(),
            age_max,
            at_work: BTreeMap::new(),
            at_work_max: at_work_max.max(1),
            of_channels: BTreeMap::new(),
            made: 0,
        }
    }

    /// Jobs that wait and that workers have.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.at_work.len() + self.of_channels.len()
    }

    /// How long a job may wait from now on, those that wait already with the others.
    pub fn set_age_max(&mut self, age_max: Duration) {
        self.age_max = age_max;
    }

    /// A name for a job that is to come.
    pub fn new_id(&mut self) -> JobId {
        self.made += 1;
        JobId(self.made - 1)
    }

    /// A job for a neighbour behind `link`.
    pub fn push(&mut self, now: Instant, link: LinkKey, id: JobId, purpose: Purpose, job: Job) {
        let of_class = self.queued.queue(purpose.party.class());
        of_class.queue(purpose.party.key()).queue(link).push_back((id, purpose, job));
        self.queued_len += 1;
        self.waiting.insert(id, Waiter { purpose, since: now });
        self.sweep();
    }

    fn sweep(&mut self) {
        let waiting = &self.waiting;
        if self.queued_len - waiting.len() > waiting.len().max(GIVEN_UP_MIN) {
            self.queued_len = self.queued.retain(&|(id, ..)| waiting.contains_key(id));
        }
    }

    /// Nobody wants a job any more. Returns whose share is free again, if it was not begun.
    pub fn give_up(&mut self, id: JobId) -> Option<Party> {
        self.waiting.remove(&id).map(|waiter| waiter.purpose.party)
    }

    /// When the next job is too old, if it still waits then.
    pub fn next_late(&self) -> Option<Instant> {
        self.waiting.values().next().map(|waiter| waiter.since + self.age_max)
    }

    /// A job that has waited for too long, and does so no more.
    pub fn pop_late(&mut self, now: Instant) -> Option<Purpose> {
        let oldest =
            self.waiting.first_entry().filter(|entry| now.since(entry.get().since) >= self.age_max)?;
        let purpose = oldest.remove().purpose;
        self.sweep();
        Some(purpose)
    }

    /// The next job, if the workers may have one more. It counts as theirs from now on.
    pub fn next(&mut self) -> Option<(JobId, Job)> {
        while self.at_work.len() < self.at_work_max {
            let (id, purpose, job) = self.queued.take()?;
            self.queued_len -= 1;
            if self.waiting.remove(&id).is_some() {
                self.at_work.insert(id, purpose);
                return Some((id, job));
            }
        }
        None
    }

    /// A channel's job goes to a worker. The channel has had its turn, so it does not wait here.
    pub fn begin_of_channel(&mut self, link: LinkKey) -> JobId {
        let id = self.new_id();
        self.of_channels.insert(id, link);
        id
    }

    /// A worker is done with a channel's job.
    pub fn finish_of_channel(&mut self, id: JobId) -> Option<LinkKey> {
        self.of_channels.remove(&id)
    }

    /// A worker is done.
    pub fn finish(&mut self, id: JobId) -> Option<Purpose> {
        self.at_work.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use heddle_proto::channel::Work;

    const AGE_MAX: Duration = Duration::from_secs(1);

    fn nothing() -> Job {
        let work: Work = Box::new(|| Box::new(()));
        Job::Channel(work)
    }

    #[test]
    fn jobs_that_were_given_up_take_no_room() {
        let mut jobs = Jobs::new(1, AGE_MAX);
        let party = Party::at(Ipv4Addr::LOCALHOST.into(), false);
        let purpose = Purpose { circuit: CircuitKey::default(), party };
        let mut kept = Vec::new();
        for number in 0..10_000 {
            let id = jobs.new_id();
            jobs.push(Instant::ZERO, LinkKey::default(), id, purpose, nothing());
            match number % 100 {
                0 => kept.push(id),
                _ => assert_eq!(jobs.give_up(id), Some(party)),
            }
            assert!(jobs.queued_len <= 2 * kept.len() + GIVEN_UP_MIN + 1);
        }
        assert_eq!((jobs.len(), jobs.give_up(JobId(1))), (100, None));
        for id in kept {
            assert_eq!(jobs.next().map(|(next, _)| next), Some(id));
            assert!(jobs.next().is_none(), "one at a time");
            assert_eq!((jobs.give_up(id), jobs.finish(id)), (None, Some(purpose)));
        }
        assert!(jobs.next().is_none());
        assert_eq!((jobs.len(), jobs.queued_len), (0, 0));
    }

    /// Each by its own age, whoever waits before it in the turns; what is with a worker gets no older.
    #[test]
    fn who_waits_for_too_long_does_so_no_more() {
        let mut jobs = Jobs::new(1, AGE_MAX);
        let at_ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        let purpose = |number: u8| {
            let party = Party::at(Ipv4Addr::new(203, 0, 113, number).into(), false);
            Purpose { circuit: CircuitKey::default(), party }
        };
        // The first goes to the worker at once.
        for (number, ms) in [(1, 0), (1, 100), (1, 200), (2, 700)] {
            let id = jobs.new_id();
            jobs.push(at_ms(ms), LinkKey::default(), id, purpose(number), nothing());
        }
        assert_eq!(jobs.next().map(|(id, _)| id), Some(JobId(0)));
        assert_eq!((jobs.next_late(), jobs.pop_late(at_ms(1099))), (Some(at_ms(1100)), None));
        assert_eq!(jobs.pop_late(at_ms(1199)), Some(purpose(1)));
        assert_eq!((jobs.pop_late(at_ms(1199)), jobs.next_late()), (None, Some(at_ms(1200))));
        assert_eq!(jobs.pop_late(at_ms(1300)), Some(purpose(1)));
        // What is left is the other's, and comes next.
        assert_eq!((jobs.len(), jobs.pop_late(at_ms(1300))), (2, None));
        assert_eq!(jobs.finish(JobId(0)), Some(purpose(1)));
        assert_eq!(jobs.next().map(|(id, _)| id), Some(JobId(3)));
        // Who waits longer when that is allowed.
        let id = jobs.new_id();
        jobs.push(at_ms(1300), LinkKey::default(), id, purpose(1), nothing());
        jobs.set_age_max(2 * AGE_MAX);
        assert_eq!((jobs.pop_late(at_ms(3299)), jobs.pop_late(at_ms(3300))), (None, Some(purpose(1))));
        assert_eq!(jobs.next_late(), None);
    }
}
