//! What the driver says of a connection's sockets on the stack: of the control stream, or of flows.

use super::super::flows::Flows;
use super::super::sockets::{Room, Sockets};
use super::stream::ControlStream;
use super::{Connection, State};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::ConnectionError;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

impl Connection {
    /// The flows, while there may be any.
    fn flows(&mut self) -> Option<&mut Flows> {
        match &mut self.state {
            State::Open(open) => Some(&mut open.flows),
            State::Proving(_) | State::Over(_) => None,
        }
    }

    /// What the driver opens for all connections, and whether the peer may open flows.
    pub(in crate::tcp_esp) fn set_sockets_room(&mut self, room: Room) {
        self.room = room;
        if let Some(flows) = self.flows() {
            flows.set_sockets_room(room.sockets);
        }
    }

    /// Takes a socket that the peer opened; false if it may not.
    pub(in crate::tcp_esp) fn accept(
        &mut self,
        now: Instant,
        socket: SocketId,
        is_control: bool,
        sockets: &mut Sockets,
    ) -> bool {
        match &mut self.state {
            State::Proving(proving) if is_control => {
                let is_first = proving.stream.is_none() && self.role == Role::Responder;
                if is_first {
                    proving.stream.insert(ControlStream::new(socket)).on_connected(sockets);
                }
                is_first
            }
            State::Open(open) if !is_control => open.flows.accept(now, socket, sockets),
            _ => false,
        }
    }

    pub(in crate::tcp_esp) fn on_connected(&mut self, socket: SocketId, sockets: &mut Sockets) {
        if let Some(stream) = self.control_stream(socket) {
            stream.on_connected(sockets);
        } else if let Some(flows) = self.flows() {
            flows.on_connected(socket, sockets);
        }
    }

    pub(in crate::tcp_esp) fn on_read(
        &mut self,
        now: Instant,
        socket: SocketId,
        len: usize,
        sockets: &mut Sockets,
    ) {
        if let Some(stream) = self.control_stream(socket) {
            let mut unread = stream.take_unread();
            unread.extend_from_slice(sockets.read(len));
            self.on_control_bytes(now, socket, unread, sockets);
        } else if let Some(flows) = self.flows() {
            flows.on_read(socket, len, sockets);
        }
    }

    pub(in crate::tcp_esp) fn on_writable(&mut self, socket: SocketId, bytes: usize, sockets: &mut Sockets) {
        if let Some(stream) = self.control_stream(socket) {
            stream.credit = bytes;
        } else if let Some(flows) = self.flows() {
            flows.on_writable(socket, bytes, sockets);
        }
    }

    /// The stack keeps so much memory of a socket.
    pub(in crate::tcp_esp) fn on_kernel_memory(&mut self, socket: SocketId, bytes: usize) {
        if let Some(stream) = self.control_stream(socket) {
            stream.stack_bytes = bytes;
        } else if let Some(flows) = self.flows() {
            flows.on_kernel_memory(socket, bytes);
        }
    }

    pub(in crate::tcp_esp) fn on_eof(&mut self, now: Instant, socket: SocketId, sockets: &mut Sockets) {
        if self.control_stream(socket).is_some() {
            self.misbehaved(now, "the control stream ended", sockets);
        } else if let Some(flows) = self.flows() {
            flows.on_eof(socket, sockets);
        }
    }

    /// A socket is gone.
    pub(in crate::tcp_esp) fn on_failed(&mut self, now: Instant, socket: SocketId, sockets: &mut Sockets) {
        let is_control = self.control_stream(socket).is_some();
        match &mut self.state {
            State::Proving(_) if is_control => self.fail(now, ConnectionError::NoAnswer, sockets),
            State::Open(_) if is_control => self.misbehaved(now, "the control stream broke", sockets),
            State::Open(open) => open.flows.on_failed(now, socket),
            State::Proving(_) | State::Over(_) => {}
        }
    }
}
