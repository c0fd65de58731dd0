//! How a connection comes to be in its endpoint, and how it goes.

use super::EspEndpoint;
use super::connection::{Connection, Parts};
use crate::links::{LinkKey, Stage};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::ConnectionOptions;
use heddle_seam::time::Instant;

impl EspEndpoint {
    /// Makes a connection, whose keys both sides know already. One whose SPI is taken, or for whom no address is left,
    /// has failed already.
    pub(super) fn begin(&mut self, now: Instant, options: ConnectionOptions) -> LinkKey {
        let peer = options.peer.ip().to_canonical();
        let key = self.links.insert(peer);
        let timeout = match options.role {
            Role::Initiator => self.options.dial_timeout,
            Role::Responder => self.options.listen_timeout,
        };
        let Some(inner) = self.addresses.give(key) else { return key };
        let (options_of_all, deadline) = (&self.options, now + timeout);
        let (held, memory) = (&self.held, &self.memory);
        let parts = Parts { options: options_of_all, key: &self.key, inner, deadline, held, memory };
        let mut connection = Connection::new(now, parts, options);
        if connection.spis().any(|spi| self.spis.contains_key(&(peer, spi))) {
            self.addresses.take_back(&inner);
            return key;
        }
        connection.begin(key, &mut self.sockets);
        self.links.set_stage(key, Stage::Live(Box::new(connection)));
        key
    }

    pub(super) fn forget(&mut self, key: LinkKey) {
        if let Some(connection) = self.links.live_mut(key) {
            connection.end(&mut self.sockets);
            self.addresses.take_back(&connection.inner());
            let peer = connection.peer_ip();
            for spi in connection.spis() {
                if self.spis.get(&(peer, spi)) == Some(&key) {
                    self.spis.remove(&(peer, spi));
                }
            }
        }
        self.links.remove(key);
    }
}
