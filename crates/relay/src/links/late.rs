//! CREATE2 cells on flows that are not answered for long, though the path is not silent: one flow may lose all it sends
//! again while others are answered, so suspicion (`pairs`) does not come for it.
//!
//! 1. CREATE2 is to go out on a flow: the circuit is listed.
//! 2. It is not answered for [`CREATE_PATIENCE`]: it goes over a channel, with the same handshake. The flow ends, so
//!    what it still answers reaches nobody.
//! 3. The channel answers within as much time: it was the flow that failed, unless CREATE2 waited here for part of its
//!    time, because our own rate or a full window let nothing leave. Where the channel is late as well, or is refused
//!    for want of room, the peer has much to do, whatever carries cells to it. So it has if other flows of the
//!    connection were answered late of late: it works off what came on one connection in its order, and what comes on
//!    the channel takes turns with that.
//! 4. After [`SILENCE_PATIENCE`] the connection is still in use: the path was not silent, so it counts as the peer's
//!    failure.
//!
//! So who keeps a peer busy, which any client can, moves nobody to TLS. A peer that means to is not held to anything by
//! this: it may be late on channels, too.
//!
//! The lists hold what was begun in the last few seconds, because each entry leaves by its time whatever became of the
//! circuit.

use super::answers::ANSWER_PATIENCE;
use super::unanswered::CREATE_PATIENCE;
use crate::keys::{CircuitKey, LinkKey};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// How long a path may be silent before it is suspect, less the time in which CREATE2 and the channel's answer came.
const SILENCE_PATIENCE: Duration = Duration::from_secs(ANSWER_PATIENCE.as_secs() - CREATE_PATIENCE.as_secs());

/// Since when which circuit waits, which of them went over a channel when, and since when a connection is known to owe
/// an answer; the first and the last in that order.
#[derive(Debug, Default)]
pub(crate) struct Late {
    creating: VecDeque<(Instant, CircuitKey)>,
    again: BTreeMap<CircuitKey, (Instant, LinkKey)>,
    owed: VecDeque<(Instant, LinkKey)>,
}

impl Late {
    /// CREATE2 is to go out on a flow.
    pub fn watch(&mut self, now: Instant, circuit: CircuitKey) {
        self.creating.push_back((now, circuit));
    }

    /// A circuit that has waited long enough, if it still does, and since when.
    pub fn pop_circuit(&mut self, now: Instant) -> Option<(Instant, CircuitKey)> {
        pop_late(&mut self.creating, now, CREATE_PATIENCE)
    }

    /// A circuit that a connection did not answer goes over a channel.
    pub fn ask_again(&mut self, now: Instant, circuit: CircuitKey, link: LinkKey) {
        self.again.insert(circuit, (now, link));
    }

    /// A circuit's CREATE2 led to CREATED2. If that came over a channel in time, the connection before it owes one.
    pub fn on_created(&mut self, now: Instant, circuit: CircuitKey) {
        let Some((since, link)) = self.again.remove(&circuit) else { return };
        if now.since(since) < CREATE_PATIENCE {
            self.owed.push_back((now, link));
        }
    }

    /// What is asked again over channels and was not answered there in time tells nothing.
    pub fn forget_late(&mut self, now: Instant) {
        self.again.retain(|_, (since, _)| now.since(*since) < CREATE_PATIENCE);
    }

    /// A connection that has owed an answer for too long.
    pub fn pop_link(&mut self, now: Instant) -> Option<LinkKey> {
        pop_late(&mut self.owed, now, SILENCE_PATIENCE).map(|(_, link)| link)
    }
}

/// The first of a list, if it has waited for so long.
fn pop_late<T>(list: &mut VecDeque<(Instant, T)>, now: Instant, patience: Duration) -> Option<(Instant, T)> {
    let is_late = list.front().is_some_and(|(since, _)| now.since(*since) >= patience);
    if is_late { list.pop_front() } else { None }
}
