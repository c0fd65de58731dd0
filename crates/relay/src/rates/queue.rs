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

    /// The first ones, at most so many.
    pub fn take(&mut self, count: usize) -> Vec<T> {
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
