//! The life of a connection in its endpoint: from the relay's wish, or the dialler's first datagram, until nothing is left.
//!
//! ```text
//!   open, as a responder ──▶ Waiting ──▶ Live ──▶ (quinn-proto drained it and the relay knows) ──▶ forgotten
//!                               │          ▲
//!   open, as an initiator ──────┼──────────┘
//!                               └──▶ Failed ──▶ (the relay knows) ──▶ forgotten
//! ```

use super::connection::{Connection, Parts};
use super::crypto::{self, KEY_LEN, OurKey};
use super::gauge::Gauge;
use super::{QuicEndpoint, QuicSetupError, TOKEN_LEN};
use core::fmt;
use core::net::IpAddr;
use heddle_proto::endpoint::{ConnId, ConnectionError, ConnectionEvent, ConnectionOptions};
use heddle_proto::time::Instant;
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, ConnectionId, Incoming, NoneTokenStore, ServerConfig};
use slotmap::{Key, KeyData};
use std::sync::Arc;

slotmap::new_key_type! {
    pub(super) struct LinkKey;
}

impl LinkKey {
    pub(super) fn conn(self) -> ConnId {
        ConnId(self.data().as_ffi())
    }

    pub(super) fn of(conn: ConnId) -> Self {
        KeyData::from_ffi(conn.0).into()
    }
}

/// A connection's place in the endpoint.
pub(super) struct Link {
    pub(super) stage: Stage,
    /// Where its datagrams come from.
    pub(super) peer: IpAddr,
    /// The token that its dialler's first datagram carries, while that may still come.
    pub(super) token: Option<[u8; TOKEN_LEN]>,
    /// Its entry among the timers.
    pub(super) timer: Option<Instant>,
    pub(super) is_dirty: bool,
    pub(super) is_readable: bool,
    pub(super) is_noisy: bool,
}

pub(super) enum Stage {
    /// The dialler has not come.
    Waiting {
        options: Box<ConnectionOptions>,
        deadline: Instant,
    },
    Live(Box<Connection>),
    /// It ended before there was a connection, and the relay has not heard so.
    Failed(ConnectionError),
}

impl QuicEndpoint {
    pub(super) fn insert(&mut self, stage: Stage, peer: IpAddr, token: Option<[u8; TOKEN_LEN]>) -> LinkKey {
        let link =
            Link { stage, peer, token, timer: None, is_dirty: false, is_readable: false, is_noisy: false };
        let key = self.links.insert(link);
        if let Some(token) = token {
            self.tokens.insert(token, key);
        }
        *self.peers.entry(peer).or_default() += 1;
        key
    }

