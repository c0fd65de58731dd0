//! How the two relays of a pair prove in a connection of theirs who they are, for transports in which nothing else
//! shows it: by the secrets that their TLS channel gave them, and by the keys that their offers named there.
//!
//! ```text
//!   proof     = MAC (32) || signature (64) || how many flows the reader may have open at once, of those it opens (4)
//!   subject   = "heddle TRANSPORT VERSION " || ("dialler" or "listener", the prover) || dialler || listener
//!               || connection
//!   MAC       = HMAC-SHA-256(the prover's proof of the pair, subject)
//!   signature = Ed25519(the key of the prover's offer, subject)
//! ```
//!
//! - The dialler and the listener stand there by what they showed each other in the connection: a certificate's
//!   fingerprint, or the key of the offer itself. Whoever stands in the middle shows something else on either side, and
//!   has no key to say so.
//! - `connection` is what else says which one it is, if what the two showed does not.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use core::fmt;
use heddle_proto::channel::Role;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of a key, of a secret, and of a fingerprint.
pub(crate) const KEY_LEN: usize = 32;
/// Bytes of an Ed25519 signature.
const SIGNATURE_LEN: usize = 64;
const MAC_LEN: usize = 32;
/// Bytes of a proof.
pub(crate) const PROOF_LEN: usize = MAC_LEN + SIGNATURE_LEN + 4;

/// Whose connection it is. What is derived and proved in it names this, so that nothing that was shown for one
/// transport is good for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    /// The transport's name.
    pub(crate) transport: &'static str,
    /// Counts formats that do not know one another.
    pub(crate) version: u8,
}

/// The key that our offers name.
#[derive(Clone)]
pub(crate) struct OfferKey {
    protocol: Protocol,
    signer: Arc<Ed25519KeyPair>,
    public: [u8; KEY_LEN],
}

impl OfferKey {
    /// The key of a seed (RFC 8032, section 5.1.5). Every seed makes one.
    pub(crate) fn new(protocol: Protocol, secret: &Zeroizing<[u8; KEY_LEN]>) -> Result<Self, Unspecified> {
        let signer = Ed25519KeyPair::from_seed_unchecked(&secret[..])?;
        let public = <[u8; KEY_LEN]>::try_from(signer.public_key().as_ref()).map_err(|_| Unspecified)?;
        Ok(OfferKey { protocol, signer: Arc::new(signer), public })
    }

    pub(crate) fn public(&self) -> [u8; KEY_LEN] {
        self.public
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        let mut signature = [0; SIGNATURE_LEN];
        signature.copy_from_slice(self.signer.sign(message).as_ref());
        signature
    }
}

impl fmt::Debug for OfferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfferKey(..)")
    }
}

/// Whether the key of an offer made a signature.
fn is_signed(key: &[u8; KEY_LEN], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// What a peer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof<'a> {
    mac: &'a [u8; MAC_LEN],
    signature: &'a [u8; SIGNATURE_LEN],
    pub(crate) flows_max: u32,
}

impl<'a> Proof<'a> {
    /// Reads a proof, and tells what is behind it; `None` if it is not all here.
    pub(crate) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (mac, rest) = bytes.split_first_chunk()?;
        let (signature, rest) = rest.split_first_chunk()?;
        let (flows, rest) = rest.split_first_chunk()?;
        Some((Proof { mac, signature, flows_max: u32::from_be_bytes(*flows) }, rest))
    }
}

/// What both proofs of a connection are made with.
pub(crate) struct Proofs {
    pub(crate) role: Role,
    pub(crate) our_key: OfferKey,
    /// What we show in the connection.
    pub(crate) shown: [u8; KEY_LEN],
    /// The key of the peer's offer.
    pub(crate) peer_key: [u8; KEY_LEN],
    /// Keys of the MACs, from the TLS channel's exporter: the dialler's and the listener's.
    pub(crate) secrets: [Zeroizing<[u8; KEY_LEN]>; 2],
    /// What else says which connection it is.
    pub(crate) connection: Zeroizing<Vec<u8>>,
}

impl Proofs {
    /// Appends our proof to a peer that showed `theirs`.
    pub(crate) fn write(&self, theirs: &[u8; KEY_LEN], flows_max: u32, out: &mut Vec<u8>) {
        let subject = self.subject(self.role, theirs);
        out.extend_from_slice(&mac(self.secret(self.role), &subject));
        out.extend_from_slice(&self.our_key.sign(&subject));
        out.extend_from_slice(&flows_max.to_be_bytes());
    }

    /// Whether the peer that showed `theirs` is whom the channel vouched for.
    pub(crate) fn is_right(&self, theirs: &[u8; KEY_LEN], proof: &Proof<'_>) -> bool {
        let prover = self.role.other();
        let subject = self.subject(prover, theirs);
        let has_secret = bool::from(mac(self.secret(prover), &subject).ct_eq(&proof.mac[..]));
        has_secret && is_signed(&self.peer_key, &subject, proof.signature)
    }

    fn secret(&self, prover: Role) -> &Zeroizing<[u8; KEY_LEN]> {
        &self.secrets[usize::from(prover == Role::Responder)]
    }

