//! Who we are on a link, and how a peer's certificates are judged.
//!
//! Certificates are Tor's own formats around X.509 and Ed25519. Whoever keeps the keys knows those;
//! here they are bytes.

use core::fmt;
use core::net::IpAddr;
use heddle_proto::ids::RelayIds;
use std::sync::Arc;

/// Signs a message with the Ed25519 key of our certificate of type 6.
pub type AuthSigner = Arc<dyn Fn(&[u8]) -> [u8; 64] + Send + Sync>;

/// What a relay shows and proves to its peers.
#[derive(Clone)]
pub struct LinkIdentity {
    pub ids: RelayIds,
    /// SHA-256 of our RSA identity key, as PKCS#1 DER.
    pub rsa_key_sha256: [u8; 32],
    /// CERTS of a responder: type and certificate, of the types 2, 4, 5 and 7. The certificate of
    /// type 5 names the TLS certificate in use.
    pub responder_certs: Vec<(u8, Vec<u8>)>,
    /// CERTS of an initiator: the types 2, 4, 6 and 7.
    pub initiator_certs: Vec<(u8, Vec<u8>)>,
    pub auth_signer: AuthSigner,
    /// The addresses that we advertise, for NETINFO.
    pub addrs: Vec<IpAddr>,
}

impl fmt::Debug for LinkIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkIdentity")
            .field("ids", &self.ids)
            .field("addrs", &self.addrs)
            .finish_non_exhaustive()
    }
}

/// A peer whose certificates are in order. A responder has thereby proven its identity; an
/// initiator has yet to prove it with AUTHENTICATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedPeer {
    pub ids: RelayIds,
    /// SHA-256 of the peer's RSA identity key, as PKCS#1 DER.
    pub rsa_key_sha256: [u8; 32],
    /// The Ed25519 key of the certificate of type 6, if there is one.
    pub auth_key: Option<[u8; 32]>,
}

/// Why a peer's certificates are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPeer(pub &'static str);

/// Judges the certificates of CERTS (tor-spec, "CERTS cells").
pub trait PeerVerifier: Send + Sync {
    /// Checks the certificates, each with its type, at `unix_s` seconds since the epoch. With
    /// the SHA-256 of a TLS certificate they are a responder's, and have to vouch for that
    /// certificate by type 5; without, they are an initiator's, and have to name a key by type 6.
    fn verify_certs(
        &self,
        certs: &[(u8, &[u8])],
        tls_cert_sha256: Option<[u8; 32]>,
        unix_s: u64,
    ) -> Result<VerifiedPeer, InvalidPeer>;
}

/// The signature does not belong to the message.
pub(super) struct BadSignature;

pub(super) fn verify_ed25519(
    key: &[u8; 32],
    message: &[u8],
    signature: &[u8; 64],
) -> Result<(), BadSignature> {
    aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ED25519, key)
        .verify(message, signature)
        .map_err(|_| BadSignature)
}
