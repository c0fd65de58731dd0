//! Memory for the bytes of many connections, taken and given back in chunks.
//!
//! A connection without data holds no chunk, so memory follows the bytes that wait, not the number of connections. The
//! pool has one bound for all: where it is reached, writes take less and segments that would need room are dropped as if
//! the wire had lost them. The last quarter is kept from writes, so that what can be read and acknowledged at once
//! always goes on, and half of it from data out of order, so that a peer who sends nothing else stops no writes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes in a chunk.
pub const CHUNK_BYTES: usize = 2048;

/// A piece of memory out of a pool.
pub(crate) type Chunk = Box<[u8; CHUNK_BYTES]>;

/// What a chunk is for, from the least to the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    OutOfOrder,
    InOrder,
}

/// A handle on a pool of chunks. Clones share the pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Mutex<Shared>>);

struct Shared {
    free: Vec<Chunk>,
    lent: usize,
    chunks_max: usize,
    free_max: usize,
}

impl BufferPool {
    /// A pool that lends at most `bytes_max`, rounded down to chunks, and keeps up to a quarter of them for reuse.
    pub fn new(bytes_max: usize) -> Self {
        let chunks_max = bytes_max / CHUNK_BYTES;
        let free_max = chunks_max / 4;
        BufferPool(Arc::new(Mutex::new(Shared { free: Vec::new(), lent: 0, chunks_max, free_max })))
    }

    /// How many bytes connections hold, in whole chunks.
    pub fn lent_bytes(&self) -> usize {
        self.shared().lent * CHUNK_BYTES
    }

    /// How many more bytes the pool would lend.
    pub fn available_bytes(&self) -> usize {
        let shared = self.shared();
        (shared.chunks_max - shared.lent) * CHUNK_BYTES
    }

    /// Whether less than half of it is left.
    pub(crate) fn is_short(&self) -> bool {
        let shared = self.shared();
        2 * shared.lent > shared.chunks_max
    }

    /// A chunk with arbitrary contents, or `None` at the bound for this purpose.
    pub(crate) fn take(&self, purpose: Purpose) -> Option<Chunk> {
        let mut shared = self.shared();
        let reserve = match purpose {
            Purpose::Write => shared.chunks_max / 4,
            Purpose::OutOfOrder => shared.chunks_max / 2,
            Purpose::InOrder => 0,
        };
        if shared.lent + reserve >= shared.chunks_max {
            return None;
        }
        shared.lent += 1;
        Some(shared.free.pop().unwrap_or_else(|| Box::new([0; CHUNK_BYTES])))
    }

    /// Takes back what [`take`](Self::take) gave.
    pub(crate) fn give(&self, chunk: Chunk) {
        let mut shared = self.shared();
        shared.lent -= 1;
        if shared.free.len() < shared.free_max {
            shared.free.push(chunk);
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while it is held, and counts and chunks are whole between statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        write!(f, "BufferPool({} of {} chunks lent)", shared.lent, shared.chunks_max)
    }
}
