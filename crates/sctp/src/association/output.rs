//! Packets that leave.

use super::{Association, Peer, State};
use crate::receive::DUPLICATES_TOLD_MAX;
use crate::wire::init::{self, Init};
use crate::wire::{HEADER_LEN, Writer, kind, sack};
use heddle_seam::time::Instant;

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Acknowledgements, and answers to what the peer asked.
    Answers,
    /// Something that the peer has to answer, and no message.
    Control,
    /// Parts of messages.
    Messages,
}

/// What a question whether the peer is there has in it (RFC 9260, section 3.3.5): an empty parameter of the sender's.
const HEARTBEAT: [u8; 4] = [0, 1, 0, 4];

impl Association {
    /// Appends a packet, if there is one.
    pub fn poll_packet(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Content> {
        if self.state == State::Ended {
            return self.last_packet(out);
        }
        if core::mem::take(&mut self.due.init) {
            let init = self.init(None);
            self.write_init(kind::INIT, 0, &init, out);
            self.await_answer(now);
            return Some(Content::Control);
        }
        if let Some(peer) = self.peer.filter(|_| core::mem::take(&mut self.due.init_ack)) {
            let cookie = self.random.cookie;
            let init = self.init(Some(&cookie));
            self.write_init(kind::INIT_ACK, peer.tag, &init, out);
            return Some(Content::Answers);
        }
        let peer = self.peer.filter(|_| self.is_established() || self.state == State::CookieEchoed)?;
        // Without an answer to it nothing but the cookie leaves a second time.
        if self.state == State::CookieEchoed && !self.due.cookie_echo {
            return None;
        }
        self.bundle(now, peer, out)
    }

    fn init<'a>(&self, cookie: Option<&'a [u8]>) -> Init<'a> {
        Init {
            tag: self.random.tag,
            window_bytes: self.receiver.window_bytes(),
            outbound: self.options.streams_max,
            inbound: self.options.streams_max,
            tsn: self.random.tsn,
            interleaves: self.options.interleaves,
            resets: true,
            takes_zero_checksum: self.options.zero_checksum,
            cookie,
        }
    }

    /// INIT and INIT ACK stand alone, and have a checksum.
    fn write_init(&self, kind: u8, tag: u32, init: &Init<'_>, out: &mut Vec<u8>) {
        let mut writer = Writer::begin(out, self.head(tag));
        writer.chunk(kind, 0, |out| init::write(init, out));
        writer.finish();
    }

    fn last_packet(&mut self, out: &mut Vec<u8>) -> Option<Content> {
        let peer = self.peer?;
        let (abort, complete) = (self.due.abort, self.due.shutdown_complete);
        (self.due.abort, self.due.shutdown_complete) = (false, false);
        if !abort && !complete {
            return None;
        }
        let mut writer = Writer::begin(out, self.head(peer.tag));
        writer.chunk(if abort { kind::ABORT } else { kind::SHUTDOWN_COMPLETE }, 0, |_| {});
        finish(writer, peer, false);
        Some(Content::Answers)
    }

    /// A packet of whatever there is: answers, acknowledgements, resets, messages.
    fn bundle(&mut self, now: Instant, peer: Peer, out: &mut Vec<u8>) -> Option<Content> {
        let bytes_max = usize::from(self.options.packet_bytes_max);
        let has_messages = self.may_send(now);
        let mut writer = Writer::begin(out, self.head(peer.tag));
        let mut content = Content::Answers;
        let has_cookie = core::mem::take(&mut self.due.cookie_echo);
        if has_cookie {
            writer.chunk(kind::COOKIE_ECHO, 0, |out| out.extend_from_slice(&self.cookie));
            content = Content::Control;
            self.await_answer(now);
        }
        if core::mem::take(&mut self.due.cookie_ack) {
            writer.chunk(kind::COOKIE_ACK, 0, |_| {});
        }
        let (is_ack_due, may_ack) = self.receiver.wants_ack();
        if is_ack_due || may_ack && (has_messages || self.has_reconfig()) {
            self.write_sack(&mut writer, bytes_max);
        }
        if self.write_questions(now, &mut writer) {
            content = Content::Control;
        }
        let mut has_reset = false;
        if self.has_reconfig()
            && let Some((value, asks)) = self.poll_reconfig(now, bytes_max.saturating_sub(writer.len() + 4))
        {
            writer.chunk(kind::RE_CONFIG, 0, |out| out.extend_from_slice(&value));
            has_reset = true;
            if asks {
                content = Content::Control;
            }
        }
        if has_messages && self.sender.fill(now, &mut writer, bytes_max) {
            content = Content::Messages;
        } else if has_reset {
            writer.pad_to(usize::from(self.options.control_bytes_min).min(bytes_max));
        }
        if writer.is_empty() {
            writer.undo();
            return None;
        }
        finish(writer, peer, has_cookie);
        Some(content)
    }

    fn may_send(&mut self, now: Instant) -> bool {
        use State::{CookieEchoed, Established, ShutdownPending, ShutdownReceived};
        matches!(self.state, CookieEchoed | Established | ShutdownPending | ShutdownReceived)
            && self.sender.may_send(now)
    }

    /// It names as many gaps as there is room for (RFC 9260, section 6.7): of those that it leaves out the peer does
    /// not know that they came.
    fn write_sack(&mut self, writer: &mut Writer<'_>, bytes_max: usize) {
        let window = self.receiver.window_bytes();
        self.receiver.on_window_told(window);
        let cumulative = self.receiver.cumulative();
        let answer = self.due.heartbeat_acks.front().map_or(0, |asked| asked.len() + 8);
        let others = writer.len() + sack::SACK_LEN + 4 * DUPLICATES_TOLD_MAX + answer + BESIDE_SACK_BYTES;
        let (gaps, duplicates) = self.receiver.acknowledge(bytes_max.saturating_sub(others) / 4);
        writer.chunk(kind::SACK, 0, |out| sack::write(cumulative, window, &gaps, &duplicates, out));
    }

    /// Questions whether the peer is there, answers to its own, and steps of a shutdown. Whether one is to be answered.
    fn write_questions(&mut self, now: Instant, writer: &mut Writer<'_>) -> bool {
        let mut is_question = false;
        if let Some(asked) = self.due.heartbeat_acks.pop_front() {
            writer.chunk(kind::HEARTBEAT_ACK, 0, |out| out.extend_from_slice(&asked));
        }
        if core::mem::take(&mut self.due.heartbeat) {
            writer.chunk(kind::HEARTBEAT, 0, |out| out.extend_from_slice(&HEARTBEAT));
            self.arm_heartbeat(now);
            is_question = true;
        }
        if core::mem::take(&mut self.due.shutdown) {
            let cumulative = self.receiver.cumulative().to_be_bytes();
            writer.chunk(kind::SHUTDOWN, 0, |out| out.extend_from_slice(&cumulative));
            self.await_answer(now);
            is_question = true;
        }
        if core::mem::take(&mut self.due.shutdown_ack) {
            writer.chunk(kind::SHUTDOWN_ACK, 0, |_| {});
            self.await_answer(now);
            is_question = true;
        }
        is_question
    }
}

/// Writes the checksum, where the packet has to have one (RFC 9653, section 5).
fn finish(writer: Writer<'_>, peer: Peer, has_cookie: bool) {
    if peer.takes_zero_checksum && !has_cookie {
        writer.finish_without_checksum();
    } else {
        writer.finish();
    }
}

/// Room that a SACK leaves for questions and short answers to them.
const BESIDE_SACK_BYTES: usize = 64;

// Half of the shortest packet, which has 512 bytes, is left for gaps.
const _: () = assert!(HEADER_LEN + sack::SACK_LEN + 4 * DUPLICATES_TOLD_MAX + BESIDE_SACK_BYTES <= 256);