    pub(super) fn dial(
        &mut self,
        now: Instant,
        key: LinkKey,
        options: ConnectionOptions,
    ) -> Result<(), ConnectionError> {
        let setup =
            |why: &dyn fmt::Display| ConnectionError::PeerMisbehaved(format!("it cannot be dialled: {why}"));
        let tls = crypto::client(&self.key, options.peer_key).map_err(|why| setup(&why))?;
        let tls = QuicClientConfig::try_from(tls).map_err(|why| setup(&why))?;
        let gauge = Arc::new(Gauge::new(self.options.anchor));
        let token = options.secrets.token;
        let mut config = ClientConfig::new(Arc::new(tls));
        config
            .transport_config(Arc::new(self.options.transport(&gauge, options.flows_max)))
            .token_store(Arc::new(NoneTokenStore))
            .initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&token)));
        // The name is not sent.
        let connected = self.quinn.connect(self.clock.std(now), config, options.peer, "heddle");
        let (handle, quinn) = connected.map_err(|why| setup(&why))?;
        let parts = Parts { handle, quinn, gauge, deadline: now + self.options.dial_timeout };
        self.go_live(now, key, parts, options);
        Ok(())
    }

    /// The dialler came: its token was right and so was its address.
    pub(super) fn accept(&mut self, now: Instant, incoming: Incoming) {
        let key = <&[u8; TOKEN_LEN]>::try_from(&incoming.orig_dst_cid()[..])
            .ok()
            .and_then(|token| self.tokens.get(token).copied());
        let Some(link) = key.and_then(|key| self.links.get_mut(key)) else {
            self.quinn.ignore(incoming);
            return;
        };
        let (Some(key), Stage::Waiting { options, deadline }) = (key, &link.stage) else {
            self.quinn.ignore(incoming);
            return;
        };
        let gauge = Arc::new(Gauge::new(self.options.anchor));
        let Ok(mut config) = server_config(&self.key, options.peer_key, self.token_key.clone()) else {
            self.quinn.ignore(incoming);
            return;
        };
        config.transport_config(Arc::new(self.options.transport(&gauge, options.flows_max)));
        let deadline = *deadline;
        self.scratch.clear();
        let accepted =
            self.quinn.accept(incoming, self.clock.std(now), &mut self.scratch, Some(Arc::new(config)));
        // What does not decrypt came from somebody who guessed the token off the wire: the dialler may still come.
        let Ok((handle, quinn)) = accepted else {
            return;
        };
        let failed = Stage::Failed(ConnectionError::NoAnswer);
        let Stage::Waiting { options, .. } = core::mem::replace(&mut link.stage, failed) else {
            return;
        };
        self.go_live(now, key, Parts { handle, quinn, gauge, deadline }, *options);
    }

    pub(super) fn go_live(&mut self, now: Instant, key: LinkKey, parts: Parts, options: ConnectionOptions) {
        let handle = parts.handle.0;
        if self.by_handle.len() <= handle {
            self.by_handle.resize(handle + 1, None);
        }
        self.by_handle[handle] = Some(key);
        let connection = Connection::new(now, parts, options, &self.options);
        if let Some(link) = self.links.get_mut(key) {
            link.stage = Stage::Live(Box::new(connection));
        }
        self.after(now, key);
    }

    /// Notes what a connection may want after it was touched.
    pub(super) fn after(&mut self, now: Instant, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if let Stage::Live(connection) = &mut link.stage {
            connection.on_quinn_events(now);
            connection.settle(&mut self.quinn);
            if connection.has_readable() && !core::mem::replace(&mut link.is_readable, true) {
                self.readable.push_back(key);
            }
        }
        if !core::mem::replace(&mut link.is_noisy, true) {
            self.noisy.push_back(key);
        }
        self.note_dirty(key);
    }

    /// A connection may have something to send.
    pub(super) fn note_dirty(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !core::mem::replace(&mut link.is_dirty, true)
        {
            self.dirty.push_back(key);
        }
    }

    /// Nothing is left to be sent: sets the timer, or forgets a connection of which nothing is left at all.
    pub(super) fn rest(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let Stage::Live(connection) = &mut link.stage else {
            return;
        };
        connection.settle(&mut self.quinn);
        if connection.is_gone() {
            self.forget(key);
            return;
        }
        let timer = connection.poll_timeout();
        // A timer that is too early costs a look; moving it with every packet would cost more.
        if timer.is_some_and(|at| link.timer.is_none_or(|set| at < set)) {
            self.set_timer(key, timer);
        }
    }

    pub(super) fn set_timer(&mut self, key: LinkKey, timer: Option<Instant>) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if let Some(old) = core::mem::replace(&mut link.timer, timer) {
            self.timers.remove(&(old, key));
        }
        if let Some(new) = timer {
            self.timers.insert((new, key));
        }
    }

    pub(super) fn on_timer(&mut self, now: Instant, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        match &mut link.stage {
            Stage::Live(connection) => {
                connection.handle_timeout(now);
                self.after(now, key);
            }
            Stage::Waiting { .. } => {
                link.stage = Stage::Failed(ConnectionError::NoAnswer);
                self.after(now, key);
            }
            Stage::Failed(_) => {}
        }
    }

    pub(super) fn forget(&mut self, key: LinkKey) {
        self.set_timer(key, None);
        self.spend_token(key);
        let Some(link) = self.links.remove(key) else {
            return;
        };
        if let Stage::Live(connection) = &link.stage {
            self.by_handle[connection.handle.0] = None;
        }
        if let Some(count) = self.peers.get_mut(&link.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&link.peer);
            }
        }
    }

    /// The next event of a link, and whether the link is to be forgotten after it.
    pub(super) fn event_of(&mut self, key: LinkKey) -> Option<ConnectionEvent> {
        let link = self.links.get_mut(key)?;
        let event = match &mut link.stage {
            Stage::Live(connection) => connection.poll_event(),
            Stage::Failed(error) => Some(ConnectionEvent::Ended(error.clone())),
            Stage::Waiting { .. } => None,
        };
        if matches!(event, Some(ConnectionEvent::Ready | ConnectionEvent::Ended(_))) {
            self.spend_token(key);
        }
        if matches!(self.links[key].stage, Stage::Failed(_)) {
            self.forget(key);
        }
        event
    }

    /// The token was used, or never will be.
    pub(super) fn spend_token(&mut self, key: LinkKey) {
        if let Some(token) = self.links.get_mut(key).and_then(|link| link.token.take()) {
            self.tokens.remove(&token);
        }
    }
}

/// A listener's part, which accepts `peer` alone.
pub(super) fn server_config(
    ours: &OurKey,
    peer: [u8; KEY_LEN],
    token_key: aws_lc_rs::hkdf::Prk,
) -> Result<ServerConfig, QuicSetupError> {
    let tls = crypto::server(ours, peer).map_err(|why| QuicSetupError(why.to_string()))?;
    let tls = QuicServerConfig::try_from(tls)
        .map_err(|why: NoInitialCipherSuite| QuicSetupError(why.to_string()))?;
    let mut config = ServerConfig::new(Arc::new(tls), Arc::new(token_key));
    config.migration(false).max_incoming(1);
    Ok(config)
}
