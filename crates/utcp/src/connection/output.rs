//! What leaves, in this order: a reset, losses and new data as the windows allow, a question, a bare acknowledgement.

use super::{Connection, State};
use crate::segment::{Ecn, Flags, Header, SackBlocks, SynOptions, Timestamps, Transmit};
use crate::send::{Permission, Sent, clock_ms};
use crate::time::Instant;

/// What the options of a SYN take, timestamps included, which data beside them has to leave room for.
const SYN_OPTIONS_BYTES: u64 = 24;
/// What SACK blocks take of a segment: the option's head with padding, and each block (RFC 2018).
const SACK_OPTION_BYTES: usize = 4;
const SACK_BLOCK_BYTES: usize = 8;

impl Connection {
    /// The next segment to be sent now, its payload appended to `payload`. Call it until it gives nothing.
    pub fn poll_transmit(&mut self, now: Instant, payload: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((header, _)) = self.signals.reset.take() {
            return Some(Transmit { header, payload_bytes: 0, ecn: Ecn::NotEct });
        }
        if self.state == State::Closed {
            return None;
        }
        if self.state == State::FinWait2 && self.receiver.is_discarding && self.timers.linger.is_none() {
            // The application left after our FIN was acknowledged, and the peer may never send its own.
            self.timers.linger = Some(now.plus_ns(self.options.time_wait_ns));
        }
        if self.signals.syn_again {
            self.signals.syn_again = false;
            return Some(self.syn_again(now));
        }
        if let Some(transmit) = self.transmit_data(now, payload) {
            return Some(transmit);
        }
        let asks = core::mem::take(&mut self.signals.question) && self.state.is_synchronized();
        if asks {
            let header = self.header(now, self.sender.una - 1, Flags::default(), 0);
            return Some(Transmit { header, payload_bytes: 0, ecn: Ecn::NotEct });
        }
        if self.receiver.acks.is_due(now) && self.state.is_synchronized() {
            let header = self.header(now, self.sender.next, Flags::default(), 0);
            return Some(Transmit { header, payload_bytes: 0, ecn: Ecn::NotEct });
        }
        None
    }

    fn transmit_data(&mut self, now: Instant, payload: &mut Vec<u8>) -> Option<Transmit> {
        self.timers.pacing = None;
        let is_forced = self.signals.force || self.sender.is_forced();
        let has_work = self.sender.lost() > 0 || is_forced || self.has_unsent();
        if !has_work {
            let offered = self.peer_edge().saturating_sub(self.sender.next);
            if offered < self.signals.awaited_bytes && !self.sender.has_outstanding() && self.may_send_data()
            {
                self.set_persist(now);
            }
            return None;
        }
        if let Some(until) = self.sender.paced_until(now).filter(|_| !is_forced) {
            self.timers.pacing = Some(until);
            return None;
        }
        let Some(permission) = self.sender.permission() else {
            // The answer to the peer's SYN acknowledges, and two ends that open many connections at once would wait for
            // each other's. What was written follows when there is room.
            let is_answer = self.state == State::SynReceived && self.sender.next == self.iss;
            return is_answer.then(|| self.transmit_new(now, 1, payload));
        };
        match permission {
            // What an opening segment was cut off waits for its answer: before that there is nothing to acknowledge
            // with it.
            Permission::Again(sent) if self.state == State::SynSent && sent.start > self.iss => None,
            Permission::Again(sent) => Some(self.transmit_again(now, sent, payload)),
            Permission::New(room) => match self.new_data(now, room) {
                Some(bytes) => Some(self.transmit_new(now, bytes, payload)),
                None if self.sender.stop_probing_timeout() => self.transmit_data(now, payload),
                None => self.transmit_probe(now, payload),
            },
        }
    }

    /// Whether something waits that was never sent.
    pub(super) fn has_unsent(&self) -> bool {
        let is_syn = self.sender.next == self.iss;
        is_syn || self.unsent() > 0 || self.is_fin_unsent()
    }

