//! Whether our ORPort can be reached: a circuit of our own that ends with ourselves.
//!
//! 1. [`Control::ProbeReachability`](crate::Control) names relays of the consensus. CREATE2 goes to
//!    the first of them, over a channel that is found or dialled as for anybody's circuit.
//! 2. Each EXTENDED2 is followed by EXTEND2 to the next relay, and at last to ourselves. No relay
//!    extends a circuit back to where it came from, so that two are needed besides us.
//! 3. CREATE2 reaches us over a channel that the last of them has dialled, and its answer goes all
//!    the way back: `Event::Reachable`. Anything else within [`PROBE_TIMEOUT`] is
//!    `Event::ProbeFailed`.
//!
//! In this shard the probe is a transit circuit whose previous lane leads to no link: what is
//! queued there is for us.

mod work;

use crate::keys::CircuitKey;
use heddle_client::{Hop, OriginCircuit};
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
    /// The relay that is to come back to us.
    last: RsaId,
    deadline: Instant,
}
