//! Queues that are served in turn, so that a long one delays itself only.

use std::collections::{BTreeMap, VecDeque};

/// Something that waits in an order of its own.
pub(super) trait Waiting: Default {
    type Item;
    /// What comes next.
    fn take(&mut self) -> Option<Self::Item>;
    fn is_empty(&self) -> bool;
    /// Keeps these and no others; returns how many they are.
    fn retain(&mut self, keeps: &dyn Fn(&Self::Item) -> bool) -> usize;
}

impl<T> Waiting for VecDeque<T> {
    type Item = T;

    fn take(&mut self) -> Option<T> {
        self.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn retain(&mut self, keeps: &dyn Fn(&T) -> bool) -> usize {
        self.retain(|item| keeps(item));
        self.len()
    }
}

/// Queues by key, each of which gives one item in its turn. Keys without items take no room.
#[derive(Debug)]
pub(super) struct Turns<K, Q> {
    queues: BTreeMap<K, Q>,
    /// The keys of `queues`, each once.
    order: VecDeque<K>,
}

impl<K, Q> Default for Turns<K, Q> {
    fn default() -> Self {
        Turns { queues: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Copy, Q: Waiting> Turns<K, Q> {
    /// The queue of a key, to which something is to be added: its turn comes after those that wait already.
    pub fn queue(&mut self, key: K) -> &mut Q {
        let order = &mut self.order;
        self.queues.entry(key).or_insert_with(|| {
            order.push_back(key);
            Q::default()
        })
    }
}

impl<K: Ord + Copy, Q: Waiting> Waiting for Turns<K, Q> {
    type Item = Q::Item;

    fn take(&mut self) -> Option<Q::Item> {
        loop {
            let key = self.order.pop_front()?;
            let queue = self.queues.get_mut(&key)?;
            let item = queue.take();
            match queue.is_empty() {
                true => drop(self.queues.remove(&key)),
                false => self.order.push_back(key),
            }
            if item.is_some() {
                return item;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn retain(&mut self, keeps: &dyn Fn(&Q::Item) -> bool) -> usize {
        let mut len = 0;
        self.queues.retain(|_, queue| {
            len += queue.retain(keeps);
            !queue.is_empty()
        });
        self.order.retain(|key| self.queues.contains_key(key));
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_turn_on_every_level() {
        let mut turns: Turns<u8, Turns<u8, VecDeque<u32>>> = Turns::default();
        for item in 0..100 {
            turns.queue(0).queue(0).push_back(item);
        }
        turns.queue(0).queue(1).push_back(200);
        turns.queue(1).queue(0).extend([300, 301, 302]);
        let taken: Vec<u32> = core::iter::from_fn(|| turns.take()).collect();
        assert_eq!(taken[..8], [0, 300, 200, 301, 1, 302, 2, 3]);
        assert_eq!((taken.len(), turns.is_empty()), (104, true));
        assert!(turns.queues.is_empty());
        turns.queue(7).queue(7).push_back(7);
        assert_eq!((turns.take(), turns.take()), (Some(7), None));
    }

    #[test]
    fn what_is_swept_out_leaves_nothing_behind() {
        let mut turns: Turns<u8, Turns<u8, VecDeque<u32>>> = Turns::default();
        for item in 0..100 {
            turns.queue((item % 5) as u8).queue((item % 7) as u8).push_back(item);
        }
        assert_eq!(turns.retain(&|item| item % 5 == 3 && *item < 20), 4);
        assert_eq!((turns.queues.len(), turns.order.len()), (1, 1));
        let taken: Vec<u32> = core::iter::from_fn(|| turns.take()).collect();
        assert_eq!(taken, [3, 8, 13, 18]);
        assert_eq!((turns.retain(&|_| true), turns.is_empty()), (0, true));
    }
}
