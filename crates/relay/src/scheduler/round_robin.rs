//! One cell of each lane in turn.

use super::turn::{Activity, CircuitScheduler, Turn};
use heddle_seam::time::Instant;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    turns: VecDeque<Turn>,
}

impl CircuitScheduler for RoundRobin {
    #[inline]
    fn push(&mut self, _: Instant, turn: Turn, _: Activity) {
        self.turns.push_back(turn);
    }

    #[inline]
    fn pop(&mut self, _: Instant) -> Option<Turn> {
        self.turns.pop_front()
    }

    #[inline]
    fn charge(&mut self, _: Instant, _: &mut Activity) {}

    fn len(&self) -> usize {
        self.turns.len()
    }

    fn capacity(&self) -> usize {
        self.turns.capacity()
    }

    fn shrink(&mut self) {
        self.turns.shrink_to(2 * self.turns.len());
    }

    fn retain(&mut self, keep: &dyn Fn(&Turn) -> bool) {
        self.turns.retain(|turn| keep(turn));
    }
}
