//! Work for the workers, handed out so that nobody's is delayed by anybody's who asks for much.
//!
//! Workers serve all shards and take jobs as they come. A shard therefore has only a few jobs with them at once, and keeps
//! the others here: relays of the consensus and all others take turns, in each class the neighbours, and the links of each.

use super::admission::{Class, Key, Party};
use super::circuit::CircuitKey;
use super::link::LinkKey;
use super::turns::{Turns, Waiting};
use crate::node::JobId;
use crate::work::Job;
use std::collections::{BTreeMap, VecDeque};

/// A job's purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    /// Who is answered. When that is gone the job is not begun any more.
    pub circuit: CircuitKey,
    /// Whose share it takes.
    pub party: Party,
}

type OfParty = Turns<LinkKey, VecDeque<(JobId, Purpose, Job)>>;

/// The shard's jobs: those that wait, and those that workers have.
#[derive(Debug)]
pub(super) struct Jobs {
    waiting: Turns<Class, Turns<Key, OfParty>>,
    waiting_len: usize,
    at_work: BTreeMap<JobId, Purpose>,
    at_work_max: usize,
    /// Jobs of channels that workers have, at most one of each.
    of_channels: BTreeMap<JobId, LinkKey>,
    made: u64,
}

impl Jobs {
    pub fn new(at_work_max: usize) -> Self {
        Jobs {
            waiting: Turns::default(),
            waiting_len: 0,
            at_work: BTreeMap::new(),
            at_work_max: at_work_max.max(1),
            of_channels: BTreeMap::new(),
            made: 0,
        }
    }

    /// Jobs that wait and that workers have.
    pub fn len(&self) -> usize {
        self.waiting_len + self.at_work.len() + self.of_channels.len()
    }

    /// A name for a job that is to come.
    pub fn new_id(&mut self) -> JobId {
        self.made += 1;
        JobId(self.made - 1)
    }

    /// A job for a neighbour behind `link`.
    pub fn push(&mut self, link: LinkKey, id: JobId, purpose: Purpose, job: Job) {
        let of_class = self.waiting.queue(purpose.party.class());
        of_class.queue(purpose.party.key()).queue(link).push_back((id, purpose, job));
        self.waiting_len += 1;
    }

    /// The next job, if the workers may have one more. It counts as theirs from now on.
    pub fn next(&mut self) -> Option<(JobId, Purpose, Job)> {
        if self.at_work.len() >= self.at_work_max {
            return None;
        }
        let (id, purpose, job) = self.waiting.take()?;
        self.waiting_len -= 1;
        self.at_work.insert(id, purpose);
        Some((id, purpose, job))
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

    /// A worker is done, or its job is not begun.
    pub fn finish(&mut self, id: JobId) -> Option<Purpose> {
        self.at_work.remove(&id)
    }
}
