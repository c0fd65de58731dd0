//! Where a relay keeps its keys and what it knows: whole files, each read and replaced at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

/// Files by their paths. The program has the [`Disk`]; a simulated relay keeps its own [`InMemory`].
pub trait Files: Debug + Send + Sync {
    /// Reads `path`, up to `bytes_max`; `None` when there is no such file or it is empty, which
    /// stock Tor treats alike.
    ///
    /// # Errors
    /// Of kind `InvalidData` when the file is longer, and the system's own.
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>>;

    /// Replaces `path` by `bytes` in one step, to be read by their owner only.
    ///
    /// # Errors
    /// The system's own; then the file is as it was.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Whether there is such a file, be it empty.
    ///
    /// # Errors
    /// The system's own.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Removes `path` if it is there.
    ///
    /// # Errors
    /// The system's own.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the directory `path` and those above it, or takes what an existing one grants to too many:
    /// writing by its group, and everything by others. A group may be left to read.
    ///
    /// # Errors
    /// The system's own.
    fn create_private_dir(&self, path: &Path) -> io::Result<()>;
}

/// The machine's files. What was written survives a crash, whole or not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Room for everything from the start, so that no reallocation leaves a secret behind.
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut bytes = Zeroizing::new(Vec::with_capacity(length.min(bytes_max) + 1));
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = Path::new(&temporary);
        self.remove(temporary)?;
        let written = write_new(temporary, bytes).and_then(|()| fs::rename(temporary, path));
        if written.is_err() {
            // The first error is the one to report; a leftover is removed by the next write.
            let _ = self.remove(temporary);
        }
        written?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        const TOO_MUCH: u32 = 0o027;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & TOO_MUCH != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777 & !TOO_MUCH))?;
        }
        Ok(())
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn too_large(bytes_max: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {bytes_max} bytes"))
}

/// Files that are gone with the process, for simulated relays and tests.
#[derive(Default)]
pub struct InMemory(Mutex<Tree>);

#[derive(Default)]
struct Tree {
    directories: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Zeroizing<Vec<u8>>>,
}

impl InMemory {
    /// All files, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.tree().files.keys().cloned().collect()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // Each change is one step, so whoever panicked left the files whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Paths alone: there are keys in the files.
impl Debug for InMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tree().files.keys()).finish()
    }
}

impl Files for InMemory {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        match self.tree().files.get(path) {
            Some(bytes) if bytes.len() > bytes_max => Err(too_large(bytes_max)),
            found => Ok(found.filter(|bytes| !bytes.is_empty()).cloned()),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut tree = self.tree();
        if path.parent().is_some_and(|parent| !tree.directories.contains(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        tree.files.insert(path.to_owned(), Zeroizing::new(bytes.to_vec()));
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.tree().files.contains_key(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.tree().files.remove(path);
        Ok(())
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_files_do_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let kinds: [&dyn Files; 2] = [&Disk, &InMemory::default()];
        for files in kinds {
            let below = directory.path().join("a/b");
            let path = below.join("file");
            assert_eq!(files.write(&path, b"one").unwrap_err().kind(), io::ErrorKind::NotFound);
            files.create_private_dir(&below).unwrap();
            assert_eq!(files.read(&path, 9).unwrap(), None);
            for text in ["one", "another", "two"] {
                files.write(&path, text.as_bytes()).unwrap();
                assert_eq!(files.read(&path, 9).unwrap().unwrap()[..], *text.as_bytes());
            }
            assert_eq!(files.read(&path, 2).unwrap_err().kind(), io::ErrorKind::InvalidData);
            files.write(&path, b"").unwrap();
            assert_eq!((files.read(&path, 2).unwrap(), files.exists(&path).unwrap()), (None, true));
            files.remove(&path).unwrap();
            assert!(!files.exists(&path).unwrap());
            files.remove(&path).unwrap();
        }
    }

    #[test]
    fn keys_do_not_show_in_logs() {
        let files = InMemory::default();
        files.create_private_dir(Path::new("/keys")).unwrap();
        files.write(Path::new("/keys/secret"), b"abcd").unwrap();
        assert_eq!(format!("{files:?}"), r#"{"/keys/secret"}"#);
    }
}
