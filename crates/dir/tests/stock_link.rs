//! What a stock relay shows in its link handshake verifies.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Tor has real sockets and time"
)]

mod stock;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_dir::certs::{CertError, verify_peer_certs};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use sha2::{Digest, Sha256};
use stock::Authority;

const VERSIONS: u8 = 7;
const CERTS: u8 = 129;

/// Takes any certificate: Tor's links are authenticated inside of TLS.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.0.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

fn connect(or_port: u16) -> StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = "www.example.com".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, or_port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    StreamOwned::new(connection, socket)
}

/// Reads a variable-length cell with a circuit id of `id_length` bytes.
fn read_cell(stream: &mut impl Read, id_length: usize) -> (u8, Vec<u8>) {
    let mut head = vec![0; id_length + 3];
    stream.read_exact(&mut head).unwrap();
    let length = u16::from_be_bytes([head[id_length + 1], head[id_length + 2]]);
    let mut payload = vec![0; length.into()];
    stream.read_exact(&mut payload).unwrap();
    (head[id_length], payload)
}

fn split_certs(payload: &[u8]) -> Vec<(u8, &[u8])> {
    let (count, mut rest) = payload.split_first().unwrap();
    let mut certs = Vec::new();
    for _ in 0..*count {
        let length = usize::from(u16::from_be_bytes([rest[1], rest[2]]));
        certs.push((rest[0], &rest[3..3 + length]));
        rest = &rest[3 + length..];
    }
    certs
}

#[test]
fn a_stock_relay_is_known_by_both_identities() {
    let authority = Authority::start("link-authority");
    let mut stream = connect(authority.line.or_port.unwrap());
    // Link protocols 4 and 5 (tor-spec, section 4.1).
    stream.write_all(&[0, 0, VERSIONS, 0, 4, 0, 4, 0, 5]).unwrap();
    assert_eq!(read_cell(&mut stream, 2).0, VERSIONS);
    let (command, payload) = read_cell(&mut stream, 4);
    assert_eq!(command, CERTS);

    let certs = split_certs(&payload);
    let tls_cert = &stream.conn.peer_certificates().unwrap()[0];
    let digest = Sha256::digest(tls_cert).into();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let peer = verify_peer_certs(&certs, Some(&digest), now).unwrap();
    assert_eq!(peer.rsa_id, authority.line.rsa_id);
    assert_eq!(peer.ed25519_id, authority.ed25519_id());
    assert_eq!(verify_peer_certs(&certs, Some(&[0; 32]), now), Err(CertError::WrongSubject(5)));
}
