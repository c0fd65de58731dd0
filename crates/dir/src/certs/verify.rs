//! Checking a peer's CERTS cell and the signature of its AUTHENTICATE cell.
//!
//! tor-spec, section 4.2, lists what must hold; each rule is quoted where it is kept.

use std::fmt;

use rsa::pkcs1v15::{Signature, VerifyingKey};
use rsa::signature::Verifier;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tor_cert::rsa::RsaCrosscert;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert, KeyUnknownCert};
use tor_checkable::{ExternallySigned, SelfSigned, TimeBound};
use tor_llcrypto::pk::{ed25519, rsa::PublicKey};
use tor_llcrypto::util::x509_extract_rsa_subject_kludge;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};

use crate::iso_time;

const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");

/// Who the other side of a channel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The SHA-1 of its RSA identity key.
    pub rsa_id: [u8; 20],
    /// The SHA-256 of its RSA identity key in DER, as AUTHENTICATE names it.
    pub rsa_key_sha256: [u8; 32],
    /// Its Ed25519 identity key.
    pub ed25519_id: [u8; 32],
    /// The key that must sign its AUTHENTICATE cell; present when a certificate of type 6 is.
    pub auth_key: Option<[u8; 32]>,
}

/// Why a CERTS cell proves nothing. The channel must be closed; the fault is the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertError {
    /// There is no certificate of this type, and there must be.
    Missing(u8),
    /// There is more than one certificate of this type.
    Duplicate(u8),
    /// The certificate of this type can't be parsed, or certifies another kind of thing.
    Malformed(u8),
    /// The certificate of this type is wrongly signed.
    BadSignature(u8),
    /// The certificate of this type has expired or is not valid yet.
    Untimely(u8),
    /// The certificate of this type certifies another key or TLS certificate.
    WrongSubject(u8),
    /// The RSA identity does not have 1024 bits and the exponent 65537.
    WeakIdentity,
}

impl fmt::Display for CertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (problem, cert_type) = match self {
            CertError::Missing(kind) => ("lacks", kind),
            CertError::Duplicate(kind) => ("repeats", kind),
            CertError::Malformed(kind) => ("has a malformed", kind),
            CertError::BadSignature(kind) => ("has a wrongly signed", kind),
            CertError::Untimely(kind) => ("has an expired or future", kind),
            CertError::WrongSubject(kind) => ("certifies another key in its", kind),
            CertError::WeakIdentity => {
                return f.write_str("the peer's RSA identity key is not one that Tor uses");
            }
        };
        write!(f, "the peer's CERTS cell {problem} certificate of type {cert_type}")
    }
}

impl std::error::Error for CertError {}

/// Verifies the certificates of a CERTS cell, each given as its type and its bytes.
///
/// For the responder of a channel `tls_cert_sha256` is the SHA-256 of the certificate it showed
/// in TLS, and the result is its identity. For an initiator it is `None`; the result is only what
/// the initiator claims until `auth_key` has signed an AUTHENTICATE cell.
pub fn verify_peer_certs(
    certs: &[(u8, &[u8])],
    tls_cert_sha256: Option<&[u8; 32]>,
    now_unix_s: u64,
) -> Result<PeerIdentity, CertError> {
    refuse_duplicates(certs)?;
    let (ed25519_id, signing) = verify_signing_key(required(certs, 4)?, now_unix_s)?;
    let auth_cert = optional(certs, 6);
    let auth_key = match (tls_cert_sha256, auth_cert) {
        (Some(tls_cert), _) => {
            verify_link(required(certs, 5)?, &signing, tls_cert, now_unix_s)?;
            None
        }
        (None, Some(cert)) => Some(verify_auth_key(cert, &signing, now_unix_s)?),
        (None, None) => return Err(CertError::Missing(6)),
    };
    let rsa_key = verify_rsa_identity(required(certs, 2)?, now_unix_s)?;
    verify_crosscert(required(certs, 7)?, &rsa_key, &ed25519_id, now_unix_s)?;
    Ok(PeerIdentity {
        rsa_id: rsa_key.to_rsa_identity().to_bytes(),
        rsa_key_sha256: Sha256::digest(rsa_key.to_der()).into(),
        ed25519_id: ed25519_id.into(),
        auth_key,
    })
}

/// Whether `signature` over `message` was made by the AUTHENTICATE key `auth_key`.
pub fn verify_authenticate_signature(auth_key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    let signature = ed25519::Signature::from_bytes(signature);
    ed25519::PublicKey::from_bytes(auth_key).is_ok_and(|key| key.verify(message, &signature).is_ok())
}

/// "A CERTS cell may have no more than one certificate of each CertType." Types that nobody
/// knows are ignored, also repeated.
fn refuse_duplicates(certs: &[(u8, &[u8])]) -> Result<(), CertError> {
    for cert_type in 1..=7 {
        if certs.iter().filter(|(kind, _)| *kind == cert_type).count() > 1 {
            return Err(CertError::Duplicate(cert_type));
        }
    }
    Ok(())
}

fn optional<'a>(certs: &[(u8, &'a [u8])], cert_type: u8) -> Option<&'a [u8]> {
    certs.iter().find(|(kind, _)| *kind == cert_type).map(|(_, cert)| *cert)
}

fn required<'a>(certs: &[(u8, &'a [u8])], cert_type: u8) -> Result<&'a [u8], CertError> {
    optional(certs, cert_type).ok_or(CertError::Missing(cert_type))
}

