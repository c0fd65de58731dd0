//! What is to happen, soonest first.
//!
//! Most of what is scheduled is for the present instant, and waits in a line of its own. The rest is in a binary heap
//! of keys alone: many timers are in it that are void by now, and events are large.

use heddle_seam::time::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// When an event is due, the how manieth it was to be scheduled, and where it is kept.
type Key = (Instant, u64, u32);

/// Events in the order of their times, and of their scheduling where times are equal. It takes memory for as many as
/// there ever were at once.
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Key>>,
    kept: Vec<Option<E>>,
    /// Places in `kept` that are empty.
    free: Vec<u32>,
    /// The latest time at which something was due.
    now: Instant,
    /// What was scheduled for `now` since then, with its numbers.
    at_once: VecDeque<(u64, E)>,
    scheduled: u64,
}

impl<E> EventQueue<E> {
    pub fn new() -> Self {
        EventQueue {
            heap: BinaryHeap::new(),
            kept: Vec::new(),
            free: Vec::new(),
            now: Instant::ZERO,
            at_once: VecDeque::new(),
            scheduled: 0,
        }
    }

    pub fn push(&mut self, at: Instant, event: E) {
        let number = self.scheduled;
        self.scheduled += 1;
        if at == self.now {
            return self.at_once.push_back((number, event));
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            u32::try_from(self.kept.len() - 1).expect("no simulation has so much before it")
        });
        self.kept[place as usize] = Some(event);
        self.heap.push(Reverse((at, number, place)));
    }

    /// The next event, unless it is later than `until`.
    pub fn pop(&mut self, until: Instant) -> Option<(Instant, E)> {
        let first = self.heap.peek().map(|Reverse((at, number, _))| (*at, *number));
        let at_once = self.at_once.front().map(|(number, _)| (self.now, *number));
        let (at, _) = first.into_iter().chain(at_once).min().filter(|(at, _)| *at <= until)?;
        if at_once.is_some_and(|at_once| first.is_none_or(|first| at_once < first)) {
            return self.at_once.pop_front().map(|(_, event)| (at, event));
        }
        let Reverse((_, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.now = self.now.max(at);
        self.kept[place as usize].take().map(|event| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_the_order_of_scheduling() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b'), (9, 'e')] {
            queue.push(Instant::from_nanos(at), event);
        }
        let order: String =
            core::iter::from_fn(|| queue.pop(Instant::from_nanos(8))).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
        assert_eq!(queue.pop(Instant::from_nanos(9)).map(|(_, event)| event), Some('e'));
    }

    #[test]
    fn what_is_for_the_present_instant_comes_after_what_was_for_it_before() {
        let at = Instant::from_nanos;
        let mut queue = EventQueue::new();
        for (time, event) in [(0, 'a'), (5, 'c'), (5, 'd')] {
            queue.push(at(time), event);
        }
        assert_eq!(queue.pop(at(9)), Some((at(0), 'a')));
        queue.push(at(0), 'b');
        assert_eq!(queue.pop(at(9)), Some((at(0), 'b')));
        assert_eq!(queue.pop(at(9)), Some((at(5), 'c')));
        queue.push(at(5), 'e');
        queue.push(at(7), 'g');
        queue.push(at(5), 'f');
        assert_eq!(queue.pop(at(4)), None, "nothing of a later time");
        for expected in ['d', 'e', 'f', 'g'] {
            assert_eq!(queue.pop(at(9)).map(|(_, event)| event), Some(expected));
        }
        assert_eq!(queue.pop(at(9)), None);
    }
}
