//! RESOLVE and RESOLVED: an exit looks names up for its clients (tor-spec, "Remote hostname lookup").

use super::streams::Asked;
use crate::core::Core;
use crate::dos::StreamAction;
use crate::keys::CircuitKey;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::stream::{Answer, EndReason, Resolve, Resolved};
use heddle_proto::policy::is_private;
use heddle_seam::node::{Query, Resolution, ResolveError};

/// What every answer is told to live, so that RESOLVE tells nothing of what others asked for; as by stock Tor 0.4.9.
const TTL_S: u32 = 60;

impl Core {
    pub fn on_resolve(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) {
        if let Some(reason) = self.refuses_stream(key) {
            let is_full = reason == EndReason::RESOURCELIMIT;
            let error = if is_full { ResolveError::Transient } else { ResolveError::NotFound };
            return self.answer_resolve(key, id, Err(error));
        }
        match self.dos_on_stream(key) {
            StreamAction::Admit => {}
            StreamAction::Refuse => return self.answer_resolve(key, id, Err(ResolveError::Transient)),
            StreamAction::CloseCircuit => return self.close_circuit(key, DestroyReason::RESOURCELIMIT),
        }
        match Resolve::parse(data) {
            Ok(Resolve::Name(name)) => {
                self.resolve(key, id, Query::Forward(name.as_str().to_ascii_lowercase()));
            }
            // Our name servers may know names of the operator's own network.
            Ok(Resolve::Reverse(addr)) if is_private(addr.to_canonical()) => {
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

    pub fn answer_resolve(
        &mut self,
        key: CircuitKey,
        id: StreamId,
        answer: Result<Resolution, ResolveError>,
    ) {
        let mut resolved = Resolved::new();
        match answer {
            Ok(Resolution::Addresses(addrs)) => {
                for (addr, _) in addrs {
                    resolved.push(Answer::Addr(addr), TTL_S);
                }
            }
            Ok(Resolution::Name(name, _)) => {
                resolved.push(Answer::Name(name.into_bytes()), TTL_S);
            }
            Err(error) => resolved = Resolved::error(error == ResolveError::Transient, TTL_S),
        }
        let mut data = Vec::new();
        resolved.encode(&mut data);
        self.send_relay(key, RelayCommand::RESOLVED, Some(id), &data);
    }
}
