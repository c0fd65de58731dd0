//! What guards say of credit.

use super::OnionProxy;
use heddle_proto::credit::CreditCell;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

impl OnionProxy {
    /// A guard spoke of credit.
    pub(super) fn on_credit(&mut self, now: Instant, socket: SocketId, cell: CreditCell) {
        let Some(guard) = self.guards.get_mut(&socket) else { return };
        match cell {
            CreditCell::Agreement(n23) => {
                guard.credit.get_or_insert(n23);
            }
            CreditCell::Circuit { circ_id, message } => {
                let Some(&number) = guard.circuits.get(&circ_id) else { return };
                if let Some(circuit) = self.circuits.get_mut(&number) {
                    circuit.origin.handle_credit(message);
                    self.after_cell(now, number);
                }
            }
        }
    }
}
