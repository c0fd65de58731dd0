//! The life of a connection in its endpoint: from the relay's wish, or the dialler's first datagram, until nothing is left.
//!
//! ```text
//!   open, as a responder ──▶ Waiting ──▶ Live ──▶ (it lingered and the relay knows) ──▶ forgotten
//!                               │          ▲
//!   open, as an initiator ──────┼──────────┘
//!                               └──▶ Failed ──▶ (the relay knows) ──▶ forgotten
//! ```

use super::connection::{Connection, Parts};
use super::ids::{SessionId, session_ids};
use super::{DtlsEndpoint, TOKEN_LEN};
use core::net::{IpAddr, SocketAddr};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionError, ConnectionEvent, ConnectionOptions};
use heddle_proto::time::Instant;
use slotmap::{Key, KeyData};

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
    pub(super) address: IpAddr,
    /// The token that its dialler's first datagram carries, while that may still come.
    pub(super) token: Option<[u8; TOKEN_LEN]>,
    /// What datagrams to us begin with.
    pub(super) our_id: SessionId,
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

impl DtlsEndpoint {
    /// Makes a place for a connection. One whose token or id is taken has failed already.
    pub(super) fn begin(&mut self, now: Instant, options: ConnectionOptions) -> LinkKey {
        let [to_listener, to_dialler] = session_ids(&options.secrets);
        let is_listener = options.role == Role::Responder;
        let our_id = if is_listener { to_listener } else { to_dialler };
        let token = is_listener.then_some(options.secrets.token);
        let address = options.peer.ip().to_canonical();
        let is_free =
            !self.ids.contains_key(&our_id) && token.is_none_or(|token| !self.tokens.contains_key(&token));
        let failed = Stage::Failed(ConnectionError::NoAnswer);
        let token = token.filter(|_| is_free);
        let key = self.links.insert(Link {
            stage: failed,
            address,
            token,
            our_id,
            timer: None,
            is_dirty: false,
            is_readable: false,
            is_noisy: false,
        });
        if !is_free {
            return key;
        }
        self.ids.insert(our_id, key);
        if let Some(token) = token {
            self.tokens.insert(token, key);
            let deadline = now + self.options.listen_timeout;
            self.links[key].stage = Stage::Waiting { options: Box::new(options), deadline };
            self.set_timer(key, Some(deadline));
        } else {
            let (peer, deadline) = (options.peer, now + self.options.dial_timeout);
            self.go_live(now, key, peer, deadline, options);
        }
        key
    }

    /// The dialler came from this address: its token was right.
    pub(super) fn accept(&mut self, now: Instant, key: LinkKey, from: SocketAddr) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let Stage::Waiting { deadline, .. } = &link.stage else {
            return;
        };
        let deadline = *deadline;
        let failed = Stage::Failed(ConnectionError::NoAnswer);
        if let Stage::Waiting { options, .. } = core::mem::replace(&mut link.stage, failed) {
            self.go_live(now, key, from, deadline, *options);
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
        let parts = Parts {
            key: &self.key,
            options: &self.options,
            pool: &self.pool,
            peer,
            their_id,
            deadline,
            seed,
        };
        let stage = match Connection::new(now, &parts, options) {
            Ok(connection) => Stage::Live(Box::new(connection)),
            Err(why) => Stage::Failed(ConnectionError::PeerMisbehaved(why.to_string())),
        };
        if let Some(link) = self.links.get_mut(key) {
            link.stage = stage;
        }
    }

    /// Notes what a connection may want after it was touched.
    pub(super) fn after(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if let Stage::Live(connection) = &mut link.stage {
            // The relay may ask for capacity before anything is sent again, and must hear when there is some then.
            connection.note_capacity();
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

    /// A connection may have something to say.
    pub(super) fn note_noisy(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !core::mem::replace(&mut link.is_noisy, true)
        {
            self.noisy.push_back(key);
        }
    }

    /// Nothing is left to be sent: sets the timer.
    pub(super) fn rest(&mut self, now: Instant, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let Stage::Live(connection) = &mut link.stage else {
            return;
        };
        let timer = connection.poll_timeout(now);
        // A timer that is too early costs a look; moving it with every segment would cost more.
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
            Stage::Live(connection) if connection.is_gone(now) => self.forget(key),
            Stage::Live(connection) => {
                connection.handle_timeout(now);
                self.after(key);
            }
            Stage::Waiting { .. } => {
                link.stage = Stage::Failed(ConnectionError::NoAnswer);
                self.after(key);
            }
            Stage::Failed(_) => {}
        }
    }

    pub(super) fn forget(&mut self, key: LinkKey) {
        self.set_timer(key, None);
        self.spend_token(key);
        if let Some(link) = self.links.remove(key)
            && self.ids.get(&link.our_id) == Some(&key)
        {
            self.ids.remove(&link.our_id);
        }
    }

    /// The next event of a link.
    pub(super) fn event_of(&mut self, key: LinkKey) -> Option<ConnectionEvent> {
        let link = self.links.get_mut(key)?;
        let event = match &mut link.stage {
            Stage::Live(connection) => connection.poll_event(),
            Stage::Failed(error) => Some(ConnectionEvent::Ended(error.clone())),
            Stage::Waiting { .. } => None,
        };
        let is_failed = matches!(link.stage, Stage::Failed(_));
        if matches!(event, Some(ConnectionEvent::Ready | ConnectionEvent::Ended(_))) {
            self.spend_token(key);
        }
        if is_failed {
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
