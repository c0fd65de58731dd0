//! The Ed25519 identity and the signing key that speaks for it.
//!
//! 1. The master identity key signs nothing but certificates for signing keys, so its secret
//!    may be kept away from the relay.
//! 2. A signing key lives for `SigningKeyLifetime`; a day before its certificate ends a new one
//!    is made, if the master secret is there.
//! 3. Without the master secret the relay runs until the certificate ends. In the week before it takes up what the
//!    operator brings.
//!
//! (tor-spec, section 1.1; cert-spec, section 2.1.)

use std::path::Path;

use heddle_seam::rng::Rng;
use sha2::{Digest, Sha512};
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_checkable::{SelfSigned, TimeBound};
use tor_llcrypto::pk::ed25519::ExpandedKeypair;
use zeroize::Zeroizing;

use super::{DAY_S, KeyError, KeyOptions, Tagged};
use crate::files::Files;
use crate::iso_time;

const MASTER_SECRET_FILE: &str = "ed25519_master_id_secret_key";
const MASTER_ENCRYPTED_FILE: &str = "ed25519_master_id_secret_key_encrypted";
const MASTER_PUBLIC_FILE: &str = "ed25519_master_id_public_key";
const SIGNING_SECRET_FILE: &str = "ed25519_signing_secret_key";
const SIGNING_CERT_FILE: &str = "ed25519_signing_cert";

const MASTER_SECRET: Tagged = Tagged { kind: "ed25519v1-secret", tag: "type0", body_length: (64, 64) };
const MASTER_PUBLIC: Tagged = Tagged { kind: "ed25519v1-public", tag: "type0", body_length: (32, 32) };
const SIGNING_SECRET: Tagged = Tagged { kind: "ed25519v1-secret", tag: "type4", body_length: (64, 64) };
const SIGNING_CERT: Tagged = Tagged { kind: "ed25519v1-cert", tag: "type4", body_length: (104, 256) };

/// How long before the end of its certificate a signing key is replaced.
const RENEW_BEFORE_S: u64 = DAY_S;
/// How long before that end another key may be brought, and is asked for where nobody here can make one.
const ASK_BEFORE_S: u64 = 7 * DAY_S;

/// What became of the signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningRenewal {
    /// It is good for more than a day, and where nobody here can make another for more than a week.
    NotDue,
    /// There is a new one.
    Renewed,
    /// It ends within a week, and the master secret is not here to sign another: the operator
    /// must bring a new signing key and certificate.
    MasterKeyAbsent,
}

/// The identity, and the signing key with its certificate.
pub(super) struct Ed25519Keys {
    pub identity: [u8; 32],
    pub signing: ExpandedKeypair,
    /// The certificate of type 4, identity to signing key, with the identity in it.
    pub signing_cert: Vec<u8>,
    pub signing_expires_unix_s: u64,
}

