//! Circuits begin: CREATE2 and CREATE_FAST come in, CREATED2 and CREATED_FAST go out (tor-spec,
//! "CREATE and CREATED cells").
//!
//! 1. CREATE2 comes: limits are checked, the onionskin waits for its turn with the workers (`jobs`), and is refused
//!    when it has waited for too long.
//! 2. The worker's answer comes: the circuit gets its layer, CREATED2 is queued.

use super::Core;
use crate::admission::Class;
use crate::circuits::Purpose;
use crate::job::Job;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::language::Output;
use crate::links::Farewells;
use crate::table::{Circuit, Lane, LaneFlow};
use heddle_proto::cell::create::{Create2, Created2, DestroyReason, FAST_KEY_LEN};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::crypto::onionskin::{Answer, CongestionOffer, HandshakeType, OnionKeys, OnionskinError};
use heddle_seam::node::JobId;
use std::sync::Arc;

impl Core {
    /// A neighbour asks for a circuit.
    pub(super) fn on_create(&mut self, link_key: LinkKey, circ_id: CircId, command: Command, body: &Body) {
        let Some(link) = self.links.get(link_key) else {
            return;
        };
        let Some(role) = link.role() else {
            return;
        };
        // Counted whatever it says, as by stock Tor.
        let keeps_to_rate = self.keeps_to_rate(link_key);
        if role.picks(circ_id) {
            return self.refuse(link_key, circ_id, DestroyReason::PROTOCOL);
        }
        // The id is in use, or its DESTROY has not left yet: dropped, as by stock Tor.
        if self.table.is_taken(link_key, circ_id) {
            return;
        }
        match self.admit(link_key, command, body, keeps_to_rate) {
            Ok((keys, handshake, onionskin)) => {
                self.start_handshake(link_key, circ_id, keys, handshake, onionskin);
                self.log_created(link_key, circ_id, command, body);
            }
            Err(reason) => self.refuse(link_key, circ_id, reason),
        }
    }

