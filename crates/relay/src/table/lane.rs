//! A circuit's place on one link, and what it may send there.

use super::hop::Hop;
use crate::keys::LinkKey;
use crate::scheduler::Activity;
use heddle_proto::cell::CircId;
use heddle_proto::pool::{CellPool, CellQueue};
use heddle_seam::time::Instant;

/// A circuit's place on one link, with the cells that wait to leave there.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) link: LinkKey,
    pub(super) circ_id: CircId,
    pub(super) queue: CellQueue,
    /// Whether the link's scheduler holds a turn of this lane.
    pub(super) ready: bool,
    /// Whether a cell left since the circuit was last looked at; see `idle`.
    pub(super) moved: bool,
    /// What the lane itself may send; channels take all that their capacity allows.
    pub(super) credit: Credit,
    /// What it and its neighbour owe each other, if they count cells.
    pub(super) hop: Option<Box<Hop>>,
    /// What the link's scheduler remembers of this lane.
    pub(super) activity: Activity,
    /// Whether it has a place among the link's unanswered CREATE2 cells.
    pub(super) unanswered: bool,
}

/// Whether what lies behind a lane takes a cell now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credit {
    Unlimited,
    /// `begun`: the flow exists, so that it is ended by a word. `blocked`: it takes no cell now. `held`: it is not
    /// read, because too many of its cells wait in the circuit's other lane.
    Flow {
        begun: bool,
        blocked: bool,
        held: bool,
    },
}

impl Credit {
    /// Of a lane on a flow that we are to begin, with its first cell.
    pub fn flow_to_begin() -> Self {
        Credit::Flow { begun: false, blocked: false, held: false }
    }

    /// Of a lane on a flow that the peer began.
    pub fn flow_begun() -> Self {
        Credit::Flow { begun: true, blocked: false, held: false }
    }
}

impl Lane {
    pub fn new(link: LinkKey, circ_id: CircId, credit: Credit) -> Self {
        Lane {
            link,
            circ_id,
            queue: CellQueue::default(),
            ready: false,
            moved: false,
            credit,
            hop: None,
            activity: Activity::default(),
            unanswered: false,
        }
    }

    /// One whose CREATE2 takes a place among the link's unanswered ones.
    pub fn unanswered(link: LinkKey, circ_id: CircId, credit: Credit) -> Self {
        Lane { unanswered: true, ..Lane::new(link, circ_id, credit) }
    }

    /// One to another shard.
    pub fn crossing(link: LinkKey, circ_id: CircId) -> Self {
        Lane { hop: Some(Box::new(Hop::crossing())), ..Lane::new(link, circ_id, Credit::Unlimited) }
    }

    /// Whether a cell may leave.
    pub(super) fn may_send(&self) -> bool {
        !matches!(self.credit, Credit::Flow { blocked: true, .. })
            && self.hop.as_ref().is_none_or(|hop| hop.has_room())
    }

    /// Whether it has a word of credit to say.
    pub(super) fn has_word(&self) -> bool {
        self.hop.as_ref().is_some_and(|hop| hop.is_listed())
    }

    pub fn link(&self) -> LinkKey {
        self.link
    }

    /// Cells that wait.
    pub fn queued_cells(&self) -> u32 {
        self.queue.len()
    }

    /// When the cell came that has waited longest.
    pub fn oldest(&self, pool: &CellPool) -> Option<Instant> {
        pool.oldest(&self.queue)
    }

    /// Of a flow: whether it takes no cell now, and whether it is not read.
    pub fn flow_state(&self) -> (bool, bool) {
        match self.credit {
            Credit::Flow { blocked, held, .. } => (blocked, held),
            Credit::Unlimited => (false, false),
        }
    }

    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether it is on a flow that does not exist yet, so that there is none to be ended.
    pub fn is_flow_to_begin(&self) -> bool {
        matches!(self.credit, Credit::Flow { begun: false, .. })
    }

    pub(super) fn is_open_flow(&self) -> bool {
        matches!(self.credit, Credit::Flow { begun: true, .. })
    }
}
