//! Who may have one stream or question more, and who ends for it.

use crate::admission::StreamPlace;
use crate::core::Core;
use crate::dos::StreamAction;
use crate::exit::Asked;
use crate::keys::CircuitKey;
use crate::language::Output;
use crate::table::Circuit;
use heddle_proto::cell::stream::EndReason;
use heddle_seam::node::{Query, ResolveError, ResolveId, SocketId};

/// Questions of one circuit that the resolver may work on at once. All circuits of all shards share its places, and
/// whoever asks for names of a server that is silent keeps one for as long as it tries, or until others want it.
const QUESTIONS_MAX: u16 = 64;
/// The same while the resolver is busy, so that a few circuits cannot take all of its places.
const QUESTIONS_BUSY_MAX: u16 = 8;

impl Core {
    /// Why this circuit may have no stream more.
    pub(super) fn refuses_stream(&self, key: CircuitKey) -> Option<EndReason> {
        let circuit = self.table.get(key)?;
        if self.config.exit_policy.is_none() {
            return Some(EndReason::EXITPOLICY);
        }
        // We are nobody's one-hop proxy.
        let from_relay = self.links.get(circuit.prev().link()).is_some_and(|link| link.peer().is_some());
        if !from_relay {
            return Some(EndReason::TORPROTOCOL);
        }
        let limits = &self.config.limits;
        let resolver_is_busy = self.streams.questions() >= limits.questions / 2;
        let questions_max = if resolver_is_busy { QUESTIONS_BUSY_MAX } else { QUESTIONS_MAX };
        let full =
            circuit.streams_len() >= limits.streams_per_circuit || circuit.questions() >= questions_max;
        full.then_some(EndReason::RESOURCELIMIT)
    }

    /// What becomes of one more stream or question of a circuit, as far as stock's defences go.
    pub(super) fn held_to_rate(&mut self, key: CircuitKey) -> StreamAction {
        let Some(defence) = self.dos.defences().streams else { return StreamAction::Admit };
        let now = self.now;
        let Some(circuit) = self.table.get_mut(key) else { return StreamAction::Admit };
        if circuit.may_begin_stream(now, defence.rate) {
            return StreamAction::Admit;
        }
        self.admission.note("stream", "rate");
        defence.action
    }

    /// Whether a circuit may have one stream or question more, for which another may have to end.
    pub(super) fn admit_stream(&mut self, key: CircuitKey) -> bool {
        let Some(party) = self.table.get(key).map(Circuit::party) else { return false };
        let admitted = self.admission.admit_stream(self.now, party, key);
        admitted.map(|instead| instead.into_iter().for_each(|place| self.give_way(place))).is_ok()
    }

    /// Whether the resolver may be asked, for which another question may have to be given up.
    fn admit_question(&mut self, key: CircuitKey) -> bool {
        let Some(party) = self.table.get(key).map(Circuit::party) else { return false };
        let admitted = self.admission.admit_question(self.now, party, key);
        admitted.map(|instead| instead.into_iter().for_each(|id| self.give_up_question(id))).is_ok()
    }

    pub(super) fn note_stream(&mut self, key: CircuitKey, place: StreamPlace) {
        if let Some(circuit) = self.table.get(key) {
            self.admission.stream_begins(self.now, place, circuit.party(), key);
        }
    }

    /// Asks the resolver, unless the circuit has its share.
    pub(super) fn ask(&mut self, query: Query, asked: Asked) -> Option<ResolveId> {
        let key = asked.circuit();
        if !self.admit_question(key) || !self.admit_stream(key) {
            return None;
        }
        let circuit = self.table.get_mut(key)?;
        circuit.begin_question();
        let id = self.streams.ask(asked);
        self.admission.question_begins(self.now, id, circuit.party(), key);
        self.outputs.push_back(Output::Resolve { id, query });
        Some(id)
    }

    /// A stream or question ends, because its circuit has more than others.
    fn give_way(&mut self, place: StreamPlace) {
        match place {
            StreamPlace::Socket(socket) => {
                self.abort_stream(socket);
            }
            StreamPlace::Question(question) => self.give_up_question(question),
        }
    }

    /// The stream of a connection ends, and so does what the connection is owed. Returns whether there was any, or the
    /// connection may still have to be aborted.
    pub fn abort_stream(&mut self, socket: SocketId) -> bool {
        if let Some((key, id)) = self.streams.find(socket) {
            self.fail_stream(key, id, EndReason::RESOURCELIMIT.into());
        }
        let is_owed = self.streams.leftover_mut(socket).is_some();
        self.abort_leftover(socket);
        is_owed
    }

    /// A question ends, because its circuit has more than others or it was not answered for long. Its place at the
    /// resolver is free.
    fn give_up_question(&mut self, id: ResolveId) {
        let Some(asked) = self.end_question(id) else { return };
        self.outputs.push_back(Output::StopResolving { id });
        match asked {
            Asked::Begin { circuit, stream, .. } => {
                self.fail_stream(circuit, stream, EndReason::RESOURCELIMIT.into())
            }
            Asked::Resolve { circuit, stream } if self.table.contains(circuit) => {
                self.answer_resolve(circuit, stream, Err(ResolveError::Transient))
            }
            Asked::Resolve { .. } | Asked::Nobody { .. } => {}
        }
    }

    /// The resolver is at work no more for those who are gone.
    pub fn give_up_left_questions(&mut self) {
        let left = self.streams.left_questions(|circuit| self.table.contains(circuit));
        left.into_iter().for_each(|id| self.give_up_question(id));
    }

    /// A question counts no more.
    pub(super) fn end_question(&mut self, id: ResolveId) -> Option<Asked> {
        let asked = self.streams.end_question(id)?;
        self.admission.question_ends(id);
        if let Some(circuit) = self.table.get_mut(asked.circuit()) {
            circuit.end_question(self.now);
        }
        Some(asked)
    }
}
