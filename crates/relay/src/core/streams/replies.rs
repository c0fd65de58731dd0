//! What a stream's client is told: that it ended, and what a name stands for.

use crate::core::Core;
use crate::keys::CircuitKey;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::stream::{Answer, End as EndCell, EndReason, Resolved};
use heddle_proto::flow_control::Signal;
use heddle_seam::node::{Resolution, ResolveError};

/// What every answer is told to live, so that RESOLVE tells nothing of what others asked for; as by stock Tor 0.4.9.
const TTL_S: u32 = 60;

impl Core {
    /// Ends a stream from our side, if it still is, and tells the client.
    pub(super) fn fail_stream(&mut self, key: CircuitKey, id: StreamId, end: EndCell) {
        self.on_end(key, id);
        let mut data = Vec::with_capacity(21);
        end.encode(&mut data);
        self.send_relay(key, RelayCommand::END, Some(id), &data);
    }

    pub(super) fn send_end(&mut self, key: CircuitKey, id: StreamId, reason: EndReason) {
        self.send_relay(key, RelayCommand::END, Some(id), &[reason.0]);
    }

    /// A stream is over; what it owes its connection is still written.
    pub(super) fn on_end(&mut self, key: CircuitKey, id: StreamId) {
        if let Some(stream) = self.end_mut(key).and_then(|end| end.remove_stream(id)) {
            self.note_used(key);
            self.drop_stream(stream);
        }
    }

    pub(super) fn send_signal(&mut self, key: CircuitKey, id: StreamId, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        let mut data = Vec::with_capacity(5);
        let command = signal.encode(&mut data);
        self.send_relay(key, command, Some(id), &data);
    }

    pub(super) fn answer_resolve(
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
