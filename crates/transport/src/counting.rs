//! An allocator that counts what our side of a test holds, and apart from that what all else in the same process does.

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
    static OURS: Cell<isize> = const { Cell::new(0) };
    static THEIRS: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

/// What the C library's heap spends on an allocation: its length beside it, in steps of 16 bytes.
fn count(layout: Layout, sign: isize) {
    let bytes = sign * (layout.size() + 8).next_multiple_of(16) as isize;
    let add = |sum: &Cell<isize>| sum.set(sum.get() + bytes);
    if IS_OURS.get() { OURS.with(add) } else { THEIRS.with(add) }
}

// SAFETY: all is the system's allocator's doing; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, 1);
        // SAFETY: the caller keeps the rules of this same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Does what our side does: what it allocates and frees counts.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> T {
    let was_ours = IS_OURS.replace(true);
    let result = work();
    IS_OURS.set(was_ours);
    result
}

/// What our side has allocated on this thread and not freed.
pub(crate) fn counted_bytes() -> usize {
    usize::try_from(OURS.get()).unwrap_or(0)
}

/// What everything else has allocated on this thread and not freed.
pub(crate) fn other_bytes() -> usize {
    usize::try_from(THEIRS.get()).unwrap_or(0)
}
