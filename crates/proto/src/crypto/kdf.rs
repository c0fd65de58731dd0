//! Key derivation: KDF-TOR and the HKDF of ntor (tor-spec, "KDF-TOR" and "KDF-RFC5869").

use aws_lc_rs::hkdf;
use sha1::{Digest, Sha1};
use zeroize::Zeroizing;

const SHA1_LEN: usize = 20;

/// KDF-TOR: `SHA1(secret | 0) | SHA1(secret | 1) | …`, the first `N` bytes of it.
pub(super) fn kdf_tor<const N: usize>(secret: &[u8]) -> Zeroizing<[u8; N]> {
    const { assert!(N <= SHA1_LEN * 256, "the counter is one byte") }
    let mut out = Zeroizing::new([0; N]);
    for (counter, chunk) in (0..=u8::MAX).zip(out.chunks_mut(SHA1_LEN)) {
        let block = Sha1::new().chain_update(secret).chain_update([counter]).finalize();
        chunk.copy_from_slice(&block[..chunk.len()]);
    }
    out
}

/// HKDF with SHA-256 (RFC 5869): the first `N` bytes for `secret` under `salt` and `info`.
pub(super) fn hkdf_sha256<const N: usize>(salt: &[u8], secret: &[u8], info: &[u8]) -> Zeroizing<[u8; N]> {
    const { assert!(N <= 32 * 255, "RFC 5869 ends after 255 blocks") }
    let mut out = Zeroizing::new([0; N]);
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[info], OutputLen(N))
        .and_then(|key| key.fill(&mut out[..]))
        .expect("the length was checked when this was compiled");
    out
}

struct OutputLen(usize);

impl hkdf::KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kdf_tor_vectors() {
        // From C Tor's test_crypto.c.
        let vectors = [
            (
                "",
                "5ba93c9db0cff93f52b521d7420e43f6eda2784fbf8b4530d8\
                 d246dd74ac53a13471bba17941dff7c4ea21bb365bbeeaf5f2\
                 c654883e56d11e43c44e9842926af7ca0a8cca12604f945414\
                 f07b01e13da42c6cf1de3abfdea9b95f34687cbbe92b9a7383",
            ),
            (
                "Tor",
                "776c6214fc647aaa5f683c737ee66ec44f03d0372e1cce6922\
                 7950f236ddf1e329a7ce7c227903303f525a8c6662426e8034\
                 870642a6dabbd41b5d97ec9bf2312ea729992f48f8ea2d0ba8\
                 3f45dfda1a80bdc8b80de01b23e3e0ffae099b3e4ccf28dc28",
            ),
        ];
        for (secret, expected) in vectors {
            assert_eq!(hex::encode(*kdf_tor::<100>(secret.as_bytes())), expected, "{secret:?}");
        }
    }

    #[test]
    fn hkdf_vector() {
        // From C Tor's test_crypto.c, made with ntor_ref.py.
        let out = hkdf_sha256::<100>(
            b"ntor-curve25519-sha256-1:key_extract",
            b"Tor",
            b"ntor-curve25519-sha256-1:key_expand",
        );
        assert_eq!(
            hex::encode(*out),
            "5521492a85139a8d9107a2d5c0d9c91610d0f95989975ebee6\
             c02a4f8d622a6cfdf9b7c7edd3832e2760ded1eac309b76f8d\
             66c4a3c4d6225429b3a016e3c3d45911152fc87bc2de9630c3\
             961be9fdb9f93197ea8e5977180801926d3321fa21513e59ac"
        );
    }
}
