//! Circuits whose cells are datagrams (`heddle_forwarding`): what is done with these, and which sessions are to be
//! looked at.
//!
//! Memory: what TCP holds of all sessions is at most a part of the shard's memory ([`Sessions::new`]), of which
//! each has a share; beside it each session has at most 128 KiB that wait. What sessions hold counts among what
//! waits ([`Sessions::bytes`]), they and hops' layers among what circuits take themselves. DATAGRAM cells that wait
//! stand in lanes, of which each takes [`WAITING_MAX`].

use crate::keys::{CircuitKey, Side};
use heddle_forwarding::{Forward, HopLayer, Part, Session};
use heddle_proto::cell::Body;
use heddle_seam::time::Instant;
use heddle_utcp::BufferPool;
use slotmap::SecondaryMap;
use std::collections::{BTreeSet, VecDeque};

/// A DATAGRAM cell is dropped where so many cells wait in its lane, as a router drops a packet.
pub(crate) const WAITING_MAX: u32 = 128;
/// A session's own cells are made only as long as fewer wait: they need not be lost here.
pub(crate) const OWN_WAITING_MAX: u32 = 32;

/// Of a shard's memory, TCP of all sessions has one part in so many.
const MEMORY_PART: usize = 8;

/// What is done with a circuit's DATAGRAM cells.
pub(crate) struct Forwarding(Doing);

enum Doing {
    Pass(Box<HopLayer>),
    End(Box<Session>),
}

impl Forwarding {
    /// What it takes itself.
    pub fn bytes(&self) -> usize {
        match self.0 {
            Doing::Pass(_) => HopLayer::BYTES,
            Doing::End(_) => Session::BYTES,
        }
    }

    /// Puts our layer on a datagram that came on this side, or takes it off. False when it goes no further.
    pub fn pass(&self, side: Side, body: &mut Body) -> bool {
        let Doing::Pass(layer) = &self.0 else { return false };
        match side {
            Side::Prev => layer.forward(body),
            Side::Next => layer.backward(body),
        }
        true
    }

    /// Our end of the session, if it ends here.
    pub fn session(&self) -> Option<&Session> {
        match &self.0 {
            Doing::End(session) => Some(session),
            Doing::Pass(_) => None,
        }
    }

    /// The same, to work with.
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.0 {
            Doing::End(session) => Some(session),
            Doing::Pass(_) => None,
        }
    }
}

/// When a session is to be looked at.
#[derive(Default)]
struct Watched {
    is_due: bool,
    timer: Option<Instant>,
}

/// All sessions that end at a shard, by their circuits, and what they and hops' layers take.
pub(crate) struct Sessions {
    pool: BufferPool,
    watched: SecondaryMap<CircuitKey, Watched>,
    /// What each circuit whose cells are datagrams takes for that: itself, and what it holds.
    bytes_of: SecondaryMap<CircuitKey, [usize; 2]>,
    state_bytes: usize,
    /// Sessions that may have something to say; each once, but for some that are over.
    due: VecDeque<CircuitKey>,
    /// At most one entry a session.
    timers: BTreeSet<(Instant, CircuitKey)>,
    bytes: usize,
}

