//! How endpoints serve their connections, where all do alike: they find them, look at them in time, let them send and
//! be read in turn, pass on what the relay wants of one, and forget what is gone.

use super::{ConnKey, Connections, Token, Want};
use core::net::IpAddr;
use heddle_proto::cell::CircId;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats};
use heddle_seam::datagrams::Transmit;
use heddle_seam::time::{Duration, Instant};

/// A connection that [`Connections`] hold.
pub(crate) trait Served {
    /// What of its endpoint it changes together with itself, such as sockets; `()` for nothing.
    type Context;

    /// Whether it has cells to lend.
    fn has_readable(&self) -> bool;

    /// Its time has come, so much too late if that is much.
    fn handle_timeout(&mut self, now: Instant, late: Option<Duration>, context: &mut Self::Context);

    /// What the relay is to hear.
    fn poll_event(&mut self) -> Option<ConnectionEvent>;

    /// Whether nothing is left of it, and the relay has heard all.
    fn is_gone(&self, now: Instant) -> bool;

    /// Ends it; the relay hears no more of it.
    fn close(&mut self, now: Instant, context: &mut Self::Context);

    /// Asks the peer for an answer.
    fn probe(&mut self, now: Instant);

    /// A flow is not read from now on, or again.
    fn hold(&mut self, circ_id: CircId, hold: bool, context: &mut Self::Context);

    /// Cells that would leave promptly.
    fn capacity(&self) -> usize;

    fn stats(&self) -> ConnectionStats;

    /// What each of its flows holds; `conn` is its name.
    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog));
}

/// What connections change together with themselves.
type ContextOf<E> = <<E as Serve>::Connection as Served>::Context;

/// An endpoint whose connections are in [`Connections`].
pub(crate) trait Serve {
    type Connection: Served;

    fn connections(&mut self) -> &mut Connections<Self::Connection>;

    /// Has `act` done to a connection, if it lives.
    fn at<R>(
        &mut self,
        key: ConnKey,
        act: impl FnOnce(&mut Self::Connection, &mut ContextOf<Self>) -> R,
    ) -> Option<R>;

    /// Notes what a connection may want after it was touched.
    fn after(&mut self, now: Instant, key: ConnKey);

    /// Forgets a connection, with all that the endpoint remembers it by.
    fn forget(&mut self, key: ConnKey);

    /// Looks after a connection that has nothing left to be sent.
    fn rest(&mut self, now: Instant, key: ConnKey);

    /// Takes datagrams that came together, each by `handle`, which tells whose it was. A connection is looked after
    /// once for all of its own that came in a row.
    fn handle_each<D>(
        &mut self,
        now: Instant,
        datagrams: impl Iterator<Item = D>,
        mut handle: impl FnMut(&mut Self, D) -> Option<ConnKey>,
    ) {
        let mut last = None;
        for datagram in datagrams {
            let touched = handle(self, datagram);
            if touched.is_some()
                && touched != last
                && let Some(key) = core::mem::replace(&mut last, touched)
            {
                self.after(now, key);
            }
        }
        if let Some(key) = last {
            self.after(now, key);
        }
    }

    /// What the first in turn sends, as `poll` says.
    fn next_sender(
        &mut self,
        now: Instant,
        mut poll: impl FnMut(&mut Self, ConnKey) -> Option<Transmit>,
    ) -> Option<Transmit> {
        while let Some(key) = self.connections().first(Want::Transmit) {
            let transmit = poll(self, key);
            // What leaves makes room, and so does what a flow's window refuses: the relay wants to hear of it.
            self.connections().note(key, Want::Speak);
            if transmit.is_some() {
                self.connections().next_turn(Want::Transmit);
                return transmit;
            }
            self.connections().done(Want::Transmit);
            self.rest(now, key);
        }
        None
    }

    /// What the first in turn has for the relay to read, as `next` says.
    fn next_reader<T>(
        &mut self,
        now: Instant,
        mut next: impl FnMut(&mut Self, ConnKey) -> Option<T>,
    ) -> Option<(ConnKey, T)> {
        while let Some(key) = self.connections().first(Want::Read) {
            if let Some(read) = next(self, key) {
                self.connections().lent();
                // Reading gives the peer credit, which it must hear of.
                self.connections().note(key, Want::Transmit);
                return Some((key, read));
            }
            self.connections().done(Want::Read);
            self.after(now, key);
        }
        None
    }

