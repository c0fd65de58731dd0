//! Circuits of clients that end here and carry nothing are closed after a minute, as by stock Tor
//! (`circuit_expire_old_circuits_serverside`): or whoever sends CREATE_FAST keeps a place for each of them for ever.
//!
//! 1. A circuit opens and joins the round.
//! 2. Every ten seconds it is looked at. What it does then is noted; so are its streams and questions as they end.
//! 3. It did nothing for a minute: it is closed.
//!
//! Stock asks when the *channel* sent last, so that one busy circuit keeps all others of its channel. Here each is asked.
//! Cells alone keep no circuit, or one of them a minute would.
//!
//! The round holds each open circuit once, and those that closed for at most ten seconds.

use super::circuit::{Circuit, CircuitKey, Next};
use super::core::Core;
use crate::cell::create::DestroyReason;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// Stock Tor's `IDLE_ONE_HOP_CIRC_TIMEOUT`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often each circuit is looked at. With 100,000 circuits these are 10,000 looks a second.
const LOOK_PERIOD: Duration = Duration::from_secs(10);

/// When which circuit is looked at next, in that order.
pub(super) type IdleRound = VecDeque<(Instant, CircuitKey)>;

impl Core {
    /// A circuit opened.
    pub fn watch_idle(&mut self, key: CircuitKey) {
        self.idle_round.push_back((self.now + LOOK_PERIOD, key));
    }

    /// A stream or a question of a circuit ended: its minute begins again.
    pub fn note_used(&mut self, key: CircuitKey) {
        if let Some(circuit) = self.circuits.get_mut(key) {
            circuit.used_at = self.now;
        }
    }

    /// Once a second: circuits end that are idle for too long.
    pub fn end_idle_circuits(&mut self) {
        let now = self.now;
        while self.idle_round.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.idle_round.pop_front() else { return };
            let Some(circuit) = self.circuits.get(key) else { continue };
            if !self.is_unused(circuit) {
                self.note_used(key);
            } else if now.since(circuit.used_at) >= IDLE_TIMEOUT {
                self.admission.note_idle_circuit();
                self.close_circuit(key, DestroyReason::FINISHED);
                continue;
            }
            self.watch_idle(key);
        }
    }

    /// Whether a circuit came from a client, ends here and carries nothing. Relays keep circuits of their clients open
    /// that are not needed yet.
    fn is_unused(&self, circuit: &Circuit) -> bool {
        let is_client =
            self.links.get(circuit.prev.link).is_some_and(|link| self.is_client(circuit.party, link.peer()));
        let streams = circuit.end.as_ref().map_or(0, |end| end.streams.len());
        is_client && matches!(circuit.next, Next::None) && streams == 0 && circuit.questions == 0
    }
}