    /// How many sequence numbers the next segment of new data takes; `None` when nothing may leave.
    fn new_data(&mut self, now: Instant, room: u64) -> Option<u64> {
        if self.sender.next == self.iss {
            let room = self.sender.mss.saturating_sub(SYN_OPTIONS_BYTES);
            let data = if self.options.syn_data { self.unsent().min(room) } else { 0 };
            let unit = u64::from(self.options.unit_bytes);
            return Some(1 + if unit > self.sender.mss { data } else { data - data % unit });
        }
        if !self.has_unsent() || !self.may_send_data() {
            return None;
        }
        let unsent = self.unsent();
        let offered = self.peer_edge().saturating_sub(self.sender.next);
        let mut len = self.aligned(unsent.min(offered).min(self.sender.mss).min(room));
        let is_full = len > 0 && len >= self.aligned(self.sender.mss).min(self.sender.mss);
        let is_tail = len == unsent;
        let is_idle = !self.sender.has_outstanding();
        let is_large = len > 0 && len >= self.peer.window_max / 2;
        let may_be_small = !self.options.nagle || is_idle || self.fin_queued;
        if core::mem::take(&mut self.signals.force) || self.sender.is_probe_due() {
            len = self.aligned(unsent.min(offered).min(self.sender.mss));
        } else if !(is_full || is_large || is_tail && may_be_small) {
            len = 0;
        }
        let fin = u64::from(self.is_fin_unsent() && len == unsent && offered > len);
        if len + fin == 0 {
            let waits_for_window = offered < unsent.max(1).min(self.sender.mss);
            if waits_for_window && is_idle {
                self.set_persist(now);
            }
            return None;
        }
        Some(len + fin)
    }

    /// Whether the handshake lets data out. Before our SYN is acknowledged only where data may go with it.
    fn may_send_data(&self) -> bool {
        match self.state {
            State::SynSent | State::Closed | State::TimeWait => false,
            State::SynReceived => self.options.syn_data,
            _ => true,
        }
    }

    /// Cuts new data of `len` bytes at a multiple of the unit, unless it is all there is or shorter than one.
    fn aligned(&self, len: u64) -> u64 {
        let unit = u64::from(self.options.unit_bytes);
        if len == self.unsent() || unit <= 1 {
            return len;
        }
        let end = self.sender.next + len - (self.iss + 1);
        let cut = end % unit;
        if cut < len {
            len - cut
        } else if unit > self.sender.mss {
            len
        } else {
            0
        }
    }

    fn transmit_new(&mut self, now: Instant, bytes: u64, payload: &mut Vec<u8>) -> Transmit {
        let start = self.sender.next;
        let follows = self.sender.has_just_sent(now);
        self.sender.on_sent(now, bytes);
        self.timers.persist = None;
        let mut transmit = self.build(now, start, bytes, payload);
        transmit.header.flags.psh |= transmit.payload_bytes > 0 && follows && self.is_burst_over(now);
        if self.ecn.enabled && transmit.payload_bytes > 0 {
            transmit.ecn = Ecn::Ect;
            transmit.header.flags.cwr = self.sender.take_has_reduced();
        }
        transmit
    }

    /// Whether nothing of full length may follow now.
    ///
    /// Of several segments that leave together, Linux sets PSH in the last, and its receivers do not keep the
    /// acknowledgement of such a one for the next segment. Without it, a burst of three leaves one unacknowledged until
    /// the next burst comes. A segment by itself has none, so that acknowledgements of those still are for two.
    fn is_burst_over(&self, now: Instant) -> bool {
        let offered = self.peer_edge().saturating_sub(self.sender.next);
        offered < self.sender.mss || self.sender.is_held(now)
    }

    fn transmit_again(&mut self, now: Instant, mut sent: Sent, payload: &mut Vec<u8>) -> Transmit {
        // A FIN goes with a segment of full length. A SYN stands before the bytes, which are cut where others are.
        let most = self.sender.mss + u64::from(sent.start == self.iss);
        if u64::from(sent.len) > self.sender.mss + 1 {
            self.sender.split(sent.start, most);
            sent.len = most as u32;
        }
        let lag_ms = self.sender.on_retransmitted(now, &sent);
        let mut transmit = self.build(now, sent.start, u64::from(sent.len), payload);
        if let Some(timestamps) = &mut transmit.header.timestamps {
            timestamps.value = timestamps.value.wrapping_sub(u32::from(lag_ms));
        }
        transmit
    }

