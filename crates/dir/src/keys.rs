//! The relay's keys, in the files and formats of stock Tor's `DataDirectory`.
//!
//! A directory that stock Tor made serves Heddle, and the other way round, with the same
//! identity. The files are, below the key directory:
//!
//! | file | what it is | how long it lives |
//! |---|---|---|
//! | `secret_id_key` | RSA-1024 identity, PKCS #1 in PEM | for ever |
//! | `ed25519_master_id_secret_key`, `…_public_key` | Ed25519 identity; the secret may be kept offline | for ever |
//! | `ed25519_signing_secret_key`, `ed25519_signing_cert` | signs descriptors and link certificates | 30 days |
//! | `secret_onion_key` | RSA-1024 TAP onion key: nobody uses it, authorities demand it | as the next |
//! | `secret_onion_key_ntor` | Curve25519 ntor onion key | 28 days |
//! | `secret_onion_key.old`, `secret_onion_key_ntor.old` | the ones before, still answered | 7 days more |
//!
//! and in the `DataDirectory` itself `fingerprint` and `fingerprint-ed25519`, for the operator,
//! and the line `LastRotatedOnionKey` of `state`.

mod ed25519;
mod error;
mod onion;
mod rsa_file;
mod tagged;

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding};
use heddle_seam::rng::Rng;
use tor_llcrypto::pk::{ed25519::ExpandedKeypair, rsa};

pub use ed25519::SigningRenewal;
pub use error::KeyError;
pub use onion::{NtorKey, OnionKeyLifetimes};
pub(crate) use tagged::Tagged;

use crate::files::{Disk, Files};
use crate::state;
use ed25519::Ed25519Keys;
use onion::OnionKeys;

/// Where the keys are and how they are kept.
#[derive(Clone, Debug)]
pub struct KeyOptions {
    /// `DataDirectory`.
    pub data_directory: PathBuf,
    /// `KeyDirectory`; `keys` below the data directory when absent.
    pub key_directory: Option<PathBuf>,
    /// `Nickname`, which the fingerprint files repeat.
    pub nickname: String,
    /// `OfflineMasterKey`: never read or make the master identity's secret.
    pub offline_master_key: bool,
    /// `SigningKeyLifetime`, in seconds; 30 days in stock Tor.
    pub signing_key_lifetime_s: u64,
    /// Where all of them lie.
    pub files: Arc<dyn Files>,
}

impl KeyOptions {
    /// Stock Tor's choices for a relay called `nickname` in `data_directory`, on the disk.
    pub fn new(data_directory: impl Into<PathBuf>, nickname: impl Into<String>) -> Self {
        KeyOptions {
            data_directory: data_directory.into(),
            key_directory: None,
            nickname: nickname.into(),
            offline_master_key: false,
            signing_key_lifetime_s: 30 * DAY_S,
            files: Arc::new(Disk),
        }
    }

    fn keys(&self) -> PathBuf {
        match &self.key_directory {
            Some(directory) => directory.clone(),
            None => self.data_directory.join("keys"),
        }
    }
}

pub(crate) const DAY_S: u64 = 86_400;

/// The relay's identity and its medium-term keys.
pub struct RelayKeys {
    options: KeyOptions,
    rsa_identity: rsa::KeyPair,
    ed25519: Ed25519Keys,
    onion: OnionKeys,
}

impl core::fmt::Debug for RelayKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "RelayKeys({})", self.fingerprint())
    }
}

/// What [`RelayKeys::renew`] did. One key's error keeps no other key from being renewed.
#[derive(Debug)]
pub struct Renewal {
    /// The Ed25519 signing key: a new one needs new link certificates and a new descriptor.
    pub signing: Result<SigningRenewal, KeyError>,
    /// Whether the onion keys were rotated, which needs a new descriptor and tells the circuit
    /// handshakes to use [`RelayKeys::ntor_keys`] again.
    pub onion_rotated: Result<bool, KeyError>,
    /// Whether the former onion keys were forgotten, which concerns the handshakes alone.
    pub onion_expired: Result<bool, KeyError>,
}

