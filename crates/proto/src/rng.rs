//! Randomness as the core sees it: one root seed, and generators that are named children of it.
//!
//! A child depends on the root and its label alone, so a new draw in one place shifts no other
//! place's numbers, and a failing seed still replays after the code around it has changed.

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// A root of randomness. In production it is 32 bytes from the system, in a simulation a number.
#[derive(Clone, zeroize::ZeroizeOnDrop)]
pub struct Seed([u8; 32]);

impl Seed {
    /// A seed from 32 bytes of the system's randomness.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Seed(bytes)
    }

    /// A repeatable seed, for tests and simulations.
    pub fn from_number(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Seed(bytes)
    }

    /// The seed named `label` and `index` below this one.
    pub fn child(&self, label: &str, index: u64) -> Seed {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &self.0);
        let mut context = aws_lc_rs::hmac::Context::with_key(&key);
        context.update(&index.to_le_bytes());
        context.update(label.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.sign().as_ref());
        Seed(bytes)
    }

    /// The generator of this seed.
    pub fn rng(&self) -> Rng {
        Rng(ChaCha20Rng::from_seed(self.0))
    }
}

/// A generator fit for keys: ChaCha20 over a [`Seed`].
#[derive(Clone)]
pub struct Rng(ChaCha20Rng);

impl Rng {
    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// An array of random bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// A random 32-bit number.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A random 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; zero when `bound` is zero. The bias is below 2⁻³² for 32-bit bounds.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

impl core::fmt::Debug for Rng {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Rng(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_differ_by_label_and_index_and_repeat() {
        let root = Seed::from_number(7);
        let draw = |seed: &Seed| seed.rng().next_u64();
        assert_eq!(draw(&root.child("a", 0)), draw(&root.child("a", 0)));
        assert_ne!(draw(&root.child("a", 0)), draw(&root.child("a", 1)));
        assert_ne!(draw(&root.child("a", 0)), draw(&root.child("b", 0)));
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Seed::from_number(1).rng();
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.below(0), 0);
    }
}