    /// What `prover` speaks about.
    fn subject(&self, prover: Role, theirs: &[u8; KEY_LEN]) -> Zeroizing<Vec<u8>> {
        let label: &[u8] = if prover == Role::Initiator { b"dialler" } else { b"listener" };
        let [dialler, listener] = match self.role {
            Role::Initiator => [&self.shown, theirs],
            Role::Responder => [theirs, &self.shown],
        };
        let Protocol { transport, version } = self.our_key.protocol;
        let protocol = format!("heddle {transport} {version} ");
        Zeroizing::new([protocol.as_bytes(), label, dialler, listener, &self.connection[..]].concat())
    }
}

fn mac(secret: &Zeroizing<[u8; KEY_LEN]>, subject: &[u8]) -> [u8; MAC_LEN] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret[..]), subject);
    let mut bytes = [0; MAC_LEN];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol = Protocol { transport: "tcp-dtls", version: 3 };

    /// One side: its number, which its key and what it shows come of, its peer's, the secrets' and the connection's.
    #[derive(Clone, Copy)]
    struct Side {
        role: Role,
        protocol: Protocol,
        ours: u8,
        theirs: u8,
        secrets: u8,
        connection: u8,
    }

    fn key(protocol: Protocol, number: u8) -> OfferKey {
        OfferKey::new(protocol, &Zeroizing::new([number; KEY_LEN])).expect("every seed makes one")
    }

    impl Side {
        fn proofs(self) -> Proofs {
            let secret = |number| Zeroizing::new([number; KEY_LEN]);
            Proofs {
                role: self.role,
                our_key: key(self.protocol, self.ours),
                shown: [self.ours; KEY_LEN],
                peer_key: key(self.protocol, self.theirs).public(),
                secrets: [secret(self.secrets), secret(self.secrets + 1)],
                connection: Zeroizing::new(vec![self.connection]),
            }
        }

        fn write(self) -> Vec<u8> {
            let mut bytes = Vec::new();
            self.proofs().write(&[self.theirs; KEY_LEN], 7, &mut bytes);
            bytes
        }

        fn believes(self, bytes: &[u8]) -> bool {
            let (proof, rest) = Proof::split(bytes).expect("a proof");
            assert!(rest.is_empty());
            self.proofs().is_right(&[self.theirs; KEY_LEN], &proof)
        }
    }

    const DIALLER: Side =
        Side { role: Role::Initiator, protocol: PROTOCOL, ours: 1, theirs: 2, secrets: 8, connection: 5 };
    const LISTENER: Side = Side { role: Role::Responder, ours: 2, theirs: 1, ..DIALLER };

    #[test]
    fn each_side_believes_the_others_proof_and_no_other() {
        let from_dialler = DIALLER.write();
        assert_eq!(from_dialler.len(), PROOF_LEN);
        assert!((0..PROOF_LEN).all(|len| Proof::split(&from_dialler[..len]).is_none()));
        assert!(LISTENER.believes(&from_dialler) && DIALLER.believes(&LISTENER.write()));
        assert_eq!(Proof::split(&from_dialler).map(|(proof, _)| proof.flows_max), Some(7));
        assert!(!DIALLER.believes(&from_dialler), "reflected");
        let others = [
            Side { ours: 3, ..DIALLER },
            Side { theirs: 3, ..DIALLER },
            Side { secrets: 7, ..DIALLER },
            Side { connection: 6, ..DIALLER },
            Side { protocol: Protocol { transport: "sctp-dtls", ..PROTOCOL }, ..DIALLER },
            Side { protocol: Protocol { version: 4, ..PROTOCOL }, ..DIALLER },
        ];
        for (number, other) in others.into_iter().enumerate() {
            assert!(!LISTENER.believes(&other.write()), "{number}");
        }
        for bit in (0..8 * (MAC_LEN + SIGNATURE_LEN)).step_by(31) {
            let mut bent = from_dialler.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!LISTENER.believes(&bent), "bit {bit}");
        }
    }

    /// The bytes of the wire formats (`docs/reference/tcp-dtls.md`, `docs/reference/tcp-esp.md`).
    #[test]
    fn a_proof_is_about_the_protocol_the_prover_both_sides_and_the_connection() {
        let (ours, theirs) = ([1; KEY_LEN], [2; KEY_LEN]);
        let subject = [&b"heddle tcp-dtls 3 dialler"[..], &ours, &theirs, &[5]].concat();
        assert_eq!(DIALLER.proofs().subject(Role::Initiator, &theirs)[..], subject);
        let subject = [&b"heddle tcp-dtls 3 listener"[..], &ours, &theirs, &[5]].concat();
        assert_eq!(LISTENER.proofs().subject(Role::Responder, &ours)[..], subject);
    }

    #[test]
    fn the_key_of_an_offer_signs() {
        let (ours, other) = (key(PROTOCOL, 4), key(PROTOCOL, 5));
        let signature = ours.sign(b"message");
        assert!(is_signed(&ours.public(), b"message", &signature));
        assert!(!is_signed(&ours.public(), b"massage", &signature));
        assert!(!is_signed(&other.public(), b"message", &signature));
    }
}
