//! What a proxy sends and receives on a stream, and what became of it.

use super::circuit::{Closed, OriginCircuit};
use aws_lc_rs::digest::{Context, SHA256};
use core::net::IpAddr;
use heddle_proto::cell::relay::{DATA_LEN, StreamId};
use heddle_proto::cell::stream::EndReason;
use heddle_seam::time::Instant;

/// Bytes of the beginning of what was received that are kept.
const KEPT_BYTES: usize = 64;
/// Bytes that are made or taken at once.
const CHUNK_BYTES: usize = 32 * DATA_LEN;

/// Where a stream goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A name for the exit to look up.
    Name(String),
    Addr(IpAddr),
}

/// A stream to be opened, and what to send on it.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub to: Destination,
    /// Not zero.
    pub port: u16,
    /// Sent first.
    pub head: Vec<u8>,
    /// Bytes to be sent after it, each made of its place by `body`.
    pub body_bytes: u64,
    pub body: fn(u64) -> u8,
    /// Whether what comes is read; without, it waits until the far end has to stop.
    pub reading: bool,
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeState {
    /// BEGIN is sent.
    Asked,
    Open,
    /// We ended it, with [`EndReason::MISC`], or the far end did.
    Ended(EndReason),
    /// Its circuit ended; `None` when we wanted that, or the channel broke.
    Lost(Option<Closed>),
}

/// What became of an exchange so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeStatus {
    pub state: ExchangeState,
    pub begun_at: Instant,
    pub connected_at: Option<Instant>,
    pub first_byte_at: Option<Instant>,
    pub ended_at: Option<Instant>,
    /// Head and body, as far as they were packaged.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// The first bytes that were received, at most 64.
    pub received_head: Vec<u8>,
    /// The SHA-256 of all bytes that were received.
    pub received_sha256: [u8; 32],
}

/// An exchange at work.
pub(super) struct Running {
    exchange: Exchange,
    pub stream: StreamId,
    status: ExchangeStatus,
    hash: Context,
    chunk: Vec<u8>,
}

impl Running {
    pub fn new(exchange: Exchange, stream: StreamId, now: Instant) -> Self {
        let status = ExchangeStatus {
            state: ExchangeState::Asked,
            begun_at: now,
            connected_at: None,
            first_byte_at: None,
            ended_at: None,
            sent_bytes: 0,
            received_bytes: 0,
            received_head: Vec::new(),
            received_sha256: [0; 32],
        };
        Running { exchange, stream, status, hash: Context::new(&SHA256), chunk: Vec::new() }
    }

    /// The state of affairs.
    pub fn status(&self) -> ExchangeStatus {
        let mut status = self.status.clone();
        status.received_sha256.copy_from_slice(self.hash.clone().finish().as_ref());
        status
    }

    pub fn is_over(&self) -> bool {
        matches!(self.status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
    }

    pub fn set_reading(&mut self, reading: bool) {
        self.exchange.reading = reading;
    }

    pub fn on_connected(&mut self, now: Instant) {
        self.status.state = ExchangeState::Open;
        self.status.connected_at = Some(now);
    }

    pub fn on_over(&mut self, now: Instant, state: ExchangeState) {
        if !self.is_over() {
            self.status.state = state;
            self.status.ended_at = Some(now);
        }
    }

    /// Whether something is left to be sent.
    pub fn wants_to_send(&self) -> bool {
        let total = self.exchange.head.len() as u64 + self.exchange.body_bytes;
        self.status.state == ExchangeState::Open && self.status.sent_bytes < total
    }

    /// Sends as much as the circuit takes now.
    pub fn pump(&mut self, now: Instant, circuit: &mut OriginCircuit) {
        while self.wants_to_send() {
            let room = circuit.writable(now, self.stream).min(CHUNK_BYTES);
            self.fill_chunk(room);
            let taken = circuit.send(now, self.stream, &self.chunk);
            self.status.sent_bytes += taken as u64;
            if taken == 0 {
                return;
            }
        }
    }

    /// Makes the next bytes to be sent, at most `room`.
    fn fill_chunk(&mut self, room: usize) {
        let Exchange { head, body_bytes, body, .. } = &self.exchange;
        self.chunk.clear();
        let sent = self.status.sent_bytes;
        let head_left = usize::try_from(sent).ok().and_then(|sent| head.get(sent..)).unwrap_or_default();
        self.chunk.extend_from_slice(&head_left[..head_left.len().min(room)]);
        let offset = sent.saturating_sub(head.len() as u64);
        let left = (*body_bytes - offset).min((room - self.chunk.len()) as u64);
        self.chunk.extend((offset..offset + left).map(body));
    }

    /// Reads what has come, if it is to be read.
    pub fn drain(&mut self, now: Instant, circuit: &mut OriginCircuit) {
        while self.exchange.reading {
            self.chunk.clear();
            let len = circuit.recv(now, self.stream, &mut self.chunk, CHUNK_BYTES);
            if len == 0 {
                return;
            }
            self.status.first_byte_at.get_or_insert(now);
            self.status.received_bytes += len as u64;
            self.hash.update(&self.chunk);
            let kept = KEPT_BYTES.saturating_sub(self.status.received_head.len()).min(len);
            self.status.received_head.extend_from_slice(&self.chunk[..kept]);
        }
    }
}
