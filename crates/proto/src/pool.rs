//! The cell pool: the one place of a shard where cells wait.
//!
//! Every cell that waits anywhere in a shard sits in a slot of its pool: in a circuit's queue
//! towards a channel, or in a stream's queue towards its TCP connection. So the pool's size is the
//! bound of all that the shard buffers for its circuits, and `MaxMemInQueues` sets it:
//!
//! ```text
//! slots = MaxMemInQueues / shards / SLOT_LEN
//!       = sum over circuits of (queue forward + queue backward)
//!       + sum over streams of the queue to the TCP connection
//!       + free slots
//! ```
//!
//! What else a shard holds per peer is not cells and is bounded where it lies: the TLS buffers of a
//! channel, the send buffers of the driver.
//!
//! Slots lie in blocks. A block without cells is given back, but for a few; one with a single cell stays whole, so what
//! the pool takes of the memory is [`CellPool::used_bytes`] and [`CellPool::spare_bytes`].

use crate::cell::{BODY_LEN, Body, Command};
use heddle_seam::time::Instant;

/// One waiting cell.
struct Slot {
    body: Body,
    command: Command,
    /// Where the data that is still to be sent begins; only a stream's queue uses it.
    offset: u16,
    next: u32,
    /// When the cell was queued.
    queued_at: Instant,
}

/// Bytes that one cell takes while it waits.
pub const SLOT_LEN: usize = size_of::<Slot>();

/// Slots are made in blocks, so that growing never copies cells: 128 slots, about 66 KB.
const BLOCK_SLOTS: usize = 128;

/// Blocks without cells that are kept for the next, so that queues which come and go allocate nothing: 2.2 MB.
const EMPTY_MAX: u32 = 32;

/// As much as this of blocks that have cells may be free and does not count, because cells do not fill blocks one after
/// the other.
const SPARE_UNCOUNTED: usize = 32 * BLOCK_SLOTS * SLOT_LEN;

const NONE: u32 = u32::MAX;

/// A cell in the pool, owned by whoever holds this.
#[derive(Debug)]
#[must_use = "a slot that is dropped without being freed is lost"]
pub struct SlotId(u32);

/// Cells in their order. Empty queues take no slot.
#[derive(Debug)]
pub struct CellQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for CellQueue {
    fn default() -> Self {
        CellQueue { head: NONE, tail: NONE, len: 0 }
    }
}

impl CellQueue {
    /// Cells that wait.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Slots that are made and given back together.
struct Block {
    /// None where it was given back.
    slots: Box<[Slot]>,
    /// The first of its free slots, each of which names the next.
    free: u32,
    used: u32,
    /// Its neighbours among blocks with room.
    before: u32,
    behind: u32,
}

/// Slots for cells, made when first needed and never more than the maximum.
pub struct CellPool {
    blocks: Vec<Block>,
    /// The first of the blocks that have free slots.
    roomy: u32,
    /// Blocks that were given back.
    gone: Vec<u32>,
    /// Blocks without cells that were not.
    empty: u32,
    used: u32,
    used_max: u32,
    max: u32,
}

impl CellPool {
    /// A pool of at most `max_bytes`, rounded up to a whole block.
    pub fn new(max_bytes: usize) -> Self {
        let blocks = max_bytes.div_ceil(SLOT_LEN * BLOCK_SLOTS).clamp(1, (NONE as usize) / BLOCK_SLOTS - 1);
        CellPool {
            blocks: Vec::new(),
            roomy: NONE,
            gone: Vec::new(),
            empty: 0,
            used: 0,
            used_max: 0,
            max: (blocks * BLOCK_SLOTS) as u32,
        }
    }

    /// Bytes that cells take.
    pub fn used_bytes(&self) -> usize {
        self.used as usize * SLOT_LEN
    }

