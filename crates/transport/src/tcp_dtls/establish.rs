//! How a connection comes to be in its endpoint, from the relay's wish or the dialler's first datagram, and how it
//! goes.

use super::DtlsEndpoint;
use super::connection::{Connection, Parts};
use crate::dtls::ids::session_ids;
use crate::dtls::session::Parts as SessionParts;
use crate::links::{LinkKey, Stage, Want};
use core::net::SocketAddr;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionOptions};
use heddle_seam::time::{Duration, Instant};

impl DtlsEndpoint {
    /// Makes a place for a connection. One whose token or id is taken has failed already.
    pub(super) fn begin(&mut self, now: Instant, options: ConnectionOptions) -> LinkKey {
        let [to_listener, to_dialler] = session_ids(&options.secrets);
        let is_listener = options.role == Role::Responder;
        let our_id = if is_listener { to_listener } else { to_dialler };
        let is_taken = self.ids.contains_key(&our_id);
        if is_taken || is_listener && self.links.by_token(&options.secrets.token).is_some() {
            return self.links.insert(options.peer.ip().to_canonical());
        }
        let key = if is_listener {
            self.links.insert_waiting(options, now + self.options.listen_timeout)
        } else {
            let (peer, deadline) = (options.peer, now + self.options.dial_timeout);
            let key = self.links.insert(peer.ip().to_canonical());
            self.go_live(now, key, peer, deadline, options);
            key
        };
        self.ids.insert(our_id, key);
        self.our_ids.insert(key, our_id);
        key
    }

    /// The dialler came from this address: its token was right.
    pub(super) fn accept(&mut self, now: Instant, key: LinkKey, from: SocketAddr) {
        if let Some((options, deadline)) = self.links.take_waiting(key) {
            self.go_live(now, key, from, deadline, options);
            self.after(key);
        }
    }

    fn go_live(
        &mut self,
        now: Instant,
        key: LinkKey,
        peer: SocketAddr,
        deadline: Instant,
        options: ConnectionOptions,
    ) {
        let [to_listener, to_dialler] = session_ids(&options.secrets);
        let their_id = if options.role == Role::Responder { to_dialler } else { to_listener };
        let seed = u64::from_be_bytes(self.rng.array());
        let session =
            SessionParts { key: &self.key, options: self.options.session(), peer, their_id, deadline, seed };
        let parts = Parts {
            session,
            options: &self.options,
            ceiling: &self.ceiling,
            pool: &self.pool,
            state: &self.state,
        };
        let stage = match Connection::new(now, parts, options) {
            Ok(connection) => Stage::Live(Box::new(connection)),
            Err(why) => Stage::Failed(ConnectionError::PeerMisbehaved(why.to_string())),
        };
        self.links.set_stage(key, stage);
    }

    /// Notes what a connection may want after it was touched.
    pub(super) fn after(&mut self, key: LinkKey) {
        if let Some(connection) = self.links.live_mut(key) {
            // The relay may ask for capacity before anything is sent again, and must hear when there is some then.
            connection.note_capacity();
            connection.count_memory();
        }
        self.links.note_if(key, Want::Read, Connection::has_readable);
        self.links.note(key, Want::Speak);
        self.links.note(key, Want::Transmit);
    }

    /// Nothing is left to be sent: sets the timer.
    pub(super) fn rest(&mut self, now: Instant, key: LinkKey) {
        let timer = self.links.live_mut(key).and_then(|connection| connection.poll_timeout(now));
        self.links.look_at(key, timer);
    }

    pub(super) fn on_timer(&mut self, now: Instant, key: LinkKey, late: Option<Duration>) {
        match self.links.live_mut(key) {
            Some(connection) if connection.is_gone(now) => self.forget(key),
            Some(connection) => {
                connection.handle_timeout(now, late);
                self.after(key);
            }
            None => {
                // The dialler did not come.
                if self.links.take_waiting(key).is_some() {
                    self.after(key);
                }
            }
        }
    }

    pub(super) fn forget(&mut self, key: LinkKey) {
        self.links.remove(key);
        if let Some(our_id) = self.our_ids.remove(key) {
            self.ids.remove(&our_id);
        }
    }
}
