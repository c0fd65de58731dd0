//! The connections of one UDP port, and which of them want something: what endpoints of datagrams have in common.
//!
//! ```text
//!   open, as a responder ──▶ Waiting ──▶ Live ──▶ (it ended and the relay knows) ──▶ forgotten
//!                               │          ▲
//!   open, as an initiator ──────┼──────────┘
//!                               └──▶ Failed ──▶ (the relay knows) ──▶ forgotten
//! ```

pub(crate) mod circuits;
pub(crate) mod clock;
pub(crate) mod path;
pub(crate) mod pings;
pub(crate) mod proof;
mod serve;
pub(crate) mod setup;
pub(crate) mod silence;
pub(crate) mod stamps;
pub(crate) mod state;
pub(crate) mod timers;

use core::net::IpAddr;
use heddle_proto::endpoint::{ConnId, ConnectionError, ConnectionEvent, ConnectionOptions};
use heddle_seam::time::{Duration, Instant};
pub(crate) use serve::{Begun, Serve, Served};
use slotmap::{Key, KeyData, SlotMap};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a token, by which a dialler's first datagram is known.
pub(crate) const TOKEN_LEN: usize = 20;

/// A loop that is not short of time is late by less.
const LATE_MIN: Duration = Duration::from_millis(100);

pub(crate) type Token = [u8; TOKEN_LEN];

slotmap::new_key_type! {
    pub(crate) struct ConnKey;
}

impl ConnKey {
    pub(crate) fn conn(self) -> ConnId {
        ConnId(self.data().as_ffi())
    }

    pub(crate) fn of(conn: ConnId) -> Self {
        KeyData::from_ffi(conn.0).into()
    }
}

pub(crate) enum Stage<C> {
    /// The dialler has not come.
    Waiting {
        options: Box<ConnectionOptions>,
        deadline: Instant,
    },
    Live(Box<C>),
    /// It ended before there was a connection, and the relay has not heard so.
    Failed(ConnectionError),
}

/// What a connection may want: it stands in a queue of each kind at most once.
#[derive(Clone, Copy)]
pub(crate) enum Want {
    /// It may have something to send,
    Transmit,
    /// cells to lend,
    Read,
    /// or something to say to the relay.
    Speak,
}

const WANTS: usize = 3;
/// Cells that a connection lends in a turn: as many as one of its circuits does. Where a rate of 75 KiB/s stops reading
/// they take a tenth of a second, and a page waits for a turn of each of the others.
const TURN_CELLS: u32 = 16;

/// A connection's place in the endpoint.
pub(crate) struct Place<C> {
    pub(crate) stage: Stage<C>,
    /// Where its datagrams come from.
    pub(crate) peer: IpAddr,
    /// The token that its dialler's first datagram carries, while that may still come.
    token: Option<Token>,
    /// Its entry among the timers.
    timer: Option<Instant>,
    wants: [bool; WANTS],
}

/// All connections of an endpoint. Queues and timers hold each at most once, so they are as long as there are
/// connections.
pub(crate) struct Connections<C> {
    slots: SlotMap<ConnKey, Place<C>>,
    tokens: BTreeMap<Token, ConnKey>,
    timers: BTreeSet<(Instant, ConnKey)>,
    queues: [VecDeque<ConnKey>; WANTS],
    /// Cells that the first reader has lent in its turn.
    lent_in_turn: u32,
}

