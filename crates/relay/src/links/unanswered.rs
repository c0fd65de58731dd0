//! CREATE2 cells that the next relay has not answered: a few at a time on each link, by turns of who wants them.
//!
//! The next relay gives us a share of its work as one neighbour, and what is over that it refuses. So whoever extends
//! many circuits through us would take the others' part of our share, if all went on as they come. What is over a bound
//! stays here instead, and takes turns as onionskins do (`circuits::jobs`): relays and strangers, in each
//! class the neighbours, and the links of each. Below the bound nothing waits.
//!
//! The next relay works off in their order what comes on one link, whoever brought it here, and what waits there for
//! too long it refuses. So the bound falls where it is slow, until what is over waits here, by turns, and not there
//! ([`Places`]).
//!
//! 1. A circuit is to go on over a link that has its number of unanswered CREATE2 cells: it is *queued*.
//! 2. CREATED2 or DESTROY comes, or such a circuit ends: the link is listed to be flushed, and who is next goes on
//!    first.
//! 3. The link ends: who is queued looks for another.

use crate::admission::{Class, Key, Party};
use crate::keys::{CircuitKey, LinkKey};
use crate::turns::{Turns, Waiting};
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

/// Circuits that are over are swept out of the turns when there are this many, and twice what was left the last time.
const SWEEP_LEN_MIN: usize = 64;

/// How long CREATE2 waits on a flow, from when it is queued there: a connection that does not let it leave is of no
/// more use to the circuit than one that loses it. A peer refuses onionskins that waited for 1.75 s, unless its
/// operator or the consensus says otherwise, so what takes longer was lost more than once; and clients give circuits up
/// after some seconds.
pub(super) const CREATE_PATIENCE: Duration = Duration::from_secs(3);
/// An answer is slow that takes so long after CREATE2 left: two long round trips, and less than half of what stock
/// relays, and this one, let an onionskin wait.
const SLOW_ANSWER: Duration = Duration::from_millis(750);
/// A peer that takes so long has more to do than it can.
const LATE_ANSWER: Duration = Duration::from_millis(1500);
/// However slow the next relay is, so many may go out.
const PLACES_MIN: usize = 16;

/// How many CREATE2 cells may be unanswered: half as many as are, when an answer was slow or there was no room, and one
/// more after as many prompt answers as there are places.
#[derive(Debug)]
struct Places {
    count: usize,
    /// Prompt answers since there was one more.
    prompt: usize,
    /// What was asked before that tells nothing of how many are too many now.
    fell_at: Option<Instant>,
}

impl Default for Places {
    fn default() -> Self {
        Places { count: usize::MAX, prompt: 0, fell_at: None }
    }
}

impl Places {
    fn on_prompt(&mut self) {
        self.prompt += 1;
        if self.prompt >= self.count {
            self.count += 1;
            self.prompt = 0;
        }
    }

    /// With few unanswered it was not their number that was slow.
    fn on_slow(&mut self, now: Instant, since: Instant, unanswered: usize) {
        if unanswered < PLACES_MIN {
            return;
        }
        if self.fell_at.is_none_or(|at| since >= at) {
            self.count = (self.count.min(unanswered) / 2).max(PLACES_MIN);
            self.prompt = 0;
            self.fell_at = Some(now);
        }
    }
}

type OfParty = Turns<LinkKey, VecDeque<CircuitKey>>;

/// What a link owes answers for, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    count: usize,
    places: Places,
    /// When an answer last came late.
    late_at: Option<Instant>,
    /// At most twice as many as are queued, and [`SWEEP_LEN_MIN`].
    queued: Turns<Class, Turns<Key, OfParty>>,
    queued_len: usize,
    sweep_len: usize,
}

impl Unanswered {
    /// Whether one more CREATE2 may go out at once.
    pub fn has_room(&self, max: usize) -> bool {
        self.count < self.max(max) && self.queued_len == 0
    }

    fn max(&self, max: usize) -> usize {
        max.min(self.places.count)
    }

