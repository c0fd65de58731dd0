//! The keys of a pair's associations: derived from what the pair's TLS channel exported, for each direction a chain of
//! generations.
//!
//! ```text
//!   root         = HMAC-SHA-256(dialler proof || listener proof, "heddle tcp-esp 1")
//!   secret 0     = HMAC-SHA-256(root, "to the listener" or "to the dialler")
//!   secret n + 1 = HMAC-SHA-256(secret n, "next")
//!   SPI n        = HMAC-SHA-256(secret n, "spi"), its first 4 bytes; 256 more if it is a reserved one
//!   keys n       = HMAC-SHA-256(secret n, "keys"), its first 20 bytes: the key of AES-128, and the salt
//! ```
//!
//! So keys change without a message. A sender goes on to the next generation when the lifetime of its association runs
//! short. A receiver takes the generation in use and the next one, and knows by the first packet of that one that it is
//! in use. Secrets of past generations are wiped.

use aws_lc_rs::hmac;
use heddle_esp::keys::KEY_MATERIAL_LEN;
use heddle_esp::{Keys, Spi};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::PairSecrets;
use zeroize::Zeroizing;

const SECRET_LEN: usize = 32;
/// What makes a reserved SPI another one.
const UNRESERVED: u32 = 0x100;

type Secret = Zeroizing<[u8; SECRET_LEN]>;

/// What both directions come of.
pub(super) struct Root(Secret);

impl Root {
    pub(super) fn new(secrets: &PairSecrets) -> Self {
        let proofs =
            Zeroizing::new([secrets.dialler_proof.as_slice(), secrets.listener_proof.as_slice()].concat());
        Root(derive(&proofs, b"heddle tcp-esp 1"))
    }

    /// The chain of what goes to this end.
    pub(super) fn chain_to(&self, end: Role) -> Chain {
        let label: &[u8] = if end == Role::Responder { b"to the listener" } else { b"to the dialler" };
        Chain(derive(&self.0[..], label))
    }

    /// What proofs are about, so that they are of this connection.
    pub(super) fn binding(&self) -> Secret {
        derive(&self.0[..], b"proof")
    }
}

/// The generations of one direction.
pub(super) struct Chain(Secret);

impl Chain {
    /// The association of this generation, and on to the next one.
    pub(super) fn next(&mut self) -> (Spi, Keys) {
        let number = derive(&self.0[..], b"spi");
        let number = u32::from_be_bytes([number[0], number[1], number[2], number[3]]);
        let spi = Spi::new(number).or(Spi::new(number | UNRESERVED));
        let keys = derive(&self.0[..], b"keys");
        let mut material = Zeroizing::new([0; KEY_MATERIAL_LEN]);
        material.copy_from_slice(&keys[..KEY_MATERIAL_LEN]);
        self.0 = derive(&self.0[..], b"next");
        (spi.expect("none from 256 on is reserved"), Keys::from_material(&material))
    }
}

fn derive(key: &[u8], label: &[u8]) -> Secret {
    let mut secret = Zeroizing::new([0; SECRET_LEN]);
    secret.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), label).as_ref());
    secret
}
