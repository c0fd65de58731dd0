//! A circuit's place on one link, and what it may send there.

use super::ledger::LaneLedger;
use super::measure::LaneCount;
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
    /// The flow that it is on, if its link has flows; channels take all that their capacity allows.
    pub(super) flow: Option<LaneFlow>,
    /// What it and its neighbour owe each other, if they count cells.
    pub(super) ledger: Option<Box<LaneLedger>>,
    /// What the link's scheduler remembers of this lane.
    pub(super) activity: Activity,
    /// What is counted of it, if its client asked for that.
    pub(super) measured: Option<Box<LaneCount>>,
    /// Whether it has a place among the link's unanswered CREATE2 cells.
    pub(super) unanswered: bool,
}

/// What a lane's flow is like: a lane on a channel, or to another shard, has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneFlow {
    /// The flow exists, so that it is ended by a word.
    pub begun: bool,
    /// It takes no cell now.
    pub blocked: bool,
    /// It is not read, because too many of its cells wait in the circuit's other lane.
    pub held: bool,
}

impl LaneFlow {
    /// One that we are to begin, with its first cell.
    pub fn to_begin() -> Self {
        LaneFlow::default()
    }

    /// One that the peer began.
    pub fn begun() -> Self {
        LaneFlow { begun: true, ..LaneFlow::default() }
    }
}

impl Lane {
    pub fn new(link: LinkKey, circ_id: CircId, flow: Option<LaneFlow>) -> Self {
        Lane {
            link,
            circ_id,
            queue: CellQueue::default(),
            ready: false,
            moved: false,
            flow,
            ledger: None,
            activity: Activity::default(),
            measured: None,
            unanswered: false,
        }
    }

    /// One whose CREATE2 takes a place among the link's unanswered ones.
    pub fn unanswered(link: LinkKey, circ_id: CircId, flow: Option<LaneFlow>) -> Self {
        Lane { unanswered: true, ..Lane::new(link, circ_id, flow) }
    }

    /// One to another shard.
    pub fn crossing(link: LinkKey, circ_id: CircId) -> Self {
        Lane { ledger: Some(Box::new(LaneLedger::crossing())), ..Lane::new(link, circ_id, None) }
    }

    /// Whether a cell may leave.
    pub(super) fn may_send(&self) -> bool {
        !self.flow.is_some_and(|flow| flow.blocked)
            && self.ledger.as_ref().is_none_or(|ledger| ledger.has_room())
    }

    /// Whether it has a word of credit to say.
    pub(super) fn has_word(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.is_listed())
    }

    pub fn link(&self) -> LinkKey {
        self.link
    }

    pub fn circ_id(&self) -> CircId {
        self.circ_id
    }

    /// Cells that wait.
    pub fn queued_cells(&self) -> u32 {
        self.queue.len()
    }

    /// When the cell came that has waited longest.
    pub fn oldest(&self, pool: &CellPool) -> Option<Instant> {
        pool.oldest(&self.queue)
    }

    /// The flow that it is on.
    pub fn flow(&self) -> Option<LaneFlow> {
        self.flow
    }

    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether it is on a flow that does not exist yet, so that there is none to be ended.
    pub fn is_flow_to_begin(&self) -> bool {
        self.flow.is_some_and(|flow| !flow.begun)
    }

    pub(super) fn is_open_flow(&self) -> bool {
        self.flow.is_some_and(|flow| flow.begun)
    }
}
