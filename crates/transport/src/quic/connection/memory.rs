//! What a connection and its flows take.

use super::Connection;
use crate::connections::state;
use crate::quic::arrivals::Arrival;
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::time::{Duration, Instant};
use quinn_proto::{Dir, StreamId};

/// What a connection takes without flows: keys, rustls, buffers, what quinn-proto and its endpoint know of it.
const CONNECTION: usize = 32_000;
/// What quinn-proto keeps of a stream's half that was used, in a box (`Recv` and `Send` of its `streams`, version
/// 0.11), the latter with lists of what was sent and acknowledged. It uses the first again for other streams, and so
/// does not give it back.
pub(super) const RECEIVED_HALF: usize = 190;
const SENT_HALF: usize = 390;

/// How many flows that have ended a peer may leave open when memory is short, and for how long. One that is there
/// agrees within a round trip. A path that carries nothing for 20 s costs nobody's life, also then.
const UNAGREED_MAX: usize = 64;
const UNAGREED_PATIENCE: Duration = Duration::from_secs(30);

impl Connection {
    /// Memory is short: it ends if its peer does not let go of flows that have ended. Returns whether it does.
    pub(in crate::quic) fn forget_ended(&mut self, now: Instant) -> bool {
        let is_over = self.flows.count_unagreed(now, UNAGREED_PATIENCE) > UNAGREED_MAX;
        if is_over {
            let what = "it does not agree to the end of flows";
            self.give_up(now, ConnectionError::PeerMisbehaved(what.to_owned()));
        }
        is_over
    }

    /// Sums up what it takes, after something happened to it.
    pub(super) fn count_memory(&mut self) {
        let open =
            usize::try_from(self.quinn.streams().remote_open_streams(Dir::Bi)).unwrap_or(usize::MAX / 4096);
        let streams = self.flows.streams_max();
        self.halves_max = self.halves_max.max(open + self.flows.ours_kept());
        self.memory.set(
            CONNECTION
                // A boxed half by its stream; of what comes, also whether it is in use.
                + state::table(streams, size_of::<(StreamId, usize)>())
                + state::table(streams, size_of::<(StreamId, [usize; 2])>())
                + self.halves_max * RECEIVED_HALF
                + self.flows.senders() * SENT_HALF
                // One list is filled while the other is read.
                + 2 * state::list::<Arrival>(self.arrived.capacity())
                + self.flows.heap_bytes(),
        );
    }
}
