//! What leaves: datagrams, in the order in which they are wanted.

use super::{Connection, Open, State};
use crate::dtls::tunnelled::{Packet, Tunnelled};
use heddle_seam::datagrams::Transmit;
use heddle_seam::stopwatch::{Step, Stopwatch};
use heddle_seam::time::Instant;

/// What is in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Something of the session's own, or of DTLS.
    Own,
    Packet,
}

impl<T: Tunnelled> Connection<T> {
    /// Appends the next batch of datagrams to `out`.
    pub(in crate::dtls) fn poll_transmit(
        &mut self,
        now: Instant,
        datagrams_max: usize,
        stopwatch: &Stopwatch,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mut stride = 0;
        let ecn = self.open().map_or(0, |open| open.heads.codepoint(now));
        for _ in 0..datagrams_max {
            let (begin, lap) = (out.len(), stopwatch.begin());
            let Some(content) = self.next_datagram(now, out) else { break };
            stopwatch.end(lap, Step::Emit);
            let len = out.len() - begin;
            if stride > 0 && len > stride {
                self.kept = Some((content, out.split_off(begin)));
                break;
            }
            self.counts.sent_datagrams += 1;
            if let (Content::Packet, State::Open(open)) = (content, &mut self.state) {
                open.heads.on_sent(now, ecn);
            }
            self.counts.sent_bytes += len as u64;
            let is_last = stride > 0 && len < stride;
            stride = if stride == 0 { len } else { stride };
            if is_last {
                break;
            }
        }
        self.note_capacity();
        let (to, from) = (self.session.peer(), self.session.local());
        (stride > 0).then_some(Transmit { to, from, ecn, stride })
    }

    /// Appends one datagram: what was kept, what the session itself says, and then a packet of what it carries.
    fn next_datagram(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Content> {
        if let Some((content, kept)) = self.kept.take() {
            out.extend_from_slice(&kept);
            return Some(content);
        }
        if self.session.next_own(now, out) {
            return Some(Content::Own);
        }
        if self.session.is_over() {
            self.on_events(now, 0);
        }
        let State::Open(open) = &mut self.state else { return None };
        let Open { heads, tunnelled, packet, .. } = &mut **open;
        packet.clear();
        let waiting_bytes = tunnelled.window().map_or(0, |window| window.waiting_bytes);
        let written = heads.write(now, waiting_bytes, packet);
        let content = tunnelled.poll_packet(now, written.bytes, packet);
        let is_sealed =
            content.is_some_and(|content| self.session.seal(now, packet, content == Packet::Asks, out));
        if is_sealed {
            heads.on_sealed(written);
        } else {
            self.on_events(now, 0);
        }
        is_sealed.then_some(Content::Packet)
    }
}
