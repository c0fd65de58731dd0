//! Which packets vanish: the process behind [`Loss`].

use crate::options::Loss;
use crate::seed::Rng;

/// A loss process in some state.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    loss: Loss,
    /// Gilbert–Elliott: whether the chain is in the bad state.
    is_bad: bool,
    /// Every n-th: packets since this process began, modulo n. Listed: how many of the list lie behind.
    position: u64,
}

impl LossProcess {
    pub(crate) fn new(loss: Loss) -> Self {
        LossProcess { loss, is_bad: false, position: 0 }
    }

    /// Whether it needs a generator.
    pub(crate) fn is_random(&self) -> bool {
        matches!(self.loss, Loss::Bernoulli { .. } | Loss::GilbertElliott { .. })
    }

    /// Whether the packet with this number, from 1, vanishes. Costs one draw for Bernoulli and two for Gilbert–Elliott,
    /// whatever comes out.
    pub(crate) fn takes(&mut self, number: u64, rng: Option<&mut Rng>) -> bool {
        match (&self.loss, rng) {
            (Loss::Bernoulli { probability }, Some(rng)) => rng.chance(*probability),
            (Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad }, Some(rng)) => {
                let (loss, change) =
                    if self.is_bad { (*loss_bad, *bad_to_good) } else { (*loss_good, *good_to_bad) };
                let lost = rng.chance(loss);
                self.is_bad ^= rng.chance(change);
                lost
            }
            (Loss::EveryNth { n }, _) => {
                self.position = (self.position + 1) % n;
                self.position == 0
            }
            (Loss::Listed { packets }, _) => {
                // A process that begins late first passes the numbers that lie behind it.
                while packets.get(self.position as usize).is_some_and(|listed| *listed < number) {
                    self.position += 1;
                }
                packets.get(self.position as usize) == Some(&number)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(loss: Loss, numbers: core::ops::RangeInclusive<u64>) -> Vec<u64> {
        let mut process = LossProcess::new(loss);
        numbers.filter(|number| process.takes(*number, None)).collect()
    }

    #[test]
    fn every_nth_counts_from_its_beginning() {
        assert_eq!(lost(Loss::EveryNth { n: 3 }, 1..=9), [3, 6, 9]);
        assert_eq!(lost(Loss::EveryNth { n: 3 }, 2..=9), [4, 7]);
        assert_eq!(lost(Loss::EveryNth { n: 1 }, 1..=3), [1, 2, 3]);
    }

    #[test]
    fn a_list_takes_exactly_its_packets() {
        let listed = || Loss::Listed { packets: [1, 4, 5, 20].into() };
        assert_eq!(lost(listed(), 1..=10), [1, 4, 5]);
        assert_eq!(lost(listed(), 5..=30), [5, 20]);
    }
}
