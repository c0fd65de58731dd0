//! Memory for the bytes of many connections, taken and given back in chunks.
//!
//! A connection without data holds no chunk, so memory follows the bytes that wait, not the number of connections. The
//! pool has one bound for all. Where a part of it is used up, writes take less, and segments that would need room are
//! dropped as if the wire had lost them. It cannot come to a standstill, because no part of it can be used up by
//! another:
//!
//! ```text
//! pool  = written (1/2) + received (1/2)
//! half  = reserves (1/4: RESERVE_CHUNKS for each session, as many as that is enough for) + common (3/4)
//! share = RESERVE_CHUNKS + a quarter of what is free of common, for each session and half
//!         of what was received: 1/2 for what is not read, 3/4 for what is out of order, all for what is taken at once
//! ```
//!
//! - What is received cannot stop writes, nor the other way round. So whoever forwards what it reads can always do
//!   both.
//! - Sessions may hold a share of what is *free* (the dynamic thresholds of Choudhury and Hahne, IEEE/ACM Transactions
//!   on Networking 6(2), 1998): a greedy one gets a fifth of common, and however many there are, each leaves four
//!   fifths of what it found. When nothing is free, a session still has its reserve.
//! - What a session has not read cannot stop repairs, and neither can stop what it reads at once.
//!
//! A pool that is not divided into [sessions](BufferPool::session) lends each half to whoever comes, but half of what
//! is received at most out of order.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes in a chunk.
pub const CHUNK_BYTES: usize = 2048;

/// What a session has of either half whatever others hold: 16 KiB, 32 cells of Tor's.
const RESERVE_CHUNKS: usize = 8;

/// Of a half, one chunk in so many is in reserves.
const RESERVES_PART: usize = 4;

/// Of what is free, a session may have one chunk in so many.
const SHARE_PART: usize = 4;

/// Of the room of its session, a connection is offered one byte in so many.
const WINDOW_PART: usize = 4;

/// A piece of memory out of a pool.
pub(crate) type Chunk = Box<[u8; CHUNK_BYTES]>;

/// What a chunk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    /// For what nobody has read.
    InOrder,
    OutOfOrder,
    /// For what the application takes as it comes, or is about to: what begins a connection, and what fills a hole.
    AtOnce,
}

/// The halves of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Written,
    Received,
}

impl Purpose {
    pub(crate) fn half(self) -> Half {
        if self == Purpose::Write { Half::Written } else { Half::Received }
    }

    /// How many of `chunks` may be held before there are no more for this purpose.
    fn of(self, chunks: usize) -> usize {
        match self {
            Purpose::InOrder => chunks / 2,
            Purpose::OutOfOrder => chunks - chunks / 4,
            Purpose::Write | Purpose::AtOnce => chunks,
        }
    }
}

/// A handle on a pool of chunks, or on a session's share of it. Clones share both.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Mutex<Shared>>,
    session: Option<Arc<Session>>,
}

struct Shared {
    free: Vec<Chunk>,
    free_max: usize,
    halves: [Lent; 2],
    /// Reserves that no session has.
    reserves: usize,
}

/// What is lent of a half, in chunks.
#[derive(Clone, Copy, Debug)]
struct Lent {
    lent: usize,
    max: usize,
    /// Of the part that is common to all sessions.
    common_lent: usize,
}

impl Lent {
    fn common_free(&self) -> usize {
        (self.max - self.max / RESERVES_PART).saturating_sub(self.common_lent)
    }
}

/// A session's share. The counts change under the pool's lock alone.
struct Session {
    shared: Arc<Mutex<Shared>>,
    reserve: usize,
    held: [AtomicUsize; 2],
}

impl Session {
    fn held(&self, half: Half) -> usize {
        self.held[half as usize].load(Ordering::Relaxed)
    }

    /// What it may hold at present.
    fn limit(&self, lent: &Lent) -> usize {
        self.reserve + lent.common_free() / SHARE_PART
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.shared).reserves += usize::from(self.reserve > 0);
    }
}

impl BufferPool {
    /// A pool that lends at most `bytes_max`, rounded down to chunks, and keeps up to a quarter of them for reuse.
    pub fn new(bytes_max: usize) -> Self {
        let max = bytes_max / CHUNK_BYTES / 2;
        let half = Lent { lent: 0, max, common_lent: 0 };
        let reserves = max / RESERVES_PART / RESERVE_CHUNKS;
        let shared = Shared { free: Vec::new(), free_max: max / 2, halves: [half; 2], reserves };
        BufferPool { shared: Arc::new(Mutex::new(shared)), session: None }
    }

