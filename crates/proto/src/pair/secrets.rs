//! What both ends of a TLS channel derive from it for connections of the pair.
//!
//! ```text
//!   context = SHA-256(SHA-256(initiator's offer) || SHA-256(responder's offer))
//!   master  = TLS exporter, label "EXPORTER-heddle-pair-1", this context, 32 bytes   (RFC 8446, section 7.5)
//!   token   = HMAC-SHA-256(master, "token"          || transport || slot), its first 20 bytes
//!   proofs  = HMAC-SHA-256(master, "dialler proof"  || transport || slot || dialler's key || listener's key)
//!             HMAC-SHA-256(master, "listener proof" || transport || slot || dialler's key || listener's key)
//! ```
//!
//! The transport is one byte, the slot eight, big-endian. No label is the beginning of another, so no two inputs are
//! the same. The initiator of the channel is the one who dials over it.
//!
//! Whoever strips, replays or edits an offer on its way makes the two ends derive different keys; so does whoever
//! ends TLS in the middle, because each of its two sessions has an exporter of its own.

use super::offer::OfferDigest;
use crate::endpoint::PairSecrets;
use crate::transport::TransportId;
use aws_lc_rs::{digest, hmac};
use core::fmt;
use zeroize::{Zeroize, Zeroizing};

const EXPORTER_LABEL: &[u8] = b"EXPORTER-heddle-pair-1";

/// Which connection secrets are for: one try to make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    pub transport: TransportId,
    /// Periods of 30 seconds since both offers were known. There is one try in each.
    pub slot: u64,
    /// Digests of the offers, that of the channel's initiator first.
    pub offers: [OfferDigest; 2],
    /// The keys that the offers name, that of the channel's initiator, who dials, first.
    pub keys: [[u8; 32]; 2],
}

/// The secrets of one try. `export` fills its last argument from the channel's exporter for a label and a context, and
/// says whether it could; there are no secrets when it could not.
pub fn pair_secrets(
    export: impl FnOnce(&[u8], &[u8], &mut [u8]) -> bool,
    purpose: &Purpose,
) -> Option<PairSecrets> {
    let context = context(&purpose.offers);
    let mut master = Zeroizing::new([0; 32]);
    if !export(EXPORTER_LABEL, &context, &mut master[..]) {
        return None;
    }
    let master = hmac::Key::new(hmac::HMAC_SHA256, &master[..]);
    let derive = |label: &[u8], keys: &[[u8; 32]]| {
        let mut context = hmac::Context::with_key(&master);
        context.update(label);
        context.update(&[purpose.transport.0]);
        context.update(&purpose.slot.to_be_bytes());
        keys.iter().for_each(|key| context.update(key));
        let mut out = Zeroizing::new([0; 32]);
        out.copy_from_slice(context.sign().as_ref());
        out
    };
    let mut full = derive(b"token", &[]);
    let mut token = [0; 20];
    token.copy_from_slice(&full[..20]);
    full.zeroize();
    Some(PairSecrets {
        token,
        dialler_proof: derive(b"dialler proof", &purpose.keys),
        listener_proof: derive(b"listener proof", &purpose.keys),
    })
}

/// What the secrets of a pair's further connections are derived from, where a transport has several:
///
/// ```text
///   further        = HMAC-SHA-256(dialler proof || listener proof, "further")
///   token          = HMAC-SHA-256(further, "token"          || number), its first 20 bytes
///   dialler proof  = HMAC-SHA-256(further, "dialler proof"  || number)
///   listener proof = HMAC-SHA-256(further, "listener proof" || number)
/// ```
///
/// The number is four bytes. Only the two ends ever knew the first connection's proofs, which went to and fro under its
/// encryption; so a further connection is as well vouched for as the first.
pub struct FurtherSecrets(Zeroizing<[u8; 32]>);

impl FurtherSecrets {
    pub fn of(first: &PairSecrets) -> Self {
        let mut proofs = Zeroizing::new([0; 64]);
        proofs[..32].copy_from_slice(&first.dialler_proof[..]);
        proofs[32..].copy_from_slice(&first.listener_proof[..]);
        FurtherSecrets(mac(&proofs[..], &[b"further"]))
    }

