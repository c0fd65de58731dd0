//! A connection as the session sees it whose window it sends in.

use super::{Connection, State};
use crate::options::Options;
use crate::segment::SackBlocks;
use crate::send::{Report, Sender};
use crate::time::Instant;
use std::sync::Arc;

impl Connection {
    /// What a round trip took over the same path, for as long as this connection has measured none.
    pub(crate) fn expect_round_trip(&mut self, smoothed_ns: u64) {
        self.sender.expect_round_trip(smoothed_ns);
    }

    /// When the peer last answered anything on any flow of the session.
    pub(crate) fn set_answered(&mut self, at: Instant) {
        self.sender.set_answered(at);
    }

    /// Whether its time-out has grown since it was last answered.
    pub(crate) fn is_backed_off(&self) -> bool {
        self.sender.is_backed_off()
    }

    /// The peer answered something on another flow. Gives whether the time-out had grown.
    pub(crate) fn calm(&mut self, at: Instant) -> bool {
        self.sender.calm(at)
    }

    /// How often the retransmission timer expired since something was acknowledged.
    pub(crate) fn expiries(&self) -> u32 {
        self.sender.expiries()
    }

    /// From now on segments are as long as these options say, which differ from its own in nothing else.
    pub(crate) fn set_segment_length(&mut self, options: &Arc<Options>) {
        self.options = Arc::clone(options);
        self.sender.set_segment_length(options);
    }

    /// The smoothed round trip, once it was measured.
    pub(crate) fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.sender.rtt().smoothed_ns()
    }

    /// What may leave of the session's window until this is called again.
    pub(crate) fn set_room(&mut self, bytes: u64) {
        self.sender.set_room(bytes);
    }

    /// Whether more would have left if there had been room.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.sender.waits_for_room()
    }

    /// Whether something lost waits to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        self.sender.lost() > 0
    }

    /// What the session has to hear, and when the newest of lost segments left.
    pub(crate) fn take_report(&mut self) -> (Report, Instant) {
        self.sender.take_report()
    }

    /// Bytes in flight, a tail loss probe's among them.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sender.in_flight() + self.sender.probe_bytes()
    }

    /// Whether a timer expired and something has to leave because of it.
    pub(crate) fn is_forced(&self) -> bool {
        self.sender.is_forced()
    }

    /// What is left of a connection that is over at once: its sender, where the peer's numbers stand, and whether the
    /// peer is owed an acknowledgement.
    pub(crate) fn into_remains(mut self) -> (Sender, Option<(u64, SackBlocks)>, bool) {
        let is_open = self.state.is_synchronized();
        let received = is_open.then(|| (self.receiver.next, self.receiver.sack_blocks()));
        (self.sender, received, is_open && self.receiver.acks.is_owed())
    }

    /// Bytes that were never sent and that nothing but the session's window holds back.
    pub(crate) fn ready_bytes(&self) -> u64 {
        if !self.state.is_synchronized() || self.sender.expiries() > 0 {
            return 0;
        }
        let (unsent, offered) = (self.unsent(), self.peer_edge().saturating_sub(self.sender.next));
        // What the peer's window cuts short waits until there is a segment of it.
        if unsent <= offered {
            unsent
        } else if offered < self.sender.mss {
            0
        } else {
            offered
        }
    }

    /// Whether an acknowledgement is owed that may wait.
    pub(crate) fn is_ack_delayed(&self) -> bool {
        self.receiver.acks.timer().is_some()
    }

    /// Acknowledges what came without further delay, if that is owed.
    pub(crate) fn ack_now(&mut self) {
        if self.is_ack_delayed() && self.state != State::Closed {
            self.receiver.acks.now();
        }
    }
}
