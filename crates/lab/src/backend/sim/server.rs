//! What answers traffic, as [`crate::traffic::Server`] does over real sockets: a [`Visitor`] for each stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use heddle_relay::RelayLanguage;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::time::Instant;

use crate::traffic::server::Visitor;
use crate::traffic::sunk::Sunk;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// The server of a host.
pub(super) struct ServerNode {
    sunk: Arc<Sunk>,
    streams: BTreeMap<SocketId, Stream>,
    dirty: BTreeSet<SocketId>,
    /// Visitors that wait for a time.
    waiting: BTreeSet<(Instant, SocketId)>,
    outputs: VecDeque<Output<RelayLanguage>>,
    buf: Vec<u8>,
}

#[derive(Default)]
struct Stream {
    visitor: Visitor,
    writable: usize,
    interest: (bool, bool),
    wakes: Option<Instant>,
}

impl ServerNode {
    pub(super) fn new(sunk: Arc<Sunk>) -> ServerNode {
        ServerNode {
            sunk,
            streams: BTreeMap::new(),
            dirty: BTreeSet::new(),
            waiting: BTreeSet::new(),
            outputs: VecDeque::new(),
            buf: vec![0; READ_BYTES],
        }
    }

    /// Appends what a visitor can be sent now, and says what is wanted of its socket.
    fn flush(&mut self, now: Instant, socket: SocketId, out: &mut Vec<u8>) {
        let Some(Stream { visitor, writable, interest, wakes }) = self.streams.get_mut(&socket) else {
            return;
        };
        let mut moved = true;
        while moved && visitor.wants().wakes.is_none_or(|wakes| wakes <= now) {
            moved = false;
            visitor.write(now, &mut |bytes| {
                let len = bytes.len().min(*writable);
                out.extend_from_slice(&bytes[..len]);
                *writable -= len;
                moved |= len > 0;
                len
            });
        }
        let wants = visitor.wants();
        if let Some(before) = std::mem::replace(wakes, wants.wakes) {
            self.waiting.remove(&(before, socket));
        }
        self.waiting.extend(wants.wakes.map(|wakes| (wakes, socket)));
        if wants.end {
            self.forget(socket);
            return self.outputs.push_back(Output::Close { socket });
        }
        let wanted = (wants.read, wants.write || *writable == 0);
        if wanted != *interest {
            *interest = wanted;
            self.outputs.push_back(Output::Interest { socket, read: wanted.0, write: wanted.1 });
        }
    }

    fn forget(&mut self, socket: SocketId) {
        if let Some(Stream { wakes: Some(wakes), .. }) = self.streams.remove(&socket) {
            self.waiting.remove(&(wakes, socket));
        }
    }
}

impl Node<RelayLanguage> for ServerNode {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input<RelayLanguage>) {
        let socket = match input {
            Input::Accepted { socket, .. } => {
                self.streams.insert(socket, Stream::default());
                socket
            }
            Input::Read { socket, len } => {
                if let Some(stream) = self.streams.get_mut(&socket) {
                    stream.visitor.on_read(now, &self.buf[..len], &self.sunk);
                }
                socket
            }
            Input::Writable { socket, bytes, .. } => {
                if let Some(stream) = self.streams.get_mut(&socket) {
                    stream.writable = bytes;
                }
                socket
            }
            Input::Eof { socket } => {
                if let Some(stream) = self.streams.get_mut(&socket) {
                    stream.visitor.on_end();
                }
                socket
            }
            Input::Failed { socket, .. } => return self.forget(socket),
            Input::Timeout => {
                let due = self.waiting.iter().take_while(|(at, _)| *at <= now).map(|(_, socket)| *socket);
                return self.dirty.extend(due);
            }
            _ => return,
        };
        self.dirty.insert(socket);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<RelayLanguage> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            let Some(socket) = self.dirty.pop_first() else {
                return Output::Timeout(self.waiting.first().map(|(at, _)| *at));
            };
            self.flush(now, socket, buf);
            if !buf.is_empty() {
                return Output::Send { socket };
            }
        }
    }
}