    /// A connection ends by the relay's wish.
    fn close_connection(&mut self, now: Instant, conn: ConnId) {
        let key = ConnKey::of(conn);
        match self.at(key, |connection, context| connection.close(now, context)) {
            Some(()) => {
                self.connections().spend_token(key);
                self.after(now, key);
            }
            None => self.forget(key),
        }
    }

    /// The relay wants an answer of the peer.
    fn probe_connection(&mut self, now: Instant, conn: ConnId) {
        let key = ConnKey::of(conn);
        if self.at(key, |connection, _| connection.probe(now)).is_some() {
            self.after(now, key);
        }
    }

    /// A flow is not read from now on, or again.
    fn hold_flow(&mut self, conn: ConnId, circ_id: CircId, hold: bool) {
        let key = ConnKey::of(conn);
        if self.at(key, |connection, context| connection.hold(circ_id, hold, context)).is_some() {
            self.connections().note_if(key, Want::Read, Served::has_readable);
        }
    }

    /// A connection's time has come.
    fn on_timer(&mut self, now: Instant, key: ConnKey, late: Option<Duration>) {
        if self.connections().live(key).is_some_and(|connection| connection.is_gone(now)) {
            return self.forget(key);
        }
        let handled = self.at(key, |connection, context| connection.handle_timeout(now, late, context));
        // The dialler of one that waits did not come.
        if handled.is_some() || self.connections().take_waiting(key).is_some() {
            self.after(now, key);
        }
    }

    /// What the relay is to hear of whichever connection.
    fn next_event(&mut self, now: Instant) -> Option<(ConnId, ConnectionEvent)> {
        while let Some(key) = self.connections().first(Want::Speak) {
            let (event, is_last) = self.connections().event_of(key, Served::poll_event);
            if is_last {
                self.forget(key);
            }
            if let Some(event) = event {
                return Some((key.conn(), event));
            }
            self.connections().done(Want::Speak);
            if self.connections().live(key).is_some_and(|connection| connection.is_gone(now)) {
                self.forget(key);
            }
        }
        None
    }
}

/// What needs no endpoint.
impl<C: Served> Connections<C> {
    /// Makes a place for a connection: whether as a listener, which waits until then, or as a dialler.
    pub(crate) fn begin(&mut self, options: ConnectionOptions, listen_until: Instant) -> Begun {
        match options.role {
            Role::Responder => Begun::Waits(self.insert_waiting(options, listen_until)),
            Role::Initiator => {
                let key = self.insert(options.peer.ip().to_canonical());
                Begun::Dials(key, Box::new(options))
            }
        }
    }

    /// Whether a connection's datagrams come from this address.
    pub(crate) fn is_from(&self, key: ConnKey, from: IpAddr) -> bool {
        self.get(key).is_some_and(|place| place.peer == from.to_canonical())
    }

    /// The connection whose dialler has this token, if a datagram with it comes from its address.
    pub(crate) fn dialled_from(&self, token: &Token, from: IpAddr) -> Option<ConnKey> {
        self.by_token(token).filter(|key| self.is_from(*key, from))
    }

    pub(crate) fn capacity(&self, conn: ConnId) -> usize {
        self.live(ConnKey::of(conn)).map_or(0, Served::capacity)
    }

    pub(crate) fn stats(&self, conn: ConnId) -> ConnectionStats {
        self.live(ConnKey::of(conn)).map_or_else(ConnectionStats::default, Served::stats)
    }

    pub(crate) fn backlogs(&self, each: &mut dyn FnMut(Backlog)) {
        for (key, connection) in self.all_live() {
            connection.backlogs(key.conn(), each);
        }
    }
}

/// A place that was made for a connection.
pub(crate) enum Begun {
    /// It waits for its dialler. One whose token is taken has failed already.
    Waits(ConnKey),
    /// It is to be dialled, and has failed until it is.
    Dials(ConnKey, Box<ConnectionOptions>),
}
