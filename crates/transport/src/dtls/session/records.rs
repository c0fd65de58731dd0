//! What leaves of a session itself, and how records are sealed.

use super::{Handshaking, Session, State};
use crate::dtls::control;
use crate::dtls::engine::RECORD_OVERHEAD;
use crate::dtls::ids::ID_LEN;
use crate::dtls::reach;
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::time::{Duration, Instant};

/// Records that wait to be sent. Each answers one of the peer, which is answered at once or not at all.
const QUEUED_MAX: usize = 16;

/// Between two sendings of a proof.
const PROOF_INTERVAL: Duration = Duration::from_millis(500);
/// Sendings of each length of a proof: the longest, then shorter ones.
const PROOF_TRIES: usize = 2;

/// A record of the session itself that waits to be sent.
#[derive(Debug)]
pub(super) struct Queued {
    record: Vec<u8>,
    /// Whether the peer must answer it.
    is_question: bool,
}

impl Session {
    /// Asks the peer for an answer.
    pub(crate) fn ask(&mut self, now: Instant) {
        if self.is_open() {
            let record = control::ping(self.pings.next_ping(now));
            self.enqueue(Queued { record, is_question: true });
        }
    }

    /// Queues a record that asks for nothing.
    pub(super) fn say(&mut self, record: Vec<u8>) {
        self.enqueue(Queued { record, is_question: false });
    }

    pub(super) fn probe_lengths(&mut self, lengths: &[u16]) {
        for bytes in lengths {
            self.say(control::probe(usize::from(*bytes) - ID_LEN - RECORD_OVERHEAD));
        }
    }

    fn enqueue(&mut self, queued: Queued) {
        if self.queue.len() < QUEUED_MAX {
            self.queue.push(queued);
        }
    }

    /// Appends a datagram of the session's own: what DTLS itself says, our proof, and what is queued. Whether there was
    /// any.
    pub(crate) fn next_own(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if let Some(records) = self.engine.poll_records() {
            self.write_head(out);
            out.extend_from_slice(&records);
            return true;
        }
        if self.exchange().is_some_and(|exchange| exchange.due.is_some_and(|due| due <= now)) {
            return self.send_proof(now, out);
        }
        if self.queue.is_empty() {
            return false;
        }
        let Queued { record, is_question } = self.queue.remove(0);
        self.seal(now, &record, is_question, out)
    }

    fn send_proof(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let lengths = reach::lengths(self.options.datagram_bytes_max);
        let Some(exchange) = self.exchange() else { return false };
        exchange.due = Some(now + PROOF_INTERVAL);
        let bytes = lengths[(exchange.sent / PROOF_TRIES) % lengths.len()];
        exchange.sent += 1;
        let certificate = exchange.certificate;
        let bytes = usize::from(bytes) - ID_LEN - RECORD_OVERHEAD;
        let proof = control::proof(&self.proofs, &certificate, self.flows_max, bytes);
        self.seal(now, &proof, false, out)
    }

    /// Appends a datagram with one record. `is_question` is whether the peer must answer it. False when DTLS cannot:
    /// the session is over then.
    pub(crate) fn seal(
        &mut self,
        now: Instant,
        contents: &[u8],
        is_question: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let begin = out.len();
        self.write_head(out);
        if let Err(error) = self.engine.seal(contents, out) {
            out.truncate(begin);
            self.end(now, ConnectionError::PeerMisbehaved(error.to_string()));
            return false;
        }
        if is_question {
            self.pings.on_question(now);
        }
        true
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        match &self.state {
            State::Handshaking(Handshaking { token: Some(token), .. }) => out.extend_from_slice(token),
            _ => out.extend_from_slice(&self.their_id),
        }
    }
}
