//! A set of sequence numbers, kept as ranges that neither touch nor overlap.

use crate::segment::Range;

/// Rising ranges. How many there may be is the caller's bound: ask [`len`](Self::len) before adding.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    ranges: Vec<Range>,
    /// How many numbers they hold together.
    total: u64,
}

impl RangeSet {
    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many numbers there are in all ranges together.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The ranges, rising.
    pub fn iter(&self) -> impl Iterator<Item = Range> {
        self.ranges.iter().copied()
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<Range> {
        self.ranges.first().copied()
    }

    /// The number after the highest one.
    pub fn end(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.end)
    }

    /// The range that holds `at`.
    pub fn holding(&self, at: u64) -> Option<Range> {
        let place = self.ranges.partition_point(|range| range.end <= at);
        self.ranges.get(place).copied().filter(|range| range.start <= at)
    }

    /// The part of `range` from its first missing number to the end of that gap; `None` when nothing is missing.
    pub fn first_gap(&self, range: Range) -> Option<Range> {
        let mut start = range.start;
        if let Some(held) = self.holding(start) {
            start = held.end;
        }
        if start >= range.end {
            return None;
        }
        let next = self.ranges.partition_point(|held| held.end <= start);
        let end = self.ranges.get(next).map_or(range.end, |held| held.start.min(range.end));
        Some(Range::new(start, end))
    }

    /// Adds all of `range`.
    pub fn insert(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        // Ranges that touch join, so those from the first that ends at or after the start are looked at.
        let from = self.ranges.partition_point(|held| held.end < range.start);
        let to = self.ranges.partition_point(|held| held.start <= range.end);
        if from == to {
            self.total += range.len();
            self.ranges.insert(from, range);
            return;
        }
        let start = self.ranges[from].start.min(range.start);
        let end = self.ranges[to - 1].end.max(range.end);
        let held: u64 = self.ranges[from..to].iter().map(|range| range.len()).sum();
        self.ranges[from] = Range::new(start, end);
        self.total += end - start - held;
        self.ranges.drain(from + 1..to);
    }

    /// Forgets everything below `bound`.
    pub fn remove_below(&mut self, bound: u64) {
        let whole = self.ranges.partition_point(|range| range.end <= bound);
        self.total -= self.ranges.drain(..whole).map(|range| range.len()).sum::<u64>();
        if let Some(first) = self.ranges.first_mut() {
            self.total -= bound.saturating_sub(first.start);
            first.start = first.start.max(bound);
        }
        if self.ranges.is_empty() {
            self.ranges = Vec::new();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = RangeSet::default();
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_agrees_with_a_set(steps in prop::collection::vec((0u64..60, 0u64..12, any::<bool>()), 0..60)) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (start, len, remove) in steps {
                if remove && len < 2 {
                    set.remove_below(start);
                    model.retain(|number| *number >= start);
                } else {
                    set.insert(Range::new(start, start + len));
                    model.extend(start..start + len);
                }
                let flat: Vec<u64> = set.ranges.iter().flat_map(|range| range.start..range.end).collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.total(), model.len() as u64);
                prop_assert!(set.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(set.holding(start).is_some(), model.contains(&start));
                let wanted = Range::new(start, start + 10);
                let missing = (start..start + 10).find(|number| !model.contains(number));
                prop_assert_eq!(set.first_gap(wanted).map(|gap| gap.start), missing);
                if let Some(gap) = set.first_gap(wanted) {
                    prop_assert!((gap.start..gap.end).all(|number| !model.contains(&number)));
                    prop_assert!(gap.end == wanted.end || model.contains(&gap.end));
                }
            }
        }
    }
}
