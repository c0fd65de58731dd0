//! The servers behind the exits.

use heddle_seam::language::{Language, Plain};
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::time::Instant;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a server reads at once.
const READ_BYTES: usize = 64 * 1024;

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Sends back what it reads.
    Echo,
    /// Reads a [`length`], eight bytes, big-endian; sends as many bytes of [`pattern`] from its place on and closes.
    Source,
    /// Reads a length likewise and then so many bytes; sends their SHA-256 and waits for the end.
    Digest,
    /// Accepts and never reads.
    Stall,
    /// Reads a length as a source does, and never stops sending.
    Endless,
    /// Reads, and says nothing.
    Mute,
    /// Reads a length as a source does, sends half of it, and closes.
    Cut,
    /// The same, and resets the connection.
    Reset,
}

impl Service {
    /// Whether it sends bytes of the pattern once it has read a length.
    fn is_source(self) -> bool {
        matches!(self, Service::Source | Service::Endless | Service::Cut | Service::Reset)
    }
}

/// The byte at this place of what [`Service::Source`] sends.
pub fn pattern(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// A length of less than 2⁴⁸ bytes with a salt, which says where in the pattern a source begins: so that streams carry
/// different bytes.
pub fn length(bytes: u64, salt: u32) -> u64 {
    u64::from(salt & 0xFFFF) << 48 | bytes & LENGTH_MASK
}

/// Where in the pattern a source begins.
pub fn place(salt: u32) -> u64 {
    u64::from(salt & 0xFFFF) * 1_000_003
}

const LENGTH_MASK: u64 = (1 << 48) - 1;

struct Visitor {
    service: Service,
    /// The eight bytes of a length, as far as they have come.
    length: Vec<u8>,
    /// Bytes that are still to be sent or read, after a length.
    left: u64,
    /// Where in the pattern the next byte stands.
    offset: u64,
    hash: Sha256,
    /// Bytes of an echo or a digest; at most one read.
    pending: Vec<u8>,
    writable: usize,
    interest: (bool, bool),
    /// Whether to close once nothing is left to be sent.
    closing: bool,
}

/// A host of servers, one service for each port it listens at.
pub struct Internet {
    services: BTreeMap<u16, Service>,
    visitors: BTreeMap<SocketId, Visitor>,
    dirty: Vec<SocketId>,
    outputs: VecDeque<Output<Plain>>,
    buf: Vec<u8>,
    /// Bytes read from all visitors.
    pub received_bytes: u64,
}

impl Internet {
    /// Servers at these ports.
    pub fn new(services: &[(u16, Service)]) -> Self {
        Internet {
            services: services.iter().copied().collect(),
            visitors: BTreeMap::new(),
            dirty: Vec::new(),
            outputs: VecDeque::new(),
            buf: vec![0; READ_BYTES],
            received_bytes: 0,
        }
    }

    /// The ports that are listened at.
    pub fn ports(&self) -> Vec<u16> {
        self.services.keys().copied().collect()
    }

    /// Connections that are open.
    pub fn visitors(&self) -> usize {
        self.visitors.len()
    }

    /// Connections to one service that are open.
    pub fn visitors_of(&self, service: Service) -> usize {
        self.visitors.values().filter(|visitor| visitor.service == service).count()
    }

    fn on_read(&mut self, socket: SocketId, len: usize) {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return };
        self.received_bytes += len as u64;
        let mut bytes = &self.buf[..len];
        if visitor.service == Service::Mute {
            return;
        }
        if visitor.service == Service::Echo {
            visitor.pending.extend_from_slice(bytes);
            return;
        }
        if visitor.length.len() < 8 {
            let taken = bytes.len().min(8 - visitor.length.len());
            visitor.length.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            let Ok(length) = <[u8; 8]>::try_from(&visitor.length[..]) else { return };
            let length = u64::from_be_bytes(length);
            visitor.left = match visitor.service {
                Service::Endless => u64::MAX,
                Service::Cut | Service::Reset => (length & LENGTH_MASK) / 2,
                _ => length & LENGTH_MASK,
            };
            visitor.offset = place((length >> 48) as u32);
            visitor.closing = visitor.service.is_source();
        }
        if visitor.service == Service::Digest && visitor.left > 0 {
            visitor.hash.update(bytes);
            visitor.left = visitor.left.saturating_sub(bytes.len() as u64);
            if visitor.left == 0 {
                visitor.pending = visitor.hash.finalize_reset().to_vec();
            }
        }
    }

    /// Appends what a visitor can be sent now, and says what is wanted of its socket.
    fn flush(&mut self, socket: SocketId, out: &mut Vec<u8>) {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return };
        let len = visitor.pending.len().min(visitor.writable);
        out.extend(visitor.pending.drain(..len));
        let sourcing = visitor.service.is_source();
        if sourcing {
            let len = visitor.left.min((visitor.writable - len) as u64);
            out.extend((visitor.offset..visitor.offset + len).map(pattern));
            visitor.offset += len;
            visitor.left -= len;
        }
        visitor.writable -= out.len();
        let waiting = !visitor.pending.is_empty() || sourcing && visitor.left > 0;
        if visitor.closing && !waiting {
            let resets = visitor.service == Service::Reset;
            self.visitors.remove(&socket);
            let end = if resets { Output::Abort { socket } } else { Output::Close { socket } };
            return self.outputs.push_back(end);
        }
        let read = visitor.service != Service::Stall && visitor.pending.is_empty() && !visitor.closing;
        let wanted = (read, waiting || visitor.writable == 0);
        if wanted != visitor.interest {
            visitor.interest = wanted;
            self.outputs.push_back(Output::Interest { socket, read: wanted.0, write: wanted.1 });
        }
    }
}

impl<L: Language> Node<L> for Internet {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, _: Instant, input: Input<L>) {
        match input {
            Input::Accepted { socket, local, .. } => {
                let visitor = Visitor {
                    service: self.services[&local.port()],
                    length: Vec::new(),
                    left: 0,
                    offset: 0,
                    hash: Sha256::new(),
                    pending: Vec::new(),
                    writable: 0,
                    interest: (false, false),
                    closing: false,
                };
                self.visitors.insert(socket, visitor);
                self.dirty.push(socket);
            }
            Input::Read { socket, len } => {
                self.on_read(socket, len);
                self.dirty.push(socket);
            }
            Input::Writable { socket, bytes, .. } => {
                if let Some(visitor) = self.visitors.get_mut(&socket) {
                    visitor.writable = bytes;
                }
                self.dirty.push(socket);
            }
            Input::Eof { socket } => {
                if let Some(visitor) = self.visitors.get_mut(&socket) {
                    visitor.closing = true;
                }
                self.dirty.push(socket);
            }
            Input::Failed { socket, .. } => {
                self.visitors.remove(&socket);
            }
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<L> {
        loop {
            if let Some(socket) = self.dirty.pop() {
                self.flush(socket, buf);
                if !buf.is_empty() {
                    return Output::Send { socket };
                }
            } else {
                return self.outputs.pop_front().map_or(Output::Timeout(None), Output::widen);
            }
        }
    }
}