impl<C> Connections<C> {
    pub(crate) fn new() -> Self {
        Connections {
            slots: SlotMap::with_key(),
            tokens: BTreeMap::new(),
            timers: BTreeSet::new(),
            queues: Default::default(),
            lent_in_turn: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Makes a place for a connection that is dialled, which has failed until it is [set](Self::set_stage).
    pub(crate) fn insert(&mut self, peer: IpAddr) -> ConnKey {
        let stage = Stage::Failed(ConnectionError::NoAnswer);
        self.slots.insert(Place { stage, peer, token: None, timer: None, wants: [false; WANTS] })
    }

    /// Makes a place for a connection that waits for its dialler. One whose token is taken has failed already.
    pub(crate) fn insert_waiting(&mut self, options: ConnectionOptions, deadline: Instant) -> ConnKey {
        let key = self.insert(options.peer.ip().to_canonical());
        let token = options.secrets.token;
        if let Entry::Vacant(entry) = self.tokens.entry(token) {
            entry.insert(key);
            let place = &mut self.slots[key];
            place.token = Some(token);
            place.stage = Stage::Waiting { options: Box::new(options), deadline };
            self.set_timer(key, Some(deadline));
        }
        key
    }

    pub(crate) fn get(&self, key: ConnKey) -> Option<&Place<C>> {
        self.slots.get(key)
    }

    pub(crate) fn set_stage(&mut self, key: ConnKey, stage: Stage<C>) {
        if let Some(place) = self.slots.get_mut(key) {
            place.stage = stage;
        }
    }

    pub(crate) fn by_token(&self, token: &Token) -> Option<ConnKey> {
        self.tokens.get(token).copied()
    }

    /// What a connection that waits for its dialler was to be, and until when.
    pub(crate) fn waiting(&self, key: ConnKey) -> Option<(&ConnectionOptions, Instant)> {
        match &self.slots.get(key)?.stage {
            Stage::Waiting { options, deadline } => Some((options, *deadline)),
            Stage::Live(_) | Stage::Failed(_) => None,
        }
    }

    /// The dialler has come: the connection has failed until it is [set](Self::set_stage).
    pub(crate) fn take_waiting(&mut self, key: ConnKey) -> Option<(ConnectionOptions, Instant)> {
        self.waiting(key)?;
        let place = self.slots.get_mut(key)?;
        match core::mem::replace(&mut place.stage, Stage::Failed(ConnectionError::NoAnswer)) {
            Stage::Waiting { options, deadline } => Some((*options, deadline)),
            Stage::Live(_) | Stage::Failed(_) => None,
        }
    }

    pub(crate) fn live(&self, key: ConnKey) -> Option<&C> {
        match &self.slots.get(key)?.stage {
            Stage::Live(connection) => Some(connection),
            Stage::Waiting { .. } | Stage::Failed(_) => None,
        }
    }

    pub(crate) fn live_mut(&mut self, key: ConnKey) -> Option<&mut C> {
        match &mut self.slots.get_mut(key)?.stage {
            Stage::Live(connection) => Some(connection),
            Stage::Waiting { .. } | Stage::Failed(_) => None,
        }
    }

    /// All connections that live.
    pub(crate) fn all_live(&self) -> impl Iterator<Item = (ConnKey, &C)> {
        self.slots.iter().filter_map(|(key, place)| match &place.stage {
            Stage::Live(connection) => Some((key, &**connection)),
            Stage::Waiting { .. } | Stage::Failed(_) => None,
        })
    }

    /// The names of all that live.
    pub(crate) fn live_keys(&self) -> Vec<ConnKey> {
        self.all_live().map(|(key, _)| key).collect()
    }

    /// Puts a connection into a queue, if it does not stand there.
    pub(crate) fn note(&mut self, key: ConnKey, want: Want) {
        if let Some(place) = self.slots.get_mut(key)
            && !core::mem::replace(&mut place.wants[want as usize], true)
        {
            self.queues[want as usize].push_back(key);
        }
    }

    /// Puts a connection into a queue, if it lives and says that it wants that.
    pub(crate) fn note_if(&mut self, key: ConnKey, want: Want, wants: impl FnOnce(&C) -> bool) {
        if self.live(key).is_some_and(wants) {
            self.note(key, want);
        }
    }

    /// Who is first in a queue.
    pub(crate) fn first(&self, want: Want) -> Option<ConnKey> {
        self.queues[want as usize].front().copied()
    }

    /// The first of a queue has had its turn and wants more.
    pub(crate) fn next_turn(&mut self, want: Want) {
        let queue = &mut self.queues[want as usize];
        if !queue.is_empty() {
            queue.rotate_left(1);
        }
    }

    /// The first reader lent a cell. After some it is the next one's turn: where the operator's rate stops reading, who
    /// stands first must not be the only one that is read.
    pub(crate) fn lent(&mut self) {
        self.lent_in_turn += 1;
        if self.lent_in_turn >= TURN_CELLS {
            self.lent_in_turn = 0;
            self.next_turn(Want::Read);
        }
    }

    /// The first of a queue wants nothing more.
    pub(crate) fn done(&mut self, want: Want) {
        if matches!(want, Want::Read) {
            self.lent_in_turn = 0;
        }
        if let Some(key) = self.queues[want as usize].pop_front()
            && let Some(place) = self.slots.get_mut(key)
        {
            place.wants[want as usize] = false;
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A connection whose time has come, and how late we are, if that is so much that nobody looked meanwhile. It has
    /// no timer then.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(ConnKey, Option<Duration>)> {
        let &(at, key) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, key));
        if let Some(place) = self.slots.get_mut(key) {
            place.timer = None;
        }
        Some((key, Some(now.since(at)).filter(|late| *late >= LATE_MIN)))
    }

    /// A connection is to be looked at by then. A timer that is too early costs a look; moving it with every packet
    /// would cost more.
    pub(crate) fn look_at(&mut self, key: ConnKey, at: Option<Instant>) {
        let set = self.slots.get(key).and_then(|place| place.timer);
        if at.is_some_and(|at| set.is_none_or(|set| at < set)) {
            self.set_timer(key, at);
        }
    }

    fn set_timer(&mut self, key: ConnKey, timer: Option<Instant>) {
        let Some(place) = self.slots.get_mut(key) else {
            return;
        };
        if let Some(old) = core::mem::replace(&mut place.timer, timer) {
            self.timers.remove(&(old, key));
        }
        if let Some(new) = timer {
            self.timers.insert((new, key));
        }
    }

    /// The next event of a connection, which `poll` asks if it lives, and whether the connection is to be forgotten
    /// after it.
    pub(crate) fn event_of(
        &mut self,
        key: ConnKey,
        poll: impl FnOnce(&mut C) -> Option<ConnectionEvent>,
    ) -> (Option<ConnectionEvent>, bool) {
        let Some(place) = self.slots.get_mut(key) else {
            return (None, false);
        };
        let (event, is_last) = match &mut place.stage {
            Stage::Live(connection) => (poll(connection), false),
            Stage::Failed(error) => (Some(ConnectionEvent::Ended(error.clone())), true),
            Stage::Waiting { .. } => (None, false),
        };
        if matches!(event, Some(ConnectionEvent::Ready | ConnectionEvent::Ended(_))) {
            self.spend_token(key);
        }
        (event, is_last)
    }

    /// The token was used, or never will be.
    pub(crate) fn spend_token(&mut self, key: ConnKey) {
        if let Some(token) = self.slots.get_mut(key).and_then(|place| place.token.take()) {
            self.tokens.remove(&token);
        }
    }

    /// Forgets a connection. Queues pass over it.
    pub(crate) fn remove(&mut self, key: ConnKey) -> Option<Place<C>> {
        self.set_timer(key, None);
        self.spend_token(key);
        self.slots.remove(key)
    }
}
