//! The keys that the handshakes of circuits are about.

use super::NtorKeypair;

/// The keys with which a relay answers onionskins.
pub struct OnionKeys {
    /// SHA-1 of the RSA identity key; what ntor calls the relay by.
    pub rsa_id: [u8; 20],
    /// The Ed25519 identity key; what ntor-v3 calls the relay by.
    pub ed25519_id: [u8; 32],
    /// The onion key in the relay's newest descriptor.
    pub ntor_current: NtorKeypair,
    /// The onion key before that, for clients whose directory is older.
    pub ntor_previous: Option<NtorKeypair>,
}

impl OnionKeys {
    /// The onion key that the client means by `public`.
    pub(super) fn find_ntor(&self, public: &[u8]) -> Option<&NtorKeypair> {
        [Some(&self.ntor_current), self.ntor_previous.as_ref()]
            .into_iter()
            .flatten()
            .find(|key| key.is(public).into())
    }
}
