//! What a side shows in the handshake.
//!
//! DTLS knows ECDSA here and no Ed25519, so each process has a P-256 key and a certificate beside the key of its offer.
//! Nothing is read off a certificate but its key: it is believed because the first record each way vouches for it.
//!
//! - The P-256 key is derived from the offer's, so that both are replaced together.
//! - Signatures are drawn until they are 71 bytes long, the commonest length. Otherwise handshakes would differ in
//!   length from run to run, and runs of one seed with them.

use super::options::SessionOptions;
use crate::connections::proof::{KEY_LEN, OfferKey, Proofs, Protocol};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use aws_lc_rs::{digest, hmac};
use core::fmt;
use core::time::Duration;
use dimpl::crypto::{
    Buf, CryptoProvider, Dtls13CipherSuite, HashAlgorithm, KeyProvider, NamedGroup, SignatureAlgorithm,
    SigningKey,
};
use dimpl::{Config, CryptoError, CryptoOperation, DtlsCertificate};
use heddle_proto::channel::Role;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of an uncompressed point on P-256.
const POINT_LEN: usize = 65;
/// The commonest length of an ECDSA signature over P-256 in DER. Half of all have it.
const ECDSA_LEN: usize = 71;
/// A hundred tries fail once in 2^100.
const TRIES_MAX: u32 = 100;

/// The key that our offers name, with the certificate that it vouches for.
#[derive(Clone)]
pub(crate) struct OurKey {
    offer: OfferKey,
    /// The P-256 key: its scalar and its point.
    private: Zeroizing<Vec<u8>>,
    certificate: Vec<u8>,
    fingerprint: [u8; KEY_LEN],
}

impl OurKey {
    /// The key of a seed. Every seed makes one.
    pub(crate) fn new(protocol: Protocol, secret: &Zeroizing<[u8; KEY_LEN]>) -> Result<Self, Unspecified> {
        let offer = OfferKey::new(protocol, secret)?;
        let private = derive_p256(protocol, secret)?;
        let certificate = certificate(&private)?;
        let fingerprint = fingerprint(&certificate);
        Ok(OurKey { offer, private, certificate, fingerprint })
    }

    /// The same with a certificate of so many bytes, which no honest side has.
    #[cfg(test)]
    pub(crate) fn with_certificate_of(mut self, bytes: usize) -> Self {
        self.certificate.resize(bytes, 0);
        self
    }

    /// The key that offers name, by itself.
    /// What proofs of a session with this key are made with, of the dialler's and the listener's secret.
    pub(crate) fn proofs(
        &self,
        role: Role,
        peer_key: [u8; KEY_LEN],
        secrets: [Zeroizing<[u8; KEY_LEN]>; 2],
    ) -> Proofs {
        // DTLS itself shows that both certificates are of this session.
        let connection = Zeroizing::default();
        let (our_key, shown) = (self.offer.clone(), self.fingerprint());
        Proofs { role, our_key, shown, peer_key, secrets, connection }
    }

    pub(crate) fn public(&self) -> [u8; KEY_LEN] {
        self.offer.public()
    }

    /// SHA-256 of our certificate.
    pub(crate) fn fingerprint(&self) -> [u8; KEY_LEN] {
        self.fingerprint
    }

    pub(crate) fn certificate(&self) -> DtlsCertificate {
        DtlsCertificate { certificate: self.certificate.clone(), private_key: self.private.to_vec() }
    }
}

impl fmt::Debug for OurKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OurKey(..)")
    }
}

pub(crate) fn fingerprint(certificate: &[u8]) -> [u8; KEY_LEN] {
    let mut bytes = [0; KEY_LEN];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    bytes
}

/// How dimpl is to behave on one connection. `seed` is for what is no secret: times of repetition, and the hellos'
/// randoms.
pub(crate) fn config(
    seed: u64,
    datagram_bytes: usize,
    initial_rto: Duration,
    timeout: Duration,
    options: &SessionOptions,
) -> Result<Arc<Config>, dimpl::Error> {
    /// Repetitions of a flight. The time-out comes first.
    const RETRIES: usize = 8;
    let provider = CryptoProvider { key_provider: &Keys, ..(options.ciphers.dtls)() };
    let config = Config::builder()
        .mtu(datagram_bytes)
        .require_client_certificate(true)
        // The token has shown that the dialler's address is its own.
        .use_server_cookie(false)
        .flight_start_rto(initial_rto)
        .flight_retries(RETRIES)
        .handshake_timeout(timeout)
        .with_crypto_provider(provider)
        .dangerously_set_rng_seed(seed)
        .aead_encryption_limit(options.key_records_max)
        .dtls13_cipher_suites(&[Dtls13CipherSuite::AES_128_GCM_SHA256])
        .kx_groups(&[NamedGroup::X25519])
        .build()?;
    Ok(Arc::new(config))
}

/// Reads the keys of [`OurKey`].
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, key: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let pair = key_pair(key).map_err(|_| CryptoError::InvalidPrivateKey)?;
        Ok(Box::new(EcdsaKey(pair)))
    }
}

struct EcdsaKey(EcdsaKeyPair);

impl fmt::Debug for EcdsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EcdsaKey(..)")
    }
}

