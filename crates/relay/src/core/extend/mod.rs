//! Circuits grow: EXTEND2 comes from the client, CREATE2 goes to the next relay, CREATED2 comes
//! back, EXTENDED2 goes to the client (tor-spec, "EXTEND and EXTENDED cells").
//!
//! 1. EXTEND2 comes: it is checked, a channel to its relay is looked for.
//! 2. There is one: CREATE2 is queued on it. There is none: the circuit waits while one is dialled,
//!    or while another shard is asked.
//! 3. CREATED2 comes: the lane is joined and EXTENDED2 goes back.

mod crossing;
mod dials;
mod find;
mod onward;

use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::message::Wanted;
use crate::table::Next;
use core::net::SocketAddr;
use heddle_proto::cell::create::{Create2, Created2, DestroyReason};
use heddle_proto::cell::extend::{Extend2, ExtendTarget, Extended2};
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::Target;
use heddle_proto::ids::{Ed25519Id, RsaId};

impl Core {
    /// The client wants one hop more.
    pub(in crate::core) fn on_extend2(&mut self, key: CircuitKey, command: Command, data: &[u8]) {
        let extended = self.check_extend(key, command, data);
        let wanted = match extended {
            Ok(wanted) => wanted,
            Err(reason) => return self.close_circuit(key, reason),
        };
        self.table.wait(key, Box::new(wanted));
        self.note_used(key);
        self.find_channel(key);
    }

    fn check_extend(&self, key: CircuitKey, command: Command, data: &[u8]) -> Result<Wanted, DestroyReason> {
        const REFUSED: DestroyReason = DestroyReason::PROTOCOL;
        let circuit = self.table.get(key).ok_or(REFUSED)?;
        // "A relay MUST NOT accept EXTEND in anything but RELAY_EARLY"; once a circuit.
        if command != Command::RELAY_EARLY || !matches!(circuit.next(), Next::None) {
            return Err(REFUSED);
        }
        let extend = Extend2::parse(data).map_err(|_| REFUSED)?;
        let wanted = extend.target().map_err(|_| REFUSED)?;
        let target = self.check_target(circuit.prev().link(), &wanted)?;
        let mut bytes = Vec::with_capacity(BODY_LEN);
        Create2 { htype: extend.htype, hdata: extend.hdata }.encode(&mut bytes);
        let mut create2 = [0; BODY_LEN];
        create2.get_mut(..bytes.len()).ok_or(REFUSED)?.copy_from_slice(&bytes);
        Ok(Wanted { target, create2, addrs_tried: 0, over_channel: false })
    }

    /// Whom a circuit may be extended to: not to ourselves, not back to where it came from, and
    /// not into private networks.
    fn check_target(&self, prev: LinkKey, wanted: &ExtendTarget) -> Result<Target, DestroyReason> {
        let rsa = RsaId(wanted.rsa_id);
        // Who says only the weaker identity means the relay that has it; as by stock Tor.
        let ed25519 = wanted.ed25519_id.map(Ed25519Id).or_else(|| self.links.listed_ed25519(&rsa));
        let ours = &self.config.ids;
        let back = self.links.get(prev).and_then(|link| link.peer());
        for relay in [Some(*ours), back].into_iter().flatten() {
            if relay.rsa == rsa || ed25519 == Some(relay.ed25519) {
                return Err(DestroyReason::PROTOCOL);
            }
        }
        let ipv4 = wanted.ipv4.map(SocketAddr::V4);
        let ipv6 = wanted.ipv6.map(SocketAddr::V6);
        let usable = |addr: &SocketAddr| {
            addr.port() != 0 && (self.config.extend_to_private || heddle_proto::policy::is_global(addr.ip()))
        };
        let addrs: Vec<_> = ipv4.into_iter().chain(ipv6).filter(usable).collect();
        match addrs.is_empty() {
            true => Err(DestroyReason::PROTOCOL),
            false => Ok(Target { rsa, ed25519, addrs }),
        }
    }

    /// The next relay answered our CREATE2.
    pub(in crate::core) fn on_created(
        &mut self,
        link: LinkKey,
        circ_id: CircId,
        command: Command,
        body: &Body,
    ) {
        let Some((key, Side::Next)) = self.table.find(link, circ_id) else {
            return;
        };
        self.log_cell_in(key, Side::Next, command);
        let Some(circuit) = self.table.get(key) else {
            return;
        };
        let expected = command == Command::CREATED2 && matches!(circuit.next(), Next::Creating { .. });
        if !expected {
            return self.close_circuit(key, DestroyReason::PROTOCOL);
        }
        let transit = circuit.is_transit();
        self.note_create_answered(link, key, true);
        self.links.on_created(self.now, key);
        self.links.note_answer(link, true);
        if self.table.join(key) == Some(true) {
            self.give_unanswered(link);
        }
        self.begin_credit(key, Side::Next);
        if transit {
            let Some(slot) = self.take_slot(command) else {
                return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
            };
            self.pool.body_mut(&slot).copy_from_slice(body);
            return self.enqueue(key, Side::Prev, slot);
        }
        let extended = Created2::parse(body).and_then(|created| Extended2::from_created(&created));
        match extended {
            Ok(extended) => {
                let mut data = Vec::with_capacity(BODY_LEN);
                extended.encode(&mut data);
                self.send_relay(key, RelayCommand::EXTENDED2, None, &data);
            }
            Err(_) => self.close_circuit(key, DestroyReason::PROTOCOL),
        }
    }
}