    /// A share of the same pool, for another session. More sessions than there are reserves have none.
    pub fn session(&self) -> Self {
        let mut shared = self.shared();
        let has_reserve = shared.reserves > 0;
        shared.reserves -= usize::from(has_reserve);
        drop(shared);
        let reserve = if has_reserve { RESERVE_CHUNKS } else { 0 };
        let session =
            Session { shared: Arc::clone(&self.shared), reserve, held: [const { AtomicUsize::new(0) }; 2] };
        BufferPool { shared: Arc::clone(&self.shared), session: Some(Arc::new(session)) }
    }

    /// How many bytes are held of the whole pool, in whole chunks.
    pub fn lent_bytes(&self) -> usize {
        self.shared().halves.iter().map(|half| half.lent).sum::<usize>() * CHUNK_BYTES
    }

    /// How many more bytes may be written.
    pub fn writable_bytes(&self) -> usize {
        self.room(&self.shared(), Purpose::Write) * CHUNK_BYTES
    }

    /// What one connection may be offered to send beyond what it has sent: of a session's room a part, so that those
    /// who are not read leave room for others, and what was offered finds memory.
    pub(crate) fn window_bytes(&self) -> u64 {
        if self.session.is_none() {
            return u64::MAX;
        }
        (self.room(&self.shared(), Purpose::InOrder) / WINDOW_PART * CHUNK_BYTES) as u64
    }

    /// Whether less than half of it is left.
    pub(crate) fn is_short(&self) -> bool {
        let [written, received] = self.shared().halves;
        written.lent + received.lent > written.max
    }

    /// How many more chunks there are for this purpose.
    fn room(&self, shared: &Shared, purpose: Purpose) -> usize {
        let half = &shared.halves[purpose.half() as usize];
        let all = half.max.saturating_sub(half.lent);
        let Some(session) = &self.session else {
            return if purpose == Purpose::OutOfOrder {
                (half.max / 2).saturating_sub(half.lent)
            } else {
                all
            };
        };
        purpose.of(session.limit(half)).saturating_sub(session.held(purpose.half())).min(all)
    }

    fn count(&self, shared: &mut Shared, half: Half) {
        let lent = &mut shared.halves[half as usize];
        lent.lent += 1;
        if let Some(session) = &self.session {
            let held = session.held[half as usize].fetch_add(1, Ordering::Relaxed);
            lent.common_lent += usize::from(held >= session.reserve);
        }
    }

    fn count_back(&self, shared: &mut Shared, half: Half) {
        let lent = &mut shared.halves[half as usize];
        lent.lent -= 1;
        if let Some(session) = &self.session {
            let held = session.held[half as usize].fetch_sub(1, Ordering::Relaxed);
            lent.common_lent -= usize::from(held > session.reserve);
        }
    }

    /// A chunk with arbitrary contents, or `None` where there is none for this purpose.
    pub(crate) fn take(&self, purpose: Purpose) -> Option<Chunk> {
        let mut shared = self.shared();
        if self.room(&shared, purpose) == 0 {
            return None;
        }
        self.count(&mut shared, purpose.half());
        Some(shared.free.pop().unwrap_or_else(|| Box::new([0; CHUNK_BYTES])))
    }

    /// Takes back what [`take`](Self::take) gave.
    pub(crate) fn give(&self, chunk: Chunk, half: Half) {
        let mut shared = self.shared();
        self.count_back(&mut shared, half);
        if shared.free.len() < shared.free_max {
            shared.free.push(chunk);
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Nothing panics while it is held, and counts and chunks are whole between statements.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [written, received] = self.shared().halves;
        write!(
            f,
            "BufferPool({} chunks written and {} received of {})",
            written.lent,
            received.lent,
            2 * written.max
        )
    }
}

/// Bytes that were received and that the application has taken as they came, and not worked off: they count like
/// chunks.
#[derive(Debug)]
pub struct Taken {
    pool: BufferPool,
    chunks: usize,
}

impl Taken {
    /// None so far.
    pub fn new(pool: BufferPool) -> Self {
        Taken { pool, chunks: 0 }
    }

    /// Whether there is room for so many bytes in all; then they count.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.div_ceil(CHUNK_BYTES).saturating_sub(self.chunks);
        let has_room = more == 0 || self.pool.room(&self.pool.shared(), Purpose::AtOnce) >= more;
        if has_room {
            self.set(bytes);
        }
        has_room
    }

