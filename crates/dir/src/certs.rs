//! What a relay shows on its channels, and what it demands to see of others.
//!
//! Three keys meet in a CERTS cell: the RSA identity, the Ed25519 identity and the TLS link key
//! (or, for the side that dialled, the AUTHENTICATE key). The chain is
//!
//! 1. type 4: the Ed25519 identity signs the signing key;
//! 2. type 5: the signing key signs the SHA-256 of the TLS link certificate (responder), or
//!    type 6: the signing key signs the AUTHENTICATE key (initiator);
//! 3. type 2: the RSA identity, in an X.509 certificate signed by itself;
//! 4. type 7: the RSA identity signs the Ed25519 identity.
//!
//! (tor-spec, section 4.2; cert-spec.)

mod verify;

use heddle_seam::rng::Rng;
use sha2::{Digest, Sha256};
use tor_cert::rsa::EncodedRsaCrosscert;
use tor_cert::x509::{TlsKeyAndCert, create_legacy_rsa_id_cert};
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::ed25519;
use zeroize::Zeroizing;

pub use verify::{CertError, PeerIdentity, verify_authenticate_signature, verify_peer_certs};

use crate::entropy::Entropy;
use crate::iso_time;
use crate::keys::{DAY_S, KeyError, RelayKeys};

/// How long certificates of types 5 and 6 last, and the AUTHENTICATE key with them.
const CHANNEL_CERT_LIFETIME_S: u64 = 2 * DAY_S;

/// How long before their end they are replaced.
const RENEW_BEFORE_S: u64 = 3 * 3600;

/// How long the certificate of type 7 lasts: it says what never changes.
const CROSSCERT_LIFETIME_S: u64 = 180 * DAY_S;

/// Which side of a channel we are, as it decides what CERTS must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelSide {
    /// We dialled: the other side is authenticated by TLS, we by AUTHENTICATE.
    Initiator,
    /// We were dialled.
    Responder,
}

/// The relay's TLS link key and everything that certifies it and the AUTHENTICATE key.
///
/// Made anew when the signing key changed and when [`ChannelCerts::renewal_due`] says so; open
/// channels are not touched by that.
pub struct ChannelCerts {
    tls_cert_der: Vec<u8>,
    tls_key_pkcs8: Zeroizing<Vec<u8>>,
    rsa_id_cert: Vec<u8>,
    signing_cert: Vec<u8>,
    link_cert: Vec<u8>,
    auth_cert: Vec<u8>,
    crosscert: Vec<u8>,
    auth_key: ed25519::Keypair,
    rsa_key_sha256: [u8; 32],
    ed25519_id: [u8; 32],
    made_unix_s: u64,
    expires_unix_s: u64,
}

impl core::fmt::Debug for ChannelCerts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ChannelCerts(expire at {})", self.expires_unix_s)
    }
}

impl ChannelCerts {
    /// Makes a link key, an AUTHENTICATE key and their certificates. Making the RSA-2048 link
    /// key, which stock peers demand, can take seconds.
    pub fn create(keys: &RelayKeys, now_unix_s: u64, rng: &mut Rng) -> Result<Self, KeyError> {
        let link = create_link_key(now_unix_s, rng)?;
        let auth_key = ed25519::Keypair::from_bytes(&Zeroizing::new(rng.array()));
        let expires_unix_s = now_unix_s + CHANNEL_CERT_LIFETIME_S;
        let link_cert = sign(
            keys,
            CertType::SIGNING_V_TLS_CERT,
            CertifiedKey::X509Sha256Digest(*link.link_cert_sha256()),
            expires_unix_s,
        )?;
        let auth_cert = sign(
            keys,
            CertType::SIGNING_V_LINK_AUTH,
            CertifiedKey::Ed25519(auth_key.verifying_key().into()),
            expires_unix_s,
        )?;
        let crosscert = EncodedRsaCrosscert::encode_and_sign(
            keys.rsa_identity(),
            &keys.ed25519_id().into(),
            iso_time::to_system_time(now_unix_s + CROSSCERT_LIFETIME_S),
        )
        .map_err(|_| failed("the cross-certificate of the identities"))?;
        let id_hostname = random_hostname(rng, "com");
        let rsa_id_cert = create_legacy_rsa_id_cert(
            &mut Entropy(rng),
            iso_time::to_system_time(now_unix_s),
            &id_hostname,
            keys.rsa_identity(),
        )
        .map_err(|_| failed("the certificate of the RSA identity"))?;
        let rsa_key = keys.rsa_identity().to_public_key().to_der();
        Ok(ChannelCerts {
            tls_cert_der: link.certificates_der().concat(),
            tls_key_pkcs8: link
                .private_key_pkcs8_der()
                .map_err(|_| failed("the encoding of the TLS link key"))?,
            rsa_id_cert,
            signing_cert: keys.signing_cert().to_vec(),
            link_cert,
            auth_cert,
            crosscert: crosscert.into(),
            auth_key,
            rsa_key_sha256: Sha256::digest(rsa_key).into(),
            ed25519_id: keys.ed25519_id(),
            made_unix_s: now_unix_s,
            expires_unix_s: expires_unix_s.min(keys.signing_expires_unix_s()),
        })
    }

