//! Randomness as the core sees it: whoever drives a node hands it in, as an [`Entropy`].
//!
//! - In production each draw is new from the system. What comes of it is wiped when it was used, so nothing that is in
//!   memory gives it again, and neither does a machine that is restored from a snapshot twice.
//! - In a simulation all draws come of one root seed, by named children. A child depends on the root and its label
//!   alone, so a new draw in one place shifts no other place's numbers, and a failing seed still replays after the code
//!   around it has changed.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};
use zeroize::Zeroizing;

/// Where the randomness of secrets comes from.
pub trait Entropy: Send {
    /// A seed that is for one use alone.
    fn seed(&mut self) -> Seed;

    /// Another source, whose draws say nothing about those of this one, for whoever draws by itself.
    fn branch(&mut self) -> Box<dyn Entropy>;

    /// A generator of such a seed. One that lives long must not make secrets: whoever reads its state can compute all
    /// that it gave.
    fn rng(&mut self) -> Rng {
        self.seed().rng()
    }
}

/// Draws that one seed gives again and again, for simulations and tests.
pub struct Repeatable {
    root: Seed,
    draws: u64,
}

impl Repeatable {
    pub fn new(root: &Seed) -> Self {
        Repeatable { root: root.clone(), draws: 0 }
    }
}

impl Entropy for Repeatable {
    fn seed(&mut self) -> Seed {
        self.draws += 1;
        self.root.child("draw", self.draws)
    }

    fn branch(&mut self) -> Box<dyn Entropy> {
        Box::new(Repeatable { root: self.seed(), draws: 0 })
    }
}

/// A root of randomness: 32 bytes from the system, or a number. It is wiped when it is dropped, and lies on the heap,
/// since whatever moves a value leaves a copy behind: a queue, for one.
#[derive(Clone)]
pub struct Seed(Box<Zeroizing<[u8; 32]>>);

impl Seed {
    /// A seed from 32 bytes of the system's randomness.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut seed = Seed(Box::default());
        seed.0.copy_from_slice(bytes);
        seed
    }

    /// A repeatable seed, for tests and simulations.
    pub fn from_number(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Self::from_bytes(&bytes)
    }

    /// The seed named `label` and `index` below this one.
    pub fn child(&self, label: &str, index: u64) -> Seed {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &self.0[..]);
        let mut context = aws_lc_rs::hmac::Context::with_key(&key);
        context.update(&index.to_le_bytes());
        context.update(label.as_bytes());
        let mut child = Seed(Box::default());
        child.0.copy_from_slice(context.sign().as_ref());
        child
    }

    /// The generator of this seed.
    pub fn rng(&self) -> Rng {
        Rng(ChaCha20Rng::from_seed(**self.0))
    }
}

/// A generator fit for keys: ChaCha20 over a [`Seed`]. It is wiped when it is dropped, and cannot be copied.
pub struct Rng(ChaCha20Rng);

impl Rng {
    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Another generator, whose numbers say nothing about those of this one.
    pub fn split(&mut self) -> Rng {
        let mut seed = Seed(Box::default());
        self.fill(&mut seed.0[..]);
        seed.rng()
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
    fn repeatable_draws_differ_and_repeat() {
        let draws = |number| {
            let mut entropy = Repeatable::new(&Seed::from_number(number));
            [(); 3].map(|()| entropy.rng().next_u64())
        };
        let [first, second, third] = draws(7);
        assert!(first != second && second != third && first != third);
        assert_eq!(draws(7), [first, second, third]);
        assert_ne!(draws(8)[0], first);
    }

    #[test]
    fn a_branch_repeats_and_is_like_no_other() {
        let draws = || {
            let mut entropy = Repeatable::new(&Seed::from_number(7));
            let (mut one, mut other) = (entropy.branch(), entropy.branch());
            [&mut *one, &mut *other, &mut entropy].map(|source| source.rng().next_u64())
        };
        let [one, other, trunk] = draws();
        assert!(one != other && other != trunk && one != trunk);
        assert_eq!(draws(), [one, other, trunk]);
    }

    #[test]
    fn the_generator_is_chacha20() {
        // The keystream of the key and nonce of zeros (draft-nir-cfrg-chacha20-poly1305-06, appendix A.1, test vector
        // 1).
        let mut bytes = [0; 16];
        Seed::from_number(0).rng().fill(&mut bytes);
        assert_eq!(hex::encode(bytes), "76b8e0ada0f13d90405d6ae55386bd28");
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Seed::from_number(1).rng();
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.below(0), 0);
    }
}
