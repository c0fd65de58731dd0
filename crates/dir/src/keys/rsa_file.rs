//! RSA-1024 keys in PEM, PKCS #1: the identity and the TAP onion key.

use std::path::Path;

use heddle_seam::rng::Rng;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey, LineEnding};
use rsa::traits::PublicKeyParts;
use tor_llcrypto::pk::rsa::KeyPair;

use super::KeyError;
use crate::entropy::Entropy;
use crate::files::Files;

const FILE_BYTES_MAX: usize = 8192;

/// Reads the key in `path`, or makes one and writes it there.
pub(super) fn load_or_create(files: &dyn Files, path: &Path, rng: &mut Rng) -> Result<KeyPair, KeyError> {
    if let Some(key) = load(files, path)? {
        return Ok(key);
    }
    let key = generate(rng)?;
    store(files, path, &key)?;
    Ok(key)
}

/// Reads the key in `path`, `None` when there is none.
fn load(files: &dyn Files, path: &Path) -> Result<Option<KeyPair>, KeyError> {
    let Some(file) = files.read(path, FILE_BYTES_MAX).map_err(|source| KeyError::read(path, source))? else {
        return Ok(None);
    };
    // Stock Tor ends these files with a zero byte.
    let parsed = core::str::from_utf8(&file)
        .ok()
        .map(|text| text.trim_end_matches(['\0', '\n', '\r', ' ']))
        .and_then(|pem| ::rsa::RsaPrivateKey::from_pkcs1_pem(pem).ok());
    match parsed {
        // tor-spec, section 0.3: RSA keys have 1024 bits and the exponent 65537.
        Some(key) if key.n().bits() == 1024 && *key.e() == 65537_u32.into() => Ok(Some(key.into())),
        _ => Err(KeyError::malformed(path, "an RSA-1024 private key in PEM")),
    }
}

/// A new key. This takes some tenths of a second.
pub(super) fn generate(rng: &mut Rng) -> Result<KeyPair, KeyError> {
    KeyPair::generate(&mut Entropy(rng)).map_err(|_| KeyError::Crypto { what: "an RSA-1024 key" })
}

/// Writes `key` to `path`.
pub(super) fn store(files: &dyn Files, path: &Path, key: &KeyPair) -> Result<(), KeyError> {
    let pem = key
        .as_key()
        .to_pkcs1_pem(LineEnding::LF)
        .map_err(|_| KeyError::Crypto { what: "the PEM text of an RSA key" })?;
    files.write(path, pem.as_bytes()).map_err(|source| KeyError::write(path, source))
}
