//! The onion keys: what clients and relays use to extend circuits to us.
//!
//! 1. A relay has one current pair of keys, TAP and ntor, and maybe the pair before.
//! 2. After `onion-key-rotation-days` a new pair is made and the current one becomes the former.
//! 3. The former pair is still answered for `onion-key-grace-period-days`, then forgotten.
//!
//! (dir-spec, section 2.1.1 "ntor-onion-key"; param-spec, section 2.)

use std::collections::BTreeMap;
use std::path::Path;

use heddle_seam::rng::Rng;
use tor_llcrypto::pk::{curve25519, rsa};
use zeroize::Zeroizing;

use super::{DAY_S, KeyError, Tagged, rsa_file};
use crate::files::Files;
use crate::{iso_time, state};

const TAP_FILE: &str = "secret_onion_key";
const TAP_OLD_FILE: &str = "secret_onion_key.old";
const NTOR_FILE: &str = "secret_onion_key_ntor";
const NTOR_OLD_FILE: &str = "secret_onion_key_ntor.old";

/// The secret and then the public key.
const NTOR: Tagged = Tagged { kind: "c25519v1", tag: "onion", body_length: (64, 64) };

/// How long onion keys are current, and how long they are answered after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnionKeyLifetimes {
    /// `onion-key-rotation-days`, 1 to 90 days; 28 by default.
    pub rotation_days: u16,
    /// `onion-key-grace-period-days`, 1 day to `rotation_days`; 7 by default.
    pub grace_days: u16,
}

impl Default for OnionKeyLifetimes {
    fn default() -> Self {
        Self::from_params(&BTreeMap::new())
    }
}

impl OnionKeyLifetimes {
    /// What the consensus parameters say, held to their limits (param-spec, section 2).
    pub fn from_params(params: &BTreeMap<String, i32>) -> Self {
        let days = |name: &str, default: i32, most: i32| {
            let days = params.get(name).copied().unwrap_or(default).clamp(1, most);
            u16::try_from(days).expect("it was clamped to at most 90")
        };
        let rotation_days = days("onion-key-rotation-days", 28, 90);
        let grace_days = days("onion-key-grace-period-days", 7, rotation_days.into());
        OnionKeyLifetimes { rotation_days, grace_days }
    }
}

/// An ntor onion key, for the circuit handshakes.
#[derive(Clone)]
pub struct NtorKey {
    /// The secret Curve25519 scalar.
    pub secret: Zeroizing<[u8; 32]>,
    /// The public key, which the handshake names.
    pub public: [u8; 32],
}

impl core::fmt::Debug for NtorKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "NtorKey({})", hex::encode(self.public))
    }
}

impl NtorKey {
    fn generate(rng: &mut Rng) -> Self {
        Self::from_secret(&curve25519::StaticSecret::from(rng.array()))
    }

    fn from_secret(secret: &curve25519::StaticSecret) -> Self {
        NtorKey {
            secret: Zeroizing::new(secret.to_bytes()),
            public: curve25519::PublicKey::from(secret).to_bytes(),
        }
    }

    /// The key in the file `path`, `None` when there is none.
    fn load(files: &dyn Files, path: &Path) -> Result<Option<Self>, KeyError> {
        let file = files.read(path, NTOR.file_bytes_max()).map_err(|source| KeyError::read(path, source))?;
        let Some(file) = file else { return Ok(None) };
        Self::parse(&file)
            .map(Some)
            .ok_or_else(|| KeyError::malformed(path, "a Curve25519 onion key as Tor writes it"))
    }

    fn parse(file: &[u8]) -> Option<Self> {
        let (secret, public) = NTOR.parse(file)?.split_first_chunk::<32>()?;
        let key = Self::from_secret(&curve25519::StaticSecret::from(*secret));
        (key.public == public).then_some(key)
    }

    fn store(&self, files: &dyn Files, path: &Path) -> Result<(), KeyError> {
        let body = Zeroizing::new([&self.secret[..], &self.public].concat());
        files.write(path, &NTOR.encode(&body)).map_err(|source| KeyError::write(path, source))
    }
}

/// A pair of onion keys that are current together.
pub(super) struct OnionKeyPair {
    pub tap: rsa::KeyPair,
    pub ntor: NtorKey,
}

/// The current onion keys and what is left of the ones before.
pub(super) struct OnionKeys {
    pub current: OnionKeyPair,
    former_ntor: Option<NtorKey>,
    set_unix_s: u64,
}