    /// There are so many bytes, whether there was room for them or not: what chunks give and do not yet give back
    /// counts twice.
    pub fn set(&mut self, bytes: usize) {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        if chunks == self.chunks {
            return;
        }
        let shared = &mut self.pool.shared();
        (chunks..self.chunks).for_each(|_| self.pool.count_back(shared, Half::Received));
        (self.chunks..chunks).for_each(|_| self.pool.count(shared, Half::Received));
        self.chunks = chunks;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNKS: usize = 1024;
    const PURPOSES: [Purpose; 4] = [Purpose::Write, Purpose::InOrder, Purpose::OutOfOrder, Purpose::AtOnce];

    fn hog(session: &BufferPool, purpose: Purpose) -> Vec<(Chunk, Half)> {
        core::iter::from_fn(|| session.take(purpose)).map(|chunk| (chunk, purpose.half())).collect()
    }

    #[test]
    fn each_greedy_session_takes_a_fifth_of_what_it_finds() {
        let pool = BufferPool::new(CHUNKS * CHUNK_BYTES);
        let common = CHUNKS / 2 * 3 / 4;
        let mut left = common;
        let sessions: Vec<BufferPool> = (0..16).map(|_| pool.session()).collect();
        for session in &sessions {
            let held = hog(session, Purpose::AtOnce).len();
            assert!((left / 5..=left / 5 + 2).contains(&(held - RESERVE_CHUNKS)), "{held} of {left}");
            left -= held - RESERVE_CHUNKS;
        }
        // As many as there are reserves; the next one has part of what is free and nothing else.
        assert!(hog(&pool.session(), Purpose::AtOnce).len() <= left / 4 + 1);
    }

    #[test]
    fn what_is_not_read_leaves_room_for_what_is() {
        let session = BufferPool::new(CHUNKS * CHUNK_BYTES).session();
        let held = [Purpose::InOrder, Purpose::OutOfOrder, Purpose::AtOnce, Purpose::Write];
        let held = held.map(|purpose| (hog(&session, purpose)).len());
        // 8 and a quarter of 384 less what is held beyond the 8: half of it, three quarters, all; and all of the other
        // half.
        assert_eq!(held, [47, 20, 18, 85]);
    }

    #[test]
    fn what_is_taken_at_once_counts_until_it_is_worked_off() {
        let pool = BufferPool::new(CHUNKS * CHUNK_BYTES);
        let mut taken = Taken::new(pool.session());
        assert!(taken.grow(10 * CHUNK_BYTES + 1));
        assert!(!taken.grow(1 << 20));
        assert_eq!(pool.lent_bytes(), 11 * CHUNK_BYTES);
        taken.set(CHUNK_BYTES);
        assert_eq!(pool.lent_bytes(), CHUNK_BYTES);
        drop(taken);
        assert_eq!(pool.lent_bytes(), 0);
    }

    proptest! {
        /// Whatever sessions hold and for what, one that holds nothing can receive and write.
        #[test]
        fn a_pool_never_comes_to_a_standstill(
            steps in prop::collection::vec((0usize..15, 0usize..4, 0usize..200, prop::bool::ANY), 1..60)
        ) {
            let pool = BufferPool::new(CHUNKS * CHUNK_BYTES);
            let sessions: Vec<BufferPool> = (0..16).map(|_| pool.session()).collect();
            let mut held: Vec<Vec<(Chunk, Half)>> = (0..16).map(|_| Vec::new()).collect();
            for (who, purpose, chunks, gives) in steps {
                if gives {
                    let keeps = held[who].len().saturating_sub(chunks);
                    held[who].drain(keeps..).for_each(|(chunk, half)| sessions[who].give(chunk, half));
                } else {
                    let purpose = PURPOSES[purpose];
                    let taken = core::iter::from_fn(|| sessions[who].take(purpose)).take(chunks);
                    let taken: Vec<_> = taken.map(|chunk| (chunk, purpose.half())).collect();
                    held[who].extend(taken);
                }
                prop_assert_eq!(pool.lent_bytes(), held.iter().map(Vec::len).sum::<usize>() * CHUNK_BYTES);
                prop_assert!(pool.lent_bytes() <= CHUNKS * CHUNK_BYTES);
                for (purpose, least) in PURPOSES.into_iter().zip([8, 4, 6, 8]) {
                    let taken = hog(&sessions[15], purpose);
                    let count = taken.len();
                    taken.into_iter().for_each(|(chunk, half)| sessions[15].give(chunk, half));
                    prop_assert!(count >= least, "{} chunks for {:?}", count, purpose);
                }
            }
        }
    }
}
