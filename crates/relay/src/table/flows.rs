//! Flows that are full or held.

use super::{Credit, Table};
use crate::keys::{CircuitKey, LinkKey, Side};
use heddle_proto::cell::CircId;
use heddle_seam::time::Instant;

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
