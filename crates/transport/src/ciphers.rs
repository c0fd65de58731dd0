//! Whose ciphers links take.

use dimpl::crypto::CryptoProvider as DtlsProvider;
use rustls::crypto::CryptoProvider as TlsProvider;

/// Where the cryptography of TLS, QUIC and DTLS comes from. The default is the only one that the relay's program has;
/// simulations may be given another, whose records have the same lengths.
#[derive(Clone, Copy, Debug)]
pub struct Ciphers {
    /// For channels over TLS and connections of QUIC.
    pub tls: fn() -> TlsProvider,
    /// For sessions of DTLS.
    pub dtls: fn() -> DtlsProvider,
}

impl Default for Ciphers {
    fn default() -> Self {
        Ciphers {
            tls: rustls::crypto::aws_lc_rs::default_provider,
            dtls: dimpl::crypto::aws_lc_rs::default_provider,
        }
    }
}
