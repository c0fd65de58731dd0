//! TLS inside QUIC: both sides show a raw Ed25519 public key (RFC 7250), and each takes exactly the key that the
//! other's offer named. There is no chain, no name, no ticket and nothing to resume.

use crate::Ciphers;
use core::fmt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{kx_group, sign};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Ours alone: on the ORPort nobody offers it, and here nobody offers another.
pub(super) const ALPN: &[u8] = b"heddle-flow/1";

/// Bytes of an Ed25519 key, secret or public.
pub(super) const KEY_LEN: usize = 32;

/// What comes before the key in an Ed25519 SubjectPublicKeyInfo (RFC 8410, section 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// What comes before the seed in an Ed25519 PKCS#8 (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The key that our offers name.
#[derive(Clone)]
pub(super) struct OurKey {
    certified: Arc<CertifiedKey>,
    public: [u8; KEY_LEN],
}

impl OurKey {
    /// The key of a seed (RFC 8032, section 5.1.5). Every seed makes one.
    pub(super) fn new(secret: &Zeroizing<[u8; KEY_LEN]>) -> Result<Self, Error> {
        let mut pkcs8 = Zeroizing::new(Vec::with_capacity(PKCS8_PREFIX.len() + KEY_LEN));
        pkcs8.extend_from_slice(&PKCS8_PREFIX);
        pkcs8.extend_from_slice(&secret[..]);
        let key = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()))?;
        let spki = key.public_key().ok_or(Error::General("an Ed25519 key has a public half".into()))?;
        let mut public = [0; KEY_LEN];
        let raw = spki.strip_prefix(&SPKI_PREFIX).and_then(|raw| <&[u8; KEY_LEN]>::try_from(raw).ok());
        public.copy_from_slice(raw.ok_or(Error::General("an Ed25519 key has 32 bytes".into()))?);
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], key));
        Ok(OurKey { certified, public })
    }

    pub(super) fn public(&self) -> [u8; KEY_LEN] {
        self.public
    }
}

impl fmt::Debug for OurKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OurKey(..)")
    }
}

/// What a dialler uses, who accepts `peer` alone.
pub(super) fn client(ours: &OurKey, peer: [u8; KEY_LEN], ciphers: Ciphers) -> Result<ClientConfig, Error> {
    let provider = provider(ciphers);
    let verifier = Arc::new(ExactKey::new(&provider, peer));
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(ours.certified.clone()));
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(NoClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// What a listener uses, who accepts `peer` alone.
pub(super) fn server(ours: &OurKey, peer: [u8; KEY_LEN], ciphers: Ciphers) -> Result<ServerConfig, Error> {
    let provider = provider(ciphers);
    let verifier = Arc::new(ExactKey::new(&provider, peer));
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(ours.certified.clone()));
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(NoClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// The fastest suite on hardware with AES, and one for what has none. X25519 alone, so that a handshake's first flight
/// fits one datagram.
fn provider(ciphers: Ciphers) -> Arc<CryptoProvider> {
    let ours = [CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256];
    let provider = (ciphers.tls)();
    let of_name = |name| provider.cipher_suites.iter().find(|suite| suite.suite() == name).copied();
    Arc::new(CryptoProvider {
        cipher_suites: ours.into_iter().filter_map(of_name).collect(),
        kx_groups: vec![kx_group::X25519],
        ..provider
    })
}

/// Raw keys have no dates, so no clock is asked.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::ZERO))
    }
}

/// Accepts one key.
#[derive(Debug)]
struct ExactKey {
    spki: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ExactKey {
    fn new(provider: &CryptoProvider, key: [u8; KEY_LEN]) -> Self {
        let spki = [&SPKI_PREFIX[..], &key].concat();
        ExactKey { spki, algorithms: provider.signature_verification_algorithms }
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if bool::from(shown.as_ref().ct_eq(&self.spki)) {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

fn no_tls12() -> Error {
    Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig)
}

impl ServerCertVerifier for ExactKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for ExactKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
