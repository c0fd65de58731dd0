//! What quinn-proto keeps the pieces of streams in: a heap for each stream's receiving half, which grows with the
//! pieces that wait and does not shrink. When the stream is over, quinn-proto keeps its half, with the heap, for
//! another (`free_recv` of its `StreamsState`, version 0.11), and does not say for which.
//!
//! There are no more halves than streams at a time, and each heap is as large as the most demanding of its streams made
//! it. So they are no larger together than the heaps of the most demanding streams that there have been, one for each
//! half.

use crate::connections::state;

/// An entry of such a heap: an offset, bytes, and what they are part of.
const PIECE_BYTES: usize = 56;
/// The room of the smallest heap. Each class has twice as much as the one before; quinn-proto copies pieces together
/// beyond 2,048.
const PIECES_MIN: u64 = 4;
const CLASSES: usize = 11;

/// How large a heap is: zero, or one more than how often it doubled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u8);

impl Class {
    /// That of a heap in which so many pieces have waited at once.
    pub(super) fn of(pieces: u64) -> Class {
        if pieces == 0 {
            return Class(0);
        }
        let doubled = pieces.div_ceil(PIECES_MIN).next_power_of_two().trailing_zeros();
        Class(u8::try_from(doubled).unwrap_or(u8::MAX).min(CLASSES as u8 - 1) + 1)
    }
}

impl Class {
    /// What such a heap takes.
    pub(super) fn bytes(self) -> usize {
        let heap = |doubled| state::ALLOCATION + ((PIECE_BYTES * PIECES_MIN as usize) << doubled);
        self.0.checked_sub(1).map_or(0, heap)
    }
}

/// The heaps of the most demanding streams of a connection, by their class.
#[derive(Clone, Debug, Default)]
pub(super) struct Heaps {
    counts: [u32; CLASSES],
}

impl Heaps {
    /// The heap of a stream grew. There are so many halves at most.
    pub(super) fn grow(&mut self, from: Class, to: Class, halves: usize) {
        if let Some(before) = from.0.checked_sub(1) {
            // It may have been given up.
            self.counts[usize::from(before)] = self.counts[usize::from(before)].saturating_sub(1);
        }
        if let Some(class) = to.0.checked_sub(1) {
            self.counts[usize::from(class)] += 1;
        }
        let all: usize = self.counts.iter().map(|count| *count as usize).sum();
        if all > halves
            && let Some(least) = self.counts.iter_mut().find(|count| **count > 0)
        {
            *least -= 1;
        }
    }

    /// What they take at most.
    pub(super) fn bytes(&self) -> usize {
        let classes = (1..).map(Class).zip(&self.counts);
        classes.map(|(class, count)| *count as usize * class.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    /// Streams come and go over halves that are used again in any order: what is said is never less than what their
    /// heaps take.
    #[test]
    fn heaps_of_halves_that_are_used_again_count() {
        const HALVES: usize = 20;
        let mut rng = Seed::from_number(1).rng();
        let (mut heaps, mut real) = (Heaps::default(), [0_u64; HALVES]);
        let mut live = [Class::default(); HALVES];
        for _ in 0..20_000 {
            let half = rng.below(HALVES as u64) as usize;
            if rng.below(3) == 0 {
                // Another stream has it.
                live[half] = Class::default();
            }
            let doubled = rng.below(11);
            let pieces = 1 + rng.below(1 << doubled);
            real[half] = real[half].max(pieces.next_power_of_two().max(PIECES_MIN));
            let class = Class::of(pieces);
            if class > live[half] {
                heaps.grow(live[half], class, HALVES);
                live[half] = class;
            }
            let taken = real.iter().map(|pieces| *pieces as usize * PIECE_BYTES).sum::<usize>();
            assert!(heaps.bytes() >= taken, "{heaps:?}: {taken} bytes of {real:?}");
        }
    }
}
