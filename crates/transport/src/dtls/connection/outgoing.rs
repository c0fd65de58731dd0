//! What leaves: datagrams, in the order in which they are wanted.

use super::Connection;
use crate::circuits::FLOW_CELL_LEN;
use crate::dtls::ids::ID_LEN;
use crate::dtls::reach;
use crate::dtls::session::RECORD_OVERHEAD;
use crate::dtls::stamped::{self, STAMPED_LEN};
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::datagrams::Transmit;
use heddle_seam::stopwatch::{Step, Stopwatch};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::compact::{Content as SegmentContent, HEADER_BYTES, PADDING};

/// What is in a datagram with one cell and nothing else. The end of a circuit is as long.
const LONE_CELL_BYTES: usize = HEADER_BYTES + FLOW_CELL_LEN;

/// Between two sendings of a proof.
const PROOF_INTERVAL: Duration = Duration::from_millis(500);
/// Sendings of each length of a proof: the longest, then shorter ones.
const PROOF_TRIES: usize = 2;

/// What is in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Something of the connection's own, or of DTLS.
    Own,
    Segments,
}

/// A record of the connection's own that is to leave.
pub(super) struct Queued {
    pub(super) record: Vec<u8>,
    /// Whether silence after it tells that the path is dead.
    pub(super) is_question: bool,
}

impl Connection {
    /// Appends the next batch of datagrams to `out`.
    pub(in crate::dtls) fn poll_transmit(
        &mut self,
        now: Instant,
        datagrams_max: usize,
        stopwatch: &Stopwatch,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mut stride = 0;
        let ecn = if self.tcp.is_some() { self.ecn.codepoint(now) } else { 0 };
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
            if content == Content::Segments {
                self.ecn.on_sent(now, ecn);
            }
            self.counts.sent_bytes += len as u64;
            let is_last = stride > 0 && len < stride;
            stride = if stride == 0 { len } else { stride };
            if is_last {
                break;
            }
        }
        self.note_capacity();
        (stride > 0).then_some(Transmit { to: self.peer, from: self.local, ecn, stride })
    }

    /// Appends one datagram: what was kept, what DTLS itself says, controls, and then flows' segments.
    fn next_datagram(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Content> {
        if let Some((content, kept)) = self.kept.take() {
            out.extend_from_slice(&kept);
            return Some(content);
        }
        if let Some(records) = self.session.poll_records() {
            self.write_head(out);
            out.extend_from_slice(&records);
            return Some(Content::Own);
        }
        if self.proving.due.is_some_and(|due| due <= now) {
            return self.send_proof(now, out).then_some(Content::Own);
        }
        if !self.controls.is_empty() {
            let Queued { record, is_question } = self.controls.remove(0);
            return self.seal(now, &record, is_question, out).then_some(Content::Own);
        }
        let mux = self.tcp.as_mut()?;
        let mut segments = core::mem::take(&mut self.segments);
        segments.clear();
        let waiting_bytes = mux.shared_window().map_or(0, |[_, _, ready_bytes]| ready_bytes);
        let is_stamped = self.stamps.is_due(now, usize::try_from(waiting_bytes).unwrap_or(usize::MAX));
        if is_stamped {
            stamped::emit(self.stamps.stamp(now), &mut segments);
        }
        let told_bytes = self.ecn.tell(&mut segments);
        let content = mux.poll_datagram(now, &mut segments);
        self.flows.on_events(now, mux);
        let lone_cell_bytes = if is_stamped { STAMPED_LEN } else { 0 } + told_bytes + LONE_CELL_BYTES;
        if content == Some(SegmentContent::Ends) && segments.len() < lone_cell_bytes {
            segments.push(PADDING);
            segments.resize(lone_cell_bytes, 0);
        }
        // What only acknowledges asks for nothing, and resets are repeated by TCP itself.
        let is_question = content == Some(SegmentContent::Payload);
        let is_sealed = content.is_some() && self.seal(now, &segments, is_question, out);
        self.segments = segments;
        if is_sealed && told_bytes > 0 {
            self.ecn.on_tell();
        }
        is_sealed.then_some(Content::Segments)
    }

    fn send_proof(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(certificate) = self.their_certificate else {
            return false;
        };
        self.proving.due = Some(now + PROOF_INTERVAL);
        let lengths = reach::lengths(self.options.datagram_bytes_max);
        let bytes = lengths[(self.proving.sent / PROOF_TRIES) % lengths.len()];
        self.proving.sent += 1;
        let bytes = usize::from(bytes) - ID_LEN - RECORD_OVERHEAD;
        let proof = self.proofs.write(&certificate, self.flows_max, bytes);
        self.seal(now, &proof, false, out)
    }

    /// Appends a datagram with one record. `is_question` is whether the peer must answer it.
    fn seal(&mut self, now: Instant, contents: &[u8], is_question: bool, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        self.write_head(out);
        if let Err(error) = self.session.seal(contents, out) {
            out.truncate(begin);
            self.end(now, ConnectionError::PeerMisbehaved(error.to_string()));
            return false;
        }
        if is_question {
            self.path.on_question(now);
        }
        true
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        match &self.token {
            Some(token) => out.extend_from_slice(token),
            None => out.extend_from_slice(&self.their_id),
        }
    }
}