    /// Bytes that cells keep beside them, because a cell keeps its whole block, but for what is free where they are
    /// few. Of the process' memory the pool has 64 blocks more than both at most, 4.3 MB: half of them without a cell.
    pub fn spare_bytes(&self) -> usize {
        let kept = self.blocks.len() - self.gone.len() - self.empty as usize;
        (kept * BLOCK_SLOTS * SLOT_LEN).saturating_sub(self.used_bytes() + SPARE_UNCOUNTED)
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The most slots that were ever in use.
    pub fn used_max(&self) -> u32 {
        self.used_max
    }

    /// Slots that there can be.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// A slot for a cell of this command, its body still to be written; `None` when the pool is full.
    pub fn take(&mut self, command: Command) -> Option<SlotId> {
        if self.roomy == NONE && !self.grow() {
            return None;
        }
        let number = self.roomy;
        let block = &mut self.blocks[number as usize];
        let id = block.free;
        let slot = &mut block.slots[id as usize % BLOCK_SLOTS];
        slot.command = command;
        slot.offset = 0;
        block.free = core::mem::replace(&mut slot.next, NONE);
        self.empty -= u32::from(block.used == 0);
        block.used += 1;
        if block.free == NONE {
            self.unlink(number);
        }
        self.used += 1;
        self.used_max = self.used_max.max(self.used);
        Some(SlotId(id))
    }

    /// Gives a slot back.
    pub fn free(&mut self, id: SlotId) {
        let number = id.0 / BLOCK_SLOTS as u32;
        let block = &mut self.blocks[number as usize];
        let was_full = block.free == NONE;
        block.slots[id.0 as usize % BLOCK_SLOTS].next = core::mem::replace(&mut block.free, id.0);
        block.used -= 1;
        let is_empty = block.used == 0;
        self.used -= 1;
        if was_full {
            self.link(number);
        }
        if is_empty {
            self.empty += 1;
            if self.empty > EMPTY_MAX {
                self.give_back(number);
            }
        }
    }

    /// Puts a block first among those with room.
    fn link(&mut self, number: u32) {
        let behind = core::mem::replace(&mut self.roomy, number);
        let block = &mut self.blocks[number as usize];
        (block.before, block.behind) = (NONE, behind);
        if behind != NONE {
            self.blocks[behind as usize].before = number;
        }
    }

    /// Takes a block from among those with room.
    fn unlink(&mut self, number: u32) {
        let Block { before, behind, .. } = self.blocks[number as usize];
        match before {
            NONE => self.roomy = behind,
            before => self.blocks[before as usize].behind = behind,
        }
        if behind != NONE {
            self.blocks[behind as usize].before = before;
        }
    }

    /// Gives a block's memory back, which has no cell.
    fn give_back(&mut self, number: u32) {
        self.unlink(number);
        let block = &mut self.blocks[number as usize];
        (block.slots, block.free) = (Box::default(), NONE);
        self.empty -= 1;
        self.gone.push(number);
    }

    /// The body in a slot.
    pub fn body(&self, id: &SlotId) -> &Body {
        &self.slot(id.0).body
    }

    /// The body in a slot, to be written.
    pub fn body_mut(&mut self, id: &SlotId) -> &mut Body {
        &mut self.slot_mut(id.0).body
    }

    /// The command of the cell in a slot.
    pub fn command(&self, id: &SlotId) -> Command {
        self.slot(id.0).command
    }

    /// When a cell was queued.
    pub fn queued_at(&self, id: &SlotId) -> Instant {
        self.slot(id.0).queued_at
    }

    /// Puts a cell at the end of a queue.
    pub fn push(&mut self, queue: &mut CellQueue, id: SlotId, now: Instant) {
        match queue.tail {
            NONE => queue.head = id.0,
            tail => self.slot_mut(tail).next = id.0,
        }
        let slot = self.slot_mut(id.0);
        (slot.next, slot.queued_at) = (NONE, now);
        queue.tail = id.0;
        queue.len += 1;
    }

    /// Takes the first cell of a queue.
    pub fn pop(&mut self, queue: &mut CellQueue) -> Option<SlotId> {
        if queue.head == NONE {
            return None;
        }
        let id = queue.head;
        queue.head = self.slot(id).next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        queue.len -= 1;
        Some(SlotId(id))
    }

    /// When the first cell of a queue was queued, which is the one that waits longest.
    pub fn oldest(&self, queue: &CellQueue) -> Option<Instant> {
        (queue.head != NONE).then(|| self.slot(queue.head).queued_at)
    }

    /// Frees every cell of a queue; returns how many there were.
    pub fn clear(&mut self, queue: &mut CellQueue) -> u32 {
        let cleared = queue.len;
        while let Some(id) = self.pop(queue) {
            self.free(id);
        }
        cleared
    }

    /// The first cell of a stream's queue: its body and where the unsent data begins.
    pub fn front(&self, queue: &CellQueue) -> Option<(&Body, usize)> {
        if queue.head == NONE {
            return None;
        }
        let slot = self.slot(queue.head);
        Some((&slot.body, usize::from(slot.offset)))
    }

    /// Notes that the data of a queue's first cell is sent up to `offset`.
    pub fn set_front_offset(&mut self, queue: &CellQueue, offset: usize) {
        assert!(queue.head != NONE && offset <= BODY_LEN, "an offset lies within the first cell");
        self.slot_mut(queue.head).offset = offset as u16;
    }

    fn grow(&mut self) -> bool {
        let number = self.gone.pop().unwrap_or(self.blocks.len() as u32);
        let first = number as usize * BLOCK_SLOTS;
        if first >= self.max as usize {
            return false;
        }
        let slot = |index: usize| Slot {
            body: [0; BODY_LEN],
            command: Command::PADDING,
            offset: 0,
            next: if index + 1 == BLOCK_SLOTS { NONE } else { (first + index + 1) as u32 },
            queued_at: Instant::ZERO,
        };
        let slots = (0..BLOCK_SLOTS).map(slot).collect();
        let block = Block { slots, free: first as u32, used: 0, before: NONE, behind: NONE };
        match self.blocks.get_mut(number as usize) {
            Some(gone) => *gone = block,
            None => self.blocks.push(block),
        }
        self.empty += 1;
        self.link(number);
        true
    }

    fn slot(&self, id: u32) -> &Slot {
        &self.blocks[id as usize / BLOCK_SLOTS].slots[id as usize % BLOCK_SLOTS]
    }

    fn slot_mut(&mut self, id: u32) -> &mut Slot {
        &mut self.blocks[id as usize / BLOCK_SLOTS].slots[id as usize % BLOCK_SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;
    use std::collections::VecDeque;

    #[test]
    fn never_more_than_the_maximum() {
        let mut pool = CellPool::new(1);
        let slots: Vec<_> = core::iter::from_fn(|| pool.take(Command::RELAY)).collect();
        assert_eq!(slots.len(), BLOCK_SLOTS);
        slots.into_iter().for_each(|slot| pool.free(slot));
        assert_eq!(pool.used(), 0);
        assert!(pool.take(Command::RELAY).is_some_and(|slot| {
            pool.free(slot);
            true
        }));
    }

    #[test]
    fn blocks_without_cells_are_given_back_and_one_cell_keeps_its_block() {
        const BLOCKS: usize = 6 * EMPTY_MAX as usize;
        const BLOCK: usize = BLOCK_SLOTS * SLOT_LEN;
        let mut pool = CellPool::new(BLOCKS * BLOCK);
        let made = |pool: &CellPool| pool.blocks.iter().filter(|block| !block.slots.is_empty()).count();
        for _ in 0..3 {
            let mut slots: Vec<SlotId> = core::iter::from_fn(|| pool.take(Command::RELAY)).collect();
            assert_eq!((slots.len(), pool.spare_bytes()), (BLOCKS * BLOCK_SLOTS, 0));
            // One cell stays in every second block.
            let mut kept = Vec::new();
            for block in (0..BLOCKS).rev() {
                let of_block = slots.split_off(block * BLOCK_SLOTS);
                let stays = if block % 2 == 0 { 1 } else { 0 };
                let mut of_block = of_block.into_iter();
                kept.extend(of_block.by_ref().take(stays));
                of_block.for_each(|slot| pool.free(slot));
            }
            let all = pool.used_bytes() + pool.spare_bytes() + SPARE_UNCOUNTED;
            assert_eq!((all, pool.used() as usize), (BLOCKS / 2 * BLOCK, BLOCKS / 2));
            assert_eq!(made(&pool), BLOCKS / 2 + EMPTY_MAX as usize);
            kept.into_iter().for_each(|slot| pool.free(slot));
            assert_eq!((pool.spare_bytes(), made(&pool)), (0, EMPTY_MAX as usize));
        }
    }

    /// The pool against plain queues of numbers, over random operations.
    #[test]
    fn queues_keep_order_and_lose_nothing() {
        let mut rng = Seed::from_number(3).rng();
        let mut pool = CellPool::new(1000 * SLOT_LEN);
        let mut queues: Vec<CellQueue> = (0..5).map(|_| CellQueue::default()).collect();
        let mut model: Vec<VecDeque<u64>> = vec![VecDeque::new(); 5];
        for number in 0..50_000u64 {
            let which = rng.below(5) as usize;
            match rng.below(100) {
                0 => {
                    let cleared = pool.clear(&mut queues[which]);
                    assert_eq!(cleared as usize, model[which].len());
                    model[which].clear();
                }
                1..55 => {
                    let Some(slot) = pool.take(Command::RELAY) else {
                        continue;
                    };
                    pool.body_mut(&slot)[..8].copy_from_slice(&number.to_be_bytes());
                    pool.push(&mut queues[which], slot, Instant::ZERO);
                    model[which].push_back(number);
                }
                _ => {
                    let popped = pool.pop(&mut queues[which]).map(|slot| {
                        let body = pool.body(&slot)[..8].try_into().expect("eight bytes");
                        pool.free(slot);
                        u64::from_be_bytes(body)
                    });
                    assert_eq!(popped, model[which].pop_front());
                }
            }
            assert_eq!(pool.used() as usize, model.iter().map(VecDeque::len).sum::<usize>());
            assert!(pool.used() <= pool.max());
        }
    }
}
