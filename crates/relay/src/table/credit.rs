//! What lanes may send: flows that are full or held, and cells that another shard still takes.

use super::{Credit, Lane, Table};
use crate::keys::{CircuitKey, LinkKey, Side};
use heddle_proto::cell::CircId;
use heddle_seam::time::Instant;

/// Cells that may be under way on one lane of a crossing, in each direction.
const CROSSING_WINDOW_CELLS: u32 = 64;
/// Credit is reported in portions of this many cells.
const GRANT_CELLS: u32 = 16;

impl Credit {
    /// Of a lane to another shard.
    pub fn crossing() -> Self {
        Credit::Cells { to_send: CROSSING_WINDOW_CELLS, arrived: 0, to_grant: 0 }
    }
}

/// What another shard is to be granted on a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub link: LinkKey,
    pub circ_id: CircId,
    pub cells: u32,
}

/// Flows.
impl Table {
    /// The first cell of a flow left, so that the flow exists.
    pub fn begin_flow(&mut self, link: LinkKey, circ_id: CircId) {
        if let Some(Credit::Flow { begun, .. }) = self.credit_mut(link, circ_id) {
            *begun = true;
        }
    }

    /// A flow takes no cell any more, or cells again.
    pub fn set_blocked(&mut self, now: Instant, link: LinkKey, circ_id: CircId, is_blocked: bool) {
        if let Some(Credit::Flow { blocked, .. }) = self.credit_mut(link, circ_id) {
            *blocked = is_blocked;
        }
        if !is_blocked && let Some((key, side)) = self.find(link, circ_id) {
            self.mark_ready(now, key, side);
        }
    }

    /// What a lane may send.
    pub fn credit(&self, key: CircuitKey, side: Side) -> Option<Credit> {
        Some(self.get(key)?.lane(side)?.credit)
    }

    /// A flow is read no more, or again. Returns its name if that is news.
    pub fn set_held(&mut self, key: CircuitKey, side: Side, is_held: bool) -> Option<(LinkKey, CircId)> {
        let lane = self.lane_mut(key, side)?;
        let Credit::Flow { held, .. } = &mut lane.credit else { return None };
        (core::mem::replace(held, is_held) != is_held).then_some((lane.link, lane.circ_id))
    }

    fn credit_mut(&mut self, link: LinkKey, circ_id: CircId) -> Option<&mut Credit> {
        let (key, side) = self.find(link, circ_id)?;
        Some(&mut self.lane_mut(key, side)?.credit)
    }
}

/// Crossings.
impl Table {
    /// A cell came from another shard.
    pub fn count_arrival(&mut self, link: LinkKey, circ_id: CircId) {
        if let Some(Credit::Cells { arrived, .. }) = self.credit_mut(link, circ_id) {
            *arrived += 1;
        }
    }

    /// Another shard takes more cells.
    pub fn on_credit(&mut self, now: Instant, link: LinkKey, circ_id: CircId, cells: u32) {
        let Some((key, side)) = self.find(link, circ_id) else { return };
        if let Some(Credit::Cells { to_send, .. }) = self.credit_mut(link, circ_id) {
            *to_send += cells;
        }
        self.mark_ready(now, key, side);
    }

    /// A cell left on a circuit's other lane: if it came from another shard over this one, that shard may send one
    /// more. Returns what it is to be told, now and then.
    pub fn grant(&mut self, key: CircuitKey, side: Side) -> Option<Grant> {
        let Lane { link, circ_id, credit, .. } = self.lane_mut(key, side)?;
        let Credit::Cells { arrived, to_grant, .. } = credit else { return None };
        *arrived = arrived.checked_sub(1)?;
        *to_grant += 1;
        if *to_grant < GRANT_CELLS {
            return None;
        }
        Some(Grant { link: *link, circ_id: *circ_id, cells: core::mem::take(to_grant) })
    }
}
