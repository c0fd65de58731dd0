//! FORWARD: a client wants its circuit's cells to be datagrams from now on ([`crate::forwarding`]).

use super::Core;
use crate::keys::CircuitKey;
use crate::table::{Circuit, Next};
use heddle_forwarding::{Forward, Forwarded, Part};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;

impl Core {
    /// FORWARD: the client wants datagrams to go from now on. It is heard only where the operator allows it, once, and
    /// before there are streams.
    pub(super) fn on_forward_asked(&mut self, key: CircuitKey, data: &[u8]) {
        if !self.config.forwards_datagrams {
            return;
        }
        let may_begin = self.table.get(key).is_some_and(Circuit::may_forward);
        let Some(forward) = Forward::parse(data).filter(|_| may_begin) else { return self.punish(key) };
        let is_its_part = self.table.get(key).is_some_and(|circuit| match forward.part {
            Part::Pass => matches!(circuit.next(), Next::Joined(_)),
            Part::End => matches!(circuit.next(), Next::None),
        });
        if !is_its_part {
            return self.punish(key);
        }
        let mut answer = Vec::new();
        Forwarded(forward.part).encode(&mut answer);
        // The last relay cell of the old kind that goes to the client from here.
        if self.send_relay(key, RelayCommand::FORWARDED, None, &answer).is_none() {
            // The client would wait for an answer that never comes.
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        }
        if let Some(circuit) = self.table.get_mut(key) {
            circuit.begin_forwarding(self.sessions.begin(key, &forward));
        }
    }
}
