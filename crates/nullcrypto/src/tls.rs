//! Suites of TLS 1.3 that copy. Those of TLS 1.2, which no two of ours agree on, stay real.

use crate::quic::NullQuic;
use crate::{TAG, TAG_LEN, opened_len};
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
    UnsupportedOperationError,
};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider, aws_lc_rs};
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite,
};
use std::sync::LazyLock;

/// The real provider, but for what its suites do to records and packets.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider { cipher_suites: SUITES.clone(), ..aws_lc_rs::default_provider() }
}

/// Made once, because rustls wants suites that stay for ever.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| aws_lc_rs::default_provider().cipher_suites.into_iter().map(null).collect());

/// A suite of the same name and hash that copies.
fn null(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(real) = suite else { return suite };
    let CipherSuiteCommon { suite, hash_provider, confidentiality_limit } = real.common;
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon { suite, hash_provider, confidentiality_limit },
        hkdf_provider: real.hkdf_provider,
        aead_alg: Box::leak(Box::new(NullAead { real: real.aead_alg })),
        quic: real
            .quic
            .map(|real| -> &'static dyn rustls::quic::Algorithm { Box::leak(Box::new(NullQuic { real })) }),
    })))
}

/// Takes as many bytes of key as the real one.
struct NullAead {
    real: &'static dyn Tls13AeadAlgorithm,
}

impl Tls13AeadAlgorithm for NullAead {
    fn encrypter(&self, _key: AeadKey, _iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(NullRecords)
    }

    fn decrypter(&self, _key: AeadKey, _iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(NullRecords)
    }

    fn key_len(&self) -> usize {
        self.real.key_len()
    }

    fn extract_keys(
        &self,
        _key: AeadKey,
        _iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

/// Records in either direction.
struct NullRecords;

impl MessageEncrypter for NullRecords {
    fn encrypt(&mut self, msg: OutboundPlainMessage<'_>, _seq: u64) -> Result<OutboundOpaqueMessage, Error> {
        let mut payload = PrefixedPayload::with_capacity(self.encrypted_payload_len(msg.payload.len()));
        payload.extend_from_chunks(&msg.payload);
        payload.extend_from_slice(&[u8::from(msg.typ)]);
        payload.extend_from_slice(&TAG);
        Ok(OutboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, payload))
    }

    /// The content's type comes before the tag (RFC 8446, section 5.2).
    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + 1 + TAG_LEN
    }
}

impl MessageDecrypter for NullRecords {
    fn decrypt<'a>(
        &mut self,
        mut msg: InboundOpaqueMessage<'a>,
        _seq: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let len = opened_len(&msg.payload).ok_or(Error::DecryptError)?;
        msg.payload.truncate(len);
        msg.into_tls13_unpadded_message()
    }
}
