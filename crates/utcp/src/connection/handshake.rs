//! How connections begin: passive, active, and both at once (RFC 9293, sections 3.5 and 3.10.7.3).

use super::{CloseReason, Connection, State};
use crate::options::Options;
use crate::pool::BufferPool;
use crate::segment::{Header, SEQUENCE_BASE, SynOptions};
use crate::time::{Instant, MS};
use std::sync::Arc;

/// The longest segment of a peer that does not say (RFC 9293, section 3.7.1).
const MSS_UNSAID: u16 = 536;
/// The shortest that is believed, so that a peer cannot make us send headers only.
const MSS_MIN: u16 = 64;
/// What the timestamps option takes of each segment.
const TIMESTAMPS_BYTES: u64 = 12;

impl Connection {
    /// Answers a SYN that came out of the blue; `None` when the segment is none. The SYN's sequence number has to be
    /// [`SEQUENCE_BASE`] plus that of the wire. `random` is as for [`connect`](Self::connect).
    pub fn accept(
        now: Instant,
        options: Arc<Options>,
        pool: &BufferPool,
        random: u64,
        syn: &Header,
        payload: &[u8],
    ) -> Option<Self> {
        let is_syn = syn.flags.syn && syn.ack.is_none() && !syn.flags.rst && !syn.flags.fin;
        if !is_syn || syn.seq < SEQUENCE_BASE {
            return None;
        }
        let mut connection = Connection::new(now, options, pool, random, State::SynReceived);
        connection.take_syn(now, syn);
        if connection.options.syn_data {
            connection.take_payload(now, syn, payload, &mut |_| 0);
        }
        Some(connection)
    }

    /// A segment in SYN-SENT.
    pub(super) fn handle_in_syn_sent(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> usize,
    ) {
        let acknowledges = header.ack.is_some_and(|ack| ack > self.iss && ack <= self.sender.next);
        if header.ack.is_some() && !acknowledges {
            self.reset_stranger(header);
            return;
        }
        if header.flags.rst {
            if acknowledges {
                self.enter_closed(CloseReason::Refused);
            }
            return;
        }
        if !header.flags.syn {
            return;
        }
        self.take_syn(now, header);
        if acknowledges {
            self.establish(now, header);
            self.receiver.acks.now();
        } else {
            self.state = State::SynReceived;
            self.signals.syn_again = true;
        }
        if self.options.syn_data || acknowledges {
            self.take_payload(now, header, payload, sink);
        }
    }

    /// Takes what the peer's SYN offers.
    fn take_syn(&mut self, now: Instant, header: &Header) {
        let offer = header.syn.unwrap_or_default();
        self.peer.irs = header.seq;
        let options = Arc::clone(&self.options);
        self.receiver.begin(header.seq + 1, &options, now);
        self.take_offer(now, header, offer);
        self.peer.window = u64::from(header.window_bytes);
        self.peer.window_max = self.peer.window;
        self.peer.window_seq = header.seq;
        self.peer.window_ack = header.ack.unwrap_or(self.iss);
        // Who answers with both only reflects what it was sent (RFC 3168, section 6.1.1).
        let asks_for_ecn = header.flags.ece && header.flags.cwr == header.ack.is_none();
        self.ecn.enabled = self.options.ecn && asks_for_ecn;
        self.on_life(now);
    }

    fn take_offer(&mut self, now: Instant, header: &Header, offer: SynOptions) {
        match offer.window_shift {
            Some(shift) => self.peer.shift = shift.min(14),
            None => (self.peer.shift, self.receiver.shift) = (0, 0),
        }
        self.sender.sack = self.options.sack && offer.sack_permitted;
        self.clock.enabled = self.options.timestamps && header.timestamps.is_some();
        if let Some(timestamps) = header.timestamps {
            (self.clock.recent, self.clock.recent_at) = (timestamps.value, now);
        }
        let mss = offer.mss_bytes.unwrap_or(MSS_UNSAID).max(MSS_MIN).min(self.options.mss_bytes);
        let options_bytes = if self.clock.enabled { TIMESTAMPS_BYTES } else { 0 };
        let mss = u64::from(mss) - options_bytes.min(u64::from(mss) / 2);
        let unit = u64::from(self.options.unit_bytes);
        self.sender.mss = if unit < mss { mss - mss % unit } else { mss };
    }

    /// Our SYN is acknowledged.
    pub(super) fn establish(&mut self, now: Instant, header: &Header) {
        let retries = self.sender.expiries();
        let sacks = header.sack;
        self.acknowledge(now, header, header.ack.unwrap_or(self.iss), &sacks, 0);
        self.sender.on_established(self.sender.mss, retries);
        if let Some(smoothed_ns) = self.sender.rtt().smoothed_ns() {
            // The handshake's round trip may hold a delay of the peer's; the receiver needs no better.
            self.receiver.tune.on_rtt(smoothed_ns.max(MS / 10));
        }
        self.state = if self.fin_queued { State::FinWait1 } else { State::Established };
    }

    /// Answers a segment that belongs to no connection of ours.
    pub(super) fn reset_stranger(&mut self, header: &Header) {
        if let Some(reset) = reset_for(header, 0) {
            self.signals.reset = Some((reset, 0));
        }
    }
}

/// The reset that answers a segment without a connection (RFC 9293, section 3.10.7.1); none answers a reset.
pub(crate) fn reset_for(header: &Header, payload_bytes: usize) -> Option<Header> {
    if header.flags.rst {
        return None;
    }
    let mut reset = Header::default();
    reset.flags.rst = true;
    match header.ack {
        Some(ack) => reset.seq = ack,
        None => {
            reset.seq = SEQUENCE_BASE;
            reset.ack = Some(header.range(payload_bytes).end);
        }
    }
    Some(reset)
}
