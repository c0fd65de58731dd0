//! The system's randomness, for whoever makes secrets.

use heddle_seam::rng::{Entropy, Seed};
use std::io;
use zeroize::Zeroizing;

/// Draws each seed newly from the system, which keeps nothing that gives it again: not to whoever reads this process's
/// memory later, and not to a copy of a virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemEntropy(());

impl SystemEntropy {
    /// Waits until the system has randomness. An error is for good: the system has none.
    pub fn new() -> io::Result<Self> {
        fill(&mut [0]).map(|()| SystemEntropy(()))
    }
}

impl Entropy for SystemEntropy {
    fn seed(&mut self) -> Seed {
        let mut bytes = Zeroizing::new([0; 32]);
        fill(&mut *bytes).expect("getrandom(2) cannot fail once it has succeeded");
        Seed::from_bytes(&bytes)
    }

    fn branch(&mut self) -> Box<dyn Entropy> {
        Box::new(*self)
    }
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(len) => filled += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_draw_is_like_another() {
        let mut ours = SystemEntropy::new().unwrap();
        let mut copy = ours;
        let mut draws: Vec<[u8; 32]> =
            (0..100).flat_map(|_| [ours.rng().array(), copy.rng().array()]).collect();
        draws.sort_unstable();
        draws.dedup();
        assert_eq!(draws.len(), 200);
    }
}
