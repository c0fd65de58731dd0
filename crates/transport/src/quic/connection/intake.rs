//! What comes on streams: the peer's proof, and what is to be counted of flows; and what was lost.

use super::super::stamps;
use super::{Connection, EPOCH_MIN, PACKET_OVERHEAD, PROOF_LEN, State};
use crate::connections::circuits::FLOW_CELL_LEN;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::time::Instant;
use quinn_proto::{Dir, RecvStream};
use subtle::ConstantTimeEq;

impl Connection {
    /// Reads the peer's proof; the connection opens when it is right.
    pub(super) fn read_proof(&mut self, now: Instant) {
        let Some(id) = self.proof_stream else { return };
        let mut after = Vec::new();
        let (shown, bytes_max) = match &mut self.state {
            State::Handshaking(opening) | State::Proving(opening) => (&mut *opening.shown, PROOF_LEN + 1),
            // Nothing comes after a proof.
            State::Open => (&mut after, 1),
            State::Over => return,
        };
        let is_finished = read(&mut self.quinn.recv_stream(id), bytes_max, shown);
        if is_finished || shown.len() == bytes_max {
            return self.fault(now, "there is more or less than a proof on the proof's stream");
        }
        let State::Proving(opening) = &self.state else { return };
        if opening.shown.len() == PROOF_LEN {
            match opening.shown.ct_eq(&opening.their_proof[..]).into() {
                true => self.open(now),
                false => self.give_up(now, ConnectionError::WrongProof),
            }
        }
    }

    /// Has the next packet say when it left, if the peer is to know.
    pub(super) fn stamp(&mut self, now: Instant) {
        if self.is_open() {
            stamps::stamp(&mut self.stamps, now, &mut self.quinn, self.unsent);
        }
    }

    /// Tells the controller, from time to time, how many circuits it stands for.
    pub(super) fn count_circuits(&mut self, now: Instant) {
        // Cells come many at a time, and one look is enough for all.
        if core::mem::replace(&mut self.counted_at, now) == now {
            return;
        }
        if now.since(self.epoch_since) >= EPOCH_MIN.max(self.quinn.rtt()) {
            self.epoch_since = now;
            if let Some(flows) = self.flows.circuits.next_epoch() {
                self.gauge.set_flows(flows);
            }
        }
    }

    /// Bytes of cells that are to be sent again, about.
    pub(super) fn take_lost(&mut self) -> usize {
        let bytes = usize::try_from(self.gauge.take_lost_bytes()).unwrap_or(usize::MAX / 2);
        if bytes == 0 {
            return 0;
        }
        let packets = self.quinn.stats().path.lost_packets;
        let newly = usize::try_from(packets - core::mem::replace(&mut self.lost_packets, packets));
        bytes.saturating_sub(newly.unwrap_or(0).saturating_mul(PACKET_OVERHEAD))
    }

    /// Counts what came on streams.
    pub(super) fn count_arrivals(&mut self, now: Instant) {
        self.arrived = self.watch.arrivals.take(core::mem::take(&mut self.arrived));
        for at in 0..self.arrived.len() {
            let arrival = self.arrived[at];
            match (arrival.stream.dir(), &self.state) {
                (_, State::Over) => return,
                _ if arrival.is_reset => self.flows.on_reset(arrival.stream),
                (Dir::Uni, _) if arrival.end > PROOF_LEN as u64 => {
                    return self.fault(now, "there is more than a proof on the proof's stream");
                }
                (Dir::Uni, _) => {}
                (Dir::Bi, State::Open) if !self.flows.on_arrival(now, &arrival) => {
                    return self.fault(now, "it sent on a stream that carries no flow");
                }
                (Dir::Bi, State::Open) => {}
                (Dir::Bi, _) => self.flows.on_early_arrival(now, &arrival),
            }
        }
    }

    pub(in crate::quic) fn next_cell(&mut self, now: Instant) -> Option<(CircId, Command)> {
        if !self.is_open() {
            return None;
        }
        let cell = self.flows.next_cell(now, &mut self.quinn)?;
        self.receive_window.on_read(FLOW_CELL_LEN as u64);
        Some(cell)
    }

    /// The body of the cell that [`Connection::next_cell`] has just lent.
    pub(in crate::quic) fn lent(&self) -> &Body {
        self.flows.lent()
    }
}

/// Reads a stream until there are so many bytes of it. Returns whether it has ended.
fn read(stream: &mut RecvStream<'_>, bytes_max: usize, bytes: &mut Vec<u8>) -> bool {
    let Ok(mut chunks) = stream.read(true) else { return false };
    let mut is_finished = false;
    while bytes.len() < bytes_max && !is_finished {
        match chunks.next(bytes_max - bytes.len()) {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
            Ok(None) => is_finished = true,
            Err(_) => break,
        }
    }
    let _ = chunks.finalize();
    is_finished
}
