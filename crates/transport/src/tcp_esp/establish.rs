//! How a connection comes to be in its endpoint, and how it goes.

use super::EspEndpoint;
use super::connection::{Connection, Parts};
use super::sockets::Sockets;
use crate::connections::{ConnKey, Connections, Serve, Served, Stage, Want};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::ConnectionOptions;
use heddle_seam::time::Instant;

impl EspEndpoint {
    /// Makes a connection, whose keys both sides know already. One whose SPI is taken, or for whom no address is left,
    /// has failed already.
    pub(super) fn begin(&mut self, now: Instant, options: ConnectionOptions) -> ConnKey {
        let peer = options.peer.ip().to_canonical();
        let key = self.connections.insert(peer);
        let timeout = match options.role {
            Role::Initiator => self.options.timeouts.dial,
            Role::Responder => self.options.timeouts.listen,
        };
        let Some(inner) = self.addresses.give(key) else { return key };
        let parts = Parts {
            options: &self.options,
            key: &self.key,
            inner,
            deadline: now + timeout,
            room: self.sockets.room(),
            buffered: &self.buffered,
            memory: &self.memory,
        };
        let mut connection = Connection::new(now, parts, options);
        if connection.spis().any(|spi| self.spis.contains_key(&(peer, spi))) {
            self.addresses.take_back(&inner);
            return key;
        }
        connection.begin(key, &mut self.sockets);
        self.connections.set_stage(key, Stage::Live(Box::new(connection)));
        key
    }
}

impl Serve for EspEndpoint {
    type Connection = Connection;

    fn connections(&mut self) -> &mut Connections<Connection> {
        &mut self.connections
    }

    fn at<R>(&mut self, key: ConnKey, act: impl FnOnce(&mut Connection, &mut Sockets) -> R) -> Option<R> {
        self.connections.live_mut(key).map(|connection| act(connection, &mut self.sockets))
    }

    fn after(&mut self, now: Instant, key: ConnKey) {
        if let Some(connection) = self.connections.live_mut(key) {
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
        }
        self.rest(now, key);
        self.connections.note_if(key, Want::Read, Connection::has_readable);
        self.connections.note(key, Want::Speak);
        self.connections.note(key, Want::Transmit);
    }

    fn forget(&mut self, key: ConnKey) {
        if let Some(connection) = self.connections.live_mut(key) {
            connection.let_go(&mut self.sockets);
            self.addresses.take_back(&connection.inner());
            let peer = connection.peer_ip();
            for spi in connection.spis() {
                if self.spis.get(&(peer, spi)) == Some(&key) {
                    self.spis.remove(&(peer, spi));
                }
            }
        }
        self.connections.remove(key);
    }

    fn rest(&mut self, now: Instant, key: ConnKey) {
        let connection = self.connections.live_mut(key);
        let timer = connection.and_then(|connection| {
            // What has left counts no more.
            connection.count_memory();
            connection.poll_timeout(now)
        });
        self.connections.look_at(key, timer);
    }
}
