//! Whether our ORPort can be reached: a circuit of our own that ends with ourselves.
//!
//! 1. [`Control::ProbeReachability`](crate::Control) names relays of the consensus. CREATE2 goes to
//!    the first of them, over a channel that is found or dialled as for anybody's circuit.
//! 2. Each EXTENDED2 is followed by EXTEND2 to the next relay, and at last to ourselves. No relay
//!    extends a circuit back to where it came from, so that two are needed besides us.
//! 3. CREATE2 reaches us over a channel that the last of them has dialled, and its answer goes all
//!    the way back: `Event::Reachable`. Anything else within [`PROBE_TIMEOUT`] is
//!    `Event::ProbeFailed`.
//! 4. A relay that we have dialled comes back over our own channel, which proves nothing. So what a probe in vain
//!    dialled is closed before long: else every relay of a small network would have been dialled soon, and none could
//!    ever say that we are reached.
//!
//! In this shard the probe is a transit circuit whose previous lane leads to no link: what is
//! queued there is for us.

use crate::keys::CircuitKey;
use heddle_client::{Handshake, Hop, OriginCell, OriginCircuit, OriginEvent};
use heddle_proto::cell::{Body, Command};
use heddle_proto::ids::RsaId;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

/// A probe that takes longer has failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// The probe under way.
pub(crate) struct Probe {
    key: CircuitKey,
    origin: OriginCircuit,
    /// Hops that are still to be asked for, ourselves last.
    hops: VecDeque<Hop>,
    /// The relays that it goes over; the last is to come back to us.
    via: Vec<RsaId>,
    deadline: Instant,
}

/// How a probe goes on.
pub(crate) enum Progress {
    UnderWay,
    Complete,
    Failed,
}

impl Probe {
    /// A probe whose first hop was asked for by `origin`, on the circuit `key`.
    pub fn new(
        now: Instant,
        key: CircuitKey,
        origin: OriginCircuit,
        hops: VecDeque<Hop>,
        via: Vec<RsaId>,
    ) -> Self {
        Probe { key, origin, hops, via, deadline: now + PROBE_TIMEOUT }
    }

    pub fn circuit(&self) -> CircuitKey {
        self.key
    }

    /// The relays that it goes over; the last is to come back to us.
    pub fn via(&self) -> &[RsaId] {
        &self.via
    }

    pub fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// A cell came back. What goes out for it is polled next.
    pub fn handle_cell(&mut self, now: Instant, command: Command, body: &Body) -> Progress {
        self.origin.handle_cell(now, command, body);
        while let Some(event) = self.origin.poll_event() {
            let OriginEvent::Joined { .. } = event else { return Progress::Failed };
            let Some(hop) = self.hops.pop_front() else { return Progress::Complete };
            if self.origin.extend(&hop, Handshake::Ntor).is_err() {
                return Progress::Failed;
            }
        }
        Progress::UnderWay
    }

    pub fn poll_cell(&mut self) -> Option<OriginCell> {
        self.origin.poll_cell()
    }
}