    /// Those of one connection. Each number is for one.
    pub fn nth(&self, number: u32) -> PairSecrets {
        let derive = |label: &[u8]| mac(&self.0[..], &[label, &number.to_be_bytes()]);
        let mut token = [0; 20];
        token.copy_from_slice(&derive(b"token")[..20]);
        PairSecrets {
            token,
            dialler_proof: derive(b"dialler proof"),
            listener_proof: derive(b"listener proof"),
        }
    }
}

impl fmt::Debug for FurtherSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FurtherSecrets")
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    let mut out = Zeroizing::new([0; 32]);
    out.copy_from_slice(context.sign().as_ref());
    out
}

fn context(offers: &[OfferDigest; 2]) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    offers.iter().for_each(|offer| hash.update(&offer.0));
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hash.finish().as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::hmac::{Hmac, Mac};
    use sha2::{Digest, Sha256};

    /// A channel's exporter: a MAC under a secret of both ends.
    fn export(session: u8) -> impl FnOnce(&[u8], &[u8], &mut [u8]) -> bool {
        move |label, context, out| {
            out.copy_from_slice(&mac(&[session; 32], &[label, context]));
            true
        }
    }

    fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    fn purpose() -> Purpose {
        Purpose {
            transport: TransportId(1),
            slot: 0x0102,
            offers: [OfferDigest::of(b"initiator's"), OfferDigest::of(b"responder's")],
            keys: [[3; 32], [4; 32]],
        }
    }

    fn all(secrets: &PairSecrets) -> [Vec<u8>; 3] {
        [secrets.token.to_vec(), secrets.dialler_proof.to_vec(), secrets.listener_proof.to_vec()]
    }

    #[test]
    fn the_derivation_is_that_of_the_documentation() {
        // Written once more over RustCrypto.
        let digests = [Sha256::digest(b"initiator's"), Sha256::digest(b"responder's")].concat();
        let context = Sha256::digest(&digests);
        let master = mac(&[9; 32], &[b"EXPORTER-heddle-pair-1", &context]);
        let slot = [0, 0, 0, 0, 0, 0, 1, 2];
        let proof = |label| mac(&master, &[label, &[1], &slot, &[3; 32], &[4; 32]]).to_vec();
        let token = mac(&master, &[b"token", &[1], &slot])[..20].to_vec();
        let secrets = pair_secrets(export(9), &purpose()).expect("there is an exporter");
        assert_eq!(all(&secrets), [token, proof(b"dialler proof"), proof(b"listener proof")]);
    }

    #[test]
    fn whatever_differs_makes_other_secrets() {
        let base = purpose();
        let [first, second] = base.offers;
        let others = [
            (8, base),
            (9, Purpose { transport: TransportId(2), ..base }),
            (9, Purpose { slot: base.slot + 1, ..base }),
            (9, Purpose { offers: [second, first], ..base }),
            (9, Purpose { offers: [first, OfferDigest::of(b"edited")], ..base }),
        ];
        let secrets = all(&pair_secrets(export(9), &base).expect("there is an exporter"));
        for (session, other) in others {
            let theirs = all(&pair_secrets(export(session), &other).expect("there is an exporter"));
            for (ours, theirs) in secrets.iter().zip(&theirs) {
                assert_ne!(ours, theirs, "{other:?}");
            }
        }
        let swapped = Purpose { keys: [base.keys[1], base.keys[0]], ..base };
        let theirs = all(&pair_secrets(export(9), &swapped).expect("there is an exporter"));
        assert_eq!(secrets[0], theirs[0]);
        assert_ne!(secrets[1..], theirs[1..]);
    }

    #[test]
    fn further_ones_follow_from_the_first_as_documented() {
        let first = pair_secrets(export(9), &purpose()).expect("there is an exporter");
        let proofs = [&first.dialler_proof[..], &first.listener_proof[..]].concat();
        let further = mac(&proofs, &[b"further"]);
        let derived = |label| mac(&further, &[label, &[0, 0, 1, 2]]).to_vec();
        let secrets = FurtherSecrets::of(&first).nth(0x0102);
        let token = derived(b"token")[..20].to_vec();
        assert_eq!(all(&secrets), [token, derived(b"dialler proof"), derived(b"listener proof")]);
    }

    #[test]
    fn there_are_none_without_an_exporter() {
        assert!(pair_secrets(|_, _, _| false, &purpose()).is_none());
    }
}
