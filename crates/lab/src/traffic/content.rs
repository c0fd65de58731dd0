//! Files that are never stored: their bytes follow from a seed.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use super::CHUNK;

/// A file that is never stored: the first `len` bytes of ChaCha8's stream for `seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Chooses the bytes.
    pub seed: u64,
    /// How many.
    pub len: u64,
}

impl Content {
    /// The SHA-256 of the content.
    pub fn sha256(self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut stream = ContentStream::new(self);
        while !stream.is_over() {
            let piece = stream.peek();
            hash.update(piece);
            let len = piece.len();
            stream.advance(len);
        }
        hash.finalize().into()
    }
}

/// Content in order, in pieces of at most 64 KiB.
pub(super) struct ContentStream {
    rng: ChaCha8Rng,
    /// A piece, of which `at` bytes were taken. The last one may be longer than what is left.
    chunk: Vec<u8>,
    at: usize,
    left: u64,
}

impl ContentStream {
    /// From its beginning.
    pub(super) fn new(content: Content) -> ContentStream {
        let rng = ChaCha8Rng::seed_from_u64(content.seed);
        ContentStream { rng, chunk: Vec::new(), at: 0, left: content.len }
    }

    /// Nothing.
    pub(super) fn empty() -> ContentStream {
        ContentStream::new(Content { seed: 0, len: 0 })
    }

    /// Whether all was taken.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// What comes next, at least a byte while it is not over.
    pub(super) fn peek(&mut self) -> &[u8] {
        if self.at == self.chunk.len() && self.left > 0 {
            self.chunk.resize(CHUNK, 0);
            self.rng.fill_bytes(&mut self.chunk);
            self.at = 0;
        }
        let rest = &self.chunk[self.at..];
        &rest[..rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))]
    }

    /// So many bytes of that were taken.
    pub(super) fn advance(&mut self, len: usize) {
        self.at += len;
        self.left = self.left.saturating_sub(len as u64);
    }
}
