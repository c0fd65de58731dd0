//! Links whose lanes are flows: circuits that have windows of their own all the way to the next relay.
//!
//! - *Late binding.* Cells wait in their circuits' lanes, under the link's scheduler. The connection gets as many as
//!   its capacity says, and a flow that takes none at the moment is out of the round until it does.
//! - *No back-pressure from hop to hop*, unless asked for. A flow is read whatever waits in the circuit's other lane,
//!   up to the end that stock Tor sets to a queue too (`circ_max_cell_queue_size`). A relay that stopped reading would
//!   stop the relay before it, and so an exit that sends beyond its windows would learn which relays of the path are
//!   upgraded.
//! - *Hop-by-hop flow control*, where it is on: a flow is not read while too many of its cells wait in the circuit's
//!   other lane, whatever that leads to. Its window then holds the relay before us back, which does the same, and so on
//!   to whoever sends.
//! - *No migration.* A circuit lives and dies with its flow. Only a CREATE2 that was never answered is sent once more,
//!   over a channel.

use super::answers::{Answer, Notes};
use super::late::Late;
use crate::keys::LinkKey;
use heddle_proto::cell::CircId;
use heddle_proto::ids::{RelayIds, RsaId};
use std::collections::{BTreeMap, VecDeque};

/// With hop-by-hop flow control a flow is not read while so many of its cells wait in the circuit's other lane. It is
/// looked at after every cell, so this is also the most that wait: 64 cells, 33 KB, are what one call to a kernel
/// takes, in a super-datagram or a send buffer. More would not leave sooner, because what comes next lies in the flow's
/// window already.
pub(crate) const HELD_QUEUE_HIGH_CELLS: u32 = 64;
/// At this many it is read again: the rest leaves while the flow is read.
pub(crate) const HELD_QUEUE_LOW_CELLS: u32 = 32;

/// What an endpoint is to be told: whether a flow is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub link: LinkKey,
    pub circ_id: CircId,
    pub hold: bool,
}

/// The shard's connections that are ready, by relay.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    links: BTreeMap<RsaId, Vec<LinkKey>>,
    /// What endpoints have not been told yet: they are after each cell and before each output.
    holds: VecDeque<Hold>,
    notes: Notes,
    late: Late,
}

impl Flows {
    /// The connections to a relay.
    pub fn links_to(&self, rsa: &RsaId) -> &[LinkKey] {
        self.links.get(rsa).map_or(&[], Vec::as_slice)
    }

    /// A connection to a relay is ready.
    pub fn insert(&mut self, rsa: RsaId, link: LinkKey) {
        self.links.entry(rsa).or_default().push(link);
    }

    /// A connection to a relay is over. Returns whether it was the last.
    pub fn remove(&mut self, rsa: &RsaId, link: LinkKey) -> bool {
        let Some(links) = self.links.get_mut(rsa) else { return false };
        links.retain(|key| *key != link);
        let is_last = links.is_empty();
        if is_last {
            self.links.remove(rsa);
        }
        is_last
    }

    /// Circuits that wait on flows for an answer to CREATE2.
    pub fn late_mut(&mut self) -> &mut Late {
        &mut self.late
    }
}

/// Flows that are held.
impl Flows {
    /// An endpoint is to be told.
    pub fn hold(&mut self, hold: Hold) {
        self.holds.push_back(hold);
    }

    /// What an endpoint is to be told next. Of two words on one flow the later one counts.
    pub fn pop_hold(&mut self) -> Option<Hold> {
        self.holds.pop_front()
    }
}

/// What pairs are to be told.
impl Flows {
    /// There are pairs to be told.
    pub fn count_answers(&mut self) {
        self.notes.counts_answers = true;
    }

    /// A connection may have got its first flow or lost its last.
    pub fn touch(&mut self, link: LinkKey) {
        self.notes.touched.push(link);
    }

    pub fn pop_touched(&mut self) -> Option<LinkKey> {
        self.notes.touched.pop()
    }

    /// What became of a CREATE2, if there are pairs to be told.
    pub fn note_answer(&mut self, answer: impl FnOnce() -> Option<Answer>) {
        if self.notes.counts_answers {
            self.notes.answers.extend(answer());
        }
    }

    pub fn pop_answer(&mut self) -> Option<Answer> {
        self.notes.answers.pop()
    }

    /// A channel to this relay grew old.
    pub fn note_retired(&mut self, peer: RelayIds) {
        self.notes.retired.push(peer);
    }

    pub fn take_retired(&mut self) -> Vec<RelayIds> {
        core::mem::take(&mut self.notes.retired)
    }
}
