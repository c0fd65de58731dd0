//! The core's generator, lent to the `tor-*` crates under the trait that they know.

use core::convert::Infallible;

use heddle_seam::rng::Rng;
use rand_core_tor::{TryCryptoRng, TryRng};

/// A borrowed [`Rng`] that draws for `tor-llcrypto` and `tor-cert`.
pub struct Entropy<'a>(pub &'a mut Rng);

impl TryRng for Entropy<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Entropy<'_> {}
