//! Circuits end, and lanes with them.

use super::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::links::{ANSWER_PATIENCE, DialKey, EndedDial};
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
        self.log_destroyed(key, &circuit, reason, silent);
        self.admission.circuit_ends(key);
        self.sessions.end(key);
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

    /// A circuit ends whose next hop may not have answered. If that is not the peer's doing, it counts as the peer's
    /// failure only after [`ANSWER_PATIENCE`]: clients that give up at once say nothing about it.
    fn note_no_answer(&mut self, key: CircuitKey) {
        let Some(link) = self.table.unanswered_on(key) else { return };
        let Some(left_at) = self.table.get(key).and_then(Circuit::create_left_at) else { return };
        if self.now.since(left_at) >= ANSWER_PATIENCE {
            self.links.note_answer(link, false);
        }
    }

    /// A peer answered a circuit's CREATE2, or refused it. That, and how long it took after CREATE2 left, tells whether
    /// it has much to do: what waited in our own queue says nothing of the peer.
    pub(super) fn note_create_answered(&mut self, link: LinkKey, key: CircuitKey, has_room: bool) {
        if let Some(left_at) = self.table.get(key).and_then(Circuit::create_left_at) {
            self.links.on_create_answered(self.now, link, left_at, has_room);
        }
    }

    /// A CREATE2 that went out on a link was answered, or never will be.
    pub(super) fn give_unanswered(&mut self, link: LinkKey) {
        if self.links.end_create(link) {
            self.table.list(link);
        }
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
        if lane.is_flow_to_begin() && self.links.give_up_flow(link_key) {
            // The flow was never opened, so there is nothing to end.
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
