//! A window onto a stream of bytes, in chunks of the pool. The send buffer and the reassembly buffer are both one.

use crate::pool::{BufferPool, CHUNK_BYTES, Chunk, Half, Purpose};
use std::collections::VecDeque;

/// The longest list of chunks that an empty buffer keeps for the next bytes.
const LIST_KEPT: usize = 8;

/// Bytes at positions `start..`, some of which were never written. Chunks come when a byte in them is first written and
/// go when the window has passed them.
#[derive(Debug)]
pub(crate) struct StreamBuffer {
    pool: BufferPool,
    half: Half,
    /// The position of the first byte that is still wanted.
    start: u64,
    /// The position of the first byte of the first chunk: at most `start`, less than a chunk below it.
    base: u64,
    chunks: VecDeque<Option<Chunk>>,
}

impl StreamBuffer {
    pub(crate) fn new(pool: BufferPool, half: Half, start: u64) -> Self {
        StreamBuffer { pool, half, start, base: start, chunks: VecDeque::new() }
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Begins anew at another position. Only before anything was written.
    pub(crate) fn restart(&mut self, start: u64) {
        debug_assert!(self.chunks.is_empty());
        (self.start, self.base) = (start, start);
    }

    /// Writes `bytes` at `position`, which must not lie below the start. Gives how many bytes the pool had room for.
    pub(crate) fn write(&mut self, position: u64, bytes: &[u8], purpose: Purpose) -> usize {
        debug_assert!(position >= self.start && purpose.half() == self.half);
        if self.chunks.is_empty() {
            self.base = self.start;
        }
        let mut written = 0;
        while written < bytes.len() {
            let at = (position - self.base) as usize + written;
            let (number, offset) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
            if number >= self.chunks.len() {
                self.chunks.resize_with(number + 1, || None);
            }
            if self.chunks[number].is_none() {
                self.chunks[number] = self.pool.take(purpose);
            }
            let Some(chunk) = &mut self.chunks[number] else {
                self.trim();
                break;
            };
            let take = (bytes.len() - written).min(CHUNK_BYTES - offset);
            chunk[offset..offset + take].copy_from_slice(&bytes[written..written + take]);
            written += take;
        }
        written
    }

    /// Appends `len` bytes from `position` to `out`. All of them must have been written.
    pub(crate) fn copy_to(&self, position: u64, len: usize, out: &mut Vec<u8>) {
        let mut left = len;
        let mut at = (position - self.base) as usize;
        while left > 0 {
            let piece = self.piece(at, left);
            out.extend_from_slice(piece);
            at += piece.len();
            left -= piece.len();
        }
    }

    /// The longest piece of memory at `position` that is at most `len` bytes. All of them must have been written.
    pub(crate) fn peek(&self, position: u64, len: usize) -> &[u8] {
        if len == 0 {
            return &[];
        }
        self.piece((position - self.base) as usize, len)
    }

    fn piece(&self, at: usize, len: usize) -> &[u8] {
        let (number, offset) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
        let chunk = self.chunks[number].as_ref().expect("the bytes asked for were written");
        &chunk[offset..(offset + len).min(CHUNK_BYTES)]
    }

    /// Gives up everything below `position`.
    pub(crate) fn advance(&mut self, position: u64) {
        self.start = self.start.max(position);
        while self.base + CHUNK_BYTES as u64 <= self.start && !self.chunks.is_empty() {
            if let Some(chunk) = self.chunks.pop_front().flatten() {
                self.pool.give(chunk, self.half);
            }
            self.base += CHUNK_BYTES as u64;
        }
    }

    /// Gives up everything: no byte above the start is wanted either.
    pub(crate) fn clear(&mut self) {
        while let Some(chunk) = self.chunks.pop_front() {
            if let Some(chunk) = chunk {
                self.pool.give(chunk, self.half);
            }
        }
        if self.chunks.capacity() > LIST_KEPT {
            self.chunks = VecDeque::new();
        }
    }

    /// Gives up the list of chunks as well when there are none, so that an idle connection is small.
    fn trim(&mut self) {
        while self.chunks.back().is_some_and(Option::is_none) {
            self.chunks.pop_back();
        }
    }

    /// Bytes of the pool that it has, in whole chunks.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.chunks.iter().flatten().count() * CHUNK_BYTES
    }

    /// Bytes on the heap beside the pool's.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Option<Chunk>>()
    }
}

impl Drop for StreamBuffer {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_back(start in 0u64..10_000, pieces in prop::collection::vec(1usize..5000, 1..20)) {
            let pool = BufferPool::new(1 << 20);
            let mut buffer = StreamBuffer::new(pool.clone(), Half::Received, start);
            let total: usize = pieces.iter().sum();
            let bytes: Vec<u8> = (0..total).map(|n| (n * 7 + n / 256) as u8).collect();
            // The last pieces first, as when the wire reorders.
            let mut end = total;
            for piece in &pieces {
                let from = end - piece;
                let written = buffer.write(start + from as u64, &bytes[from..end], Purpose::InOrder);
                prop_assert_eq!(written, *piece);
                end -= piece;
            }
            let (mut out, mut at) = (Vec::new(), start);
            for piece in &pieces {
                buffer.copy_to(at, *piece, &mut out);
                at += *piece as u64;
                buffer.advance(at);
                let left = start + total as u64 - at;
                prop_assert!(pool.lent_bytes() as u64 <= left + 2 * CHUNK_BYTES as u64);
            }
            prop_assert_eq!(out, bytes);
            buffer.clear();
            prop_assert_eq!(pool.lent_bytes(), 0);
        }
    }

    #[test]
    fn the_pool_is_the_bound() {
        let pool = BufferPool::new(2 * 2 * CHUNK_BYTES);
        let mut one = StreamBuffer::new(pool.clone(), Half::Received, 100);
        let mut other = StreamBuffer::new(pool.clone(), Half::Received, 0);
        assert_eq!(one.write(100, &[1; CHUNK_BYTES + 1], Purpose::InOrder), CHUNK_BYTES + 1);
        assert_eq!(other.write(5000, &[2; 10], Purpose::InOrder), 0);
        assert_eq!(other.chunks.len(), 0);
        drop(one);
        assert_eq!(other.write(5000, &[2; 10], Purpose::InOrder), 10);
        assert_eq!(other.peek(5003, 4), [2; 4]);
    }
}
