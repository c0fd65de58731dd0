//! The relay's keys as its TLS channels need them, and the judge of its peers' certificates.

use heddle_dir::certs::{ChannelCerts, ChannelSide, verify_peer_certs};
use heddle_dir::keys::RelayKeys;
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_seam::rng::Entropy;
use heddle_transport::PaddingOptions;
use heddle_transport::link::{InvalidPeer, LinkIdentity, PeerVerifier, VerifiedPeer};
use heddle_transport::tls::{TlsIdentity, TlsKey, TlsOptions, TlsSetupError, TlsTransport};
use std::net::IpAddr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What channels show of the relay.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub keys: &'a RelayKeys,
    pub certs: &'a Arc<ChannelCerts>,
    /// The addresses that NETINFO names.
    pub addrs: &'a [IpAddr],
}

/// Channels that show a relay's certificates.
///
/// # Errors
/// When the certificates do not fit TLS.
pub fn transport(
    shown: &Shown<'_>,
    options: TlsOptions,
    entropy: Box<dyn Entropy>,
) -> Result<TlsTransport, TlsSetupError> {
    let Shown { keys, certs, addrs } = *shown;
    let cell = |side| certs.certs_cell(side).into_iter().map(|(kind, cert)| (kind, cert.to_vec())).collect();
    let signer = Arc::clone(certs);
    let link = LinkIdentity {
        ids: RelayIds { rsa: RsaId(keys.rsa_id()), ed25519: Ed25519Id(keys.ed25519_id()) },
        rsa_key_sha256: certs.rsa_key_sha256(),
        responder_certs: cell(ChannelSide::Responder),
        initiator_certs: cell(ChannelSide::Initiator),
        auth_signer: Arc::new(move |message: &[u8]| signer.sign_authenticate(message)),
        addrs: addrs.to_vec(),
    };
    let key = TlsKey {
        private_key_der: Zeroizing::new(certs.tls_key_pkcs8().to_vec()),
        cert_der: certs.tls_cert_der().to_vec(),
    };
    TlsTransport::new(options, Some(TlsIdentity { link, key }), Arc::new(Judge), entropy)
}

/// Judges peers' certificates.
#[derive(Debug)]
pub struct Judge;

impl PeerVerifier for Judge {
    fn verify_certs(
        &self,
        certs: &[(u8, &[u8])],
        tls_cert_sha256: Option<[u8; 32]>,
        unix_s: u64,
    ) -> Result<VerifiedPeer, InvalidPeer> {
        let peer = verify_peer_certs(certs, tls_cert_sha256.as_ref(), unix_s)
            .map_err(|_| InvalidPeer("its certificates prove nothing"))?;
        Ok(VerifiedPeer {
            ids: RelayIds { rsa: RsaId(peer.rsa_id), ed25519: Ed25519Id(peer.ed25519_id) },
            rsa_key_sha256: peer.rsa_key_sha256,
            auth_key: peer.auth_key,
        })
    }
}

/// What the consensus says about padding channels (param-spec).
pub fn padding(params: &NetworkParams) -> PaddingOptions {
    const IDLE_MAX_MS: i32 = 60_000;
    let low = params.get("nf_ito_low", 1500, 0, IDLE_MAX_MS);
    let high = params.get("nf_ito_high", 9500, low, IDLE_MAX_MS);
    PaddingOptions {
        idle_low_ms: low.unsigned_abs(),
        idle_high_ms: high.unsigned_abs(),
        before_usage: params.get("nf_pad_before_usage", 1, 0, 1) == 1,
        relays: params.get("nf_pad_relays", 0, 0, 1) == 1,
        ..PaddingOptions::default()
    }
}
