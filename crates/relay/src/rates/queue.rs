//! Who waits for the operator's rates, in one direction: those who wait longest look again first.

use crate::keys::LinkKey;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;
use std::collections::{BTreeSet, VecDeque};

/// Those who wait, each once, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    order: VecDeque<T>,
    present: BTreeSet<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { order: VecDeque::new(), present: BTreeSet::new() }
    }
}

impl<T: Ord + Copy> Queue<T> {
    pub fn push(&mut self, item: T) {
        if self.present.insert(item) {
            self.order.push_back(item);
        }
    }

    /// The first ones, at most so many. Where they have ranks the lowest go first, of equals those who came first.
    pub fn take(&mut self, count: usize, rank: Option<&dyn Fn(&T) -> f64>) -> Vec<T> {
        if let Some(rank) = rank
            && count < self.order.len()
        {
            let mut ranked: Vec<_> = self.order.iter().map(rank).zip(0_usize..).collect();
            let by_rank = |one: &(f64, usize), other: &(f64, usize)| {
                one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
            };
            ranked.select_nth_unstable_by(count, by_rank);
            let mut lowest: Vec<usize> = ranked[..count].iter().map(|(_, place)| *place).collect();
            lowest.sort_unstable();
            // They come to the front in their order; the others keep theirs.
            for (front, place) in lowest.into_iter().enumerate() {
                if let Some(item) = self.order.remove(place) {
                    self.order.insert(front, item);
                }
            }
        }
        let first: Vec<T> = self.order.drain(..count.min(self.order.len())).collect();
        for item in &first {
            self.present.remove(item);
        }
        first
    }

    pub fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.order.retain(&keeps);
        self.present.retain(&keeps);
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// What waits for one direction.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// When the shard looks again.
    pub until: Option<Instant>,
    /// Whether that is only since more wait than could be told the last time.
    pub goes_on: bool,
    /// Links, which relay, and connections of streams, whose traffic is the relay's own.
    pub links: Queue<LinkKey>,
    pub sockets: Queue<SocketId>,
}

impl Waiting {
    /// The shard looks again at this time at the latest.
    pub fn wake_at(&mut self, at: Instant, goes_on: bool) {
        if self.until.is_none_or(|until| at < until) {
            self.until = Some(at);
            self.goes_on = goes_on;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.sockets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_ranks_go_first_and_of_equals_who_came_first() {
        let filled = || {
            let mut queue = Queue::default();
            [5, 3, 8, 1, 4, 9].into_iter().for_each(|item| queue.push(item));
            queue
        };
        let rest = |mut queue: Queue<i32>| queue.take(usize::MAX, None);
        let mut queue = filled();
        assert_eq!(queue.take(3, None), [5, 3, 8]);
        assert_eq!(rest(queue), [1, 4, 9]);
        let mut queue = filled();
        assert_eq!(
            queue.take(3, Some(&|item| f64::from(*item))),
            [3, 1, 4],
            "in the order in which they came"
        );
        queue.push(3);
        assert_eq!(rest(queue), [5, 8, 9, 3]);
        let mut queue = filled();
        assert_eq!(queue.take(2, Some(&|_| 0.0)), [5, 3]);
        assert_eq!(queue.take(9, Some(&|item| f64::from(*item))), [8, 1, 4, 9], "there are no more");
    }
}
