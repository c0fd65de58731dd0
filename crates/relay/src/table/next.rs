//! How a circuit's next lane comes and goes.

use super::circuit::Next;
use super::{Lane, Table};
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::message::Wanted;
use heddle_proto::cell::CircId;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::pool::CellPool;
use heddle_seam::time::Instant;

impl Table {
    /// A circuit without a next hop is to have one: it waits for a link.
    pub fn wait(&mut self, key: CircuitKey, wanted: Box<Wanted>) {
        self.change_next(key, |next| match next {
            Next::None => (Next::Waiting(wanted), ()),
            next => (next, ()),
        });
    }

    /// A circuit that waits for a link waits for its turn on this one.
    pub fn queue_on(&mut self, key: CircuitKey, link: LinkKey) {
        self.change_next(key, |next| match next {
            Next::Waiting(wanted) => (Next::Queued { wanted, link }, ()),
            next => (next, ()),
        });
    }

    /// Whether a circuit waits for its turn on this link.
    pub fn is_queued_on(&self, key: CircuitKey, link: LinkKey) -> bool {
        let next = self.get(key).map(|circuit| &circuit.next);
        matches!(next, Some(Next::Queued { link: queued_on, .. }) if *queued_on == link)
    }

    /// Its turn has come, or the link is gone: it waits for a link again. False if it did not wait for this turn.
    pub fn leave_queue(&mut self, key: CircuitKey, link: LinkKey) -> bool {
        let left = self.change_next(key, |next| match next {
            Next::Queued { wanted, link: queued_on } if queued_on == link => (Next::Waiting(wanted), true),
            next => (next, false),
        });
        left == Some(true)
    }

    /// Takes what a circuit waits for, so that it has no next hop; [`Table::create`] is to follow.
    pub fn take_wanted(&mut self, key: CircuitKey) -> Option<Box<Wanted>> {
        let wanted = self.change_next(key, |next| match next {
            Next::Waiting(wanted) => (Next::None, Some(wanted)),
            next => (next, None),
        });
        wanted.flatten()
    }

    /// A circuit has a next lane, on which CREATE2 is to go out. `again`: what goes over TLS if that does not answer.
    pub fn create(&mut self, key: CircuitKey, lane: Lane, again: Option<Box<Wanted>>, since: Instant) {
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        debug_assert!(matches!(circuit.next, Next::None));
        self.ledgers += usize::from(lane.ledger.is_some());
        if let Some(ids) = self.links.get_mut(lane.link) {
            ids.take(lane.circ_id, (key, Side::Next));
        }
        circuit.next = Next::Creating { lane, again, since, left_at: None };
    }

    /// CREATE2 leaves on this lane: from now on the next relay is waited for, and not our own queue.
    pub fn create_leaves(&mut self, now: Instant, link: LinkKey, circ_id: CircId) {
        let Some((key, Side::Next)) = self.find(link, circ_id) else { return };
        if let Some(Next::Creating { left_at, .. }) =
            self.circuits.get_mut(key).map(|circuit| &mut circuit.next)
        {
            *left_at = Some(now);
        }
    }

    /// CREATE2 was answered. Returns whether its lane had a place among the unanswered ones; `None` if there was no
    /// CREATE2.
    pub fn join(&mut self, key: CircuitKey) -> Option<bool> {
        let joined = self.change_next(key, |next| match next {
            Next::Creating { mut lane, .. } => {
                let was_unanswered = core::mem::take(&mut lane.unanswered);
                (Next::Joined(lane), Some(was_unanswered))
            }
            next => (next, None),
        });
        joined.flatten()
    }

    /// The flow that CREATE2 went out on is given up: the circuit waits for a link again, once. Returns its lane, which
    /// is to be dropped; `None` if there is nothing that could go again.
    pub fn create_again(&mut self, key: CircuitKey) -> Option<Lane> {
        let lane = self.change_next(key, |next| match next {
            Next::Creating { lane, again: Some(wanted), .. } => (Next::Waiting(wanted), Some(lane)),
            next => (next, None),
        });
        lane.flatten()
    }

    /// The circuit ends here from now on. What was next is the caller's to drop.
    pub fn cut(&mut self, key: CircuitKey) -> Option<Next> {
        self.change_next(key, |next| (Next::None, next))
    }

    fn change_next<T>(&mut self, key: CircuitKey, change: impl FnOnce(Next) -> (Next, T)) -> Option<T> {
        let circuit = self.circuits.get_mut(key)?;
        let (next, result) = change(core::mem::replace(&mut circuit.next, Next::None));
        circuit.next = next;
        Some(result)
    }

    /// Gives up a lane and its cells; its link says DESTROY with `farewell`, or nothing.
    pub fn drop_lane(&mut self, pool: &mut CellPool, mut lane: Lane, farewell: Option<DestroyReason>) {
        pool.clear(&mut lane.queue);
        self.ledgers -= usize::from(lane.ledger.is_some());
        let Some(ids) = self.links.get_mut(lane.link) else { return };
        ids.sweep(lane.link, &self.circuits);
        match farewell {
            Some(reason) => {
                ids.say_farewell(lane.circ_id, reason);
                super::list(ids, lane.link, &mut self.to_flush);
            }
            None => _ = ids.free(lane.circ_id),
        }
    }
}
