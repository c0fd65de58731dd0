//! Resets that have to leave, and those that the peer has not answered.
//!
//! A reset of a flow is repeated until it is answered, or the peer would keep the flow for as long as it has nothing to
//! send. One that has not left once is not forgotten either, however short memory is: its flow took more.

use super::flow_id::FlowId;
use crate::time::{Instant, MS, S};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Resets that wait to be answered. Beyond, those are no longer repeated that would be last, because they have waited
/// longest. As many segments of no flow wait to be refused at most: whoever gets no answer asks again.
pub(super) const RESETS_MAX: usize = 16_384;
/// Resets that have not left. They are of flows that all were there since a datagram last left, of which a peer may
/// have 65,536. Each takes some 250 bytes, where its flow took 1,000 and more.
const UNSENT_MAX: usize = 1 << 17;
/// How often the wait for an answer doubles. After that a reset is repeated for as long as the session lives: a path
/// may be gone for a minute and come back, and the peer would keep the flow and its circuit. All that wait take some
/// 100 KB of datagrams each time.
const DOUBLINGS_MAX: u32 = 5;
/// How long the first answer to a reset is waited for before the round trip is known, and the least.
const TIMEOUT_NS: u64 = S;
const TIMEOUT_MIN_NS: u64 = 200 * MS;
/// Places of resets that were answered while they waited are swept out beyond so many.
const PLACES_GONE_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Pending {
    code: u8,
    doublings: u32,
    /// When it is sent again, if it is not to leave now.
    again: Option<Instant>,
}

/// Those of a session.
#[derive(Debug, Default)]
pub(super) struct Resets {
    pending: BTreeMap<FlowId, Pending>,
    /// When those that left are sent again.
    timers: BTreeSet<(Instant, FlowId)>,
    /// Whose leave next.
    due: VecDeque<FlowId>,
    /// Answers to segments of no flow, and why there is none.
    refusals: VecDeque<(FlowId, u8)>,
}

impl Resets {
    pub(super) fn holds(&self, id: FlowId) -> bool {
        self.pending.contains_key(&id)
    }

    /// A flow was reset: the peer is told until it answers.
    pub(super) fn insert(&mut self, id: FlowId, code: u8) {
        self.forget_sent_beyond(RESETS_MAX - 1);
        if self.pending.len() < UNSENT_MAX {
            self.pending.insert(id, Pending { code, doublings: 0, again: None });
            self.due.push_back(id);
        }
    }

    /// A segment came of no flow: the peer is told once.
    pub(super) fn refuse(&mut self, id: FlowId, code: u8) {
        if self.refusals.len() < RESETS_MAX {
            self.refusals.push_back((id, code));
        }
    }

    /// The peer has heard of it.
    pub(super) fn remove(&mut self, id: FlowId) {
        if let Some(Pending { again: Some(again), .. }) = self.pending.remove(&id) {
            self.timers.remove(&(again, id));
        }
        if self.due.len() > 2 * self.pending.len() + PLACES_GONE_MAX {
            self.due.retain(|id| self.pending.contains_key(id));
        }
    }

    /// The next that leaves, and its reason. An answer to it is waited for for two of these round trips.
    pub(super) fn next(&mut self, now: Instant, round_trip_ns: Option<u64>) -> Option<(FlowId, u8)> {
        while let Some(id) = self.due.pop_front() {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            let timeout_ns = round_trip_ns.map_or(TIMEOUT_NS, |ns| 2 * ns).max(TIMEOUT_MIN_NS);
            let again = now.plus_ns(timeout_ns << pending.doublings);
            pending.doublings = DOUBLINGS_MAX.min(pending.doublings + 1);
            pending.again = Some(again);
            self.timers.insert((again, id));
            return Some((id, pending.code));
        }
        self.refusals.pop_front()
    }

    /// Takes those up again that were not answered. More than are repeated may have left at once.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.forget_sent_beyond(RESETS_MAX);
        while let Some((_, id)) = self.timers.first().copied().filter(|(again, _)| *again <= now) {
            self.timers.pop_first();
            if let Some(pending) = self.pending.get_mut(&id) {
                pending.again = None;
                self.due.push_back(id);
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(again, _)| *again)
    }

