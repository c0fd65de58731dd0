//! When a responder may answer a ClientHello.
//!
//! The answer costs a signature with RSA, which rustls makes within the call that reads the ClientHello, so on a worker's
//! thread ([`super::signing`]). Many at once would keep workers from circuits' handshakes, so all responders of a transport share
//! a budget: a few at once, and then so many a second. Who is over it waits with its ClientHello unread.
//!
//! Turns are fair between addresses, by virtual time as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996):
//! a turn starts a round after the one before it of the same address, or now, and the earliest start comes first. However many
//! connections an address has waiting, another's first comes before all but one of them.

use core::net::SocketAddr;
use heddle_proto::addr::AddrKey;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Turns that may be had at once.
const BURST: u32 = 4;
/// From one turn to the next, on average: a signature takes 0.3 ms, so they take a sixth of a worker at most.
const PERIOD: Duration = Duration::from_millis(2);
/// Virtual time in which each address that waits has one turn.
const ROUND: u64 = 1 << 20;

/// The budget of a transport. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Signatures(Arc<Mutex<Queue>>);

/// A place in the queue, which is left when this is dropped.
pub(super) struct Turn {
    queue: Signatures,
    source: AddrKey,
    place: Place,
}

/// Who comes first: the start of the turn in virtual time, then the order of asking.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    start: u64,
    number: u64,
}

#[derive(Default)]
struct Queue {
    /// Who waits: at most as many as there are handshakes of channels, which the relay bounds.
    waiting: BTreeSet<Place>,
    /// How many turns each source waits for, and where one more would start.
    sources: BTreeMap<AddrKey, (usize, u64)>,
    /// Virtual time.
    now: u64,
    /// Turns that were ever asked for.
    number: u64,
    /// When the budget is whole again: each turn moves it on by a [`PERIOD`].
    whole_at: Instant,
}

impl Signatures {
    /// Joins the queue behind the turns that `peer` waits for.
    pub(super) fn join(&self, peer: SocketAddr) -> Turn {
        let source = AddrKey::of(peer.ip());
        let place = self.lock().join(source);
        Turn { queue: self.clone(), source, place }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change is whole, whatever became of a thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Uses the turn if it has come; fails with the time to ask again.
    pub(super) fn poll(&self, now: Instant) -> Result<(), Instant> {
        self.queue.lock().poll(self.source, self.place, now)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.lock().leave(self.source, self.place);
    }
}

impl Queue {
    fn join(&mut self, source: AddrKey) -> Place {
        let (turns, next) = self.sources.entry(source).or_default();
        let start = self.now.max(*next);
        *next = start + ROUND;
        *turns += 1;
        self.number += 1;
        let place = Place { start, number: self.number };
        self.waiting.insert(place);
        place
    }

    fn poll(&mut self, source: AddrKey, place: Place, now: Instant) -> Result<(), Instant> {
        let whole_at = self.whole_at.max(now);
        let ahead = u32::try_from(self.waiting.range(..place).count()).unwrap_or(u32::MAX);
        let due = whole_at + PERIOD * ahead;
        if due > now + PERIOD * (BURST - 1) {
            return Err(due - PERIOD * (BURST - 1));
        }
        self.whole_at = whole_at + PERIOD;
        self.now += ROUND / self.sources.len().max(1) as u64;
        self.leave(source, place);
        Ok(())
    }

    fn leave(&mut self, source: AddrKey, place: Place) {
        if !self.waiting.remove(&place) {
            return;
        }
        if let Some((turns, _)) = self.sources.get_mut(&source) {
            *turns -= 1;
            if *turns == 0 {
                self.sources.remove(&source);
            }
        }
    }
}
