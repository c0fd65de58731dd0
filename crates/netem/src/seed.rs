//! One root seed, and generators that are named children of it.
//!
//! A child depends on the root and its labels alone. Each direction of a wire has a child of its own and each effect on
//! it a child of that one, so a new draw in one place shifts no other place's numbers.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

/// A root of randomness, or a labelled child of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The seed with this number.
    pub fn from_number(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Seed(bytes)
    }

    /// The seed with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Seed(bytes)
    }

    /// The child of this seed that `labels` name: SHA-256 over the seed and every label behind its length, so that
    /// `["a", "bc"]` and `["ab", "c"]` differ.
    #[must_use]
    pub fn child(&self, labels: &[&str]) -> Seed {
        let mut hash = Sha256::new();
        hash.update(self.0);
        for label in labels {
            hash.update((label.len() as u64).to_le_bytes());
            hash.update(label.as_bytes());
        }
        Seed(hash.finalize().into())
    }

    /// The generator of this seed.
    pub fn rng(&self) -> Rng {
        Rng(ChaCha8Rng::from_seed(self.0))
    }
}

/// A generator of repeatable numbers, the same on every machine. Not for keys.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// A random 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; zero when `bound` is zero. The bias is below `bound` / 2⁶⁴.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A multiple of 2⁻⁵³ in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with this probability: never at 0, always at 1. Costs one draw whatever the probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_differ_by_every_label_and_repeat() {
        let root = Seed::from_number(7);
        assert_eq!(root.child(&["a", "bc"]), root.child(&["a", "bc"]));
        assert_ne!(root.child(&["a", "bc"]), root.child(&["ab", "c"]));
        assert_ne!(root.child(&["a"]), Seed::from_number(8).child(&["a"]));
    }

    #[test]
    fn the_stream_is_fixed() {
        // From an independent SHA-256 and ChaCha8. A change would change the result of every recorded seed.
        let mut rng = Seed::from_number(1).child(&["wire"]).rng();
        assert_eq!([rng.next_u64(), rng.next_u64()], [14_609_481_612_267_027_919, 7_941_532_637_832_675_008]);
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut rng = Seed::from_number(1).rng();
        assert!((0..1000).all(|_| rng.chance(1.0) && !rng.chance(0.0) && rng.below(3) < 3));
    }
}