    /// Whether these certificates must be replaced by new ones. So they must when the clock was set back, because they
    /// are not valid before the time at which they were made.
    pub fn renewal_due(&self, now_unix_s: u64) -> bool {
        now_unix_s < self.made_unix_s || self.expires_unix_s < now_unix_s.saturating_add(RENEW_BEFORE_S)
    }

    /// What our CERTS cell carries on a channel where we are `side`: each certificate's type
    /// and bytes, in order of type.
    pub fn certs_cell(&self, side: ChannelSide) -> [(u8, &[u8]); 4] {
        let channel: (u8, &[u8]) = match side {
            ChannelSide::Responder => (5, &self.link_cert),
            ChannelSide::Initiator => (6, &self.auth_cert),
        };
        [(2, &self.rsa_id_cert), (4, &self.signing_cert), channel, (7, &self.crosscert)]
    }

    /// The X.509 certificate for TLS, in DER.
    pub fn tls_cert_der(&self) -> &[u8] {
        &self.tls_cert_der
    }

    /// The TLS link key, PKCS #8 in DER.
    pub fn tls_key_pkcs8(&self) -> &[u8] {
        &self.tls_key_pkcs8
    }

    /// The SHA-256 of our TLS certificate, which AUTHENTICATE calls SCERT when we respond.
    pub fn tls_cert_sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.tls_cert_der).into()
    }

    /// The SHA-256 of our RSA identity key in DER: AUTHENTICATE's CID or SID.
    pub fn rsa_key_sha256(&self) -> [u8; 32] {
        self.rsa_key_sha256
    }

    /// Our Ed25519 identity: AUTHENTICATE's CID_ED or SID_ED.
    pub fn ed25519_id(&self) -> [u8; 32] {
        self.ed25519_id
    }

    /// Signs the body of an AUTHENTICATE cell of type 3 (tor-spec, section 4.4.2).
    pub fn sign_authenticate(&self, message: &[u8]) -> [u8; 64] {
        self.auth_key.sign(message).to_bytes()
    }
}

fn sign(
    keys: &RelayKeys,
    cert_type: CertType,
    subject: CertifiedKey,
    expires_unix_s: u64,
) -> Result<Vec<u8>, KeyError> {
    let cert = Ed25519Cert::builder()
        .cert_type(cert_type)
        .cert_key(subject)
        .expiration(iso_time::to_system_time(expires_unix_s))
        .encode_and_sign(keys.signing_key())
        .map_err(|_| failed("a certificate by the signing key"))?;
    Ok(cert.into())
}

/// A link key and its certificate, under names that mean nothing, as stock Tor's.
fn create_link_key(now_unix_s: u64, rng: &mut Rng) -> Result<TlsKeyAndCert, KeyError> {
    let issuer = random_hostname(rng, "com");
    let subject = random_hostname(rng, "net");
    TlsKeyAndCert::create(&mut Entropy(rng), iso_time::to_system_time(now_unix_s), &issuer, &subject)
        .map_err(|_| failed("the TLS link key"))
}

/// `www.` and 8 to 20 letters and digits of base 32, and the top-level domain.
fn random_hostname(rng: &mut Rng, top_level: &str) -> String {
    const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let length = 8 + rng.below(13);
    let name: String = (0..length).map(|_| char::from(BASE32[(rng.next_u32() % 32) as usize])).collect();
    format!("www.{name}.{top_level}")
}

fn failed(what: &'static str) -> KeyError {
    KeyError::Crypto { what }
}