    /// What left `since` then was answered, if only because there was no room for it.
    pub fn on_answer(&mut self, now: Instant, since: Instant, has_room: bool) {
        let took = now.since(since);
        match has_room && took < SLOW_ANSWER {
            true => self.places.on_prompt(),
            false => self.places.on_slow(now, since, self.count),
        }
        if took >= LATE_ANSWER {
            self.late_at = Some(now);
        }
    }

    /// Whether answers come late, or did a moment ago.
    pub fn is_late(&self, now: Instant) -> bool {
        self.late_at.is_some_and(|at| now.since(at) < CREATE_PATIENCE)
    }

    /// A CREATE2 goes out.
    pub fn take(&mut self) {
        self.count += 1;
    }

    /// A CREATE2 was answered, or never will be. Whether somebody waits for its place.
    pub fn give(&mut self) -> bool {
        self.count -= 1;
        self.queued_len > 0
    }

    /// Who is next, if one more CREATE2 may go out.
    pub fn next(&mut self, max: usize) -> Option<CircuitKey> {
        if self.count < self.max(max) { self.pop() } else { None }
    }

    /// A circuit that came over `prev` waits.
    pub fn push(&mut self, party: Party, prev: LinkKey, circuit: CircuitKey) {
        self.queued.queue(party.class()).queue(party.key()).queue(prev).push_back(circuit);
        self.queued_len += 1;
    }

    /// Who is next, whether or not there is a place.
    pub fn pop(&mut self) -> Option<CircuitKey> {
        let circuit = self.queued.take()?;
        self.queued_len -= 1;
        Some(circuit)
    }

    /// Sweeps out who waits no more, when these may be many.
    pub fn sweep(&mut self, is_queued: &dyn Fn(&CircuitKey) -> bool) {
        if self.queued_len < self.sweep_len.max(SWEEP_LEN_MIN) {
            return;
        }
        self.queued_len = self.queued.retain(is_queued);
        self.sweep_len = 2 * self.queued_len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next relay does one in so many milliseconds, in their order, and is asked whenever that is allowed.
    fn answered_after(each_ms: u64, max: usize) -> (usize, Duration) {
        let mut unanswered = Unanswered::default();
        let (mut asked, mut now, mut slowest) = (VecDeque::new(), Instant::ZERO, Duration::ZERO);
        for answer in 0..2000 {
            while unanswered.has_room(max) {
                unanswered.take();
                asked.push_back(now);
            }
            now += Duration::from_millis(each_ms);
            let since = asked.pop_front().expect("there is room for some");
            unanswered.on_answer(now, since, true);
            unanswered.give();
            if answer > 1000 {
                slowest = slowest.max(now.since(since));
            }
        }
        (asked.len(), slowest)
    }

    #[test]
    fn as_many_are_unanswered_as_are_answered_promptly() {
        assert_eq!(answered_after(1, 128), (127, Duration::from_millis(128)), "all that may be");
        let (unanswered, slowest) = answered_after(10, 128);
        assert!(
            unanswered >= 35 && slowest <= SLOW_ANSWER + Duration::from_millis(20),
            "{unanswered} {slowest:?}"
        );
        assert_eq!(answered_after(100, 128).0, PLACES_MIN - 1, "a few in any case");
    }

    /// What was asked before the number fell tells nothing more.
    #[test]
    fn one_burst_of_refusals_takes_half() {
        let mut unanswered = Unanswered::default();
        (0..128).for_each(|_| unanswered.take());
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        for _ in 0..64 {
            unanswered.on_answer(at(10), at(0), false);
            unanswered.give();
        }
        assert_eq!((unanswered.places.count, unanswered.has_room(128)), (64, false));
        unanswered.give();
        assert!(unanswered.has_room(128) && !unanswered.is_late(at(10)));
        unanswered.on_answer(at(1600), at(100), true);
        assert_eq!(unanswered.places.count, 31);
        assert!(unanswered.is_late(at(4599)) && !unanswered.is_late(at(4600)));
    }
}
