//! Numbers: of the streams that we open, and of the circuits that the peer does.

use std::collections::VecDeque;

/// Half of all streams are ours to open: even ones, or odd ones.
#[derive(Debug)]
pub(super) struct Numbers {
    is_even: bool,
    streams_max: u16,
    /// The next one that was never used, and those that were and are free.
    next: u32,
    free: VecDeque<u16>,
    ours: u32,
    flows: u32,
    theirs: u32,
}

/// A circuit of ours has a number with this bit, and the peer's have none.
const OURS: u32 = 1 << 31;

impl Numbers {
    pub(super) fn new(is_even: bool, streams_max: u16) -> Self {
        let next = u32::from(!is_even);
        Numbers { is_even, streams_max, next, free: VecDeque::new(), ours: 0, flows: 0, theirs: 0 }
    }

    /// Streams of ours that are in use, also those that have not begun anew yet.
    pub(super) fn ours(&self) -> u32 {
        self.ours
    }

    /// Streams that can be opened.
    pub(super) fn free(&self) -> u32 {
        let all = (u32::from(self.streams_max) + u32::from(self.is_even)) / 2;
        all.saturating_sub(self.ours)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.free.capacity() * size_of::<u16>()
    }

    /// A stream of ours that is free, and a number for its flow. The one that was free for the longest time comes
    /// first.
    pub(super) fn take_ours(&mut self) -> Option<(u16, u32)> {
        let fresh = u16::try_from(self.next).ok().filter(|next| *next < self.streams_max);
        let stream = match fresh {
            Some(stream) => {
                self.next += 2;
                stream
            }
            None => self.free.pop_front()?,
        };
        self.ours += 1;
        self.flows = (self.flows + 1) % OURS;
        Some((stream, self.flows | OURS))
    }

    pub(super) fn give_back(&mut self, stream: u16) {
        self.ours -= 1;
        self.free.push_back(stream);
    }

    /// A number for a circuit of the peer, from 1 on. After 2^31 they begin again.
    pub(super) fn next_theirs(&mut self) -> u32 {
        self.theirs = self.theirs % (OURS - 1) + 1;
        self.theirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_half_of_the_streams_and_uses_them_again() {
        for (is_even, all) in [(true, vec![0, 2, 4]), (false, vec![1, 3])] {
            let mut numbers = Numbers::new(is_even, 5);
            assert_eq!(numbers.free() as usize, all.len());
            let taken: Vec<u16> =
                core::iter::from_fn(|| numbers.take_ours()).map(|(stream, _)| stream).collect();
            assert_eq!((&taken, numbers.free()), (&all, 0));
            numbers.give_back(all[1]);
            assert_eq!(numbers.take_ours().map(|(stream, _)| stream), Some(all[1]));
        }
    }

    #[test]
    fn circuits_are_numbered_from_one_on_for_ever() {
        let mut numbers = Numbers::new(true, 5);
        assert_eq!([numbers.next_theirs(), numbers.next_theirs()], [1, 2]);
        numbers.theirs = OURS - 2;
        assert_eq!([numbers.next_theirs(), numbers.next_theirs()], [OURS - 1, 1]);
    }
}