impl Ed25519Keys {
    /// Reads the keys from `directory`; makes an identity only when nothing there knows one.
    pub fn load_or_create(
        files: &dyn Files,
        directory: &Path,
        options: &KeyOptions,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Result<Self, KeyError> {
        if let Some(mut keys) = Self::load(files, directory)? {
            keys.renew(files, directory, options, now_unix_s, rng)?;
            return Ok(keys);
        }
        let master = match load_master_secret(files, directory, options)? {
            Some(master) => master,
            None => create_master(files, directory, options, rng)?,
        };
        Self::create_signing(files, directory, options, &master, now_unix_s, rng)
    }

    /// Takes up a signing key that was brought, or makes one, when the present one ends soon.
    pub fn renew(
        &mut self,
        files: &dyn Files,
        directory: &Path,
        options: &KeyOptions,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Result<SigningRenewal, KeyError> {
        if !self.ends_within(ASK_BEFORE_S, now_unix_s) {
            return Ok(SigningRenewal::NotDue);
        }
        let is_due = self.ends_within(RENEW_BEFORE_S, now_unix_s);
        let lasts = |keys: &Self| {
            let is_later = keys.signing_expires_unix_s > self.signing_expires_unix_s;
            is_later && !keys.ends_within(RENEW_BEFORE_S, now_unix_s)
        };
        if let Some(brought) = Self::load(files, directory)?.filter(lasts) {
            if brought.identity != self.identity {
                return Err(mismatch(directory, SIGNING_CERT_FILE, MASTER_PUBLIC_FILE));
            }
            *self = brought;
            return Ok(SigningRenewal::Renewed);
        }
        match load_master_secret(files, directory, options)? {
            Some(_) if !is_due => Ok(SigningRenewal::NotDue),
            Some(master) => {
                *self = Self::create_signing(files, directory, options, &master, now_unix_s, rng)?;
                Ok(SigningRenewal::Renewed)
            }
            None if self.signing_expires_unix_s > now_unix_s => Ok(SigningRenewal::MasterKeyAbsent),
            None => Err(no_master(directory)),
        }
    }

    /// Whether it ends within a week and the master secret is not here to sign another.
    pub fn lacks_master(
        &self,
        files: &dyn Files,
        directory: &Path,
        options: &KeyOptions,
        now_unix_s: u64,
    ) -> bool {
        let is_asked = self.ends_within(ASK_BEFORE_S, now_unix_s);
        is_asked && matches!(load_master_secret(files, directory, options), Ok(None))
    }

    fn ends_within(&self, time_s: u64, now_unix_s: u64) -> bool {
        self.signing_expires_unix_s < now_unix_s.saturating_add(time_s)
    }

    /// The signing key and certificate on the disk, `None` when one of them is missing or they
    /// don't belong together, as after a crash between writing the two.
    fn load(files: &dyn Files, directory: &Path) -> Result<Option<Self>, KeyError> {
        let secret_path = directory.join(SIGNING_SECRET_FILE);
        let cert_path = directory.join(SIGNING_CERT_FILE);
        let secret = read_body(files, &secret_path, &SIGNING_SECRET)?;
        let cert = read_body(files, &cert_path, &SIGNING_CERT)?;
        let (Some(secret), Some(cert)) = (secret, cert) else {
            return Ok(None);
        };
        let signing =
            keypair(&secret).ok_or_else(|| KeyError::malformed(&secret_path, "an Ed25519 secret key"))?;
        let parsed = SigningCert::parse(&cert)
            .ok_or_else(|| KeyError::malformed(&cert_path, "a certificate for a signing key"))?;
        if parsed.signing != *signing.public().as_bytes() {
            return Ok(None);
        }
        match load_master_public(files, directory)? {
            Some(known) if known != parsed.identity => {
                return Err(mismatch(directory, SIGNING_CERT_FILE, MASTER_PUBLIC_FILE));
            }
            Some(_) => {}
            None => store_master_public(files, directory, &parsed.identity)?,
        }
        Ok(Some(Ed25519Keys {
            identity: parsed.identity,
            signing,
            signing_cert: cert.to_vec(),
            signing_expires_unix_s: parsed.expires_unix_s,
        }))
    }

    /// Makes a signing key, has `master` certify it, and writes both.
    fn create_signing(
        files: &dyn Files,
        directory: &Path,
        options: &KeyOptions,
        master: &ExpandedKeypair,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Result<Self, KeyError> {
        let secret = generate_secret(rng);
        let signing = keypair(&secret[..]).expect("a generated secret has 64 bytes");
        let expires = iso_time::to_system_time(now_unix_s + options.signing_key_lifetime_s);
        let cert: Vec<u8> = Ed25519Cert::builder()
            .cert_type(CertType::IDENTITY_V_SIGNING)
            .expiration(expires)
            .cert_key(CertifiedKey::Ed25519((*signing.public()).into()))
            .signing_key((*master.public()).into())
            .encode_and_sign(master)
            .map_err(|_| KeyError::Crypto { what: "the certificate of the signing key" })?
            .into();
        let signing_expires_unix_s = SigningCert::parse(&cert)
            .ok_or(KeyError::Crypto { what: "the certificate of the signing key" })?
            .expires_unix_s;
        store_body(files, &directory.join(SIGNING_SECRET_FILE), &SIGNING_SECRET, &secret[..])?;
        store_body(files, &directory.join(SIGNING_CERT_FILE), &SIGNING_CERT, &cert)?;
        Ok(Ed25519Keys {
            identity: *master.public().as_bytes(),
            signing,
            signing_cert: cert,
            signing_expires_unix_s,
        })
    }
}

/// What a certificate of type 4 says, its signature checked and its time not.
struct SigningCert {
    identity: [u8; 32],
    signing: [u8; 32],
    expires_unix_s: u64,
}

impl SigningCert {
    fn parse(cert: &[u8]) -> Option<Self> {
        let cert = Ed25519Cert::decode(cert).ok()?;
        if cert.peek_cert_type() != CertType::IDENTITY_V_SIGNING {
            return None;
        }
        let cert = cert.should_have_signing_key().ok()?.check_signature().ok()?;
        let cert = cert.dangerously_assume_timely();
        Some(SigningCert {
            identity: (*cert.signing_key()?).into(),
            signing: (*cert.subject_key().as_ed25519()?).into(),
            expires_unix_s: iso_time::from_system_time(cert.expiry()),
        })
    }
}

/// The master secret, `None` when it is not on this machine.
fn load_master_secret(
    files: &dyn Files,
    directory: &Path,
    options: &KeyOptions,
) -> Result<Option<ExpandedKeypair>, KeyError> {
    if options.offline_master_key {
        return Ok(None);
    }
    let path = directory.join(MASTER_SECRET_FILE);
    let Some(secret) = read_body(files, &path, &MASTER_SECRET)? else {
        return Ok(None);
    };
    let master = keypair(&secret).ok_or_else(|| KeyError::malformed(&path, "an Ed25519 secret key"))?;
    match load_master_public(files, directory)? {
        Some(known) if known != *master.public().as_bytes() => {
            Err(mismatch(directory, MASTER_SECRET_FILE, MASTER_PUBLIC_FILE))
        }
        Some(_) => Ok(Some(master)),
        None => {
            store_master_public(files, directory, master.public().as_bytes())?;
            Ok(Some(master))
        }
    }
}

/// Makes a new identity, unless there is a sign of an old one.
fn create_master(
    files: &dyn Files,
    directory: &Path,
    options: &KeyOptions,
    rng: &mut Rng,
) -> Result<ExpandedKeypair, KeyError> {
    let encrypted = directory.join(MASTER_ENCRYPTED_FILE);
    if files.exists(&encrypted).map_err(|source| KeyError::read(&encrypted, source))? {
        return Err(KeyError::MasterKeyEncrypted { path: encrypted });
    }
    if options.offline_master_key || load_master_public(files, directory)?.is_some() {
        return Err(no_master(directory));
    }
    let secret = generate_secret(rng);
    let master = keypair(&secret[..]).expect("a generated secret has 64 bytes");
    store_body(files, &directory.join(MASTER_SECRET_FILE), &MASTER_SECRET, &secret[..])?;
    store_master_public(files, directory, master.public().as_bytes())?;
    Ok(master)
}

fn load_master_public(files: &dyn Files, directory: &Path) -> Result<Option<[u8; 32]>, KeyError> {
    let body = read_body(files, &directory.join(MASTER_PUBLIC_FILE), &MASTER_PUBLIC)?;
    Ok(body.map(|body| body[..].try_into().expect("its length is 32")))
}

fn store_master_public(files: &dyn Files, directory: &Path, public: &[u8; 32]) -> Result<(), KeyError> {
    store_body(files, &directory.join(MASTER_PUBLIC_FILE), &MASTER_PUBLIC, public)
}

/// A secret as the files hold it: RFC 8032's clamped scalar and then the nonce prefix, both
/// hashed from 32 random bytes (RFC 8032, section 5.1.5).
fn generate_secret(rng: &mut Rng) -> Zeroizing<[u8; 64]> {
    let seed = Zeroizing::new(rng.array::<32>());
    let mut secret = Zeroizing::new([0; 64]);
    secret.copy_from_slice(&Sha512::digest(&seed[..]));
    secret[0] &= 248;
    secret[31] &= 127;
    secret[31] |= 64;
    secret
}

fn keypair(secret: &[u8]) -> Option<ExpandedKeypair> {
    let secret: Zeroizing<[u8; 64]> = Zeroizing::new(secret.try_into().ok()?);
    ExpandedKeypair::from_secret_key_bytes(*secret)
}

fn read_body(
    files: &dyn Files,
    path: &Path,
    format: &Tagged,
) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
    let file = files.read(path, format.file_bytes_max()).map_err(|source| KeyError::read(path, source))?;
    let Some(file) = file else { return Ok(None) };
    let body = format
        .parse(&file)
        .ok_or_else(|| KeyError::malformed(path, "an Ed25519 key file as Tor writes it"))?;
    Ok(Some(Zeroizing::new(body.to_vec())))
}

fn store_body(files: &dyn Files, path: &Path, format: &Tagged, body: &[u8]) -> Result<(), KeyError> {
    files.write(path, &format.encode(body)).map_err(|source| KeyError::write(path, source))
}

fn no_master(directory: &Path) -> KeyError {
    KeyError::MasterKeyAbsent { path: directory.join(MASTER_SECRET_FILE) }
}

fn mismatch(directory: &Path, one: &str, other: &str) -> KeyError {
    KeyError::Mismatch { path: directory.join(one), with: directory.join(other) }
}
