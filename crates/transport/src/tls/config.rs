//! How rustls is set up for Tor (tor-spec, "Connections").
//!
//! TLS only encrypts here. A relay's link certificate is self-made and says nothing of who it is;
//! the CERTS cell does, and vouches for that certificate. So any certificate is accepted, but its
//! key must really have signed the handshake.

use super::{TlsKey, TlsOptions};
use core::sync::atomic::{AtomicU64, Ordering};
use heddle_seam::rng::Rng;
use heddle_seam::time::UnixTime;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use std::sync::Arc;

/// The wall clock as the driver tells it, for rustls, which otherwise reads the system's.
#[derive(Debug, Default)]
pub(super) struct WallClock(AtomicU64);

impl WallClock {
    pub(super) fn set(&self, now: UnixTime) {
        self.0.store(now.as_secs(), Ordering::Relaxed);
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        let since_epoch = core::time::Duration::from_secs(self.0.load(Ordering::Relaxed));
        Some(rustls::pki_types::UnixTime::since_unix_epoch(since_epoch))
    }
}

/// What an initiator uses.
pub(super) fn client(options: &TlsOptions, clock: Arc<WallClock>) -> Result<ClientConfig, Error> {
    let provider = Arc::new((options.ciphers.tls)());
    let verifier = Arc::new(AnyCertificate(provider.signature_verification_algorithms));
    let mut config = ClientConfig::builder_with_details(provider, clock)
        .with_protocol_versions(versions(options))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// What a responder uses.
pub(super) fn server(
    options: &TlsOptions,
    key: &TlsKey,
    clock: Arc<WallClock>,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new((options.ciphers.tls)());
    let private_key = PrivateKeyDer::try_from(key.private_key_der.to_vec())
        .map_err(|why| Error::General(format!("the link key is no private key: {why}")))?;
    let mut config = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(versions(options))?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(key.cert_der.clone())], private_key)?;
    // A resumed session would show no certificate, and tickets cost a record that nobody uses.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(config)
}

fn versions(options: &TlsOptions) -> &'static [&'static SupportedProtocolVersion] {
    static TLS12_ONLY: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
    if options.tls13 { rustls::ALL_VERSIONS } else { TLS12_ONLY }
}

/// A name for SNI as stock relays send it: what a browser's looks like at a glance, and new each
/// time, because the peer's real name would tell an observer what this connection is.
pub(super) fn random_server_name(rng: &mut Rng) -> ServerName<'static> {
    const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let len = 4 + rng.below(22);
    let label: String = (0..len).map(|_| char::from(BASE32[rng.below(32) as usize])).collect();
    ServerName::try_from(format!("www.{label}.com")).expect("letters and digits make a host name")
}

#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    #[test]
    fn server_names_look_like_stock_ones() {
        let mut rng = Seed::from_number(5).rng();
        for _ in 0..100 {
            let name = random_server_name(&mut rng);
            let name = name.to_str();
            let label = name.strip_prefix("www.").and_then(|rest| rest.strip_suffix(".com"));
            assert!((4..=25).contains(&label.map_or(0, str::len)), "{name}");
        }
    }
}
