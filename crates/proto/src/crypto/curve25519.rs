//! X25519 keys for the ntor handshakes (RFC 7748).

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use heddle_seam::rng::Rng;

/// An X25519 key pair: a relay's onion key, or one end's ephemeral key.
///
/// The secret is kept parsed, because parsing it costs a scalar multiplication.
pub struct NtorKeypair {
    private: PrivateKey,
    secret: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl NtorKeypair {
    /// The pair of a secret key of 32 bytes, clamped or not.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        let private =
            PrivateKey::from_private_key(&X25519, secret).expect("any 32 bytes are an X25519 secret");
        let mut public = [0; 32];
        public.copy_from_slice(
            private.compute_public_key().expect("every X25519 secret has a public key").as_ref(),
        );
        NtorKeypair { private, secret: Zeroizing::new(*secret), public }
    }

    /// A new pair.
    pub fn generate(rng: &mut Rng) -> Self {
        Self::from_secret(&Zeroizing::new(rng.array()))
    }

    /// The public key.
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// The secret key, for keeping it on disk.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// Whether `public` is this pair's, in constant time.
    pub(super) fn is(&self, public: &[u8]) -> Choice {
        self.public.ct_eq(public)
    }

    /// The secret shared with the owner of `peer`; `None` when it is all zeros, as it is for points
    /// of small order, which both ntor handshakes refuse.
    pub(super) fn agree(&self, peer: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let shared = agree(&self.private, peer, (), |shared| {
            <[u8; 32]>::try_from(shared).map(Zeroizing::new).map_err(|_| ())
        });
        shared.ok().filter(|shared| !bool::from(shared.ct_eq(&[0; 32])))
    }
}

impl core::fmt::Debug for NtorKeypair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NtorKeypair").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> [u8; 32] {
        hex::decode(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn public_key_vector() {
        // Relay key b of proposal 332's test vectors.
        let pair = NtorKeypair::from_secret(&unhex(
            "4051daa5921cfa2a1c27b08451324919538e79e788a81b38cbed097a5dff454a",
        ));
        let public = "f8307a2bc1870b00b828bb74dbb8fd88e632a6375ab3bcd1ae706aaa8b6cdd1d";
        assert_eq!(pair.public(), &unhex(public));
    }

    #[test]
    fn small_order_points_are_refused() {
        let pair = NtorKeypair::from_secret(&[7; 32]);
        let mut one = [0; 32];
        one[0] = 1;
        assert!(pair.agree(&[0; 32]).is_none());
        assert!(pair.agree(&one).is_none());
    }
}
