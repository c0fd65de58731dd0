//! Work for the workers, handed out so that nobody's is delayed by anybody's who asks for much.
//!
//! Workers serve all shards and take jobs as they come. A shard therefore has only a few jobs with them at once, and
//! keeps the others here: relays of the consensus and all others take turns, in each class the neighbours, and the
//! links of each.

use crate::admission::{Class, Key, Party};
use crate::job::Job;
use crate::keys::{CircuitKey, LinkKey};
use crate::turns::{Turns, Waiting};
use heddle_seam::node::JobId;
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

/// The shard's jobs: those that wait, and those that workers have.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// Those that wait, and those that were given up: at most as many, and [`GIVEN_UP_MIN`].
    queued: Turns<Class, Turns<Key, OfParty>>,
    queued_len: usize,
    /// Those that wait, and whose share they take.
    waiting: BTreeMap<JobId, Party>,
    at_work: BTreeMap<JobId, Purpose>,
    at_work_max: usize,
    /// Jobs of channels that workers have, at most one of each.
    of_channels: BTreeMap<JobId, LinkKey>,
    made: u64,
}

impl Jobs {
    pub fn new(at_work_max: usize) -> Self {
        Jobs {
            queued: Turns::default(),
            queued_len: 0,
            waiting: BTreeMap::new(),
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

    /// A name for a job that is to come.
    pub fn new_id(&mut self) -> JobId {
        self.made += 1;
        JobId(self.made - 1)
    }

    /// A job for a neighbour behind `link`.
    pub fn push(&mut self, link: LinkKey, id: JobId, purpose: Purpose, job: Job) {
        let of_class = self.queued.queue(purpose.party.class());
        of_class.queue(purpose.party.key()).queue(link).push_back((id, purpose, job));
        self.queued_len += 1;
        self.waiting.insert(id, purpose.party);
        let waiting = &self.waiting;
        if self.queued_len - waiting.len() > waiting.len().max(GIVEN_UP_MIN) {
            self.queued_len = self.queued.retain(&|(id, ..)| waiting.contains_key(id));
        }
    }

    /// Nobody wants a job any more. Returns whose share is free again, if it was not begun.
    pub fn give_up(&mut self, id: JobId) -> Option<Party> {
        self.waiting.remove(&id)
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

    #[test]
    fn jobs_that_were_given_up_take_no_room() {
        let mut jobs = Jobs::new(1);
        let party = Party::at(Ipv4Addr::LOCALHOST.into(), false);
        let purpose = Purpose { circuit: CircuitKey::default(), party };
        let nothing = || -> Work { Box::new(|| Box::new(())) };
        let mut kept = Vec::new();
        for number in 0..10_000 {
            let id = jobs.new_id();
            jobs.push(LinkKey::default(), id, purpose, Job::Channel(nothing()));
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
}