/// "The identity key listed in the ID->Signing cert was used to sign the ID->Signing Cert."
/// Returns the identity and the signing key.
fn verify_signing_key(
    cert: &[u8],
    now_unix_s: u64,
) -> Result<(ed25519::Ed25519Identity, ed25519::Ed25519Identity), CertError> {
    let cert = decode(cert, 4, CertType::IDENTITY_V_SIGNING)?;
    let cert = cert
        .should_have_signing_key()
        .map_err(|_| CertError::Malformed(4))?
        .check_signature()
        .map_err(|_| CertError::BadSignature(4))?
        .if_valid_at(&iso_time::to_system_time(now_unix_s))
        .map_err(|_| CertError::Untimely(4))?;
    match (cert.signing_key(), cert.subject_key().as_ed25519()) {
        (Some(identity), Some(signing)) => Ok((*identity, *signing)),
        _ => Err(CertError::Malformed(4)),
    }
}

/// "The certified key in the Signing->Link certificate matches the SHA256 digest of the
/// certificate that was used to authenticate the TLS connection."
fn verify_link(
    cert: &[u8],
    signing: &ed25519::Ed25519Identity,
    tls_cert_sha256: &[u8; 32],
    now_unix_s: u64,
) -> Result<(), CertError> {
    let cert = decode(cert, 5, CertType::SIGNING_V_TLS_CERT)?;
    match verify_signed_by(cert, 5, signing, now_unix_s)? {
        CertifiedKey::X509Sha256Digest(digest) if bool::from(digest.ct_eq(tls_cert_sha256)) => Ok(()),
        CertifiedKey::X509Sha256Digest(_) => Err(CertError::WrongSubject(5)),
        _ => Err(CertError::Malformed(5)),
    }
}

fn verify_auth_key(
    cert: &[u8],
    signing: &ed25519::Ed25519Identity,
    now_unix_s: u64,
) -> Result<[u8; 32], CertError> {
    let cert = decode(cert, 6, CertType::SIGNING_V_LINK_AUTH)?;
    match verify_signed_by(cert, 6, signing, now_unix_s)? {
        CertifiedKey::Ed25519(key) => Ok(key.into()),
        _ => Err(CertError::Malformed(6)),
    }
}

fn decode(cert: &[u8], number: u8, wanted: CertType) -> Result<KeyUnknownCert, CertError> {
    let cert = Ed25519Cert::decode(cert).map_err(|_| CertError::Malformed(number))?;
    if cert.peek_cert_type() != wanted {
        return Err(CertError::Malformed(number));
    }
    Ok(cert)
}

/// What a certificate by the signing key certifies, once it holds.
fn verify_signed_by(
    cert: KeyUnknownCert,
    number: u8,
    signing: &ed25519::Ed25519Identity,
    now_unix_s: u64,
) -> Result<CertifiedKey, CertError> {
    let cert = cert
        .should_be_signed_with(signing)
        .map_err(|_| CertError::BadSignature(number))?
        .check_signature()
        .map_err(|_| CertError::BadSignature(number))?
        .if_valid_at(&iso_time::to_system_time(now_unix_s))
        .map_err(|_| CertError::Untimely(number))?;
    Ok(cert.subject_key().clone())
}

/// "The certified key in the ID certificate is a 1024-bit RSA key. The RSA ID certificate is
/// correctly self-signed." And it has not expired.
fn verify_rsa_identity(cert: &[u8], now_unix_s: u64) -> Result<PublicKey, CertError> {
    let key = x509_extract_rsa_subject_kludge(cert).ok_or(CertError::Malformed(2))?;
    if key.bits() != 1024 || !key.exponent_is(65537) {
        return Err(CertError::WeakIdentity);
    }
    let cert = Certificate::from_der(cert).map_err(|_| CertError::Malformed(2))?;
    let validity = &cert.tbs_certificate.validity;
    let now = core::time::Duration::from_secs(now_unix_s);
    if now < validity.not_before.to_unix_duration() || now > validity.not_after.to_unix_duration() {
        return Err(CertError::Untimely(2));
    }
    // The outer algorithm is not signed; it "MUST contain the same algorithm identifier" (RFC 5280,
    // section 4.1.1.2), or one certificate could be written in several ways.
    if cert.signature_algorithm != cert.tbs_certificate.signature {
        return Err(CertError::Malformed(2));
    }
    let signed = cert.tbs_certificate.to_der().map_err(|_| CertError::Malformed(2))?;
    let signature = cert.signature.as_bytes().and_then(|bytes| Signature::try_from(bytes).ok());
    let (Some(signature), SHA256_WITH_RSA) = (signature, cert.signature_algorithm.oid) else {
        return Err(CertError::Malformed(2));
    };
    VerifyingKey::<Sha256>::new(key.as_key().clone())
        .verify(&signed, &signature)
        .map_err(|_| CertError::BadSignature(2))?;
    Ok(key)
}

/// "The RSA->Ed25519 cross-certificate certifies the Ed25519 identity, and is signed with the
/// RSA identity listed in the "ID" certificate."
fn verify_crosscert(
    cert: &[u8],
    rsa_key: &PublicKey,
    ed25519_id: &ed25519::Ed25519Identity,
    now_unix_s: u64,
) -> Result<(), CertError> {
    let cert = RsaCrosscert::decode(cert)
        .map_err(|_| CertError::Malformed(7))?
        .check_signature(rsa_key)
        .map_err(|_| CertError::BadSignature(7))?
        .if_valid_at(&iso_time::to_system_time(now_unix_s))
        .map_err(|_| CertError::Untimely(7))?;
    if !cert.subject_key_matches(ed25519_id) {
        return Err(CertError::WrongSubject(7));
    }
    Ok(())
}
