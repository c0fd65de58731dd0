//! Circuits end, and lanes with them.

use super::Core;
use crate::keys::{CircuitKey, Side};
use crate::links::{DialKey, EndedDial, Link};
use crate::message::Wanted;
use crate::table::{Circuit, Lane, Next};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::ChannelError;
use heddle_proto::ids::RsaId;
use heddle_seam::node::SocketId;
use std::collections::BTreeSet;

impl Core {
    /// Ends a circuit: DESTROY goes both ways.
    pub(super) fn close_circuit(&mut self, key: CircuitKey, reason: DestroyReason) {
        self.end_circuit(key, reason, None);
    }

    /// Ends a circuit without a word on `silent`, where the end came from.
    pub(super) fn end_circuit(&mut self, key: CircuitKey, reason: DestroyReason, silent: Option<Side>) {
        if silent != Some(Side::Next) {
            self.note_no_answer(key);
        }
        let Some(mut circuit) = self.table.remove(key) else {
            return;
        };
        self.admission.circuit_ends(key);
        self.give_up_onionskin(&circuit);
        if let Some(end) = circuit.take_end() {
            self.drop_end(*end);
        }
        let (prev, next) = circuit.into_lanes();
        match next {
            Next::None | Next::Queued { .. } => {}
            Next::Waiting(wanted) => self.stop_waiting(key, &wanted),
            Next::Creating { lane, .. } | Next::Joined(lane) => {
                self.drop_lane(lane, (silent != Some(Side::Next)).then_some(reason));
            }
        }
        self.drop_lane(prev, (silent != Some(Side::Prev)).then_some(reason));
    }

    /// The circuit broke a rule that costs it its life.
    pub(super) fn punish(&mut self, key: CircuitKey) {
        self.close_circuit(key, DestroyReason::PROTOCOL);
    }

    /// Gives up a lane and its cells; says DESTROY with `farewell`, or nothing.
    pub(super) fn drop_lane(&mut self, lane: Lane, mut farewell: Option<DestroyReason>) {
        let link_key = lane.link();
        if lane.is_unanswered() {
            self.give_unanswered(link_key);
        }
        if lane.is_flow_to_begin()
            && let Some(flows) = self.links.get_mut(link_key).and_then(Link::flows_mut)
        {
            // The flow was never opened, so there is nothing to end.
            flows.give_up_flow();
            farewell = None;
        }
        self.table.drop_lane(&mut self.pool, lane, farewell);
        match farewell {
            Some(_) => self.count_farewells(link_key),
            None => self.note_if_idle(link_key),
        }
    }

    /// A circuit ends: if its onionskin waits, it does so no longer, and others may have its place at once.
    fn give_up_onionskin(&mut self, circuit: &Circuit) {
        if let Some(party) = circuit.job().and_then(|job| self.jobs.give_up(job)) {
            self.admission.onionskin_ends(party);
        }
    }

    /// A circuit that waited for a channel waits no longer.
    pub(super) fn stop_waiting(&mut self, key: CircuitKey, wanted: &Wanted) {
        if let Some(socket) = DialKey::of(wanted).and_then(|dial| self.dials.leave(&dial, key)) {
            self.end_dial(socket);
            self.dials.end_soon(socket, ChannelError::Idle);
            self.release(wanted.target.rsa);
        }
    }

    /// A dial is over. Returns whom it was for, and the circuits that wait.
    pub(super) fn end_dial(&mut self, socket: SocketId) -> Option<(RsaId, BTreeSet<CircuitKey>)> {
        let EndedDial { rsa, waiting, is_counted_out } = self.dials.end(self.now, socket)?;
        if is_counted_out {
            self.admission.dial_ends(socket);
        }
        Some((rsa, waiting))
    }
}