impl SigningKey for EcdsaKey {
    fn sign(&mut self, data: &[u8], hash: HashAlgorithm, out: &mut Buf) -> Result<(), CryptoError> {
        let failed = CryptoError::OperationFailed(CryptoOperation::Sign);
        if hash != HashAlgorithm::SHA256 {
            return Err(failed);
        }
        let signature = sign_evenly(&self.0, data).map_err(|_| failed)?;
        out.clear();
        out.extend_from_slice(&signature);
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

fn sign_evenly(pair: &EcdsaKeyPair, data: &[u8]) -> Result<[u8; ECDSA_LEN], Unspecified> {
    let digest = digest::digest(&digest::SHA256, data);
    for _ in 0..TRIES_MAX {
        let signature = pair.sign_digest(&digest)?;
        if let Ok(even) = <[u8; ECDSA_LEN]>::try_from(signature.as_ref()) {
            return Ok(even);
        }
    }
    Err(Unspecified)
}

/// The scalar and the point of a P-256 key that belongs to a secret.
fn derive_p256(
    protocol: Protocol,
    secret: &Zeroizing<[u8; KEY_LEN]>,
) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret[..]);
    for count in 0..TRIES_MAX {
        let mut context = hmac::Context::with_key(&key);
        context.update(protocol.transport.as_bytes());
        context.update(b" certificate");
        context.update(&count.to_be_bytes());
        let scalar = context.sign();
        // One in 2^32 is none of the curve's.
        if let Ok(private) = PrivateKey::from_private_key(&ECDH_P256, scalar.as_ref()) {
            let point = private.compute_public_key()?;
            return Ok(Zeroizing::new([scalar.as_ref(), point.as_ref()].concat()));
        }
    }
    Err(Unspecified)
}

fn key_pair(private: &[u8]) -> Result<EcdsaKeyPair, Unspecified> {
    let (scalar, point) = private.split_at_checked(KEY_LEN).ok_or(Unspecified)?;
    EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_ASN1_SIGNING, scalar, point)
        .map_err(|_| Unspecified)
}

/// The parts of a certificate (RFC 5280, section 4.1) that are the same in all of ours: version 3, serial number 1, no
/// names, valid from 1970 to 9999.
const TBS_HEAD: [u8; 58] = [
    0xa0, 0x03, 0x02, 0x01, 0x02, 0x02, 0x01, 0x01, 0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
    0x04, 0x03, 0x02, 0x30, 0x00, 0x30, 0x20, 0x17, 0x0d, b'7', b'0', b'0', b'1', b'0', b'1', b'0', b'0',
    b'0', b'0', b'0', b'0', b'Z', 0x18, 0x0f, b'9', b'9', b'9', b'9', b'1', b'2', b'3', b'1', b'2', b'3',
    b'5', b'9', b'5', b'9', b'Z', 0x30, 0x00,
];
/// What comes before the point in the SubjectPublicKeyInfo of a P-256 key (RFC 5480, section 2.1.1).
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// ecdsa-with-SHA256, and the head of the bit string with the signature (RFC 5758, section 3.2).
const SIGNATURE_HEAD: [u8; 15] =
    [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02, 0x03, ECDSA_LEN as u8 + 1, 0x00];

/// A certificate that a P-256 key signed for itself.
fn certificate(private: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let point = private.get(KEY_LEN..KEY_LEN + POINT_LEN).ok_or(Unspecified)?;
    let body = [&TBS_HEAD[..], &SPKI_PREFIX, point].concat();
    let tbs = sequence(&body)?;
    let signature = sign_evenly(&key_pair(private)?, &tbs)?;
    sequence(&[&tbs[..], &SIGNATURE_HEAD, &signature].concat())
}

/// A SEQUENCE in DER, of less than 256 bytes or of more.
fn sequence(body: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let len = u16::try_from(body.len()).map_err(|_| Unspecified)?;
    let mut der = vec![0x30];
    match len.to_be_bytes() {
        [0, low] if low < 0x80 => der.push(low),
        [0, low] => der.extend_from_slice(&[0x81, low]),
        [high, low] => der.extend_from_slice(&[0x82, high, low]),
    }
    der.extend_from_slice(body);
    Ok(der)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dimpl::crypto::aws_lc_rs::default_provider;

    fn key_of(transport: &'static str, number: u8) -> OurKey {
        let protocol = Protocol { transport, version: 1 };
        OurKey::new(protocol, &Zeroizing::new([number; KEY_LEN])).expect("every seed makes one")
    }

    fn key(number: u8) -> OurKey {
        key_of("a", number)
    }

    #[test]
    fn a_key_belongs_to_its_seed_and_certificates_are_of_one_length() {
        let (first, again, other) = (key(1), key(1), key(2));
        assert_eq!(first.public(), again.public());
        assert_eq!(first.private, again.private);
        assert_ne!(first.private, other.private);
        let elsewhere = key_of("b", 1);
        assert_eq!(first.public(), elsewhere.public());
        assert_ne!(first.private, elsewhere.private, "another transport shows another certificate");
        for number in 0..50 {
            assert_eq!(key(number).certificate.len(), first.certificate.len());
        }
    }

    #[test]
    fn dimpl_reads_the_certificate_and_believes_its_signatures() {
        let ours = key(3);
        let mut signer = Keys.load_private_key(&ours.private).expect("our own");
        let mut signature = Buf::new();
        signer.sign(b"a transcript", HashAlgorithm::SHA256, &mut signature).expect("a signature");
        assert_eq!(signature.len(), ECDSA_LEN);
        let verify = |data: &[u8]| {
            default_provider().signature_verification.verify_signature(
                &ours.certificate,
                data,
                &signature,
                HashAlgorithm::SHA256,
                SignatureAlgorithm::ECDSA,
            )
        };
        assert!(verify(b"a transcript").is_ok());
        assert!(verify(b"another").is_err());
    }
}
