//! Which sequence numbers have come (RFC 4303, section 3.4.3; the bitmap as RFC 6479 has it, in blocks that are reused
//! in turn, so that nothing is shifted), and the high half of a number that is not sent (RFC 4303, appendix A2.2).

/// Bits of a block.
const BLOCK_BITS: u64 = u64::BITS as u64;
/// One block more than the window reaches, because the newest is not yet full.
const BLOCKS: usize = 128;
/// How far behind the newest number one may be: 8,128. At 10 Gbit/s with packets of 1,400 bytes that is 9 ms; in Linux
/// the usual window has 32, and the most that it takes is 4,096.
pub(crate) const WINDOW: u64 = (BLOCKS as u64 - 1) * BLOCK_BITS;

/// Why a number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// It came before.
    Replayed,
    /// No sender gets so far, and none begins so low.
    Impossible,
}

/// Which numbers have come, as far back as it reaches.
pub struct Window {
    /// The newest number that came.
    top: u64,
    bits: [u64; BLOCKS],
}

impl Default for Window {
    fn default() -> Self {
        Window::new()
    }
}

impl Window {
    /// One into which nothing came. The first number that is ever sent is 1.
    pub fn new() -> Self {
        Window { top: 0, bits: [0; BLOCKS] }
    }

    /// The number whose low half was sent: the one that lies in the window, or else the next one above it. Whether it
    /// was that is known only when it was authenticated; one that is older than the window is taken for one that is
    /// newer by 2^32, and is forged as that.
    ///
    /// # Errors
    /// If it can be no new number.
    pub(crate) fn infer(&self, low: u32) -> Result<u64, Stale> {
        let bottom = self.top.saturating_sub(WINDOW - 1);
        let near = bottom & !u64::from(u32::MAX) | u64::from(low);
        let sequence = if near >= bottom { Some(near) } else { near.checked_add(1 << 32) };
        let sequence = sequence.filter(|sequence| *sequence != 0).ok_or(Stale::Impossible)?;
        if self.has_come(sequence) { Err(Stale::Replayed) } else { Ok(sequence) }
    }

    /// Of a number that lies in the window or above.
    fn has_come(&self, sequence: u64) -> bool {
        sequence <= self.top && self.bits[block(sequence)] & bit(sequence) != 0
    }

    /// Whether a packet of this number, all of which was sent, may be new: it did not come before, as far as is known,
    /// and numbers that are older than the window are taken for such as did.
    pub fn is_new(&self, sequence: u64) -> bool {
        let bottom = self.top.saturating_sub(WINDOW - 1).max(1);
        sequence >= bottom && !self.has_come(sequence)
    }

    /// A packet of this number came, and it is authentic.
    pub fn mark(&mut self, sequence: u64) {
        if sequence > self.top {
            let (old, new) = (self.top / BLOCK_BITS, sequence / BLOCK_BITS);
            let passed = (new - old).min(BLOCKS as u64);
            for at in 1..=passed {
                self.bits[((old + at) % BLOCKS as u64) as usize] = 0;
            }
            self.top = sequence;
        }
        self.bits[block(sequence)] |= bit(sequence);
    }

    #[cfg(test)]
    pub(crate) fn at(top: u64) -> Self {
        Window { top, ..Self::new() }
    }
}

fn block(sequence: u64) -> usize {
    (sequence / BLOCK_BITS % BLOCKS as u64) as usize
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % BLOCK_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The high half as appendix A2.2 of RFC 4303 writes it down, line by line.
    fn high_half(top: u64, low: u32) -> i64 {
        let (window, top_low, top_high) = (WINDOW as u32, top as u32, (top >> 32) as i64);
        let bottom_low = top_low.wrapping_sub(window - 1);
        if top_low >= window - 1 {
            if low >= bottom_low { top_high } else { top_high + 1 }
        } else if low >= bottom_low {
            top_high - 1
        } else {
            top_high
        }
    }

    /// Numbers near where something changes.
    fn near_an_edge() -> impl Strategy<Value = u64> {
        let edges = [0, WINDOW, 1 << 32, (1 << 32) + WINDOW, 7 << 32, u64::MAX - (1 << 32), u64::MAX];
        (proptest::sample::select(edges.to_vec()), -20_000_i64..20_000)
            .prop_map(|(edge, offset)| edge.saturating_add_signed(offset))
    }

    proptest! {
        #[test]
        fn the_high_half_is_that_of_the_appendix(top in near_an_edge(), offset in -20_000_i64..20_000) {
            let low = top.wrapping_add_signed(offset) as u32;
            let window = Window::at(top);
            let expected = high_half(top, low);
            match window.infer(low) {
                Ok(sequence) if expected >= 0 => {
                    prop_assert_eq!((sequence >> 32) as i64, expected);
                    prop_assert_eq!(sequence as u32, low);
                }
                // The appendix would go below zero, where no number is; a jump of 2^32 is as good a guess.
                Ok(sequence) => prop_assert_eq!(sequence, u64::from(low)),
                Err(why) => {
                    prop_assert_eq!(why, Stale::Impossible);
                    prop_assert!(expected > i64::from(u32::MAX) || (expected, low) == (0, 0));
                }
            }
        }

        /// Against a set of all that came.
        #[test]
        fn numbers_come_once(start in near_an_edge(), steps in prop::collection::vec(-9_000_i64..9_000, 1..400)) {
            let mut window = Window::new();
            let mut came = BTreeSet::new();
            let mut at = start.max(1);
            for step in steps {
                at = at.saturating_add_signed(step).max(1);
                let top = came.last().copied().unwrap_or(0);
                let expected = match at {
                    _ if at <= top && top - at >= WINDOW => at.checked_add(1 << 32).ok_or(Stale::Impossible),
                    _ if came.contains(&at) => Err(Stale::Replayed),
                    _ => Ok(at),
                };
                // One that is too far ahead is not inferred, so it must have come with others between.
                if at.saturating_sub(top) < 1 << 32 {
                    prop_assert_eq!(window.infer(at as u32), expected, "{} of {}", at, top);
                }
                if expected != Err(Stale::Replayed) && !(at <= top && top - at >= WINDOW) {
                    window.mark(at);
                    came.insert(at);
                }
            }
        }
    }

    #[test]
    fn the_edge_is_where_it_should_be() {
        const TOP: u32 = 100_000;
        let mut window = Window::new();
        window.mark(TOP.into());
        let edge = TOP - WINDOW as u32 + 1;
        assert_eq!(window.infer(edge), Ok(edge.into()));
        assert_eq!(window.infer(edge - 1), Ok((1 << 32) + u64::from(edge - 1)));
        window.mark(edge.into());
        assert_eq!(window.infer(edge), Err(Stale::Replayed));
        window.mark(u64::from(TOP) + 1);
        assert_eq!(window.infer(edge), Ok((1 << 32) + u64::from(edge)));
        assert_eq!((Window::new().infer(0), Window::new().infer(1)), (Err(Stale::Impossible), Ok(1)));
        const { assert!(WINDOW >= 4_096) };
    }
}
