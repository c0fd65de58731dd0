//! What is to happen, soonest first. A plain binary heap serves until there are so many nodes that
//! it shows.

use core::cmp::Ordering;
use heddle_seam::time::Instant;
use std::collections::BinaryHeap;

struct Entry<E> {
    at: Instant,
    number: u64,
    event: E,
}

/// Events in the order of their times, and of their scheduling where times are equal.
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    scheduled: u64,
}

impl<E> EventQueue<E> {
    pub fn new() -> Self {
        EventQueue { heap: BinaryHeap::new(), scheduled: 0 }
    }

    pub fn push(&mut self, at: Instant, event: E) {
        self.heap.push(Entry { at, number: self.scheduled, event });
        self.scheduled += 1;
    }

    /// The next event, unless it is later than `until`.
    pub fn pop(&mut self, until: Instant) -> Option<(Instant, E)> {
        if self.heap.peek()?.at > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed, because the heap gives out its largest entry.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

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
}
