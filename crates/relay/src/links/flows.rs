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

mod work;

use super::answers::{Answer, Notes};
use super::late::Late;
use crate::keys::LinkKey;
use heddle_proto::cell::CircId;
use heddle_proto::ids::{RelayIds, RsaId};
use std::collections::BTreeMap;

/// With hop-by-hop flow control a flow is not read while so many of its cells wait in the circuit's other lane. It is
/// looked at after every cell, so this is also the most that wait: 64 cells, 33 KB, are what one call to a kernel
/// takes, in a super-datagram or a send buffer. More would not leave sooner, since what comes next lies in the flow's
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
    holds: Vec<Hold>,
    pub(super) notes: Notes,
    pub(super) late: Late,
}

impl Flows {
    /// The connections to a relay.
    pub fn links_to(&self, rsa: &RsaId) -> &[LinkKey] {
        self.links.get(rsa).map_or(&[], Vec::as_slice)
    }

    pub fn has_holds(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Takes what endpoints are to be told. Of two words on one flow the later one counts.
    pub fn take_holds(&mut self) -> impl Iterator<Item = Hold> {
        self.holds.drain(..)
    }

    /// There are pairs to be told.
    pub fn count_answers(&mut self) {
        self.notes.counts_answers = true;
    }

    pub fn pop_touched(&mut self) -> Option<LinkKey> {
        self.notes.touched.pop()
    }

    pub fn pop_answer(&mut self) -> Option<Answer> {
        self.notes.answers.pop()
    }

    pub fn take_retired(&mut self) -> Vec<RelayIds> {
        core::mem::take(&mut self.notes.retired)
    }
}
