//! Circuits that nobody uses are looked at, and end to make room ([`crate::circuits::IdleRound`]).

use super::Core;
use crate::admission::{CircuitPlace, Party, Refusal, Unused};
use crate::keys::CircuitKey;
use crate::message::Wanted;
use crate::table::{Circuit, Lane, Next};
use heddle_proto::cell::create::DestroyReason;
use heddle_seam::time::Duration;

/// Stock Tor's `IDLE_ONE_HOP_CIRC_TIMEOUT`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

impl Core {
    /// Once a second: circuits end that are idle for too long, or are marked.
    pub(super) fn end_idle_circuits(&mut self) {
        let now = self.now;
        self.idle_round.shrink();
        while let Some(key) = self.idle_round.pop_due(now) {
            let Some(unused) = self.look_at(key) else { continue };
            let Some(circuit) = self.table.get(key) else { continue };
            let (since, ends_here) = (circuit.used_at(), matches!(circuit.next(), Next::None));
            if let Some(unused) = unused.filter(|_| now.since(since) >= IDLE_TIMEOUT) {
                if ends_here && self.is_of_client(key) {
                    self.admission.note_idle_circuit();
                    self.close_circuit(key, DestroyReason::FINISHED);
                    continue;
                }
                let circuit = self.table.get_mut(key);
                if circuit.is_some_and(Circuit::mark_unused) {
                    self.admission.circuit_unused(key, Some((unused, since)));
                }
            }
            self.watch_idle(key);
        }
    }

    /// Makes room for one circuit more, if its neighbour may have it: another may have to end for it.
    pub(super) fn make_room(&mut self, party: Party) -> Result<(), Refusal> {
        while let Some(place) = self.admission.admit_circuit(self.now, party)? {
            let other = match place {
                CircuitPlace::Circuit(other) => other,
                CircuitPlace::Farewells(link) => {
                    self.end_for_farewells(link);
                    break;
                }
            };
            // One that was marked may have been used again since it was looked at.
            let was_marked = self.table.get(other).is_some_and(Circuit::is_marked);
            if was_marked && self.look_at(other) == Some(None) {
                continue;
            }
            self.admission.note_circuit_gave_way();
            self.close_circuit(other, DestroyReason::RESOURCELIMIT);
            break;
        }
        Ok(())
    }

    /// A circuit without a layer, if there is room for one.
    pub(super) fn insert_transit(
        &mut self,
        party: Party,
        prev: Lane,
        wanted: Box<Wanted>,
    ) -> Option<CircuitKey> {
        self.make_room(party).ok()?;
        let key = self.table.insert(Circuit::transit(self.now, party, prev, wanted));
        self.admission.circuit_begins(self.now, key, party);
        self.watch_idle(key);
        self.log_transit(key);
        Some(key)
    }

    /// In what way nobody uses a circuit, if it is there and nobody does. If somebody does that is noted.
    fn look_at(&mut self, key: CircuitKey) -> Option<Option<Unused>> {
        let unused = self.table.get_mut(key).map(Circuit::look)?;
        if unused.is_none() {
            self.note_used(key);
        }
        Some(unused)
    }

    fn is_of_client(&self, key: CircuitKey) -> bool {
        let Some(circuit) = self.table.get(key) else { return false };
        self.links
            .get(circuit.prev().link())
            .is_some_and(|link| self.links.is_client(circuit.party(), link.peer()))
    }
}
