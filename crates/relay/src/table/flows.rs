//! Flows that are full or held.

use super::{Lane, LaneFlow, Table};
use crate::keys::{CircuitKey, LinkKey, Side};
use heddle_proto::cell::CircId;
use heddle_seam::time::Instant;

impl Table {
    /// The first cell of a flow left, so that the flow exists.
    pub fn begin_flow(&mut self, link: LinkKey, circ_id: CircId) {
        if let Some(flow) = self.flow_mut(link, circ_id) {
            flow.begun = true;
        }
    }

    /// A flow takes no cell any more, or cells again.
    pub fn set_blocked(&mut self, now: Instant, link: LinkKey, circ_id: CircId, is_blocked: bool) {
        if let Some(flow) = self.flow_mut(link, circ_id) {
            flow.blocked = is_blocked;
        }
        if !is_blocked && let Some((key, side)) = self.find(link, circ_id) {
            self.mark_ready(now, key, side);
        }
    }

    /// Whether a lane is on a flow that is not read.
    pub fn is_held(&self, key: CircuitKey, side: Side) -> bool {
        let flow = self.get(key).and_then(|circuit| circuit.lane(side)).and_then(Lane::flow);
        flow.is_some_and(|flow| flow.held)
    }

    /// A flow is read no more, or again. Returns its name if that is news.
    pub fn set_held(&mut self, key: CircuitKey, side: Side, is_held: bool) -> Option<(LinkKey, CircId)> {
        let lane = self.lane_mut(key, side)?;
        let was_held = core::mem::replace(&mut lane.flow.as_mut()?.held, is_held);
        (was_held != is_held).then_some((lane.link, lane.circ_id))
    }

    fn flow_mut(&mut self, link: LinkKey, circ_id: CircId) -> Option<&mut LaneFlow> {
        let (key, side) = self.find(link, circ_id)?;
        self.lane_mut(key, side)?.flow.as_mut()
    }
}
