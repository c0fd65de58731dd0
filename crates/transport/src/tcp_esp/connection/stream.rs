//! The control stream of a connection: what comes on it and what is written.

use super::super::control::{self, Control};
use super::super::sockets::Sockets;
use super::{Connection, State};
use crate::links::Served;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionEvent};
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

impl Connection {
    pub(in crate::tcp_esp) fn on_read(
        &mut self,
        now: Instant,
        socket: SocketId,
        len: usize,
        sockets: &mut Sockets,
    ) {
        if self.stream.socket != Some(socket) {
            return self.flows.on_read(socket, len, sockets);
        }
        let mut unread = core::mem::take(&mut self.stream.unread);
        unread.extend_from_slice(sockets.read(len));
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
        unread.drain(..used);
        self.stream.unread = unread;
    }

    /// Works off a message of the control stream; false if the connection is over for it.
    fn on_control(&mut self, now: Instant, message: Control<'_>, sockets: &mut Sockets) -> bool {
        match (&self.state, message) {
            (State::Proving { proofs, .. }, Control::Proof(proof)) if control::is_right(proofs, &proof) => {
                if self.role == Role::Responder {
                    control::write_proof(proofs, self.flows_max, &mut self.stream.unsent);
                }
                self.state = State::Open;
                self.events.push_back(ConnectionEvent::Ready);
                self.flows.permit(proof.flows_max);
                self.pings.on_answer(now);
                // How long an answer takes is known before one is missed.
                self.probe(now);
                true
            }
            (State::Proving { .. }, _) => {
                self.fail(now, ConnectionError::WrongProof, sockets);
                false
            }
            (_, Control::End { is_readers, number, reason }) => {
                self.flows.on_end(is_readers, number, reason, sockets);
                true
            }
            (_, Control::Room { flows_max }) => {
                self.flows.permit(flows_max);
                true
            }
            (_, Control::Proof(_)) => {
                self.misbehaved(now, "a second proof", sockets);
                false
            }
        }
    }

    /// Writes what the control stream takes.
    pub(in crate::tcp_esp) fn flush_control(&mut self, now: Instant, sockets: &mut Sockets) {
        let ends = self.flows.take_ends();
        if matches!(self.state, State::Over { .. }) {
            return;
        }
        if self.stream.unsent.len() + ends.len() > self.flows.ends_bytes_max() {
            return self.misbehaved(now, "it reads nothing of how flows end", sockets);
        }
        let is_open = self.is_open();
        let stream = &mut self.stream;
        stream.unsent.extend_from_slice(&ends);
        if is_open && self.is_full != self.told_full {
            self.told_full = self.is_full;
            control::write_room(if self.is_full { 0 } else { self.flows_max }, &mut stream.unsent);
        }
        let Some(socket) = stream.socket else { return };
        let count = stream.unsent.len().min(stream.credit);
        if count > 0 {
            sockets.send(socket, &stream.unsent[..count]);
            stream.unsent.drain(..count);
            stream.credit -= count;
        }
        let is_waiting = !stream.unsent.is_empty();
        if stream.is_connected && stream.is_granting != is_waiting {
            stream.is_granting = is_waiting;
            sockets.interest(socket, true, is_waiting);
        }
    }
}
