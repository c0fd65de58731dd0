//! Which element of a topology acts next.

use heddle_seam::time::Instant;

/// The next time of each element, as a binary heap that knows where each element is. It never holds more entries than
/// there are elements, and its order is total: by time, and at one time by the element's number.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: Vec<(Instant, u32)>,
    /// Where each element is in the heap; `ABSENT` when it has nothing to do.
    places: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Agenda {
    /// The element that acts first, and when.
    pub(crate) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Sets or clears when `element` acts next.
    pub(crate) fn set(&mut self, element: u32, time: Option<Instant>) {
        let index = element as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
        }
        match (self.places[index], time) {
            (ABSENT, None) => {}
            (ABSENT, Some(time)) => {
                self.heap.push((time, element));
                self.rise(self.heap.len() - 1);
            }
            (place, Some(time)) => {
                if self.heap[place as usize].0 != time {
                    self.heap[place as usize].0 = time;
                    self.settle(place as usize);
                }
            }
            (place, None) => {
                self.heap.swap_remove(place as usize);
                self.places[index] = ABSENT;
                if (place as usize) < self.heap.len() {
                    self.settle(place as usize);
                }
            }
        }
    }

    /// Moves the entry at `place` to where it belongs.
    fn settle(&mut self, place: usize) {
        let risen = self.rise(place);
        self.sink(risen);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / 2] {
            self.put(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        self.put(place, entry);
        place
    }

    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let left = 2 * place + 1;
            let smaller = match (self.heap.get(left), self.heap.get(left + 1)) {
                (Some(a), Some(b)) if b < a => left + 1,
                (Some(_), _) => left,
                (None, _) => break,
            };
            if entry <= self.heap[smaller] {
                break;
            }
            self.put(place, self.heap[smaller]);
            place = smaller;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Instant, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use std::collections::BTreeMap;

    #[test]
    fn it_agrees_with_a_sorted_map() {
        let mut rng = Seed::from_number(1).rng();
        let (mut agenda, mut map) = (Agenda::default(), BTreeMap::new());
        for _ in 0..20_000 {
            let element = rng.below(40) as u32;
            let time = rng.chance(0.7).then(|| Instant::from_nanos(rng.below(50)));
            agenda.set(element, time);
            match time {
                Some(time) => map.insert(element, time),
                None => map.remove(&element),
            };
            assert_eq!(agenda.first(), map.iter().map(|(element, time)| (*time, *element)).min());
            assert_eq!(agenda.heap.len(), map.len());
        }
    }
}
