//! Connections of TCP as kernels have them, beside endpoints on the same wires.
#![allow(dead_code, reason = "not every transport is tried beside it")]

use crate::bench::Sent;
use heddle_netem::Packet;
use heddle_seam::time::Instant;
use heddle_utcp::{BufferPool, Connection, Ecn, Header, Options};
use std::sync::Arc;

/// What a TCP and an IPv4 header take, and what timestamps add.
const HEADERS_BYTES: usize = 40;
const TIMESTAMPS_BYTES: usize = 12;

/// A segment on a wire.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Which connection it belongs to, and whether it goes to the end that reads.
    pub flow: usize,
    pub to_reader: bool,
    pub header: Header,
    pub payload: Vec<u8>,
    pub is_damaged: bool,
}

impl Packet for Segment {
    fn len_bytes(&self) -> usize {
        let blocks = self.header.sack.as_slice().len();
        let timestamps = if self.header.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 };
        HEADERS_BYTES + timestamps + if blocks == 0 { 0 } else { 4 + 8 * blocks } + self.payload.len()
    }

    fn flip_bit(&mut self, _bit: usize) {
        self.is_damaged = true;
    }
}

/// One connection: an end that writes as much as it may, and one that reads. Its options are those of Linux, with
/// CUBIC.
pub struct TcpFlow {
    /// Where the two ends are: the hosts of these endpoints of QUIC.
    pub hosts: [usize; 2],
    pub from: Instant,
    pub read_bytes: u64,
    flow: usize,
    writer: Option<Connection>,
    reader: Option<Connection>,
    options: Arc<Options>,
    pool: BufferPool,
    seed: u64,
}

impl TcpFlow {
    pub fn new(flow: usize, hosts: [usize; 2], from: Instant, seed: u64) -> Self {
        TcpFlow {
            hosts,
            from,
            read_bytes: 0,
            flow,
            writer: None,
            reader: None,
            options: Arc::new(Options::linux()),
            pool: BufferPool::new(64 << 20),
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(flow as u64),
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.writer.is_none() {
            return Some(self.from);
        }
        let ends = [&self.writer, &self.reader].into_iter().flatten();
        let at = ends.filter_map(Connection::poll_timeout).min();
        at.map(|at| Instant::from_nanos(at.as_nanos()))
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        let at = theirs(now);
        if self.writer.is_none() && now >= self.from {
            self.writer = Some(Connection::connect(at, self.options.clone(), &self.pool, self.seed));
        }
        for end in [&mut self.writer, &mut self.reader].into_iter().flatten() {
            end.handle_timeout(at);
        }
    }

    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) {
        if segment.is_damaged {
            return;
        }
        let at = theirs(now);
        let end = if segment.to_reader { &mut self.reader } else { &mut self.writer };
        if let Some(end) = end {
            end.handle_segment(at, &segment.header, &segment.payload, Ecn::NotEct);
        } else if segment.to_reader {
            let (header, payload) = (&segment.header, &segment.payload);
            self.reader =
                Connection::accept(at, self.options.clone(), &self.pool, !self.seed, header, payload);
        }
    }

    /// The next segment that leaves, after both applications acted.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        const BYTES: [u8; 4096] = [0x5a; 4096];
        let at = theirs(now);
        if let Some(writer) = &mut self.writer {
            while writer.capacity() > 0 && writer.write(&BYTES) > 0 {}
        }
        if let Some(reader) = &mut self.reader {
            let bytes = reader.readable();
            while reader.readable() > 0 {
                let piece = reader.peek().len();
                reader.consume(at, piece);
            }
            self.read_bytes += bytes as u64;
        }
        let mut payload = Vec::new();
        for (to_reader, end) in [(true, &mut self.writer), (false, &mut self.reader)] {
            if let Some(end) = end
                && let Some(sent) = end.poll_transmit(at, &mut payload)
            {
                return Some(Segment {
                    flow: self.flow,
                    to_reader,
                    header: sent.header,
                    payload,
                    is_damaged: false,
                });
            }
        }
        None
    }
}

fn theirs(at: Instant) -> heddle_utcp::Instant {
    heddle_utcp::Instant::from_nanos(at.as_nanos())
}

/// What a wire carries.
#[derive(Clone, Debug)]
pub enum Carried {
    Datagram(Sent),
    Segment(Segment),
}

impl Packet for Carried {
    fn len_bytes(&self) -> usize {
        match self {
            Carried::Datagram(sent) => sent.len_bytes(),
            Carried::Segment(segment) => segment.len_bytes(),
        }
    }

    fn flip_bit(&mut self, bit: usize) {
        match self {
            Carried::Datagram(sent) => sent.flip_bit(bit),
            Carried::Segment(segment) => segment.flip_bit(bit),
        }
    }

    fn mark_congestion(&mut self) -> bool {
        match self {
            Carried::Datagram(sent) => sent.mark_congestion(),
            Carried::Segment(_) => false,
        }
    }
}
