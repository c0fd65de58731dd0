//! RESOLVE and RESOLVED: an exit looks names up for its clients (tor-spec, "Remote hostname lookup").

use crate::core::Core;
use crate::dos::StreamAction;
use crate::exit::Asked;
use crate::keys::CircuitKey;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::{EndReason, Resolve};
use heddle_proto::policy::is_global;
use heddle_seam::node::{Query, Resolution, ResolveError};

/// What every answer is told to live, so that RESOLVE tells nothing of what others asked for; as by stock Tor 0.4.9.
const TTL_S: u32 = 60;

impl Core {
    pub(super) fn on_resolve(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) {
        // The answer would be one to the stream: dropped, as by stock Tor.
        if self.has_stream(key, id) {
            return;
        }
        if let Some(reason) = self.refuses_stream(key) {
            let is_full = reason == EndReason::RESOURCELIMIT;
            let error = if is_full { ResolveError::Transient } else { ResolveError::NotFound };
            return self.answer_resolve(key, id, Err(error));
        }
        match self.held_to_rate(key) {
            StreamAction::Admit => {}
            StreamAction::Refuse => return self.answer_resolve(key, id, Err(ResolveError::Transient)),
            StreamAction::CloseCircuit => return self.close_circuit(key, DestroyReason::RESOURCELIMIT),
        }
        match Resolve::parse(data) {
            Ok(Resolve::Name(name)) if !self.may_ask_for(name) => {
                self.answer_resolve(key, id, Err(ResolveError::NotFound));
            }
            Ok(Resolve::Name(name)) => {
                self.resolve(key, id, Query::Forward(name.as_str().to_ascii_lowercase()));
            }
            // Our name servers may know names of the operator's own network.
            Ok(Resolve::Reverse(addr)) if !is_global(addr) => {
                self.answer_resolve(key, id, Err(ResolveError::NotFound));
            }
            Ok(Resolve::Reverse(addr)) => self.resolve(key, id, Query::Reverse(addr)),
            Ok(Resolve::Addr(addr)) => {
                self.answer_resolve(key, id, Ok(Resolution::Addresses(vec![(addr, TTL_S)])))
            }
            Err(_) => self.answer_resolve(key, id, Err(ResolveError::NotFound)),
        }
    }

    fn resolve(&mut self, key: CircuitKey, id: StreamId, query: Query) {
        if self.ask(query, Asked::Resolve { circuit: key, stream: id }).is_none() {
            self.answer_resolve(key, id, Err(ResolveError::Transient));
        }
    }
}
