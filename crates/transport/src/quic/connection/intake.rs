//! What comes on streams: the peer's proof, and what is to be counted of flows; and what was lost.

use super::super::stamps;
use super::{Connection, EPOCH_MIN, PACKET_OVERHEAD, PROOF_LEN, State};
use crate::circuits::FLOW_CELL_LEN;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::time::Instant;
use quinn_proto::Dir;
use subtle::ConstantTimeEq;

impl Connection {
    /// Reads the peer's proof; the connection opens when it is right.
    pub(super) fn read_proof(&mut self, now: Instant) {
        let Some(id) = self.proof_stream else {
            return;
        };
        let mut stream = self.quinn.recv_stream(id);
        let mut is_finished = false;
        if let Ok(mut chunks) = stream.read(true) {
            // One byte more than a proof has is enough to know better.
            while let Ok(chunk) = chunks.next(PROOF_LEN + 1 - self.proof.len()) {
                match chunk {
                    Some(chunk) if self.proof.len() <= PROOF_LEN => {
                        self.proof.extend_from_slice(&chunk.bytes)
                    }
                    Some(_) => break,
                    None => {
                        is_finished = true;
                        break;
                    }
                }
                if self.proof.len() > PROOF_LEN {
                    break;
                }
            }
            let _ = chunks.finalize();
        }
        if self.proof.len() > PROOF_LEN || is_finished {
            self.fault(now, "there is more or less than a proof on the proof's stream");
        } else if self.proof.len() == PROOF_LEN && self.state == State::Proving {
            if bool::from(self.proof.ct_eq(&self.their_proof[..])) {
                self.open(now);
            } else {
                self.give_up(now, ConnectionError::WrongProof);
            }
        }
    }

    /// Has the next packet say when it left, if the peer is to know.
    pub(super) fn stamp(&mut self, now: Instant) {
        if self.state == State::Open {
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
            match (arrival.stream.dir(), self.state) {
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
        if self.state != State::Open {
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
