//! The control stream of a connection: what comes on it and what is written.

use super::super::control::{self, Control};
use super::super::sockets::Sockets;
use super::{Connection, State};
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

/// The control stream.
#[derive(Debug)]
pub(super) struct ControlStream {
    pub(super) socket: SocketId,
    /// What the driver lets be written.
    pub(super) credit: usize,
    pub(super) unsent: Vec<u8>,
    unread: Vec<u8>,
    /// Bytes of memory that the stack keeps of it, as the driver said last.
    pub(super) stack_bytes: usize,
    is_connected: bool,
    /// Whether the driver was told last to grant.
    is_granting: bool,
}

impl ControlStream {
    pub(super) fn new(socket: SocketId) -> Self {
        ControlStream {
            socket,
            credit: 0,
            unsent: Vec::new(),
            unread: Vec::new(),
            stack_bytes: 0,
            is_connected: false,
            is_granting: false,
        }
    }

    pub(super) fn on_connected(&mut self, sockets: &mut Sockets) {
        (self.is_connected, self.is_granting) = (true, !self.unsent.is_empty());
        sockets.interest(self.socket, true, self.is_granting);
    }

    /// What was read of it and holds no whole message.
    pub(super) fn take_unread(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.unread)
    }

    /// Bytes that it and its socket hold.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unsent.capacity() + self.unread.capacity() + self.stack_bytes
    }

    /// Writes what it takes.
    fn flush(&mut self, sockets: &mut Sockets) {
        let count = self.unsent.len().min(self.credit);
        if count > 0 {
            sockets.send(self.socket, &self.unsent[..count]);
            drain(&mut self.unsent, count);
            self.credit -= count;
        }
        let is_waiting = !self.unsent.is_empty();
        if self.is_connected && self.is_granting != is_waiting {
            self.is_granting = is_waiting;
            sockets.interest(self.socket, true, is_waiting);
        }
    }
}

/// Takes the first bytes off, and gives the memory back with the last.
fn drain(bytes: &mut Vec<u8>, count: usize) {
    bytes.drain(..count);
    if bytes.is_empty() {
        *bytes = Vec::new();
    }
}

impl Connection {
    /// The control stream, if this is its socket.
    pub(super) fn control_stream(&mut self, socket: SocketId) -> Option<&mut ControlStream> {
        let stream = match &mut self.state {
            State::Proving(proving) => proving.stream.as_mut(),
            State::Open(open) => Some(&mut open.stream),
            State::Over(_) => None,
        };
        stream.filter(|stream| stream.socket == socket)
    }

    /// Works off what came on the control stream, and keeps what is no whole message yet.
    pub(super) fn on_control_bytes(
        &mut self,
        now: Instant,
        socket: SocketId,
        mut unread: Vec<u8>,
        sockets: &mut Sockets,
    ) {
        let mut used = 0;
        loop {
            match control::parse(&unread[used..]) {
                Ok(Some((message, len))) => {
                    used += len;
                    if !self.on_control(now, message, sockets) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return self.misbehaved(now, "an unknown message", sockets),
            }
        }
        drain(&mut unread, used);
        if let Some(stream) = self.control_stream(socket) {
            stream.unread = unread;
        }
    }

    /// Works off a message of the control stream; false if the connection is over for it.
    fn on_control(&mut self, now: Instant, message: Control<'_>, sockets: &mut Sockets) -> bool {
        match (&mut self.state, message) {
            (State::Proving(proving), Control::Proof(proof))
                if control::is_right(&proving.proofs, &proof) =>
            {
                self.open(now, proof.flows_max, sockets);
            }
            (State::Proving(_), _) => self.fail(now, ConnectionError::WrongProof, sockets),
            (State::Open(open), Control::End { is_readers, number, reason }) => {
                open.flows.on_end(is_readers, number, reason, sockets);
            }
            (State::Open(open), Control::Room { flows_max }) => open.flows.permit(flows_max),
            (State::Open(_), Control::Proof(_)) => self.misbehaved(now, "a second proof", sockets),
            (State::Over(_), _) => {}
        }
        !self.is_over()
    }

    /// Writes what the control stream takes.
    pub(in crate::tcp_esp) fn flush_control(&mut self, now: Instant, sockets: &mut Sockets) {
        match &mut self.state {
            State::Proving(proving) => {
                if let Some(stream) = &mut proving.stream {
                    stream.flush(sockets);
                }
            }
            State::Open(open) => {
                let (ends, stream) = (open.flows.take_ends(), &mut open.stream);
                if stream.unsent.len() + ends.len() > open.flows.ends_bytes_max() {
                    return self.misbehaved(now, "it reads nothing of how flows end", sockets);
                }
                stream.unsent.extend_from_slice(&ends);
                let is_full = !self.room.accepts;
                if is_full != open.told_full {
                    open.told_full = is_full;
                    control::write_room(if is_full { 0 } else { self.flows_max }, &mut stream.unsent);
                }
                stream.flush(sockets);
            }
            State::Over(_) => {}
        }
    }
}
