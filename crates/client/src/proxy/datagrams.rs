//! Circuits whose cells are datagrams.

use super::{CircuitNumber, OnionProxy, ProxyCircuit, ProxyEvent};
use crate::circuit::Closed;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

impl OnionProxy {
    /// Whether the cells of circuits that are built from now on are to be datagrams. Their relays must allow it, or
    /// they are never built.
    pub fn forward_datagrams(&mut self, wanted: bool) {
        self.forwards = wanted;
    }

    /// All hops are joined.
    pub(super) fn after_last_hop(&mut self, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number).filter(|_| self.forwards) else {
            return self.event(ProxyEvent::Built(number));
        };
        self.dirty.insert(circuit.guard);
        if circuit.origin.forward_datagrams().is_err() {
            self.close_circuit(number);
            let why = Closed::Misbehaved("datagrams cannot be asked for");
            self.event(ProxyEvent::CircuitClosed(number, why));
        }
    }

    /// Lets the sessions of a channel's circuits make the cells that are to leave now.
    pub(super) fn pump_sessions(&mut self, now: Instant, socket: SocketId) {
        let numbers = self.guards.get(&socket).into_iter().flat_map(|guard| guard.circuits.values());
        for number in numbers {
            if let Some(circuit) = self.circuits.get_mut(number) {
                circuit.origin.pump_session(now);
            }
        }
    }

    pub(super) fn session_timeouts(&self) -> impl Iterator<Item = Instant> {
        self.circuits.values().filter_map(|circuit| circuit.origin.session_timeout())
    }

    /// Sessions whose time has come.
    pub(super) fn wake_sessions(&mut self, now: Instant) {
        let is_due = |circuit: &ProxyCircuit| circuit.origin.session_timeout().is_some_and(|at| at <= now);
        let due = self.circuits.iter().filter(|(_, circuit)| is_due(circuit)).map(|(number, _)| *number);
        for number in due.collect::<Vec<_>>() {
            let Some(circuit) = self.circuits.get_mut(&number) else { continue };
            circuit.origin.handle_session_timeout(now);
            self.dirty.insert(circuit.guard);
            self.after_cell(now, number);
        }
    }
}
