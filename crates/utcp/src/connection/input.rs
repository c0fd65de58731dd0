//! A segment that comes in, by the steps of RFC 9293, section 3.10.7.4, with RFC 5961 against blind attacks and RFC
//! 7323 against old duplicates.

use super::{CloseReason, Connection, State};
use crate::segment::{Ecn, Header, Range};
use crate::send::is_before;
use crate::time::{Instant, MS, S};

/// The least time between two answers to something odd (RFC 5961, section 7; Linux' `tcp_invalid_ratelimit`).
const CHALLENGE_INTERVAL_NS: u64 = 500 * MS;
/// After so long without a segment, the peer's clock may have wrapped (RFC 7323, section 5.5).
const CLOCK_WRAPS_NS: u64 = 24 * 24 * 3600 * S;

impl Connection {
    /// Takes a segment. `poll_transmit` has to follow.
    pub fn handle_segment(&mut self, now: Instant, header: &Header, payload: &[u8], ecn: Ecn) {
        self.handle_segment_with(now, header, payload, ecn, 0, &mut |_| 0);
    }

    /// Takes a segment like [`handle_segment`](Self::handle_segment). Payload that is next in order, with nothing
    /// unread before it, is offered to `sink`, which gives how many bytes it took: they need no `read` and no buffer.
    /// `code` is what a reset carried.
    pub(crate) fn handle_segment_with(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        ecn: Ecn,
        code: u8,
        sink: &mut dyn FnMut(&[u8]) -> usize,
    ) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.handle_in_syn_sent(now, header, payload, sink),
            _ => {
                if self.is_plausible(now, header, payload, code) {
                    self.handle_plausible(now, header, payload, ecn, sink);
                }
            }
        }
    }

    /// The checks of sequence number, RST and SYN. False when the segment goes no further.
    fn is_plausible(&mut self, now: Instant, header: &Header, payload: &[u8], code: u8) -> bool {
        let range = header.range(payload.len());
        if self.is_old_duplicate(now, header) {
            self.challenge(now, !payload.is_empty());
            return false;
        }
        let is_repeated_syn = header.flags.syn && header.ack.is_none() && header.seq == self.peer.irs;
        if self.state == State::SynReceived && is_repeated_syn && !header.flags.rst {
            if self.sender.next == self.iss {
                self.sender.hasten();
            } else {
                self.signals.syn_again = true;
            }
            return false;
        }
        let edge = self.receiver.edge().max(self.receiver.next);
        if range.end < self.receiver.acks.acknowledged || range.start > edge {
            if !header.flags.rst {
                self.receiver.note_old(header.payload_seq(), payload.len());
                self.challenge(now, !payload.is_empty() || range.end == self.receiver.next - 1);
            }
            return false;
        }
        if header.flags.rst {
            self.handle_reset(now, header, code);
            return false;
        }
        if header.flags.syn && self.state != State::SynReceived {
            self.challenge(now, false);
            return false;
        }
        true
    }

    /// Whether timestamps show that the segment is older than what came before (PAWS, RFC 7323, section 5.3).
    fn is_old_duplicate(&self, now: Instant, header: &Header) -> bool {
        let Some(timestamps) = header.timestamps.filter(|_| self.clock.enabled && !header.flags.rst) else {
            return false;
        };
        let is_fresh = now.ns_since(self.clock.recent_at) < CLOCK_WRAPS_NS;
        is_fresh && is_before(timestamps.value, self.clock.recent)
    }

    /// RFC 5961, section 3.2: only a reset at exactly the next sequence number is obeyed.
    fn handle_reset(&mut self, now: Instant, header: &Header, code: u8) {
        if header.seq == self.receiver.next {
            let reason = match self.state {
                State::TimeWait | State::LastAck | State::Closing => CloseReason::Finished,
                _ => CloseReason::Reset { code },
            };
            self.enter_closed(reason);
        } else {
            self.challenge(now, false);
        }
    }

    /// Tells the peer where we are. Unless it `is_wanted`, because data came, only so often.
    fn challenge(&mut self, now: Instant, is_wanted: bool) {
        let is_soon = self.timers.challenge.is_some_and(|last| now.ns_since(last) < CHALLENGE_INTERVAL_NS);
        if is_wanted || !is_soon {
            self.timers.challenge = Some(now);
            self.receiver.acks.now();
        }
    }

    fn handle_plausible(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        ecn: Ecn,
        sink: &mut dyn FnMut(&[u8]) -> usize,
    ) {
        let Some(ack) = header.ack else { return };
        let lowest = self.sender.una.saturating_sub(self.peer.window_max.max(1 << 16));
        if ack > self.sender.next || ack < lowest {
            if self.state == State::SynReceived {
                self.reset_stranger(header);
            } else {
                self.challenge(now, false);
            }
            return;
        }
        self.on_life(now);
        self.note_timestamp(now, header);
        if self.state == State::SynReceived {
            if ack <= self.iss {
                return;
            }
            self.update_window(header, ack);
            self.establish(now, header);
        } else {
            let sacks = header.sack;
            self.acknowledge(now, header, ack, &sacks, payload.len());
        }
        self.on_marks(header, payload, ecn);
        if self.state == State::TimeWait {
            if header.flags.fin {
                self.enter_time_wait(now);
                self.receiver.acks.now();
            }
            return;
        }
        if self.receiver.is_discarding && self.is_beyond(header, payload) {
            // Nobody will read it (RFC 9293, section 3.10.7.1 for the closed end).
            self.abort(0);
            return;
        }
        self.take_payload(now, header, payload, sink);
    }

    /// Whether an acknowledgement ends inside a unit. A framing that counts units could not send the rest again.
    pub(crate) fn cuts_unit(&self, ack: u64) -> bool {
        let bytes = ack.saturating_sub(self.iss + 1);
        let covers_fin = self.fin_queued && ack == self.write_end + 1;
        !covers_fin && !bytes.is_multiple_of(u64::from(self.options.unit_bytes.max(1)))
    }

    /// Whether the segment brings data that was not there yet.
    fn is_beyond(&self, header: &Header, payload: &[u8]) -> bool {
        !payload.is_empty() && header.payload_seq() + payload.len() as u64 > self.receiver.next
    }

    /// Remembers the peer's clock if the segment covers what the last acknowledgement said (RFC 7323, section 4.3).
    fn note_timestamp(&mut self, now: Instant, header: &Header) {
        let Some(timestamps) = header.timestamps.filter(|_| self.clock.enabled) else { return };
        if header.seq <= self.receiver.acks.acknowledged {
            (self.clock.recent, self.clock.recent_at) = (timestamps.value, now);
        }
    }

    fn on_marks(&mut self, header: &Header, payload: &[u8], ecn: Ecn) {
        if !self.ecn.enabled {
            return;
        }
        if header.flags.cwr && !payload.is_empty() {
            self.ecn.echo = false;
        }
        if ecn == Ecn::Ce {
            self.ecn.echo = true;
            self.receiver.acks.now();
        }
    }

    /// Takes payload and FIN.
    pub(super) fn take_payload(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> usize,
    ) {
        if !self.state.may_receive() {
            if !header.range(payload.len()).is_empty() {
                self.receiver.acks.now();
            }
            return;
        }
        let start = header.payload_seq();
        if !payload.is_empty() {
            let arrival = self.receiver.on_payload(start, payload, sink);
            self.after_arrival(now, header, payload.len(), arrival);
        }
        let fin_at = start + payload.len() as u64;
        let finished = if header.flags.fin { self.receiver.on_fin(fin_at) } else { false };
        if header.flags.fin {
            self.receiver.acks.now();
        }
        if finished || self.receiver.reach_known_fin() {
            self.on_finished(now);
        }
    }

    fn after_arrival(
        &mut self,
        now: Instant,
        header: &Header,
        bytes: usize,
        arrival: crate::receive::Arrival,
    ) {
        if arrival.is_unusual {
            self.receiver.acks.now();
        }
        if arrival.advanced {
            let next = self.receiver.next;
            self.receiver.acks.on_data(now, &self.options, bytes, next);
            let window = self.receiver.edge().saturating_sub(next);
            self.receiver.tune.on_data(now, next, window, self.clock.enabled);
            if let Some(echoed_ms) = self.echoed_ms(header) {
                let sample_ms = crate::send::clock_ms(now).wrapping_sub(echoed_ms);
                if sample_ms < 60_000 {
                    self.receiver.tune.on_rtt(u64::from(sample_ms.max(1)) * MS);
                }
            }
            self.on_read(now);
        }
    }

    /// The peer's FIN was reached.
    fn on_finished(&mut self, now: Instant) {
        self.receiver.acks.now();
        match self.state {
            State::SynReceived | State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    /// The sequence numbers that a block on the wire stands for must have been sent.
    pub(super) fn is_sent(&self, range: Range) -> bool {
        !range.is_empty() && range.end <= self.sent().end
    }
}
