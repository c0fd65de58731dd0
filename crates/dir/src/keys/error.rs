//! Why the keys can't be used: each error names the file and what mends it.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A key that can't be read, made or kept. The relay can't start, or keeps its present keys.
#[derive(Debug)]
pub enum KeyError {
    /// A file or directory can't be read.
    Read { path: PathBuf, source: io::Error },
    /// A file or directory can't be written.
    Write { path: PathBuf, source: io::Error },
    /// A file does not hold what its name says.
    Malformed { path: PathBuf, expected: &'static str },
    /// Two files belong to different identities.
    Mismatch { path: PathBuf, with: PathBuf },
    /// A new signing key is needed, and the master identity's secret to sign it is not here.
    MasterKeyAbsent { path: PathBuf },
    /// The master identity's secret is there, but under a passphrase.
    MasterKeyEncrypted { path: PathBuf },
    /// Another process uses the data directory.
    Locked { path: PathBuf },
    /// The cryptographic library refused to make a key or a certificate.
    Crypto { what: &'static str },
}

impl KeyError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        KeyError::Read { path, source }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        KeyError::Write { path, source }
    }

    pub(crate) fn malformed(path: &Path, expected: &'static str) -> Self {
        let path = path.to_owned();
        KeyError::Malformed { path, expected }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Read { path, source } => write!(
                f,
                "{} can't be read ({source}): make it readable to the user that runs the relay.",
                path.display()
            ),
            KeyError::Write { path, source } => write!(
                f,
                "{} can't be written ({source}): give its directory to the user that runs the \
                 relay, and see that the disk has room.",
                path.display()
            ),
            KeyError::Malformed { path, expected } => write!(
                f,
                "{} is not {expected}: restore it from a backup, or move it away to have a new \
                 one made.",
                path.display()
            ),
            KeyError::Mismatch { path, with } => write!(
                f,
                "{} and {} belong to different identities: restore both from the same backup.",
                path.display(),
                with.display()
            ),
            KeyError::MasterKeyAbsent { path } => write!(
                f,
                "{} is needed to sign a new signing key and is not there: run `tor --keygen` \
                 where the master key is kept, and copy ed25519_signing_secret_key and \
                 ed25519_signing_cert here.",
                path.display()
            ),
            KeyError::MasterKeyEncrypted { path } => write!(
                f,
                "{} needs a passphrase, which a relay can't ask for: run `tor --keygen` to make \
                 a signing key with it.",
                path.display()
            ),
            KeyError::Locked { path } => write!(
                f,
                "{} is held by another process: stop the relay that uses this DataDirectory, or \
                 name another one.",
                path.display()
            ),
            KeyError::Crypto { what } => {
                write!(f, "{what} could not be made: this is a bug in Heddle; please report it.")
            }
        }
    }
}

impl std::error::Error for KeyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            KeyError::Read { source, .. } | KeyError::Write { source, .. } => Some(source),
            _ => None,
        }
    }
}
