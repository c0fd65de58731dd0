//! Which numbers a peer has given to flows, each of which it may give once.

use std::collections::VecDeque;

/// How far beyond the highest number that was used another may be: some that open flows may be lost or late. Four times
/// as many as there may be flows, within these.
const AHEAD_MIN: u64 = 1 << 10;
const AHEAD_MAX: u64 = 1 << 16;
/// Numbers in a word.
const WORD: u64 = u64::BITS as u64;

/// A number is looked up in no time, and noted in that of the words that it is ahead, in whatever order a peer chooses.
/// Twice as many numbers are kept as one may be ahead, on the heap in 16 KiB at most. What is further behind the
/// highest counts as used, whether it was or not: whoever opens a flow repeats it until it is heard, and does not open
/// so many others meanwhile.
#[derive(Clone, Debug)]
pub struct UsedNumbers {
    ahead_max: u64,
    /// A bit for each number from `first_word` words on.
    words: VecDeque<u64>,
    /// All numbers of the words before count as used.
    first_word: u64,
    /// The number after the highest one that was used.
    end: u64,
}

impl UsedNumbers {
    /// None yet, of a peer that may have so many flows.
    pub fn new(flows_max: usize) -> Self {
        let ahead_max = (flows_max as u64).saturating_mul(4).clamp(AHEAD_MIN, AHEAD_MAX);
        UsedNumbers { ahead_max, words: VecDeque::new(), first_word: 0, end: 0 }
    }

    /// Whether a number was used, or counts as used because it is too old.
    pub fn holds(&self, number: u64) -> bool {
        let Some(place) = (number / WORD).checked_sub(self.first_word) else { return true };
        self.words.get(place as usize).is_some_and(|word| word & bit(number) != 0)
    }

    /// Notes a number. False when it is too far ahead; then nothing is noted.
    #[must_use]
    pub fn insert(&mut self, number: u64) -> bool {
        if number >= self.end.saturating_add(self.ahead_max) {
            return false;
        }
        let Some(place) = (number / WORD).checked_sub(self.first_word) else { return true };
        self.end = self.end.max(number + 1);
        for _ in self.words.len() as u64..=place {
            if self.words.len() as u64 == 2 * self.ahead_max / WORD {
                self.forget_first();
            }
            self.words.push_back(0);
        }
        let place = number / WORD - self.first_word;
        self.words[place as usize] |= bit(number);
        while self.words.front() == Some(&u64::MAX) {
            self.forget_first();
        }
        true
    }

    fn forget_first(&mut self) {
        self.words.pop_front();
        self.first_word += 1;
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Counted up, with gaps and in disorder: as a set says, and what is too old counts as used.
        #[test]
        fn it_agrees_with_a_set(steps in prop::collection::vec((0..3 * AHEAD_MAX, 0u64..200, any::<bool>()), 1..300)) {
            let (mut used, mut model) = (UsedNumbers::new(1 << 16), BTreeSet::new());
            let end_of = |model: &BTreeSet<u64>| model.last().map_or(0, |last| last + 1);
            for (far, near, is_near) in steps {
                let end = end_of(&model);
                let (back, forth) = if is_near { (100, near) } else { (2 * AHEAD_MAX, far) };
                let number = end.saturating_sub(back) + forth;
                let is_taken = number < end + AHEAD_MAX;
                prop_assert_eq!(used.insert(number), is_taken);
                if is_taken {
                    model.insert(number);
                }
                let end = end_of(&model);
                for asked in [number, number + 1, end, end.saturating_sub(near), end + far] {
                    let is_kept = asked + 2 * AHEAD_MAX - WORD >= end;
                    if model.contains(&asked) || is_kept {
                        prop_assert_eq!(used.holds(asked), model.contains(&asked), "{} of {}", asked, end);
                    }
                }
            }
        }
    }

    /// Each number fills a gap that is in the middle of sixteen thousand: nothing grows, and nothing is moved.
    #[test]
    fn gaps_cost_no_memory() {
        let mut used = UsedNumbers::new(1 << 16);
        let top = AHEAD_MAX - 2;
        assert!(
            (AHEAD_MAX / 2..=top).rev().filter(|number| number % 2 == 0).all(|number| used.insert(number))
        );
        for step in 0..1 << 20 {
            assert!(used.insert(top + 2 * step) && used.insert(AHEAD_MAX / 2 + 1 + 2 * step));
            assert!(used.heap_bytes() <= 16 << 10);
        }
    }

    #[test]
    fn numbers_that_are_counted_up_take_one_word() {
        let mut used = UsedNumbers::new(1);
        assert!((0..100_000).all(|number| used.insert(number) && used.words.len() <= 1));
        assert!(used.holds(99_999) && !used.holds(100_000));
        // Of one flow not so many can be late.
        assert!(!used.insert(100_000 + AHEAD_MIN) && used.insert(99_999 + AHEAD_MIN));
        assert!(used.heap_bytes() <= 256);
    }
}