impl RelayKeys {
    /// Reads the keys, makes those that are missing, and writes the fingerprint files.
    pub fn load_or_create(options: KeyOptions, now_unix_s: u64, rng: &mut Rng) -> Result<Self, KeyError> {
        let (files, directory) = (&*options.files, options.keys());
        for path in [&options.data_directory, &directory] {
            files.create_private_dir(path).map_err(|source| KeyError::write(path, source))?;
        }
        let rsa_identity = rsa_file::load_or_create(files, &directory.join("secret_id_key"), rng)?;
        let ed25519 = Ed25519Keys::load_or_create(files, &directory, &options, now_unix_s, rng)?;
        let state = state::path(&options.data_directory);
        let onion = OnionKeys::load_or_create(files, &directory, &state, now_unix_s, rng)?;
        let keys = RelayKeys { options, rsa_identity, ed25519, onion };
        keys.write_fingerprints()?;
        Ok(keys)
    }

    /// Renews what is due. To be called about once an hour and after the clock was set.
    pub fn renew(&mut self, now_unix_s: u64, lifetimes: OnionKeyLifetimes, rng: &mut Rng) -> Renewal {
        let (files, directory) = (&*self.options.files, self.options.keys());
        let state = state::path(&self.options.data_directory);
        Renewal {
            signing: self.ed25519.renew(files, &directory, &self.options, now_unix_s, rng),
            onion_rotated: self.onion.rotate_if_due(files, &directory, &state, now_unix_s, lifetimes, rng),
            onion_expired: self.onion.expire_if_due(files, &directory, now_unix_s, lifetimes),
        }
    }

    /// Where the keys are.
    pub fn directory(&self) -> PathBuf {
        self.options.keys()
    }

    /// The RSA identity: the SHA-1 digest of the key's DER encoding (tor-spec, section 1.1).
    pub fn rsa_id(&self) -> [u8; 20] {
        self.rsa_identity.to_public_key().to_rsa_identity().to_bytes()
    }

    /// The RSA identity in capital hexadecimal digits, as operators know it.
    pub fn fingerprint(&self) -> String {
        hex::encode_upper(self.rsa_id())
    }

    /// The Ed25519 master identity key.
    pub fn ed25519_id(&self) -> [u8; 32] {
        self.ed25519.identity
    }

    /// The ntor onion keys to answer handshakes with, the current one first.
    pub fn ntor_keys(&self) -> Vec<NtorKey> {
        self.onion.ntor_keys()
    }

    /// When the certificate of the signing key ends, in seconds since 1970.
    pub fn signing_expires_unix_s(&self) -> u64 {
        self.ed25519.signing_expires_unix_s
    }

    /// Whether the signing key ends within a week, and nobody but the operator can bring another.
    pub fn needs_signing_key(&self, now_unix_s: u64) -> bool {
        self.ed25519.lacks_master(&*self.options.files, &self.options.keys(), &self.options, now_unix_s)
    }

    pub(crate) fn rsa_identity(&self) -> &rsa::KeyPair {
        &self.rsa_identity
    }

    pub(crate) fn tap_onion_key(&self) -> &rsa::KeyPair {
        &self.onion.current.tap
    }

    pub(crate) fn signing_key(&self) -> &ExpandedKeypair {
        &self.ed25519.signing
    }

    pub(crate) fn signing_cert(&self) -> &[u8] {
        &self.ed25519.signing_cert
    }

    /// Writes the two fingerprint files unless they say the same already.
    fn write_fingerprints(&self) -> Result<(), KeyError> {
        let files = &*self.options.files;
        let ed25519 = Base64Unpadded::encode_string(&self.ed25519_id());
        for (name, id) in [("fingerprint", self.fingerprint()), ("fingerprint-ed25519", ed25519)] {
            let path = self.options.data_directory.join(name);
            let line = format!("{} {id}\n", self.options.nickname);
            let known = files.read(&path, line.len()).ok().flatten();
            if known.is_none_or(|known| known[..] != *line.as_bytes()) {
                files.write(&path, line.as_bytes()).map_err(|source| KeyError::write(&path, source))?;
            }
        }
        Ok(())
    }
}

/// Holds stock Tor's `lock` file, so that no second relay uses the same `DataDirectory`.
#[derive(Debug)]
pub struct DataDirectoryLock {
    _file: File,
}

impl DataDirectoryLock {
    /// Takes the lock, or says that another process has it. It is given up when dropped.
    pub fn take(data_directory: &Path) -> Result<Self, KeyError> {
        Disk.create_private_dir(data_directory).map_err(|source| KeyError::write(data_directory, source))?;
        let path = data_directory.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| KeyError::write(&path, source))?;
        match file.try_lock() {
            Ok(()) => Ok(DataDirectoryLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(KeyError::Locked { path }),
            Err(TryLockError::Error(source)) => Err(KeyError::write(&path, source)),
        }
    }
}