    /// A tail loss probe without new data.
    fn transmit_probe(&mut self, now: Instant, payload: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(sent) = self.sender.probe_segment() {
            return Some(self.transmit_again(now, sent, payload));
        }
        self.sender.skip_probe();
        None
    }

    /// The segment of the sequence numbers from `start`, SYN and FIN among them.
    fn build(&mut self, now: Instant, start: u64, len: u64, payload: &mut Vec<u8>) -> Transmit {
        let end = start + len;
        let first = start.max(self.iss + 1);
        let payload_bytes = end.min(self.write_end).saturating_sub(first) as usize;
        self.send_buffer.copy_to(first, payload_bytes, payload);
        let flags = Flags {
            syn: start == self.iss,
            fin: end > self.write_end,
            psh: payload_bytes > 0 && end >= self.write_end,
            ..Flags::default()
        };
        let header = self.header(now, start, flags, payload_bytes);
        Transmit { header, payload_bytes, ecn: Ecn::NotEct }
    }

    /// The SYN once more, because the peer seems not to have heard of ours, or the first one with ACK.
    fn syn_again(&mut self, now: Instant) -> Transmit {
        let header = self.header(now, self.iss, Flags { syn: true, ..Flags::default() }, 0);
        Transmit { header, payload_bytes: 0, ecn: Ecn::NotEct }
    }

    /// A header with everything that the state of the receiver adds.
    fn header(&mut self, now: Instant, seq: u64, mut flags: Flags, payload_bytes: usize) -> Header {
        let has_ack = self.state.is_synchronized();
        let sack = self.sack_blocks(now, payload_bytes);
        let is_owed = self.receiver.acks.is_due(now) && sack.is_none();
        let mut window = 0;
        if has_ack {
            window = self.receiver.offer(self.sender.mss);
            if is_owed {
                self.receiver.acks.now();
            }
            flags.ece = self.ecn.echo;
        }
        let timestamps = self.clock.enabled.then(|| Timestamps {
            value: clock_ms(now).wrapping_add(self.clock.offset),
            echo: if has_ack { self.clock.recent } else { 0 },
        });
        let syn = flags.syn.then(|| self.syn_options());
        if flags.syn {
            // A SYN's window is not scaled. What it answers may have brought data, which is unread.
            let initial = u64::from(self.options.receive_buffer_initial_bytes);
            let window_max = if has_ack { window } else { initial };
            window = window_max.min(u64::from(u16::MAX));
            let is_first = self.state == State::SynSent;
            flags.ece = if is_first { self.options.ecn } else { self.ecn.enabled };
            flags.cwr = is_first && self.options.ecn;
        }
        Header {
            seq,
            ack: has_ack.then_some(self.receiver.next),
            flags,
            window_bytes: u32::try_from(window).unwrap_or(u32::MAX),
            sack: sack.unwrap_or_default(),
            timestamps,
            syn,
        }
    }

    /// The SACK blocks that fit beside the payload; `None` when there is something to say and no room for it. Then a
    /// bare acknowledgement follows, because segments are not shortened for it: that would tear cells.
    fn sack_blocks(&mut self, now: Instant, payload_bytes: usize) -> Option<SackBlocks> {
        if !self.sender.sack || !self.receiver.has_sack_blocks() || !self.state.is_synchronized() {
            return Some(SackBlocks::NONE);
        }
        let room = (self.sender.mss as usize).saturating_sub(payload_bytes);
        let most = room.saturating_sub(SACK_OPTION_BYTES) / SACK_BLOCK_BYTES;
        if most == 0 && self.receiver.acks.is_due(now) {
            return None;
        }
        let mut blocks = if most == 0 { SackBlocks::NONE } else { self.receiver.sack_blocks() };
        blocks.truncate(most.min(if self.clock.enabled { 3 } else { 4 }));
        Some(blocks)
    }

    fn syn_options(&self) -> SynOptions {
        let is_first = self.state == State::SynSent;
        let scales = is_first || self.receiver.shift > 0 || self.peer.shift > 0;
        SynOptions {
            mss_bytes: Some(self.options.mss_bytes),
            window_shift: scales.then_some(self.receiver.shift),
            sack_permitted: if is_first { self.options.sack } else { self.sender.sack },
        }
    }
}
