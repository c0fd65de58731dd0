//! How a connection comes to be in its endpoint, from the relay's wish or the dialler's first datagram, and how it
//! goes.

use super::SessionEndpoint;
use crate::connections::{Begun, ConnKey, Connections, Serve, Served, Stage, Want};
use crate::dtls::connection::{Connection, Parts};
use crate::dtls::ids::session_ids;
use crate::dtls::session::Parts as SessionParts;
use crate::dtls::tunnelled::Tunnelled;
use core::net::SocketAddr;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionOptions};
use heddle_seam::time::Instant;

impl<T: Tunnelled> SessionEndpoint<T> {
    /// Makes a place for a connection. One whose token or id is taken has failed already.
    pub(super) fn begin(&mut self, now: Instant, options: ConnectionOptions) -> ConnKey {
        let [to_listener, to_dialler] = session_ids(&options.secrets);
        let is_listener = options.role == Role::Responder;
        let our_id = if is_listener { to_listener } else { to_dialler };
        let is_taken = self.ids.contains_key(&our_id);
        if is_taken || is_listener && self.connections.by_token(&options.secrets.token).is_some() {
            return self.connections.insert(options.peer.ip().to_canonical());
        }
        let timeouts = self.options.as_ref().timeouts;
        let key = match self.connections.begin(options, now + timeouts.listen) {
            Begun::Waits(key) => key,
            Begun::Dials(key, options) => {
                self.go_live(now, key, options.peer, now + timeouts.dial, *options);
                key
            }
        };
        self.ids.insert(our_id, key);
        self.our_ids.insert(key, our_id);
        key
    }

    /// The dialler came from this address: its token was right.
    pub(super) fn accept(&mut self, now: Instant, key: ConnKey, from: SocketAddr) {
        if let Some((options, deadline)) = self.connections.take_waiting(key) {
            self.go_live(now, key, from, deadline, options);
            self.after(now, key);
        }
    }

    fn go_live(
        &mut self,
        now: Instant,
        key: ConnKey,
        peer: SocketAddr,
        deadline: Instant,
        options: ConnectionOptions,
    ) {
        let [to_listener, to_dialler] = session_ids(&options.secrets);
        let their_id = if options.role == Role::Responder { to_dialler } else { to_listener };
        let seed = u64::from_be_bytes(self.rng.array());
        let lot = T::draw(&mut self.rng);
        let of_session = self.options.as_ref();
        let session = SessionParts { key: &self.key, options: of_session, peer, their_id, deadline, seed };
        let parts = Parts {
            session,
            options: &self.options,
            ceiling: &self.ceiling,
            memory: &self.memory,
            lot,
            state: &self.state,
        };
        let stage = match Connection::new(now, parts, options) {
            Ok(connection) => Stage::Live(Box::new(connection)),
            Err(why) => Stage::Failed(ConnectionError::PeerMisbehaved(why.to_string())),
        };
        self.connections.set_stage(key, stage);
    }
}

impl<T: Tunnelled> Serve for SessionEndpoint<T> {
    type Connection = Connection<T>;

    fn connections(&mut self) -> &mut Connections<Connection<T>> {
        &mut self.connections
    }

    fn at<R>(&mut self, key: ConnKey, act: impl FnOnce(&mut Connection<T>, &mut ()) -> R) -> Option<R> {
        self.connections.live_mut(key).map(|connection| act(connection, &mut ()))
    }

    fn after(&mut self, _now: Instant, key: ConnKey) {
        if let Some(connection) = self.connections.live_mut(key) {
            // The relay may ask for capacity before anything is sent again, and must hear when there is some then.
            connection.note_capacity();
            connection.count_memory();
        }
        self.connections.note_if(key, Want::Read, Served::has_readable);
        self.connections.note(key, Want::Speak);
        self.connections.note(key, Want::Transmit);
    }

    fn forget(&mut self, key: ConnKey) {
        self.connections.remove(key);
        if let Some(our_id) = self.our_ids.remove(key) {
            self.ids.remove(&our_id);
        }
    }

    fn rest(&mut self, now: Instant, key: ConnKey) {
        let timer = self.connections.live_mut(key).and_then(|connection| connection.poll_timeout(now));
        self.connections.look_at(key, timer);
    }
}
