//! Streams are over; what they owe their connections is still written, or is not.

use crate::admission::StreamPlace;
use crate::core::Core;
use crate::exit::{End, Stream, StreamState};
use crate::keys::CircuitKey;
use crate::language::Output;
use heddle_proto::cell::relay::StreamId;
use heddle_seam::node::SocketId;
use heddle_seam::time::Duration;

/// How long a connection whose stream is over may take for what it is still owed.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(15);

impl Core {
    pub(super) fn end_mut(&mut self, key: CircuitKey) -> Option<&mut End> {
        self.table.get_mut(key)?.end_mut()
    }

    pub(super) fn has_stream(&mut self, key: CircuitKey, id: StreamId) -> bool {
        self.stream_mut(key, id).is_some()
    }

    pub(super) fn is_stream_open(&mut self, key: CircuitKey, id: StreamId) -> bool {
        self.stream_mut(key, id).is_some_and(|stream| stream.is_open())
    }

    pub(super) fn stream_mut(&mut self, key: CircuitKey, id: StreamId) -> Option<&mut Stream> {
        self.table.get_mut(key)?.stream_mut(id)
    }

    pub(super) fn drop_stream(&mut self, stream: Stream) {
        if let Some((at, socket)) = stream.wake() {
            self.streams.move_wake(socket, [Some(at), None]);
        }
        let state = stream.state();
        let mut owed = stream.into_owed();
        match state {
            StreamState::Resolving(question) => {
                self.streams.leave_question(question);
                owed.clear(&mut self.pool);
            }
            StreamState::Connecting { socket, .. } => {
                self.streams.disconnect(socket);
                self.admission.stream_ends(StreamPlace::Socket(socket));
                owed.clear(&mut self.pool);
                self.outputs.push_back(Output::Abort { socket });
            }
            StreamState::Open(socket) => {
                self.streams.disconnect(socket);
                if owed.queue().is_empty() {
                    self.admission.stream_ends(StreamPlace::Socket(socket));
                    return self.outputs.push_back(Output::Close { socket });
                }
                self.outputs.push_back(Output::Interest { socket, read: false, write: true });
                self.streams.leave_over(socket, owed, self.now + LEFTOVER_TIMEOUT);
            }
            StreamState::Failed => owed.clear(&mut self.pool),
        }
    }

    /// Our end of a circuit goes with all its streams.
    pub(in crate::core) fn drop_end(&mut self, end: End) {
        end.into_streams().for_each(|stream| self.drop_stream(stream));
    }

    /// Our end of a circuit goes with all its streams and what they owe.
    pub(in crate::core) fn abort_streams(&mut self, end: End) {
        for stream in end.into_streams() {
            let socket = stream.socket().filter(|_| !stream.owed().queue().is_empty());
            self.drop_stream(stream);
            socket.into_iter().for_each(|socket| self.abort_leftover(socket));
        }
    }

    /// A connection does not get what it is still owed.
    pub fn abort_leftover(&mut self, socket: SocketId) {
        if let Some(mut owed) = self.streams.end_leftover(socket) {
            self.admission.stream_ends(StreamPlace::Socket(socket));
            owed.clear(&mut self.pool);
            self.outputs.push_back(Output::Abort { socket });
        }
    }

    /// Once a second: connections that do not take what they are owed are closed.
    pub(in crate::core) fn drop_late_leftovers(&mut self) {
        self.streams.late_leftovers(self.now).into_iter().for_each(|socket| self.abort_leftover(socket));
    }
}
