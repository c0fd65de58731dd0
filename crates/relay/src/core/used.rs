//! When circuits were used last.

use super::Core;
use crate::keys::CircuitKey;

impl Core {
    /// A circuit opened.
    pub(super) fn watch_idle(&mut self, key: CircuitKey) {
        self.idle_round.push(self.now, key);
    }

    /// A circuit is used, or was until now: its minute begins again.
    pub(super) fn note_used(&mut self, key: CircuitKey) {
        let Some(circuit) = self.table.get_mut(key) else { return };
        if circuit.note_used(self.now) {
            self.admission.circuit_unused(key, None);
        }
    }
}
