//! What the driver says of the stack, and whom it concerns.

use super::EspEndpoint;
use super::addresses::CONTROL_PORT;
use super::connection::Connection;
use super::sockets::{Room, Sockets};
use crate::connections::Serve;
use core::net::SocketAddr;
use heddle_seam::datagrams::Packets;
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, SocketId};
use heddle_seam::time::Instant;

impl EspEndpoint {
    pub(super) fn on_stack(&mut self, now: Instant, input: Input<Plain>) {
        match input {
            Input::Packets { packets, .. } => self.on_packets(now, &packets),
            Input::Accepted { socket, local, peer } => self.on_accepted(now, socket, local, peer),
            Input::Connected { socket, .. } => {
                self.at_owner(now, socket, |connection, sockets| connection.on_connected(socket, sockets));
            }
            Input::Read { socket, len } => {
                self.at_owner(now, socket, |connection, sockets| {
                    connection.on_read(now, socket, len, sockets)
                });
            }
            Input::Writable { socket, bytes, .. } => {
                self.at_owner(now, socket, |connection, sockets| {
                    connection.on_writable(socket, bytes, sockets);
                });
            }
            Input::Eof { socket } => {
                self.at_owner(now, socket, |connection, sockets| connection.on_eof(now, socket, sockets));
            }
            Input::Failed { socket, .. } => {
                // Nobody is to abort what is gone.
                let Some(key) = self.sockets.forget(socket) else { return };
                self.at(key, |connection, sockets| connection.on_failed(now, socket, sockets));
                self.after(now, key);
            }
            Input::Unsent { socket, bytes } => {
                self.at_owner(now, socket, |connection, _| connection.on_kernel_memory(socket, bytes));
            }
            Input::StackRoom { sockets, accepts, .. } => {
                self.sockets.set_room(Room { sockets, accepts });
                self.tell_room(now);
            }
            // Of the rest nothing is said of a stack, or it needs no answer.
            _ => {}
        }
    }

    /// What the stack sends goes to whom it is addressed to; what is addressed to nobody goes nowhere.
    fn on_packets(&mut self, now: Instant, packets: &Packets) {
        self.handle_each(now, packets.data.chunks(packets.stride.max(1)), |endpoint, packet| {
            let key = endpoint.addresses.of_packet(packet)?;
            endpoint.connections.live_mut(key)?.send_packet(now, packet, &mut endpoint.sockets.spares);
            Some(key)
        });
    }

    fn on_accepted(&mut self, now: Instant, socket: SocketId, local: SocketAddr, peer: SocketAddr) {
        let key = self.addresses.of(peer.ip());
        let Some((key, connection)) = key.and_then(|key| Some((key, self.connections.live_mut(key)?))) else {
            return self.sockets.refuse(socket);
        };
        self.sockets.take(socket, key);
        let is_control = local.port() == CONTROL_PORT;
        if !connection.accept(now, socket, is_control, &mut self.sockets) {
            self.sockets.abort(socket);
        }
        self.after(now, key);
    }

    fn at_owner(&mut self, now: Instant, socket: SocketId, act: impl FnOnce(&mut Connection, &mut Sockets)) {
        let Some(key) = self.sockets.owner(socket) else { return };
        if self.at(key, act).is_some() {
            self.after(now, key);
        }
    }

    /// Tells connections how many sockets there are for them, if that is news.
    pub(super) fn tell_room(&mut self, now: Instant) {
        let Some(room) = self.sockets.take_room_news() else { return };
        for key in self.connections.live_keys() {
            self.at(key, |connection, _| connection.set_sockets_room(room));
            self.after(now, key);
        }
    }
}