    /// Whether there is room for one more circuit, which is taken then, and what its handshake is with which keys.
    fn admit<'a>(
        &mut self,
        link_key: LinkKey,
        command: Command,
        body: &'a Body,
        keeps_to_rate: bool,
    ) -> Result<(Arc<OnionKeys>, HandshakeType, &'a [u8]), DestroyReason> {
        let keys = self.keys.clone().filter(|_| !self.draining).ok_or(DestroyReason::HIBERNATING)?;
        if !keeps_to_rate {
            return Err(DestroyReason::RESOURCELIMIT);
        }
        let (handshake, onionskin) = read_create(command, body)?;
        let link = self.links.get(link_key).ok_or(DestroyReason::INTERNAL)?;
        let party = link.party();
        let has_room = self.has_room(link_key)
            && self.admission.admit_onionskin(party).is_ok()
            && self.make_room(party).is_ok();
        if !has_room {
            return Err(DestroyReason::RESOURCELIMIT);
        }
        self.admission.onionskin_begins(party);
        Ok((keys, handshake, onionskin))
    }

    /// Whether a client begins no more circuits than stock's defences let it.
    fn keeps_to_rate(&mut self, link: LinkKey) -> bool {
        let Some(addr) = self.links.counted_addr(link) else { return true };
        let Some(created) = self.dos.create(self.now, addr, &mut self.rng) else { return true };
        self.meter.on_held_off(created.is_first);
        if !created.may {
            self.admission.note("circuit", "rate");
        }
        created.may
    }

    /// Whether a link has room for one more circuit, or for its refusal. A relay of the consensus may have as many
    /// circuits end at once as there are on a channel.
    fn has_room(&self, link_key: LinkKey) -> bool {
        let Some(link) = self.links.get(link_key) else { return false };
        let is_read =
            link.party().class() == Class::Relay || Farewells::are_few(self.table.farewells_len(link_key));
        is_read && self.table.ids_len(link_key) < self.config.limits.circuits_per_channel
    }

    fn refuse(&mut self, link_key: LinkKey, circ_id: CircId, reason: DestroyReason) {
        self.log_refused(link_key, circ_id, reason);
        // The entry keeps the id taken until the DESTROY is sent; past the limit nothing is said,
        // or a peer that never reads could make us remember refusals without end.
        if self.has_room(link_key) && self.table.refuse(link_key, circ_id, reason) {
            self.count_farewells(link_key);
        }
    }

    fn start_handshake(
        &mut self,
        link: LinkKey,
        circ_id: CircId,
        keys: Arc<OnionKeys>,
        handshake: HandshakeType,
        onionskin: &[u8],
    ) {
        let job = self.jobs.new_id();
        let congestion = self.congestion_offer();
        let Some(of) = self.links.get(link) else { return };
        let (flow, party) = (of.flows().map(|_| LaneFlow::begun()), of.party());
        let prev = Lane::new(link, circ_id, flow);
        let circuit = Circuit::handshaking(self.now, party, prev, (handshake, job), congestion);
        let key = self.table.insert(circuit);
        self.begin_credit(key, Side::Prev);
        self.admission.circuit_begins(self.now, key, party);
        self.touch(link);
        let seed = self.entropy.seed();
        let onionskin = onionskin.to_vec();
        let job_input = Job::Onionskin { keys, handshake, onionskin, congestion, seed };
        self.jobs.push(self.now, link, job, Purpose { circuit: key, party }, job_input);
        self.hand_out_jobs();
    }

    /// Refuses onionskins that have waited for too long, as stock Tor does.
    pub(super) fn refuse_late_onionskins(&mut self) {
        while let Some(Purpose { circuit, party }) = self.jobs.pop_late(self.now) {
            self.admission.onionskin_is_late(party);
            self.close_circuit(circuit, DestroyReason::RESOURCELIMIT);
        }
    }

    /// Gives workers what they may have.
    fn hand_out_jobs(&mut self) {
        self.refuse_late_onionskins();
        while let Some((id, job)) = self.jobs.next() {
            self.outputs.push_back(Output::Compute { id, job });
        }
    }

    /// Whether we agree to congestion control (proposal 324): unless the consensus turned it off, or the operator wants
    /// something else.
    fn congestion_offer(&self) -> Option<CongestionOffer> {
        let wanted =
            self.config.flow_control.wants_congestion_control(&|name| self.params.0.get(name).copied());
        wanted.then(|| CongestionOffer { sendme_inc: self.params.get("cc_sendme_inc", 31, 1, 254) as u8 })
    }

    /// A worker has answered an onionskin.
    pub fn on_answered(&mut self, job: JobId, result: Result<Answer, OnionskinError>) {
        let Some(Purpose { circuit: key, party }) = self.jobs.finish(job) else {
            return;
        };
        self.admission.onionskin_ends(party);
        match result {
            Ok(answer) => self.open_circuit(key, answer),
            Err(_) => self.close_circuit(key, DestroyReason::PROTOCOL),
        }
        self.hand_out_jobs();
    }

    fn open_circuit(&mut self, key: CircuitKey, answer: Answer) {
        let Some(handshake) = self.table.get(key).and_then(Circuit::handshake) else { return };
        let fast = handshake == HandshakeType::Fast;
        let command = if fast { Command::CREATED_FAST } else { Command::CREATED2 };
        let Some(slot) = self.take_slot(command) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        let mut bytes = Vec::with_capacity(answer.reply.len() + 2);
        match fast {
            true => bytes.extend_from_slice(&answer.reply),
            false => Created2 { hdata: &answer.reply }.encode(&mut bytes),
        }
        let body = self.pool.body_mut(&slot);
        body.fill(0);
        body[..bytes.len()].copy_from_slice(&bytes);
        if let Some(circuit) = self.table.get_mut(key) {
            circuit.open(self.now, &answer);
        }
        self.watch_idle(key);
        self.enqueue(key, Side::Prev, slot);
    }
}

/// What a CREATE cell asks for. TAP, with CREATE or CREATE2, is answered by nobody any more.
fn read_create(command: Command, body: &Body) -> Result<(HandshakeType, &[u8]), DestroyReason> {
    if command == Command::CREATE_FAST {
        return Ok((HandshakeType::Fast, &body[..FAST_KEY_LEN]));
    }
    if command != Command::CREATE2 {
        return Err(DestroyReason::PROTOCOL);
    }
    let create = Create2::parse(body).map_err(|_| DestroyReason::PROTOCOL)?;
    let handshake = HandshakeType::from_htype(create.htype).map_err(|_| DestroyReason::PROTOCOL)?;
    Ok((handshake, create.hdata))
}
