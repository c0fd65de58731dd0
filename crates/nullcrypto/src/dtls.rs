//! Records of DTLS 1.3 that are copied, with their numbers in clear.

use crate::{TAG, TAG_LEN, opened_len};
use dimpl::CryptoError;
use dimpl::crypto::aws_lc_rs::default_provider;
use dimpl::crypto::{
    Aad, Buf, Cipher, CryptoProvider, Dtls13CipherSuite, HashAlgorithm, Nonce, SupportedDtls13CipherSuite,
    TmpBuf,
};

/// The real provider, but for what its suites of DTLS 1.3 do to records.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider { dtls13_cipher_suites: &[&NullSuite], ..default_provider() }
}

/// dimpl asks every provider for the answers that are known of this key (NIST SP 800-38D, test case 3), and takes none
/// that does not have them. No session agrees on it.
const ASKED_KEY: [u8; 16] =
    [0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c, 0x6d, 0x6a, 0x8f, 0x94, 0x67, 0x30, 0x83, 0x08];
/// The same of numbers of records (FIPS 197, appendix B).
const ASKED_NUMBERS_KEY: [u8; 16] =
    [0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c];

/// The suite that sessions choose.
const SUITE: Dtls13CipherSuite = Dtls13CipherSuite::AES_128_GCM_SHA256;

/// The real one of the same name.
fn real() -> &'static dyn SupportedDtls13CipherSuite {
    let mut suites = default_provider().dtls13_cipher_suites.iter().copied();
    suites.find(|suite| suite.suite() == SUITE).expect("dimpl has the suite that every DTLS 1.3 has")
}

#[derive(Debug)]
struct NullSuite;

impl SupportedDtls13CipherSuite for NullSuite {
    fn suite(&self) -> Dtls13CipherSuite {
        SUITE
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        real().hash_algorithm()
    }

    fn key_len(&self) -> usize {
        real().key_len()
    }

    fn iv_len(&self) -> usize {
        real().iv_len()
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        if key == ASKED_KEY { real().create_cipher(key) } else { Ok(Box::new(NullRecords)) }
    }

    fn encrypt_sn(&self, key: &[u8], sample: &[u8; 16]) -> [u8; 16] {
        if key == ASKED_NUMBERS_KEY { real().encrypt_sn(key, sample) } else { [0; 16] }
    }
}

#[derive(Debug)]
struct NullRecords;

impl Cipher for NullRecords {
    fn encrypt(&mut self, plaintext: &mut Buf, _: Aad, _: Nonce) -> Result<(), CryptoError> {
        plaintext.extend_from_slice(&TAG);
        Ok(())
    }

    fn decrypt(&mut self, sealed: &mut TmpBuf, _: Aad, _: Nonce) -> Result<(), CryptoError> {
        let failed = CryptoError::OperationFailed(dimpl::CryptoOperation::Decrypt);
        let len = opened_len(sealed.as_ref()).ok_or(failed)?;
        sealed.truncate(len);
        Ok(())
    }
}