impl Sessions {
    pub fn new(memory_bytes: usize) -> Self {
        Sessions {
            pool: BufferPool::new(memory_bytes / MEMORY_PART),
            watched: SecondaryMap::new(),
            bytes_of: SecondaryMap::new(),
            state_bytes: 0,
            due: VecDeque::new(),
            timers: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Bytes that all sessions hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What sessions and hops' layers take themselves ([`Forwarding::bytes`]).
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// One holds so many now.
    pub fn set_bytes(&mut self, key: CircuitKey, bytes: usize) {
        if let Some([_, before]) = self.bytes_of.get_mut(key) {
            self.bytes = self.bytes - *before + bytes;
            *before = bytes;
        }
    }

    /// What a circuit's client wants of us begins.
    pub fn begin(&mut self, key: CircuitKey, forward: &Forward) -> Forwarding {
        let forwarding = match forward.part {
            Part::Pass => Forwarding(Doing::Pass(Box::new(HopLayer::new(&forward.keys)))),
            Part::End => {
                self.watched.insert(key, Watched::default());
                Forwarding(Doing::End(Box::new(Session::accept(&forward.keys, self.pool.session()))))
            }
        };
        self.bytes_of.insert(key, [forwarding.bytes(), 0]);
        self.state_bytes += forwarding.bytes();
        forwarding
    }

    /// A session may have something to say. Means nothing for other circuits.
    pub fn mark(&mut self, key: CircuitKey) {
        if let Some(watched) = self.watched.get_mut(key)
            && !core::mem::replace(&mut watched.is_due, true)
        {
            self.due.push_back(key);
        }
    }

    /// The next one that may.
    pub fn next_due(&mut self) -> Option<CircuitKey> {
        loop {
            let key = self.due.pop_front()?;
            if let Some(watched) = self.watched.get_mut(key) {
                watched.is_due = false;
                return Some(key);
            }
        }
    }

    /// A session is to be looked at then, or when it is marked.
    pub fn set_timer(&mut self, key: CircuitKey, at: Option<Instant>) {
        let Some(watched) = self.watched.get_mut(key) else { return };
        if watched.timer == at {
            return;
        }
        if let Some(set) = core::mem::replace(&mut watched.timer, at) {
            self.timers.remove(&(set, key));
        }
        if let Some(at) = at {
            self.timers.insert((at, key));
        }
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A session whose time has come.
    pub fn pop_expired(&mut self, now: Instant) -> Option<CircuitKey> {
        let &(_, key) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.set_timer(key, None);
        Some(key)
    }

    /// A circuit is over, which may have had a session.
    pub fn end(&mut self, key: CircuitKey) {
        self.set_timer(key, None);
        self.set_bytes(key, 0);
        self.state_bytes -= self.bytes_of.remove(key).map_or(0, |[state, _]| state);
        self.watched.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_forwarding::HopKeys;
    use slotmap::SlotMap;

    #[test]
    fn a_session_is_looked_at_once_a_mark_and_once_a_timer() {
        let mut keys = SlotMap::<CircuitKey, ()>::with_key();
        let (key, other) = (keys.insert(()), keys.insert(()));
        let mut sessions = Sessions::new(1 << 20);
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let hop_keys = HopKeys::new([1; 16], [2; 16]);
        let end = sessions.begin(key, &Forward { part: Part::End, keys: hop_keys.clone() });
        assert!(end.session().is_some());
        let pass = sessions.begin(other, &Forward { part: Part::Pass, keys: hop_keys });
        assert!(pass.session().is_none());
        assert_eq!((sessions.state_bytes(), sessions.bytes()), (Session::BYTES + HopLayer::BYTES, 0));
        [key, key, other].into_iter().for_each(|key| sessions.mark(key));
        assert_eq!((sessions.next_due(), sessions.next_due()), (Some(key), None));
        sessions.set_timer(key, Some(at(5)));
        sessions.set_timer(key, Some(at(9)));
        assert_eq!((sessions.pop_expired(at(8)), sessions.next_timeout()), (None, Some(at(9))));
        assert_eq!((sessions.pop_expired(at(9)), sessions.next_timeout()), (Some(key), None));
        sessions.set_timer(key, Some(at(10)));
        sessions.set_bytes(key, 70);
        sessions.set_bytes(key, 50);
        assert_eq!(sessions.bytes(), 50);
        sessions.mark(key);
        sessions.end(key);
        sessions.end(other);
        assert_eq!((sessions.next_due(), sessions.next_timeout()), (None, None));
        assert_eq!((sessions.bytes(), sessions.state_bytes()), (0, 0));
    }
}
