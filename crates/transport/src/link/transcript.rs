//! SLOG and CLOG: the digest of what one side sent before AUTHENTICATE.

use aws_lc_rs::digest::{self, Context, SHA256};

/// A running SHA-256 over whole cells, headers included.
#[derive(Clone)]
pub(super) struct Transcript(Context);

impl Transcript {
    pub(super) fn new() -> Self {
        Transcript(Context::new(&SHA256))
    }

    pub(super) fn add(&mut self, cell: &[u8]) {
        self.0.update(cell);
    }

    /// The digest so far; the transcript goes on.
    pub(super) fn digest(&self) -> [u8; 32] {
        array(self.0.clone().finish())
    }
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    array(digest::digest(&SHA256, bytes))
}

fn array(digest: digest::Digest) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}
