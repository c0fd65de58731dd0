//! What came of uploads, counted by a server.

use std::sync::atomic::{AtomicU64, Ordering};

use super::request::UPLOADS_MAX;

/// Bytes that came of each upload, by its number.
#[derive(Debug)]
pub(crate) struct Sunk([AtomicU64; UPLOADS_MAX]);

impl Default for Sunk {
    fn default() -> Sunk {
        Sunk([const { AtomicU64::new(0) }; UPLOADS_MAX])
    }
}

impl Sunk {
    /// Bytes that came of the upload with this number.
    pub(crate) fn of(&self, number: usize) -> u64 {
        self.0[number].load(Ordering::Relaxed)
    }

    /// So many more have come.
    pub(super) fn add(&self, number: usize, bytes: usize) {
        self.0[number].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
