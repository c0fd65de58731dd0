//! The probe begins, and goes as far as cells allow ([`Probe`]).

use super::Core;
use crate::admission::Party;
use crate::circuits::{Probe, Progress};
use crate::keys::LinkKey;
use crate::message::{Event, ProbeHop, Wanted};
use crate::table::Lane;
use heddle_client::{Handshake, Hop, OriginCircuit};
use heddle_proto::cell::CircId;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::{Role, Target};
use heddle_proto::ids::RsaId;
use std::collections::VecDeque;

impl Core {
    /// Begins a probe. There is one at a time: another one fails at once.
    pub fn start_probe(&mut self, via: Vec<ProbeHop>, ourselves: Target) {
        let begun = self.probe.is_none().then(|| self.begin_probe(via, ourselves)).flatten();
        match begun {
            Some(probe) => {
                let key = probe.circuit();
                self.probe = Some(probe);
                self.find_channel(key);
            }
            None => self.event(Event::ProbeFailed),
        }
    }

    fn begin_probe(&mut self, via: Vec<ProbeHop>, ourselves: Target) -> Option<Probe> {
        let ntor_key = *self.keys.as_ref()?.ntor_current.public();
        let over: Vec<RsaId> = via.iter().map(|hop| hop.target.rsa).collect();
        let via = via.into_iter().map(|hop| Hop { target: hop.target, ntor_key: hop.ntor_key });
        let mut hops: VecDeque<Hop> = via.chain([Hop { target: ourselves, ntor_key }]).collect();
        let first = hops.pop_front()?;
        let mut origin = OriginCircuit::new(self.params.clone(), self.entropy.rng());
        origin.create(&first, Handshake::Ntor).ok()?;
        let create2 = origin.poll_cell()?.body;
        // No link has this key.
        let prev = Lane::new(LinkKey::default(), CircId::new(1)?, None);
        let wanted = Box::new(Wanted { target: first.target, create2, addrs_tried: 0, over_channel: false });
        let party = Party::Relay(self.config.ids.rsa);
        let key = self.insert_transit(party, prev, wanted)?;
        Some(Probe::new(self.now, key, origin, hops, over))
    }

    /// Takes the probe as far as the cells that came allow; to be called after every input.
    pub fn advance_probe(&mut self) {
        let Some(mut probe) = self.probe.take() else { return };
        match self.step_probe(&mut probe) {
            Progress::UnderWay if !probe.is_late(self.now) => self.probe = Some(probe),
            Progress::Complete if !self.has_dialled_last(&probe) => {
                self.close_circuit(probe.circuit(), DestroyReason::NONE);
                self.event(Event::Reachable);
            }
            // Of a circuit that came back over a channel of our own making we learn nothing.
            Progress::UnderWay | Progress::Complete | Progress::Failed => {
                self.close_circuit(probe.circuit(), DestroyReason::NONE);
                self.retire_dialled(probe.via());
                self.event(Event::ProbeFailed);
            }
        }
    }

    fn step_probe(&mut self, probe: &mut Probe) -> Progress {
        let key = probe.circuit();
        while let Some(slot) = self.table.pop_prev(&mut self.pool, key) {
            let progress = probe.handle_cell(self.now, self.pool.command(&slot), self.pool.body(&slot));
            self.pool.free(slot);
            let Progress::UnderWay = progress else { return progress };
            while let Some(cell) = probe.poll_cell() {
                self.on_forward(key, cell.command, &cell.body);
            }
        }
        match self.table.contains(key) {
            true => Progress::UnderWay,
            false => Progress::Failed,
        }
    }

    /// Whether this shard itself has opened a channel to the relay that is to come back, or one that vouched for flows
    /// that are still there.
    fn has_dialled_last(&self, probe: &Probe) -> bool {
        let last = probe.via().last();
        last.is_some_and(|rsa| self.links.to(rsa).any(|link| link.role() == Some(Role::Initiator)))
    }

    /// Channels to relays that we dialled and over which no circuit goes, that of a probe but for its DESTROY.
    fn retire_dialled(&mut self, relays: &[RsaId]) {
        let is_unused = |link| self.table.ids_len(link) == self.table.farewells_len(link);
        relays.iter().for_each(|rsa| self.links.retire_dialled(rsa, is_unused));
    }
}
