//! What circuits do to connections and how peers answer CREATE2, noted until pairs are told.

use super::{Link, Links, ReadyConnection};
use crate::keys::LinkKey;
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::RelayIds;
use heddle_seam::time::{Duration, Instant};

/// How long a peer has to answer CREATE2 before the end of the circuit, by whomever else, counts as its failure.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a CREATE2.
#[derive(Debug)]
pub(crate) struct Answer {
    pub peer: RelayIds,
    /// The flow's port and connection; none for a channel.
    pub flow: Option<(usize, ConnId)>,
    pub answered: bool,
}

/// What is noted; each input's notes are taken after it.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Connections that may have got their first flow or lost their last.
    pub touched: Vec<LinkKey>,
    pub answers: Vec<Answer>,
    /// Relays one of whose channels grew old.
    pub retired: Vec<RelayIds>,
    /// Whether there are pairs to be told.
    pub counts_answers: bool,
}

impl Links {
    /// There are pairs, which are to be told of answers to CREATE2.
    pub fn count_answers(&mut self) {
        self.flows.count_answers();
    }

    /// A lane was taken or given up on a link, which has none now or some.
    pub fn touch(&mut self, link: LinkKey, is_idle: bool) {
        if self.flows(link).is_some_and(|flows| flows.knows_occupied(is_idle)) {
            self.flows.touch(link);
        }
    }

    /// The last circuit left a link: noted for idle closing.
    pub fn note_idle(&mut self, now: Instant, link: LinkKey) {
        match self.channel_mut(link) {
            Some(channel) => channel.note_used(now),
            None => self.touch(link, true),
        }
    }

    /// A connection that got its first flow or lost its last since its pair was told, and which.
    pub fn next_occupancy(&mut self, is_idle: impl Fn(LinkKey) -> bool) -> Option<(ReadyConnection, bool)> {
        loop {
            let link = self.flows.pop_touched()?;
            let is_occupied = !is_idle(link);
            if let Some(flows) = self.flows_mut(link).filter(|flows| !flows.knows_occupied(is_occupied)) {
                flows.tell_occupied(is_occupied);
                return Some((flows.connection(), is_occupied));
            }
        }
    }

    /// What became of a CREATE2 that was sent on `link`.
    pub fn note_answer(&mut self, link: LinkKey, answered: bool) {
        let link = self.all.get(link);
        self.flows.note_answer(|| {
            let flow = link.and_then(Link::flows).map(|flows| flows.connection());
            let flow = flow.map(|connection| (connection.port, connection.conn));
            Some(Answer { peer: link?.peer()?, flow, answered })
        });
    }

    /// What became of a CREATE2.
    pub fn pop_answer(&mut self) -> Option<Answer> {
        self.flows.pop_answer()
    }

    /// Relays one of whose channels grew old.
    pub fn take_retired(&mut self) -> Vec<RelayIds> {
        self.flows.take_retired()
    }
}
