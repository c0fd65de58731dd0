//! What the driver says of the stack, and whom it concerns.

use super::EspEndpoint;
use super::addresses::CONTROL_PORT;
use super::connection::Connection;
use super::sockets::Room;
use crate::links::{LinkKey, Want};
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
                self.at_owner(now, socket, |connection, sockets| connection.on_failed(now, socket, sockets));
                self.sockets.forget(socket);
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
        let mut last = None;
        for packet in packets.data.chunks(packets.stride.max(1)) {
            let key = self.addresses.of_packet(packet);
            let Some(connection) = key.and_then(|key| self.links.live_mut(key)) else { continue };
            connection.send_packet(now, packet);
            if key != last {
                last.into_iter().for_each(|key| self.after(now, key));
                last = key;
            }
        }
        last.into_iter().for_each(|key| self.after(now, key));
    }

    fn on_accepted(&mut self, now: Instant, socket: SocketId, local: SocketAddr, peer: SocketAddr) {
        let key = self.addresses.of(peer.ip());
        let Some((key, connection)) = key.and_then(|key| Some((key, self.links.live_mut(key)?))) else {
            return self.sockets.abort(socket);
        };
        self.sockets.take(socket, key);
        let is_control = local.port() == CONTROL_PORT;
        if !connection.accept(now, socket, is_control, &mut self.sockets) {
            self.sockets.abort(socket);
        }
        self.after(now, key);
    }

    fn at_owner(
        &mut self,
        now: Instant,
        socket: SocketId,
        act: impl FnOnce(&mut Connection, &mut super::Sockets),
    ) {
        let Some(key) = self.sockets.owner(socket) else { return };
        if let Some(connection) = self.links.live_mut(key) {
            act(connection, &mut self.sockets);
            self.after(now, key);
        }
    }

    /// Tells connections how many sockets there are for them, if that is news.
    pub(super) fn tell_room(&mut self, now: Instant) {
        let Some(room) = self.sockets.take_room_news() else { return };
        for key in self.links.live_keys() {
            if let Some(connection) = self.links.live_mut(key) {
                connection.set_sockets_room(room);
                self.after(now, key);
            }
        }
    }

    /// Notes what a connection may want after it was touched.
    pub(super) fn after(&mut self, now: Instant, key: LinkKey) {
        if let Some(connection) = self.links.live_mut(key) {
            let peer = connection.peer_ip();
            for (spi, is_new) in connection.take_spi_news() {
                if is_new {
                    // One that is taken stays with whom it is: both would have to be guessed to come to this.
                    self.spis.entry((peer, spi)).or_insert(key);
                } else if self.spis.get(&(peer, spi)) == Some(&key) {
                    self.spis.remove(&(peer, spi));
                }
            }
            connection.flush_control(now, &mut self.sockets);
            connection.count_memory();
            let timer = connection.poll_timeout(now);
            self.links.look_at(key, Some(timer));
        }
        self.links.note_if(key, Want::Read, Connection::has_readable);
        self.links.note(key, Want::Speak);
        self.links.note(key, Want::Transmit);
    }
}