impl OnionKeys {
    /// Reads the keys from `directory` and the time of the last rotation from the file `state`.
    pub fn load_or_create(
        files: &dyn Files,
        directory: &Path,
        state: &Path,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Result<Self, KeyError> {
        let tap = rsa_file::load_or_create(files, &directory.join(TAP_FILE), rng)?;
        let ntor_path = directory.join(NTOR_FILE);
        let ntor = match NtorKey::load(files, &ntor_path)? {
            Some(key) => key,
            None => {
                let key = NtorKey::generate(rng);
                key.store(files, &ntor_path)?;
                key
            }
        };
        let former_ntor = NtorKey::load(files, &directory.join(NTOR_OLD_FILE))?
            .filter(|former| former.public != ntor.public);
        // A time in the future would keep the keys from ever being rotated.
        let set_unix_s = match last_rotated(files, state)?.filter(|rotated| *rotated <= now_unix_s) {
            Some(rotated) => rotated,
            None => {
                set_last_rotated(files, state, now_unix_s)?;
                now_unix_s
            }
        };
        Ok(OnionKeys { current: OnionKeyPair { tap, ntor }, former_ntor, set_unix_s })
    }

    /// The ntor keys to answer with, the current one first.
    pub fn ntor_keys(&self) -> Vec<NtorKey> {
        let mut keys = vec![self.current.ntor.clone()];
        keys.extend(self.former_ntor.clone());
        keys
    }

    /// Makes new keys when the current ones are too old, and says whether it did.
    pub fn rotate_if_due(
        &mut self,
        files: &dyn Files,
        directory: &Path,
        state: &Path,
        now_unix_s: u64,
        lifetimes: OnionKeyLifetimes,
        rng: &mut Rng,
    ) -> Result<bool, KeyError> {
        // A clock that was set back makes them new, or they would be kept until it has caught up.
        self.set_unix_s = self.set_unix_s.min(now_unix_s);
        if self.age_s(now_unix_s) < u64::from(lifetimes.rotation_days) * DAY_S {
            return Ok(false);
        }
        let next = OnionKeyPair { tap: rsa_file::generate(rng)?, ntor: NtorKey::generate(rng) };
        // The former keys are on the disk before the current ones are replaced, so that a crash
        // between loses neither.
        rsa_file::store(files, &directory.join(TAP_OLD_FILE), &self.current.tap)?;
        self.current.ntor.store(files, &directory.join(NTOR_OLD_FILE))?;
        rsa_file::store(files, &directory.join(TAP_FILE), &next.tap)?;
        next.ntor.store(files, &directory.join(NTOR_FILE))?;
        set_last_rotated(files, state, now_unix_s)?;
        let former = core::mem::replace(&mut self.current, next);
        self.former_ntor = Some(former.ntor);
        self.set_unix_s = now_unix_s;
        Ok(true)
    }

    /// Forgets the former keys when their grace period is over, and says whether it did.
    pub fn expire_if_due(
        &mut self,
        files: &dyn Files,
        directory: &Path,
        now_unix_s: u64,
        lifetimes: OnionKeyLifetimes,
    ) -> Result<bool, KeyError> {
        let due = self.age_s(now_unix_s) >= u64::from(lifetimes.grace_days) * DAY_S;
        if self.former_ntor.is_none() || !due {
            return Ok(false);
        }
        for name in [TAP_OLD_FILE, NTOR_OLD_FILE] {
            let path = directory.join(name);
            files.remove(&path).map_err(|source| KeyError::write(&path, source))?;
        }
        self.former_ntor = None;
        Ok(true)
    }

    fn age_s(&self, now_unix_s: u64) -> u64 {
        now_unix_s.saturating_sub(self.set_unix_s)
    }
}

const LAST_ROTATED: &str = "LastRotatedOnionKey";

/// When the onion keys were made, as the file `state` has it.
fn last_rotated(files: &dyn Files, state: &Path) -> Result<Option<u64>, KeyError> {
    let text = state::read(files, state).map_err(|source| KeyError::read(state, source))?;
    Ok(state::value(&text, LAST_ROTATED).and_then(iso_time::parse))
}

fn set_last_rotated(files: &dyn Files, state: &Path, rotated_unix_s: u64) -> Result<(), KeyError> {
    let line = (LAST_ROTATED, iso_time::format(rotated_unix_s));
    state::set(files, state, &[line]).map_err(|source| KeyError::write(state, source))
}
