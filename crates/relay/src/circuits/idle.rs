//! Circuits that nobody uses: whoever brings many and leaves them must not keep their places for ever.
//!
//! 1. A circuit opens and joins the round.
//! 2. Every ten seconds it is looked at. What it does then is noted; so are its streams and questions as they end.
//! 3. It did nothing for a minute. If it came from a client and ends here, it is closed. Or else it is marked, and
//!    among the first to give way when there is no room for another circuit of its neighbour, or of any.
//!
//! - *Ends here*, or waits for the next relay: it is used while it has streams or questions. Cells alone keep no
//!   circuit, or one of them a minute would. Those of clients are closed as by stock Tor
//!   (`circuit_expire_old_circuits_serverside`). Stock asks when the *channel* sent last, so that one busy circuit
//!   keeps all others of its channel; here each is asked. Relays keep circuits of their clients open that are not
//!   needed yet, so these stay as long as there is room.
//! - *Goes on*: it is used while cells pass. It gives way after those that lead nowhere, because clients keep such
//!   circuits ready; but not never, because the next relay may be the client itself, and answer anything.
//!
//! The round holds each open circuit once, and those that closed for at most ten seconds.

use crate::keys::CircuitKey;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

/// How often each circuit is looked at. With 100,000 circuits these are 10,000 looks a second.
const LOOK_PERIOD: Duration = Duration::from_secs(10);

/// When which circuit is looked at next, in that order.
#[derive(Debug, Default)]
pub(crate) struct IdleRound(VecDeque<(Instant, CircuitKey)>);

impl IdleRound {
    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Instant, CircuitKey)>()
    }

    /// A circuit is to be looked at, in its turn.
    pub fn push(&mut self, now: Instant, key: CircuitKey) {
        self.0.push_back((now + LOOK_PERIOD, key));
    }

    /// A circuit that is to be looked at now.
    pub fn pop_due(&mut self, now: Instant) -> Option<CircuitKey> {
        let (at, key) = *self.0.front()?;
        if at > now {
            return None;
        }
        self.0.pop_front();
        Some(key)
    }

    /// Gives memory back of circuits that are gone.
    pub fn shrink(&mut self) {
        if self.0.capacity() > 4 * self.0.len() {
            self.0.shrink_to(2 * self.0.len());
        }
    }
}
