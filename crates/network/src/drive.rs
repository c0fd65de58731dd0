//! A simulated relay's disk, which may be full, or dead.

use heddle_dir::files::{Files, InMemory};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use zeroize::Zeroizing;

/// Files in memory. While it is full nothing is written and no folder made; while it is dead nothing is read either. It
/// is never slow: whoever uses files waits for them, and virtual time stands still meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Drive {
    files: InMemory,
    is_full: AtomicBool,
    is_dead: AtomicBool,
}

impl Drive {
    /// From now on there is no room on it, or there is again.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// From now on it neither writes nor reads, or it does again.
    pub(crate) fn set_dead(&self, is_dead: bool) {
        self.is_dead.store(is_dead, Ordering::Relaxed);
    }

    /// All files, in order.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.files.paths()
    }

    fn lives(&self) -> io::Result<()> {
        match self.is_dead.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk is dead")),
            false => Ok(()),
        }
    }

    fn has_room(&self) -> io::Result<()> {
        self.lives()?;
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl Files for Drive {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        self.lives()?;
        self.files.read(path, bytes_max)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.has_room()?;
        self.files.write(path, bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.lives()?;
        self.files.exists(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.lives()?;
        self.files.remove(path)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.has_room()?;
        self.files.create_private_dir(path)
    }
}
