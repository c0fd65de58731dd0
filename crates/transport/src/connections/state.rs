//! What connections and flows take themselves, beside the bytes that come on them: how that is reckoned and summed up.
//!
//! Figures are what an allocator would say, about: the tests in `quic/hostile/state.rs` and `tcp_dtls/hostile/state.rs`
//! hold them to one. Tables and lists count by their capacity, because they do not give it back.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// What an allocation takes beside its bytes, about.
pub(crate) const ALLOCATION: usize = 16;

/// What a connection takes or keeps, as a part of what all connections of its endpoint do.
#[derive(Debug, Default)]
pub(crate) struct Part {
    bytes: usize,
    of_all: Arc<AtomicUsize>,
}

impl Part {
    pub(crate) fn of(all: &Arc<AtomicUsize>) -> Self {
        Part { bytes: 0, of_all: all.clone() }
    }

    pub(crate) fn set(&mut self, bytes: usize) {
        self.of_all.store(self.of_all.load(Relaxed) + bytes - self.bytes, Relaxed);
        self.bytes = bytes;
    }

    /// Of this, something took `before` and takes `after`.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        self.set(self.bytes + after - before);
    }

    /// What all others take.
    pub(crate) fn others(&self) -> usize {
        self.of_all.load(Relaxed) - self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A list with room for so many.
pub(crate) fn list<T>(capacity: usize) -> usize {
    capacity * size_of::<T>()
}

/// A hash table that has room for so many entries of so many bytes: its places are a power of two, of which seven in
/// eight are used, and each has a byte more.
pub(crate) fn table(capacity: usize, entry: usize) -> usize {
    if capacity == 0 { 0 } else { (capacity * 8).div_ceil(7).next_power_of_two() * (entry + 1) }
}

/// A tree with so many entries. Nodes have eleven places; where keys rise, six of them are used.
pub(crate) fn tree(len: usize, entry: usize) -> usize {
    const PLACES: usize = 11;
    const USED: usize = 6;
    // The entries' node, and its part of those above.
    len * (PLACES * entry + ALLOCATION + 16) / USED * (USED + 1) / USED
}
