//! How a connection comes to be in its endpoint, from the relay's wish or the dialler's first datagram, and how it
//! goes.

use super::arrivals::{Watch, Watching};
use super::connection::{Connection, Parts};
use super::crypto::{self, KEY_LEN, OurKey};
use super::gauge::Gauge;
use super::window::ReceiveWindow;
use super::{QuicEndpoint, SetupError, setup_error};
use crate::Ciphers;
use crate::connections::state::Part;
use crate::connections::{Begun, ConnKey, Connections, Serve, Served, Stage, Token, Want};
use core::fmt;
use heddle_proto::endpoint::{ConnectionError, ConnectionOptions};
use heddle_seam::time::Instant;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, ConnectionId, Incoming, NoneTokenStore, ServerConfig};
use std::sync::Arc;

impl QuicEndpoint {
    /// Makes a place for a connection. One whose token is taken has failed already.
    pub(super) fn begin(&mut self, now: Instant, options: ConnectionOptions) -> ConnKey {
        *self.peers.entry(options.peer.ip().to_canonical()).or_default() += 1;
        match self.connections.begin(options, now + self.options.timeouts.listen) {
            Begun::Waits(key) => key,
            Begun::Dials(key, options) => {
                if let Err(error) = self.dial(now, key, *options) {
                    self.connections.set_stage(key, Stage::Failed(error));
                }
                key
            }
        }
    }

    fn dial(
        &mut self,
        now: Instant,
        key: ConnKey,
        options: ConnectionOptions,
    ) -> Result<(), ConnectionError> {
        let setup =
            |why: &dyn fmt::Display| ConnectionError::PeerMisbehaved(format!("it cannot be dialled: {why}"));
        let tls =
            crypto::client(&self.key, options.peer_key, self.options.ciphers).map_err(|why| setup(&why))?;
        let tls = QuicClientConfig::try_from(tls).map_err(|why| setup(&why))?;
        let gauge = Arc::new(Gauge::new(self.options.anchor));
        let token = options.secrets.token;
        let watch = Watch::new(gauge.clone());
        let tls = Watching { inner: Arc::new(tls), watch: watch.clone() };
        let mut config = ClientConfig::new(Arc::new(tls));
        config
            .transport_config(Arc::new(self.options.transport(&gauge, &self.ceiling, options.flows_max)))
            .token_store(Arc::new(NoneTokenStore))
            .initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&token)));
        // The name is not sent.
        let connected = self.quinn.connect(self.clock.std(now), config, options.peer, "heddle");
        let (handle, quinn) = connected.map_err(|why| setup(&why))?;
        let parts = Parts {
            handle,
            quinn,
            gauge,
            watch,
            buffered: Part::of(&self.buffered),
            state: Part::of(&self.state),
            receive_window: ReceiveWindow::new(now, &self.windows),
            deadline: now + self.options.timeouts.dial,
        };
        self.go_live(now, key, parts, options);
        Ok(())
    }

    /// The dialler came: its token was right and so was its address.
    pub(super) fn accept(&mut self, now: Instant, incoming: Incoming) {
        let token = <&Token>::try_from(&incoming.orig_dst_cid()[..]).ok();
        let key = token.and_then(|token| self.connections.by_token(token));
        let Some((key, (options, _))) = key.and_then(|key| Some((key, self.connections.waiting(key)?)))
        else {
            self.quinn.ignore(incoming);
            return;
        };
        let gauge = Arc::new(Gauge::new(self.options.anchor));
        let watch = Watch::new(gauge.clone());
        let (ciphers, token_key) = (self.options.ciphers, self.token_key.clone());
        let config = server_config(&self.key, options.peer_key, ciphers, token_key, watch.clone());
        let Ok(mut config) = config else {
            self.quinn.ignore(incoming);
            return;
        };
        config.transport_config(Arc::new(self.options.transport(&gauge, &self.ceiling, options.flows_max)));
        self.scratch.clear();
        let accepted =
            self.quinn.accept(incoming, self.clock.std(now), &mut self.scratch, Some(Arc::new(config)));
        // What does not decrypt came from somebody who guessed the token off the wire: the dialler may still come.
        let Ok((handle, quinn)) = accepted else {
            return;
        };
        if let Some((options, deadline)) = self.connections.take_waiting(key) {
            let (buffered, state) = (Part::of(&self.buffered), Part::of(&self.state));
            let receive_window = ReceiveWindow::new(now, &self.windows);
            let parts = Parts { handle, quinn, gauge, watch, buffered, state, receive_window, deadline };
            self.go_live(now, key, parts, options);
        }
    }

    fn go_live(&mut self, now: Instant, key: ConnKey, parts: Parts, options: ConnectionOptions) {
        let handle = parts.handle.0;
        if self.by_handle.len() <= handle {
            self.by_handle.resize(handle + 1, None);
        }
        self.by_handle[handle] = Some(key);
        let connection = Connection::new(now, parts, options, &self.options);
        self.connections.set_stage(key, Stage::Live(Box::new(connection)));
        self.after(now, key);
    }
}

impl Serve for QuicEndpoint {
    type Connection = Connection;

    fn connections(&mut self) -> &mut Connections<Connection> {
        &mut self.connections
    }

    fn at<R>(&mut self, key: ConnKey, act: impl FnOnce(&mut Connection, &mut ()) -> R) -> Option<R> {
        self.connections.live_mut(key).map(|connection| act(connection, &mut ()))
    }

    fn after(&mut self, now: Instant, key: ConnKey) {
        if let Some(connection) = self.connections.live_mut(key) {
            connection.on_quinn_events(now);
            connection.settle(&mut self.quinn);
        }
        self.connections.note_if(key, Want::Read, Connection::has_readable);
        self.connections.note(key, Want::Speak);
        self.connections.note(key, Want::Transmit);
    }

    fn forget(&mut self, key: ConnKey) {
        let Some(place) = self.connections.remove(key) else {
            return;
        };
        // quinn-proto gives a handle to another connection as soon as this one is drained.
        if let Stage::Live(connection) = &place.stage
            && self.by_handle[connection.handle.0] == Some(key)
        {
            self.by_handle[connection.handle.0] = None;
        }
        if let Some(count) = self.peers.get_mut(&place.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&place.peer);
            }
        }
    }

    /// Sets the timer, or forgets a connection of which nothing is left at all.
    fn rest(&mut self, now: Instant, key: ConnKey) {
        let Some(connection) = self.connections.live_mut(key) else {
            return;
        };
        connection.settle(&mut self.quinn);
        if connection.is_gone(now) {
            self.forget(key);
            return;
        }
        let timer = connection.poll_timeout();
        self.connections.look_at(key, timer);
    }
}

/// A listener's part, which accepts `peer` alone.
pub(super) fn server_config(
    ours: &OurKey,
    peer: [u8; KEY_LEN],
    ciphers: Ciphers,
    token_key: aws_lc_rs::hkdf::Prk,
    watch: Watch,
) -> Result<ServerConfig, SetupError> {
    let tls = crypto::server(ours, peer, ciphers).map_err(setup_error)?;
    let tls = QuicServerConfig::try_from(tls).map_err(setup_error)?;
    let tls = Watching { inner: Arc::new(tls), watch };
    let mut config = ServerConfig::new(Arc::new(tls), Arc::new(token_key));
    config.migration(false).max_incoming(1);
    Ok(config)
}