    /// Of what left, so much is kept that no more than these wait for answers, if nothing waits to leave.
    pub(super) fn forget_sent_beyond(&mut self, count: usize) {
        while self.pending.len() > count
            && let Some((_, id)) = self.timers.pop_last()
        {
            self.pending.remove(&id);
        }
    }

    /// About what an allocator would say.
    pub(super) fn heap_bytes(&self, tree_entry_bytes: usize) -> usize {
        let pending = self.pending.len() * (size_of::<(FlowId, Pending)>() * 2 + tree_entry_bytes);
        let timers = self.timers.len() * (size_of::<(Instant, FlowId)>() * 2);
        pending
            + timers
            + self.due.capacity() * size_of::<FlowId>()
            + self.refusals.capacity() * size_of::<(FlowId, u8)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(port: u32) -> FlowId {
        FlowId { is_ours: true, port }
    }

    #[test]
    fn a_reset_is_repeated_until_it_is_answered() {
        let (mut resets, mut now) = (Resets::default(), Instant::ZERO);
        resets.insert(id(1), 7);
        resets.insert(id(2), 8);
        assert_eq!(resets.next(now, Some(MS)), Some((id(1), 7)));
        assert_eq!(resets.next(now, Some(MS)), Some((id(2), 8)));
        resets.remove(id(2));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let again = resets.poll_timeout().unwrap();
            waits.push(again.ns_since(now) / MS);
            now = again;
            resets.handle_timeout(now);
            assert_eq!(resets.next(now, Some(MS)), Some((id(1), 7)));
        }
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 6_400, 6_400, 6_400]);
        resets.remove(id(1));
        assert_eq!(resets.poll_timeout(), None);
        assert!(!resets.holds(id(1)));
    }

    /// A link with 40,000 circuits ends them all before a datagram leaves, and memory is short.
    #[test]
    fn none_is_forgotten_that_has_not_left() {
        let mut resets = Resets::default();
        (0..40_000).for_each(|port| resets.insert(id(port), 1));
        resets.forget_sent_beyond(1_024);
        (0..50_000).for_each(|port| resets.refuse(id(100_000 + port), 2));
        let mut left: Vec<u32> =
            std::iter::from_fn(|| resets.next(Instant::ZERO, None)).map(|(id, _)| id.port).collect();
        let refused = left.split_off(40_000);
        assert!(left.into_iter().eq(0..40_000));
        assert_eq!(refused.len(), RESETS_MAX);
        resets.forget_sent_beyond(1_024);
        assert_eq!((resets.pending.len(), resets.timers.len()), (1_024, 1_024));
    }

    /// 40,000 leave at once, and a peer answers none of them. One that is new is repeated, whatever is hopeless.
    #[test]
    fn no_more_are_repeated_than_is_said_and_the_newest_are() {
        let (mut resets, mut now) = (Resets::default(), Instant::ZERO);
        (0..40_000).for_each(|port| resets.insert(id(port), 1));
        while resets.next(now, Some(MS)).is_some() {}
        for _ in 0..6 {
            now = resets.poll_timeout().unwrap();
            resets.handle_timeout(now);
            assert_eq!(std::iter::from_fn(|| resets.next(now, Some(MS))).count(), RESETS_MAX);
        }
        resets.insert(id(40_000), 1);
        assert_eq!(resets.next(now, Some(MS)), Some((id(40_000), 1)));
        resets.handle_timeout(now);
        assert!(resets.holds(id(40_000)) && resets.pending.len() == RESETS_MAX);
    }

    #[test]
    fn places_of_answered_resets_do_not_pile_up() {
        let mut resets = Resets::default();
        for port in 0..100_000 {
            resets.insert(id(port), 1);
            resets.remove(id(port));
        }
        assert!(resets.due.len() <= PLACES_GONE_MAX + 1 && resets.pending.is_empty());
    }
}
